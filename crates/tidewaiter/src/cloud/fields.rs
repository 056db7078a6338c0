//! The document of a new object whose fields are given as flags.

use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Map, Value};
use tidewaiter_cloud::models::Kind;

use super::actions::read;
use super::documents::Document;
use crate::cli::FieldFlags;

/// Returns the document; `None` without a flag.
pub(super) fn document(kind: Kind, flags: &FieldFlags) -> Result<Option<Document>> {
    let text = |flag: Option<&str>| flag.map(Value::from);
    let users = (!flags.members.is_empty()).then(|| Value::from(flags.members.clone()));
    let given = [
        ("name", "name", text(flags.name.as_deref())),
        ("email", "email", text(flags.email.as_deref())),
        ("role", "role", text(flags.role.as_deref())),
        ("password-file", "password", content(flags.password_file.as_deref())?),
        ("key-file", "key", content(flags.key_file.as_deref())?),
        ("member", "users", users),
        ("address", "serveraddress", text(flags.address.as_deref())),
        ("provider", "provider", text(flags.provider.as_deref())),
        ("username", "username", text(flags.username.as_deref())),
        ("description", "description", text(flags.description.as_deref())),
    ];
    let mut spec = Map::new();
    for (flag, field, value) in given {
        let Some(value) = value else { continue };
        if !flags_of(kind).contains(&flag) {
            bail!(
                "--{flag} has no meaning for {}: omit it, or use a file (-f)",
                kind.word()
            );
        }
        spec.insert(field.to_owned(), value);
    }
    if kind == Kind::Registry {
        let credentials = ["username", "password"].into_iter();
        let credentials: Map<_, _> = credentials.filter_map(|field| spec.remove_entry(field)).collect();
        if !credentials.is_empty() {
            spec.insert("credentials".to_owned(), credentials.into());
        }
    }
    Ok((!spec.is_empty()).then(|| Document {
        origin: "the flags".to_owned(),
        kind,
        id: None,
        cluster: None,
        node_pool: None,
        user: None,
        spec,
    }))
}

/// The flags that a kind has.
fn flags_of(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::User => &["name", "email", "role", "password-file"],
        Kind::ServiceAccount => &["name", "role", "description"],
        Kind::SshKey => &["name", "key-file"],
        Kind::Team => &["name", "member", "description"],
        Kind::Registry => &["address", "provider", "username", "password-file", "description"],
        Kind::Cluster | Kind::Organization => &["name"],
        _ => &[],
    }
}

/// The text of a file without line feeds at its end.
fn content(file: Option<&Path>) -> Result<Option<Value>> {
    let text = file.map(read).transpose()?;
    Ok(text.map(|text| text.trim_end_matches(['\r', '\n']).into()))
}
