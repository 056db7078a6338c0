
# True if the program knows names for the word at the cursor, which are then in __tidewaiter_names. It prints only names
# without characters that mean something to the shell.
function __tidewaiter_has_names
    set -l words (commandline -opc)
    set -l program (string replace --regex '^~/' $HOME/ -- $words[1])
    set -l flag (string match --regex '^--[^=]+=' -- (commandline -ct))
    set -g __tidewaiter_names (command $program complete $words "$flag" 2>/dev/null)
    test -n "$__tidewaiter_names"
end
complete -c tidewaiter -n __tidewaiter_has_names -f -a '$__tidewaiter_names'
