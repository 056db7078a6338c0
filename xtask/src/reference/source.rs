//! Declarations in the source, as rustfmt writes them: their names, types, documentation and texts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A field of a struct, or a variant of an enum.
#[derive(Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name in files, as serde writes it.
    pub name: String,
    /// The type of a field; empty for a variant.
    pub kind: String,
    /// Its documentation in one line.
    pub doc: String,
}

/// The first words of fields that others may read.
const VISIBILITIES: [&str; 3] = ["pub(super) ", "pub(crate) ", "pub "];

/// Returns the content of a file without its tests.
pub fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let code = text.split("mod tests {").next().unwrap_or_default();
    Ok(code.to_owned())
}

/// Returns the Rust files below a folder, but those of tests, in order.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                found.extend(files(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the items of the struct or enum with this name, if the source declares it.
pub fn items(source: &str, name: &str) -> Option<Vec<Item>> {
    let [a_struct, an_enum] = ["struct", "enum"].map(|keyword| format!("{keyword} {name} {{\n"));
    let start = source.find(&a_struct).or_else(|| source.find(&an_enum))?;
    let (before, declaration) = source.split_at(start);
    // Its attributes follow the last empty line.
    let attributes = before.rsplit("\n\n").next().unwrap_or_default();
    let rule = quoted(attributes, "rename_all = ").unwrap_or_default();
    let body = declaration.split("\n}").next()?.lines().skip(1);
    let (mut items, mut docs, mut renamed, mut in_attribute) = (Vec::new(), Vec::new(), None, false);
    for line in body.map(str::trim) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
        } else if in_attribute || line.starts_with("#[") {
            renamed = renamed.or_else(|| quoted(line, "rename = "));
            in_attribute = !line.ends_with(']');
        } else if let Some(declared) = line.strip_suffix(',').filter(|_| !line.starts_with("//")) {
            let declared = VISIBILITIES
                .iter()
                .fold(declared, |rest, visibility| rest.trim_start_matches(visibility));
            let (name, kind) = declared.split_once(": ").unwrap_or((declared, ""));
            items.push(Item {
                name: renamed.take().map_or_else(|| written(name, rule), str::to_owned),
                kind: kind.to_owned(),
                doc: docs.join(" "),
            });
            docs.clear();
        }
    }
    Some(items)
}

/// Returns the text in quotes that follows `key`.
fn quoted<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(key)?;
    after.strip_prefix('"')?.split('"').next()
}

/// Returns the name as serde writes it by a rule for all names.
fn written(name: &str, rule: &str) -> String {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter == '_' || letter.is_ascii_uppercase() {
            words.push(String::new());
        }
        if letter != '_'
            && let Some(word) = words.last_mut()
        {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    match rule {
        "kebab-case" => words.join("-"),
        "camelCase" => {
            let capital = |word: &String| word[..1].to_ascii_uppercase() + &word[1..];
            let rest = words.iter().skip(1).map(capital);
            words.iter().take(1).cloned().chain(rest).collect()
        }
        _ => words.concat(),
    }
}

/// Returns the string literal with which the code begins, and the code behind it.
pub fn literal(code: &str) -> Option<(String, &str)> {
    let code = code.trim_start().strip_prefix('"')?;
    let mut text = String::new();
    let mut letters = code.char_indices();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '"' => return Some((text, &code[place + 1..])),
            '\\' => text.extend(letters.next().map(|(_, escaped)| escaped)),
            letter => text.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
use a::B;

/// The settings.
#[serde(
    rename_all = "camelCase",
    default
)]
pub(super) struct Settings {
    /// The first
    /// address.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "address"
    )]
    pub(super) own_address: Option<Url>,
    /// The storage.
    #[serde(rename = "storageMiB")]
    storage: Limits,
}

#[serde(rename_all = "kebab-case")]
pub enum From {
    /// The cloud, then the label.
    #[default]
    CloudThenLabel,
    None,
}
"#;

    #[test]
    fn items_have_the_names_of_files() {
        let item = |name: &str, kind: &str, doc: &str| Item {
            name: name.to_owned(),
            kind: kind.to_owned(),
            doc: doc.to_owned(),
        };
        let settings = [
            item("ownAddress", "Option<Url>", "The first address."),
            item("storageMiB", "Limits", "The storage."),
        ];
        assert_eq!(items(SOURCE, "Settings").unwrap(), settings);
        let from = [
            item("cloud-then-label", "", "The cloud, then the label."),
            item("none", "", ""),
        ];
        assert_eq!(items(SOURCE, "From").unwrap(), from);
        assert_eq!(items(SOURCE, "Other"), None);
    }

    #[test]
    fn a_literal_ends_at_its_quote() {
        let (text, rest) = literal("\n  \"a \\\"b\\\".\", &[\"c\"]").unwrap();
        assert_eq!((text.as_str(), rest), ("a \"b\".", ", &[\"c\"]"));
        assert!(literal("a").is_none() && literal("\"a").is_none());
    }
}
