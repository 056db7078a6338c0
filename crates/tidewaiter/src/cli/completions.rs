//! The completion scripts of the shells: those of clap, which in bash, fish and zsh also complete the names that
//! `tidewaiter complete` prints.

use clap_complete::Shell;

use super::Cli;

/// The end of a flag in clap's script for fish whose values clap does not know, and with the names that are its values.
const FISH_VALUE: &str = " -r\n";
const FISH_NAMES: &str = " -r -a '(__tidewaiter_has_names; string join \\n $__tidewaiter_names)'\n";

/// The start of clap's function for zsh, and with a copy of the words, which `_arguments` changes.
const ZSH_START: &str = "\n_tidewaiter() {\n";
const ZSH_WORDS: &str = "\n_tidewaiter() {\n    local -a typed=(\"${(@)words[1,CURRENT]}\")\n";

/// The action of clap's script for zsh for values that clap does not know, and the one for names.
const ZSH_VALUE: &str = ":_default'";
const ZSH_NAMES: &str = ":_tidewaiter_names'";

/// The script of the shell.
pub(crate) fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::complete_command(), "tidewaiter", &mut script);
    let script = String::from_utf8_lossy(&script);
    match shell {
        Shell::Bash => format!("{script}{}", include_str!("completion.bash")),
        Shell::Fish => {
            let script = script.replace(FISH_VALUE, FISH_NAMES);
            format!("{script}{}", include_str!("completion.fish"))
        }
        Shell::Zsh => {
            // The first line tells zsh what the file completes. The last lines call the function, which needs ours.
            let (first, rest) = script.split_once('\n').unwrap_or_default();
            let rest = rest.replacen(ZSH_START, ZSH_WORDS, 1).replace(ZSH_VALUE, ZSH_NAMES);
            format!("{first}\n{}{rest}", include_str!("completion.zsh"))
        }
        _ => script.into_owned(),
    }
}
