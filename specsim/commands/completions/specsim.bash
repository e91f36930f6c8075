# Completion of specsim in bash: eval "$(specsim completion bash)"
_specsim() {
    local IFS=$'\n'
    COMPREPLY=($("${1/#\~/$HOME}" completion bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _specsim specsim
