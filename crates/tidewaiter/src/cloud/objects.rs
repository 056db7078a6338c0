//! `tidewaiter cloud get`, `describe`, `create`, `edit`, `delete` and `audit`: one object, or a list of them.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::slice;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};
use tidewaiter_cloud::client::{ETag, Method, Path, Request};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::files;
use tidewaiter_kit::settings::environment;

use super::api_document::{names, said_by};
use super::apply::confirm;
use super::cluster_reports;
use super::contexts::{folder, write_private};
use super::documents::{self, Document};
use super::fields;
use super::names::Names;
use super::output::{in_format, is_table, note, object, objects, print, value, without_secrets, yaml};
use super::plan::patch;
use super::planner::effects;
use super::session::{Session, request, text};
use crate::cli::{AuditArgs, CloudFormat, CloudPlace as Place, CreateArgs, DeleteArgs, GetArgs, ObjectArgs};

/// Lists the objects of a kind, or shows one.
pub(super) async fn get(args: &GetArgs) -> Result<()> {
    let kind = args.of.kind;
    let session = Session::open(args.of.place.of(kind)?)?;
    let list = session.list_path(args.of.kind).await?;
    let Some(name) = &args.object else {
        let mut found = session.list(list).await?;
        if kind == Kind::Cluster {
            cluster_reports::add(&session, &mut found).await?;
        }
        if !args.show_secrets {
            found.iter_mut().for_each(without_secrets);
        }
        return objects(&session, &args.printed.output, kind, &found).await;
    };
    let (_, mut found, _) = one(&session, args.of.kind, list, name).await?;
    if kind == Kind::Cluster {
        cluster_reports::add(&session, slice::from_mut(&mut found)).await?;
    }
    if !args.show_secrets {
        without_secrets(&mut found);
    }
    match &args.printed.output {
        format if is_table(format) => objects(&session, format, kind, &[found]).await,
        format => object(format, kind, &found),
    }
}

/// Shows one object, and of a cluster what is in it.
pub(super) async fn describe(args: &ObjectArgs) -> Result<()> {
    let session = Session::open(args.of.place.of(args.of.kind)?)?;
    let list = session.list_path(args.of.kind).await?;
    let (path, mut found, _) = one(&session, args.of.kind, list, &args.object).await?;
    without_secrets(&mut found);
    object(&CloudFormat::Yaml, args.of.kind, &found)?;
    if args.of.kind == Kind::Cluster {
        for kind in [Kind::ClusterLabel, Kind::Plugin, Kind::NodePool, Kind::Upgrade] {
            let found = session.list(path.clone().below(kind.facts().segment)).await?;
            if !found.is_empty() {
                print(&format!("\n{}\n", kind.facts().segment.to_uppercase()))?;
                objects(&session, &CloudFormat::Table, kind, &found).await?;
            }
        }
    }
    Ok(())
}

async fn one(session: &Session, kind: Kind, list: Path, name: &str) -> Result<(Path, Value, Option<ETag>)> {
    let id = session.id(kind, &list, name).await?;
    let path = list.below(id);
    let (found, etag) = session.get(path.clone()).await?;
    Ok((path, found, etag))
}

/// Nodes are listed and shown of a whole cluster, but changed in their node pool.
fn in_its_pool(kind: Kind, place: &Place, done: &str) -> Result<()> {
    if kind == Kind::Node && place.node_pool.is_none() {
        bail!("a node is {done} in its node pool: use --node-pool NAME");
    }
    Ok(())
}

/// Returns the document of the file, which is one as for `apply`, or only its spec; or that of the flags.
fn described(args: &CreateArgs) -> Result<Document> {
    let kind = args.of.kind;
    if args.start && kind != Kind::Upgrade {
        bail!("--start has no meaning for {}: omit it", kind.word());
    }
    match (&args.filename, fields::document(kind, &args.fields)?) {
        (Some(file), None) => documents::read_one(file, kind, &environment()),
        (None, Some(document)) => Ok(document),
        (Some(_), Some(_)) => bail!("the fields are given in a file and as flags: use either"),
        (None, None) => bail!(
            "no fields are given: use -f FILE; for a user, an SSH key, a team or a registry there are flags, too (--help)"
        ),
    }
}

