//! `tidewaiter cloud catalogue`: the versions of plugins that clusters can have.

use std::fmt::Display;
use std::path::{Path as File, PathBuf};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use tidewaiter_cloud::client::{ClientError, Method, Path, Request};
use tidewaiter_cloud::models::{PluginManifests, Unknown, parse};
use tidewaiter_kit::{Chain, yaml};

use super::actions::read;
use super::apply::confirm;
use super::documents::files;
use super::manifests;
use super::output::{list, print};
use super::session::{Session, if_found, request, text};
use crate::cli::{CatalogueCommand, VersionArgs};
use crate::text_file;

/// The code of a refusal to replace what is published: the request does not say what it replaces.
const PRECONDITION_REQUIRED: u32 = 428;

pub(super) async fn main(command: &CatalogueCommand) -> Result<()> {
    match command {
        CatalogueCommand::List(args) => {
            let session = Session::open(&args.place)?;
            let (found, _) = session.get(Path::new(["plugins"])).await?;
            let columns = ["type", "implementation", "version", "disabled"];
            list(&session, &args.output, "PluginVersion", &columns, &rows(&found)).await
        }
        CatalogueCommand::Add {
            version,
            filename,
            definition,
            replace,
        } => add(version, filename, definition.as_deref(), *replace).await,
        CatalogueCommand::Remove { version, confirmation } => {
            let session = Session::open(&version.place)?;
            if !confirmation.yes {
                confirm(&format!("Remove {} from the catalogue?", title(version)))?;
            }
            session.send(&Request::new(Method::DELETE, path(version))).await?;
            print(&format!("removed {}\n", title(version)))
        }
    }
}

