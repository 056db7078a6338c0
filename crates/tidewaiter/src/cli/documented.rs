//! Every command of the documents is one: its words, its options and their values.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;

use super::Cli;

/// The pages that users and operators read. That for developers has commands that they add.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let developing = |path: &PathBuf| path.ends_with("developing.md");
    let docs = fs::read_dir(root.join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let pages = docs.chain([root.join("README.md")]).filter(|path| !developing(path));
    let markdown = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    markdown
        .map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// The commands of a page in blocks and in text, each with whether it is complete: it can be typed as it stands.
fn commands(page: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for (number, part) in page.split("```").enumerate() {
        if number % 2 == 1 {
            let lines = part.replace("\\\n", " ");
            found.extend(lines.lines().filter_map(typed).map(|line| (line, true)));
        } else {
            let spans = part.split('`').skip(1).step_by(2);
            found.extend(spans.filter_map(typed).map(|line| (line, false)));
        }
    }
    found
}

/// The command of a line, up to what the shell reads.
fn typed(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches("$ ");
    let words = line.split_whitespace().skip_while(|word| {
        // Variables for the command alone.
        word.split_once('=')
            .is_some_and(|(name, _)| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
            || ["sudo", "exec"].contains(word)
    });
    let shell = |word: &&str| !word.starts_with(['|', '&', '>', '<', ';', '\\', '#', '$']);
    let mut words: Vec<&str> = words.take_while(shell).collect();
    if let Some(end) = words.iter().position(|word| word.ends_with(';')) {
        words.truncate(end + 1);
    }
    let command = words.join(" ");
    command
        .starts_with("tidewaiter ")
        .then(|| command.trim_end_matches(';').to_owned())
}

/// Returns the error of the command line; a name in capitals is a placeholder for a value of the reader.
fn refusal(command: &str, is_complete: bool) -> Option<clap::Error> {
    // `list|add` names both.
    if let Some(words) = command.split(' ').find(|word| word.contains('|')) {
        let each = words.split('|').map(|word| command.replace(words, word));
        return each.into_iter().find_map(|command| refusal(&command, is_complete));
    }
    let words = command.split(' ').map(|word| word.trim_matches(['"', '\'']));
    let error = Cli::try_parse_from(words).err()?;
    let is_name = |word: &str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let is_permitted = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            true
        }
        // A sentence may name only a part of a command.
        ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand | ErrorKind::InvalidValue => !is_complete,
        ErrorKind::ValueValidation => command.split(' ').any(is_name),
        _ => false,
    };
    (!is_permitted).then_some(error)
}

/// The error of a complete command line.
pub(super) fn refused(line: &str) -> Option<String> {
    let command = typed(line)?;
    refusal(&command, true).map(|error| format!("{line}: {error}"))
}

#[test]
fn every_command_of_the_documents_is_one() {
    let (mut number, mut wrong) = (0, Vec::new());
    for (path, page) in pages() {
        for (command, is_complete) in commands(&page) {
            number += 1;
            let refusal = refusal(&command, is_complete);
            wrong.extend(refusal.map(|error| format!("{path}: {command}\n  {error}")));
        }
    }
    assert!(number > 100, "only {number} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
