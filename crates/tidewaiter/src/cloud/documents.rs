//! The documents in files, each with one object, and the scope of a prune.
//!
//! All files and secrets are read, and all documents validated, before the first request. An error names the file and
//! the document in it, and contains no secret.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Map, Value};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::{Chain, yaml};

use super::kinds::{SECRETS, named};
use crate::text_file;

const FIELDS: &str = "kind, id, cluster, nodePool, user, spec";

/// An object in a file.
pub(super) struct Document {
    /// The file and the number of the document in it.
    pub(super) origin: String,
    pub(super) kind: Kind,
    /// The object, when it is not the one of that name.
    pub(super) id: Option<String>,
    /// The cluster that it is of, by name or id.
    pub(super) cluster: Option<String>,
    /// The node pool that it is of.
    pub(super) node_pool: Option<String>,
    /// The user that it is of.
    pub(super) user: Option<String>,
    pub(super) spec: Map<String, Value>,
}

/// The objects that `--prune` may delete.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PruneScope {
    pub(super) kinds: Vec<Kind>,
    /// By name or id.
    pub(super) clusters: Vec<String>,
}

/// All documents of a path.
#[derive(Default)]
pub(super) struct Documents {
    pub(super) documents: Vec<Document>,
    pub(super) scope: Option<PruneScope>,
}

/// Reads the files of these paths. `check` validates each document.
///
/// # Errors
/// If any document is invalid. All of them are reported, each in a line of its own.
pub(super) fn read(
    paths: &[PathBuf],
    environment: &[(String, String)],
    check: impl Fn(&Document) -> Result<()>,
) -> Result<Documents> {
    let (mut all, mut invalid) = (Documents::default(), Vec::new());
    for file in files(paths)? {
        let name = text_file::origin(&file);
        let text = text_file::read_named(&file).with_context(|| format!("reading {name}"))?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let secrets = Secrets { folder, environment };
        let values = yaml::documents(&text).with_context(|| name.clone());
        let values = values.map_err(|error| invalid.push(error)).unwrap_or_default();
        for (number, value) in values.into_iter().enumerate() {
            let origin = format!("{name} (document {})", number + 1);
            let before = all.documents.len();
            let taken = take(value, &origin, &secrets, &mut all);
            let checked = taken.and_then(|()| all.documents[before..].iter().try_for_each(&check));
            invalid.extend(checked.context(origin).err());
        }
    }
    refuse(invalid)?;
    Ok(all)
}

/// The only error; several are printed, and their number is the error.
fn refuse(mut invalid: Vec<anyhow::Error>) -> Result<()> {
    if invalid.len() > 1 {
        for error in &invalid {
            let text = printable(&Chain(error.as_ref()).to_string());
            // A closed standard error changes nothing.
            let _ = writeln!(io::stderr(), "tidewaiter: {text}");
        }
        bail!("{} documents are invalid, and nothing was changed", invalid.len());
    }
    invalid.pop().map_or(Ok(()), Err)
}

/// Reads a file with one object of that kind: a document, or the contents of its `spec`.
pub(super) fn read_one(path: &Path, kind: Kind, environment: &[(String, String)]) -> Result<Document> {
    let origin = text_file::origin(path);
    let text = text_file::read_named(path).with_context(|| format!("reading {origin}"))?;
    let mut values = yaml::documents(&text).with_context(|| origin.clone())?;
    let (Some(value), true) = (values.pop(), values.is_empty()) else {
        bail!("{origin} must contain exactly one document; for several, use tidewaiter cloud apply");
    };
    let value = match value.get("spec") {
        Some(_) => value,
        None => serde_json::json!({"kind": kind.name(), "spec": value}),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut all = Documents::default();
    take(value, &origin, &Secrets { folder, environment }, &mut all).with_context(|| origin.clone())?;
    let found = all.documents.pop().filter(|document| document.kind == kind);
    found.ok_or_else(|| anyhow!("{origin} contains no {}", kind.name()))
}

/// The files of the paths: each file, and of a folder every `.yaml`, `.yml` and `.json` in it and in the folders in it,
/// in the order of their names.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        find(path, true, &mut files)?;
        if files.len() == before {
            bail!("{} contains no .yaml, .yml or .json file", path.display());
        }
    }
    Ok(files)
}

fn find(path: &Path, named: bool, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = || format!("reading {}", path.display());
    if path.is_dir() {
        let entries = fs::read_dir(path).with_context(failed)?;
        let mut entries: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .with_context(failed)?;
        entries.sort();
        for entry in entries {
            let hidden = entry
                .file_name()
                .is_none_or(|name| name.to_string_lossy().starts_with('.'));
            if !hidden {
                find(&entry, false, files)?;
            }
        }
    } else {
        let known = path
            .extension()
            .is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known));
        if named || known {
            files.push(path.to_owned());
        }
    }
    Ok(())
}

