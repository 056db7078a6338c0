//! `tidewaiter cloud script-templates`: scripts that serve for each upgrade to a version, or to any, of a cluster or of
//! all clusters.

use anyhow::{Context as _, Result, anyhow};
use serde_json::Value;
use tidewaiter_cloud::client::{Body, Method, Path, Request};
use tidewaiter_cloud::models::UpgradeScript;

use super::actions::read;
use super::apply::confirm;
use super::output::{list, print};
use super::session::{Session, if_found};
use crate::cli::{ScriptTemplateArgs, ScriptTemplatesCommand};
use crate::text_file;

const SEGMENT: &str = "script-templates";

pub(super) async fn main(command: &ScriptTemplatesCommand) -> Result<()> {
    match command {
        ScriptTemplatesCommand::List(args) => {
            let session = Session::open(&args.place)?;
            let cluster = session.cluster(None).await?.below(SEGMENT);
            let mut found: Vec<Value> = session.list(cluster).await?;
            found.extend(session.list(session.organization()?.below(SEGMENT)).await?);
            let columns = ["cluster_id", "version", "sha256", "updated_at"];
            list(&session, &args.output, "ScriptTemplate", &columns, &found).await
        }
        ScriptTemplatesCommand::Get(of) => {
            let (session, path) = place(of).await?;
            print(&script(&session, &path, of).await?)
        }
        ScriptTemplatesCommand::Set { filename, of } => {
            let script: UpgradeScript = read(filename)?.parse().with_context(|| text_file::origin(filename))?;
            let (session, path) = place(of).await?;
            let mut request = Request::new(Method::PUT, path);
            request.body = Some(Body::Script(script));
            session.send(&request).await?;
            print(&format!(
                "the script template of {} is set\nthe server signs it with the keys of its setting scriptKeys; without them, nodes refuse it\n",
                title(of)
            ))
        }
        ScriptTemplatesCommand::Delete { of, confirmation } => {
            let (session, path) = place(of).await?;
            script(&session, &path, of).await?;
            if !confirmation.yes {
                confirm(&format!("Delete the script template of {}?", title(of)))?;
            }
            session.send(&Request::new(Method::DELETE, path)).await?;
            print(&format!("deleted the script template of {}\n", title(of)))
        }
    }
}

/// The script of a template.
async fn script(session: &Session, path: &Path, of: &ScriptTemplateArgs) -> Result<String> {
    let found = if_found(session.text(&Request::new(Method::GET, path.clone())).await)?;
    found.ok_or_else(|| {
        anyhow!(
            "there is no script template of {}: tidewaiter cloud script-templates list shows those that there are",
            title(of)
        )
    })
}

/// The name of a template: the version that it upgrades to, or `any`.
fn version(of: &ScriptTemplateArgs) -> String {
    of.target_version
        .as_ref()
        .map_or_else(|| "any".to_owned(), ToString::to_string)
}

/// Returns the owner of the template, and its version, for people.
fn title(of: &ScriptTemplateArgs) -> String {
    let owner = if of.all_clusters { "all clusters" } else { "the cluster" };
    match &of.target_version {
        Some(version) => format!("{owner} for {version}"),
        None => format!("{owner} for any version"),
    }
}

async fn place(of: &ScriptTemplateArgs) -> Result<(Session, Path)> {
    let session = Session::open(&of.place)?;
    let above = if of.all_clusters {
        session.organization()?
    } else {
        session.cluster(None).await?
    };
    Ok((session, above.below(SEGMENT).below(version(of))))
}
