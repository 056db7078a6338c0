
_tidewaiter_names() {
    local names
    # The program prints only names without characters that mean something to the shell.
    names=($("$1" complete "${COMP_WORDS[@]:0:COMP_CWORD}" "$2" 2>/dev/null))
    if [[ ${#names[@]} -gt 0 ]]; then
        COMPREPLY=("${names[@]}")
    else
        _tidewaiter "$@"
    fi
}
complete -F _tidewaiter_names -o bashdefault -o default tidewaiter
