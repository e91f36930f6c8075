# Completion of specsim in zsh, after compinit: eval "$(specsim completion zsh)"
_specsim() {
    local -a found
    found=("${(@f)$(${~${(Q)words[1]}} completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -S '' -- ${(M)found:#*[=./]}
    compadd -- ${found:#*[=./]}
}
compdef _specsim specsim