/// A row for each version; the id is what the other commands take.
fn rows(catalogue: &Value) -> Vec<Value> {
    let definitions = catalogue.as_object().into_iter().flatten();
    let definitions = definitions.flat_map(|(_, definitions)| definitions.as_array().into_iter().flatten());
    let row = |definition: &Value, version: &Value| {
        let [kind, implementation] = ["type", "implementation"].map(|field| text(definition, field));
        let version_text = text(version, "version");
        json!({"id": format!("{kind}/{implementation}/{version_text}"), "type": kind, "implementation": implementation,
            "version": version_text, "disabled": version.get("disabled")})
    };
    let versions = definitions.flat_map(|definition| {
        let versions = definition
            .get("versions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        versions.map(move |version| row(definition, version))
    });
    versions.collect()
}

fn path(version: &VersionArgs) -> Path {
    version_path(&version.plugin_type, &version.implementation, &version.plugin_version)
}

/// The path of a version in the catalogue.
pub(super) fn version_path(plugin_type: impl Display, implementation: impl Display, version: impl Display) -> Path {
    let plugin = Path::new(["plugins"]).below(plugin_type).below("implementations");
    plugin.below(implementation).below("versions").below(version)
}

fn title(version: &VersionArgs) -> String {
    format!(
        "{} {} {}",
        version.plugin_type, version.implementation, version.plugin_version
    )
}

/// All files are read before the first request, and the manifests are validated. Those of a published version are
/// replaced only on demand: they are sent first, so that nothing has changed when they are refused. Those of a new
/// version are sent after it, and if they are refused, the version is removed again.
async fn add(version: &VersionArgs, files: &[PathBuf], definition: Option<&File>, replace: bool) -> Result<()> {
    let manifests = manifests(files)?;
    let mut body = match definition {
        Some(file) => mapping(file).with_context(|| file.display().to_string())?,
        None => Map::new(),
    };
    body.insert("version".to_owned(), version.plugin_version.to_string().into());
    let session = Session::open(&version.place)?;
    let body = request(Method::PUT, path(version), body.into(), None);
    let path = path(version).below("manifests");
    let published = if_found(session.get(path.clone()).await)?;
    let is_new = published.is_none() && if_found(session.get(self::path(version)).await)?.is_none();
    let known = published
        .as_ref()
        .filter(|_| replace)
        .and_then(|(_, etag)| etag.clone());
    let manifests = request(Method::PUT, path, manifests, known);
    let (first, second) = if published.is_some() {
        (manifests, body)
    } else {
        (body, manifests)
    };
    let sent = session.send(&first).await;
    sent.map_err(|error| explained(error, version))?;
    match session.send(&second).await.map_err(|error| explained(error, version)) {
        Ok(_) => print(&format!("the catalogue has {}\n", title(version))),
        Err(error) if is_new => Err(withdraw(&session, version, error).await),
        Err(error) => Err(error),
    }
}

/// Removes a new version whose manifests were not accepted, because clusters could use it. Returns the error of the
/// command.
async fn withdraw(session: &Session, version: &VersionArgs, error: Error) -> Error {
    let removed = session.send(&Request::new(Method::DELETE, path(version))).await;
    let title = title(version);
    match if_found(removed) {
        Ok(_) => error.context(format!("{title} was not added")),
        Err(failed) => error.context(format!(
            "{title} was added without manifests, and cannot be removed again ({}): run tidewaiter cloud catalogue remove \
             {title}",
            Chain(failed.as_ref())
        )),
    }
}

/// Explains a server's error about headers in the words of the command line.
fn explained(error: Error, version: &VersionArgs) -> Error {
    match error.downcast_ref() {
        Some(ClientError::Rejected { failure, .. }) if failure.code == PRECONDITION_REQUIRED => anyhow!(
            "the catalogue has {} already, with other manifests: publish another version, or use --replace to replace them in every cluster \
             that has this version",
            title(version)
        ),
        _ => error,
    }
}

fn mapping(file: &File) -> Result<Map<String, Value>> {
    match <[Value; 1]>::try_from(yaml::documents(&read(file)?)?) {
        Ok([Value::Object(fields)]) => Ok(fields),
        _ => bail!("must contain one mapping"),
    }
}

/// The body of the request: the only file as it is, or the Kubernetes objects of all files as one group.
fn manifests(paths: &[PathBuf]) -> Result<Value> {
    let mut all = Vec::new();
    let files = files(paths)?;
    for file in &files {
        let origin = || text_file::origin(file);
        let documents = yaml::documents(&read(file)?).with_context(origin)?;
        if let ([document], 1) = (&documents[..], files.len())
            && document.get("manifests").is_some()
        {
            let groups = manifests::groups(document.clone());
            return groups.and_then(checked).with_context(origin);
        }
        all.extend(objects(documents).with_context(origin)?);
    }
    let origins: Vec<String> = paths.iter().map(|path| text_file::origin(path)).collect();
    checked(json!({ "manifests": [all], "jobs": {} })).with_context(|| origins.join(", "))
}

/// Validates the manifests as the server does.
fn checked(manifests: Value) -> Result<Value> {
    parse::<PluginManifests>(manifests.to_string().as_bytes(), Unknown::Refuse)?;
    Ok(manifests)
}

/// The Kubernetes objects of all documents. An error names the document.
fn objects(documents: Vec<Value>) -> Result<Vec<Value>> {
    const WANTED: &str = "must be one mapping with the field manifests, or Kubernetes objects, one per document";
    let mut objects = Vec::new();
    for (number, document) in documents.into_iter().enumerate() {
        let found = manifests::objects(vec![document]);
        for object in found.with_context(|| format!("document {}", number + 1))? {
            let is_missing = |field: &&str| object.get(*field).is_none_or(Value::is_null);
            let missing: Vec<_> = ["apiVersion", "kind"].into_iter().filter(is_missing).collect();
            if !missing.is_empty() {
                bail!(
                    "document {} has no {}: the file {WANTED}",
                    number + 1,
                    missing.join(" and no ")
                );
            }
            objects.push(object);
        }
    }
    if objects.is_empty() {
        bail!("{WANTED}");
    }
    Ok(objects)
}
