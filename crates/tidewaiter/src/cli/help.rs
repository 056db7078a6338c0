//! The help that clap does not make of the definitions: the commands in groups, and examples.

use std::fmt::Write as _;

use clap::Command;

/// The headings, and the commands below them.
type Groups = [(&'static str, &'static [&'static str])];

const COMMANDS: &Groups = &[
    ("Clusters", &["validate", "explain", "release", "plugin", "upgrade"]),
    ("Cloud", &["cloud", "credential"]),
    ("Roles in a cluster", &["controller", "coordinator", "agent", "host"]),
    ("Other commands", &["version", "crds", "completions"]),
];

const CLOUD_COMMANDS: &Groups = &[
    ("Login", &["login", "logout", "whoami", "context"]),
    (
        "Objects",
        &[
            "get", "describe", "create", "attach", "apply", "diff", "edit", "delete", "assign", "unassign", "release",
            "approve", "audit",
        ],
    ),
    (
        "Access",
        &[
            "set-role",
            "set-password",
            "end-logins",
            "invite",
            "invitations",
            "accept",
            "offboard",
            "tokens",
            "api-keys",
            "operators",
            "lock",
            "unlock",
        ],
    ),
    ("Catalogue of plugins", &["catalogue", "sign"]),
    (
        "Upgrades",
        &[
            "set-script",
            "script-templates",
            "sign-script",
            "pause-upgrade",
            "resume-upgrade",
            "abort-upgrade",
        ],
    ),
    (
        "Server (on its machine)",
        &["init", "serve", "backup", "restore", "recover", "keys"],
    ),
];

/// Examples of every command. A line that begins with a space continues the one before.
const EXAMPLES: &str = include_str!("examples.txt");

/// What ends the first clause of a description, which is all that a list of commands shows.
const ENDS: [&str; 6] = [": ", "; ", " (", ", and ", ", such as ", " from which "];

/// The command with its groups and examples.
pub(super) fn complete(command: Command) -> Command {
    let command = grouped(with_examples(command, "tidewaiter"), COMMANDS);
    command.mut_subcommand("cloud", |cloud| grouped(cloud, CLOUD_COMMANDS))
}

/// The command whose help shows its subcommands in groups.
fn grouped(command: Command, groups: &Groups) -> Command {
    let header = *command.get_styles().get_header();
    let literal = *command.get_styles().get_literal();
    let names = groups.iter().flat_map(|(_, names)| names.iter());
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut lists = String::new();
    for (title, names) in groups {
        let _ = writeln!(lists, "{header}{title}:{header:#}");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let end = ENDS.iter().filter_map(|end| about.find(end)).min();
            let clause = about.get(..end.unwrap_or(about.len())).unwrap_or_default();
            let _ = writeln!(lists, "  {literal}{name:width$}{literal:#}  {clause}");
        }
        lists.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{lists}{header}Options:{header:#}\n{{options}}{{after-help}}"
    ))
}

/// The command, each of whose subcommands shows examples of itself.
fn with_examples(command: Command, path: &str) -> Command {
    if command.has_subcommands() {
        return command.mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            with_examples(below, &path)
        });
    }
    let mut is_shown = false;
    let is_of = |line: &&str| {
        // Else it continues the line before.
        if !line.starts_with(' ') {
            is_shown = format!("{line} ").starts_with(&format!("{path} "));
        }
        is_shown
    };
    let lines = EXAMPLES.lines().filter(is_of);
    let mut text: Vec<String> = lines.map(|line| format!("  {line}")).collect();
    if text.is_empty() {
        return command;
    }
    text.insert(0, "Examples:".to_owned());
    let more = command.get_after_help().map(|more| format!("\n{more}"));
    text.extend(more);
    command.after_help(text.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Cli;
    use super::*;

    fn visible(command: &Command) -> Vec<&str> {
        let mut names: Vec<&str> = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .map(Command::get_name)
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn each_command_is_in_one_group() {
        let all = Cli::command();
        let cloud = all.find_subcommand("cloud").unwrap();
        for (command, groups) in [(&all, COMMANDS), (cloud, CLOUD_COMMANDS)] {
            let mut names: Vec<&str> = groups.iter().flat_map(|(_, names)| names.iter().copied()).collect();
            names.sort_unstable();
            assert_eq!(names, visible(command));
        }
    }

    #[test]
    fn each_command_has_examples_and_each_example_is_read() {
        fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
            for name in visible(command) {
                let below = command.find_subcommand(name).unwrap();
                let path = format!("{path} {name}");
                if below.has_subcommands() {
                    leaves(below, &path, found);
                } else {
                    let help = below.get_after_help().map(ToString::to_string).unwrap_or_default();
                    assert!(help.starts_with(&format!("Examples:\n  {path}")), "{path}: {help}");
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        leaves(&complete(Cli::command()), "tidewaiter", &mut found);
        assert!(found.len() > 60, "{found:?}");
        let lines = EXAMPLES.replace("\\\n", " ");
        for line in lines.lines() {
            assert_eq!(super::super::documented::refused(line), None);
            let is_of = |path: &&String| format!("{line} ").starts_with(&format!("{path} "));
            assert_eq!(found.iter().filter(is_of).count(), 1, "{line}");
        }
    }
}
