
# Completes the names that the program knows, else files. _arguments has changed $words; `typed` is as it was before.
_tidewaiter_names() {
    local -a names
    # The program prints only names without characters that mean something to the shell. $IPREFIX is that of --flag=.
    names=(${(f)"$(command "${${(Q)typed[1]}/#\~\//$HOME/}" complete "${(@Q)typed[1,-2]}" "$IPREFIX" 2>/dev/null)"})
    if (( $#names )); then
        compadd "$@" -a names
    else
        _default "$@"
    fi
}
