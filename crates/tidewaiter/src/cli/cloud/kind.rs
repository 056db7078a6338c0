//! The names of kinds on the command line. A kind has its name in the plural, other names, and the name that documents
//! give it.

use std::ffi::OsStr;
use std::fmt::Write as _;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use tidewaiter_cloud::models::Kind;

/// Names that are no kind, and have a command that lists them.
const LISTED: [&str; 6] = [
    "tokens",
    "api-keys",
    "operators",
    "script-templates",
    "catalogue",
    "invitations",
];

/// Reads a kind; its error lists all of them.
#[derive(Clone)]
pub(crate) struct KindParser;

impl TypedValueParser for KindParser {
    type Value = Kind;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Kind, Error> {
        kind_of(value).ok_or_else(|| {
            let refused = PossibleValuesParser::new(values()).parse_ref(command, arg, value);
            let similar = refused.as_ref().err().and_then(similar);
            let text = unknown(&value.to_string_lossy(), similar);
            Error::raw(ErrorKind::InvalidValue, text).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(values()))
    }
}

/// The kind of that name.
pub(crate) fn kind_of(value: impl AsRef<OsStr>) -> Option<Kind> {
    let value = value.as_ref();
    Kind::resources().find(|kind| names(*kind).any(|name| value.eq_ignore_ascii_case(name)))
}

/// Every name of a kind; the first is the one that help and completions show.
fn names(kind: Kind) -> impl Iterator<Item = &'static str> {
    let facts = kind.facts();
    let others = facts.aliases.iter().copied();
    std::iter::once(facts.word).chain(others).chain([kind.name()])
}

fn values() -> impl Iterator<Item = PossibleValue> {
    Kind::resources().map(|kind| {
        let value = PossibleValue::new(kind.word()).help(about(kind));
        value.aliases(names(kind).skip(1))
    })
}

/// Returns the description of the kind, and its other names. Those that differ only in case are one.
fn about(kind: Kind) -> String {
    let mut others: Vec<&str> = Vec::new();
    for name in names(kind).skip(1) {
        if !others.iter().any(|other| other.eq_ignore_ascii_case(name)) {
            others.push(name);
        }
    }
    format!("{} (also {})", kind.facts().about, others.join(", "))
}

/// The name that clap finds to be the most similar.
fn similar(refused: &Error) -> Option<&str> {
    match refused.get(ContextKind::SuggestedValue)? {
        ContextValue::String(name) => Some(name),
        _ => None,
    }
}

fn unknown(value: &str, similar: Option<&str>) -> String {
    let mut text = format!("there is no kind {value:?}");
    let stem = value.to_lowercase();
    let stem = stem.trim_end_matches('s');
    let listed = LISTED.iter().find(|word| word.trim_end_matches('s') == stem);
    if let Some(listed) = listed {
        let _ = write!(text, "; use tidewaiter cloud {listed} list");
    } else if let Some(similar) = similar {
        let _ = write!(text, "; did you mean {similar}?");
    }
    text += "\n\nKinds:\n";
    let width = Kind::resources()
        .map(|kind| kind.word().len())
        .max()
        .unwrap_or_default();
    for kind in Kind::resources() {
        let _ = writeln!(text, "  {:width$}  {}", kind.word(), about(kind));
    }
    text
}
