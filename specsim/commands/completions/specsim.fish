# Completion of specsim in fish: specsim completion fish | source
function __specsim_candidates
    set -l words (commandline -opc)
    set -l typed (commandline -ct)
    set -l command $words[1]
    set -e words[1]
    $command completion fish -- $words "$typed" 2>/dev/null
end
complete -c specsim -f -a '(__specsim_candidates)'
