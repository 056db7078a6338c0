//! `tidewaiter cloud catalogue`: the versions of plugins that clusters can have.

use std::path::Path as File;

use anyhow::{Context as _, Error, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use tidewaiter_cloud::client::{ClientError, Method, Path, Request};
use tidewaiter_kit::yaml;

use super::actions::{list, read};
use super::apply::confirm;
use super::manifests;
use super::output::print;
use super::session::{Session, if_found, request, text};
use crate::cli::{CatalogueCommand, VersionArgs};

/// The code of a refusal to replace what is published: the request does not say what it replaces.
const PRECONDITION_REQUIRED: u32 = 428;

pub(super) async fn main(command: &CatalogueCommand) -> Result<()> {
    match command {
        CatalogueCommand::List(args) => {
            let (found, _) = Session::open(&args.place)?.get(Path::new(["plugins"])).await?;
            list(
                args.output,
                "PluginVersion",
                &["type", "implementation", "version", "disabled"],
                rows(&found),
            )
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
    let plugin = Path::new(["plugins"])
        .below(&version.plugin_type)
        .below("implementations");
    plugin
        .below(&version.implementation)
        .below("versions")
        .below(&version.plugin_version)
}

fn title(version: &VersionArgs) -> String {
    format!(
        "{} {} {}",
        version.plugin_type, version.implementation, version.plugin_version
    )
}

/// Both files are read before the first request. The manifests of a published version are replaced only on demand: they are sent first, so that
/// nothing has changed when they are refused. Those of a new version are sent after it.
async fn add(version: &VersionArgs, file: &File, definition: Option<&File>, replace: bool) -> Result<()> {
    let manifests = manifests(file).with_context(|| file.display().to_string())?;
    let mut body = match definition {
        Some(file) => mapping(file).with_context(|| file.display().to_string())?,
        None => Map::new(),
    };
    body.insert("version".to_owned(), version.plugin_version.to_string().into());
    let session = Session::open(&version.place)?;
    let body = request(Method::PUT, path(version), body.into(), None);
    let path = path(version).below("manifests");
    let published = if_found(session.get(path.clone()).await)?;
    let known = published
        .as_ref()
        .filter(|_| replace)
        .and_then(|(_, etag)| etag.clone());
    let manifests = request(Method::PUT, path, manifests, known);
    let requests = if published.is_some() {
        [manifests, body]
    } else {
        [body, manifests]
    };
    for request in &requests {
        let sent = session.send(request).await;
        sent.map_err(|error| explained(error, version))?;
    }
    print(&format!("the catalogue has {}\n", title(version)))
}

/// What the server says of headers, in the words of the command line.
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

/// The body of the request: the file as it is, or its Kubernetes objects as one group.
fn manifests(file: &File) -> Result<Value> {
    let documents = yaml::documents(&read(file)?)?;
    if let [document] = &documents[..]
        && document.get("manifests").is_some()
    {
        return Ok(manifests::groups(document.clone()));
    }
    let documents = manifests::objects(documents);
    let is_object = |document: &Value| document.get("apiVersion").is_some() && document.get("kind").is_some();
    if documents.is_empty() || !documents.iter().all(is_object) {
        return Err(anyhow!(
            "must be one mapping with the field manifests, or Kubernetes objects with apiVersion and kind, one per document"
        ));
    }
    Ok(json!({ "manifests": [documents], "jobs": {} }))
}