/// Creates one object. An upgrade is paused, unless it is to start.
pub(super) async fn create(args: &CreateArgs) -> Result<()> {
    let document = described(args)?;
    let names = names(&document).with_context(|| document.origin.clone())?;
    let mut place = args.of.place.of(args.of.kind)?;
    place.cluster = place.cluster.or_else(|| document.cluster.clone());
    place.node_pool = place.node_pool.or_else(|| document.node_pool.clone());
    place.user = place.user.or_else(|| document.user.clone());
    in_its_pool(args.of.kind, &place, "created")?;
    let session = Session::open(place)?;
    let list = session.list_path(args.of.kind).await?;
    let mut ids = HashMap::new();
    for (kind, name) in names {
        let list = session.organization()?.below(kind.facts().segment);
        ids.insert((kind, name.clone()), session.id(kind, &list, &name).await?);
    }
    let mut body = said_by(&document, &ids)?.for_creation();
    let is_paused = args.of.kind == Kind::Upgrade && !args.start;
    if is_paused {
        json_patch::merge(&mut body, &json!({"policy": {"paused": true}}));
    }
    let mut made = session.send(&request(Method::POST, list, body, None)).await?;
    without_secrets(&mut made);
    object(&args.output, args.of.kind, &made)?;
    if is_paused {
        let id = text(&made, "id");
        note(&format!(
            "the upgrade is paused: begin it with tidewaiter cloud resume-upgrade {id}"
        ));
    }
    Ok(())
}

/// Opens an object in an editor and sends the changes.
pub(super) async fn edit(args: &ObjectArgs) -> Result<()> {
    let kind = args.of.kind;
    let place = args.of.place.of(kind)?;
    in_its_pool(kind, &place, "changed")?;
    let session = Session::open(place)?;
    let list = session.list_path(args.of.kind).await?;
    let (path, mut before, etag) = one(&session, args.of.kind, list, &args.object).await?;
    without_secrets(&mut before);
    let file = folder()?.join(format!("edit-{}.yaml", std::process::id()));
    let head =
        "# What you change here is sent when you leave the editor. Secrets are left out, and stay as they are.\n";
    write_private(&file, &format!("{head}{}", yaml(&before)?))?;
    let sent = send_edited(&session, &file, path, &before, etag).await;
    // The edited text is kept when it could not be used, as kubectl does.
    let changed = sent.with_context(|| format!("nothing was changed; what you typed is in {}", file.display()))?;
    fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    if !changed {
        return print("nothing was changed\n");
    }
    print(&format!("changed {} {}\n", kind.name(), text(&before, "id")))
}

/// Sends what the user changed in `file`; false if nothing was changed.
async fn send_edited(
    session: &Session,
    file: &std::path::Path,
    path: Path,
    before: &Value,
    etag: Option<ETag>,
) -> Result<bool> {
    let after = read_after_editor(file)?;
    let Some(change) = patch(before, &after) else {
        return Ok(false);
    };
    session.send(&request(Method::PATCH, path, change, etag)).await?;
    Ok(true)
}

fn read_after_editor(file: &std::path::Path) -> Result<Value> {
    let environment = environment();
    let set = |name: &str| environment.iter().find(|(key, value)| key == name && !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).map_or("vi", |(_, value)| value);
    // As in git and kubectl, the variable may contain arguments.
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file)
        .status();
    let status = status.with_context(|| format!("the editor {editor}"))?;
    if !status.success() {
        bail!("the editor {editor} exited with {status}");
    }
    let text = fs::read_to_string(file).context("reading the edited file")?;
    let read = files::mapping(&text).map_err(|reason| anyhow!("the edited file is not a YAML mapping: {reason}"))?;
    if read.is_empty() {
        bail!("the edited file is empty");
    }
    Ok(read.into())
}

/// Deletes an object after confirmation. Before it, what goes with the object is shown.
pub(super) async fn delete(args: &DeleteArgs) -> Result<()> {
    let ObjectArgs { of, object: name } = &args.object;
    let kind = of.kind;
    let place = of.place.of(kind)?;
    in_its_pool(kind, &place, "deleted")?;
    let session = Session::open(place)?;
    let list = session.list_path(of.kind).await?;
    let (path, found, etag) = one(&session, of.kind, list.clone(), name).await?;
    let id = text(&found, "id").to_owned();
    if !args.confirmation.yes {
        print(&effects(&session, kind, list, &found).await?)?;
        confirm(&format!("Delete {} {name} ({id})?", kind.name()))?;
    }
    let mut request = Request::new(Method::DELETE, path);
    request.if_match = etag;
    session.send(&request).await?;
    print(&format!("deleted {} {id}\n", kind.name()))
}

/// Lists changes and their authors.
pub(super) async fn audit(args: &AuditArgs) -> Result<()> {
    let session = Session::open(&args.place)?;
    let mut path = session.organization()?.below("audit").query("limit", args.limit);
    if let Some(before) = args.before {
        path = path.query("before", before);
    }
    let mut rows = session.list(path).await?;
    match &args.printed.output {
        format if is_table(format) => {
            let names = Names::new(matches!(format, CloudFormat::Wide));
            names.resolve_audit(&session, &mut rows).await;
            print(&in_format(
                format,
                &["at", "by", "action", "kind", "object", "id"],
                &rows,
            ))
        }
        CloudFormat::Name => bail!("changes have no names: use -o table, wide, json, yaml or jsonpath"),
        format => value(format, &rows.into()),
    }
}
