
_tidewaiter_names() {
    local IFS=$' \t\n' last names prefix words
    # COMP_WORDS is split at each @, : and =, too. A completion replaces only $2, the end of the last word.
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}."
    last=${words[${#words[@]} - 1]%.}
    last=${last#[\"\']}
    prefix=${last%"$2"}
    prefix=${prefix#--*=}
    # The program prints only names without characters that mean something to the shell.
    names=($("$1" complete "${words[@]:0:${#words[@]}-1}" "$last" 2>/dev/null))
    if [[ ${#names[@]} -gt 0 ]]; then
        COMPREPLY=("${names[@]#"$prefix"}")
    else
        _tidewaiter "$@"
    fi
}
complete -F _tidewaiter_names -o bashdefault -o default tidewaiter