fn take(value: Value, origin: &str, secrets: &Secrets<'_>, all: &mut Documents) -> Result<()> {
    let Value::Object(mut fields) = value else {
        bail!("must be a mapping with {FIELDS}");
    };
    let mut text = |name: &str| match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => string(name, value).map(Some),
    };
    let kind = text("kind")?.ok_or_else(|| anyhow!("kind is missing"))?;
    if kind == "Scope" {
        if all.scope.is_some() {
            bail!("a second Scope: only one is allowed");
        }
        all.scope = Some(scope(&mut fields)?);
        return nothing_left(&fields, "kind, prune, clusters");
    }
    let found = named(&kind).ok_or_else(|| anyhow!("there is no kind {kind:?}; {}", kinds()))?;
    let (id, cluster, node_pool, user) = (text("id")?, text("cluster")?, text("nodePool")?, text("user")?);
    let Some(Value::Object(mut spec)) = fields.remove("spec") else {
        bail!("spec is missing: it must be a mapping");
    };
    nothing_left(&fields, FIELDS)?;
    for field in SECRETS {
        if let Some(value) = spec.get_mut(field) {
            secrets.fetch(field, value)?;
        }
    }
    all.documents.push(Document {
        origin: origin.to_owned(),
        kind: found,
        id,
        cluster,
        node_pool,
        user,
        spec,
    });
    Ok(())
}

/// The text of a field. The error does not show the value, which may be secret.
pub(super) fn string(name: &str, value: Value) -> Result<String> {
    match value {
        Value::String(text) => Ok(text),
        // YAML reads a text such as 2024 or true so.
        Value::Bool(_) | Value::Number(_) => bail!("{name} must be a string (in YAML, put it in quotes)"),
        _ => bail!("{name} must be a string"),
    }
}

/// The texts of a field.
pub(super) fn strings(name: &str, value: Value) -> Result<Vec<String>> {
    let Value::Array(items) = value else {
        bail!("{name} must be a list of strings");
    };
    let items = items.into_iter().enumerate();
    items
        .map(|(index, item)| string(&format!("{name}[{index}]"), item))
        .collect()
}

fn nothing_left(fields: &Map<String, Value>, known: &str) -> Result<()> {
    match fields.keys().next() {
        Some(field) => {
            bail!("{field:?} is not a field of a document (they are {known}); the object's own fields belong in spec")
        }
        None => Ok(()),
    }
}

fn scope(fields: &mut Map<String, Value>) -> Result<PruneScope> {
    let mut words = |name: &str| -> Result<Vec<String>> {
        let list = fields.remove(name).unwrap_or(Value::Array(Vec::new()));
        strings(name, list)
    };
    let (prune, clusters) = (words("prune")?, words("clusters")?);
    let kinds = prune.iter().map(|name| {
        let kind = named(name).filter(|kind| kind.facts().is_declared);
        kind.ok_or_else(|| anyhow!("prune: {name:?} is not a kind that can be pruned; {}", self::kinds()))
    });
    Ok(PruneScope {
        kinds: kinds.collect::<Result<_>>()?,
        clusters,
    })
}

fn kinds() -> String {
    let declared = Kind::resources().filter(|kind| kind.facts().is_declared);
    let names: Vec<&str> = declared.map(Kind::name).collect();
    format!("the kinds of documents are {}", names.join(", "))
}

/// The sources of secrets.
struct Secrets<'a> {
    folder: &'a Path,
    environment: &'a [(String, String)],
}

impl Secrets<'_> {
    /// Puts the secret in the place of each `{fromFile: PATH}` and `{fromEnv: NAME}`. Paths are relative to the
    /// document.
    fn fetch(&self, field: &str, value: &mut Value) -> Result<()> {
        let Value::Object(map) = value else {
            return Ok(());
        };
        let source = |key: &str| (map.len() == 1).then(|| map.get(key)).flatten().and_then(Value::as_str);
        if let Some(path) = source("fromFile") {
            let path = self.folder.join(path);
            let text = text_file::read(&path).with_context(|| format!("{field}: reading {}", path.display()))?;
            let text = text
                .strip_suffix('\n')
                .map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
            *value = text.into();
        } else if let Some(name) = source("fromEnv") {
            let found = self.environment.iter().find(|(key, _)| key == name);
            let (_, text) = found.ok_or_else(|| anyhow!("{field}: the variable {name} is not set"))?;
            *value = text.as_str().into();
        } else {
            for (name, value) in map.iter_mut() {
                self.fetch(&format!("{field}.{name}"), value)?;
            }
        }
        Ok(())
    }
}

/// The documents by kind, in the order in which one may refer to another.
pub(super) fn by_kind(documents: &[Document]) -> BTreeMap<Kind, Vec<&Document>> {
    let mut kinds: BTreeMap<Kind, Vec<&Document>> = BTreeMap::new();
    for document in documents {
        kinds.entry(document.kind).or_default().push(document);
    }
    kinds
}
