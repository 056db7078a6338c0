//! `tidewaiter cloud set-script`: the script that the nodes of an upgrade run.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tidewaiter_cloud::client::{Body, Method, Request};
use tidewaiter_cloud::models::{Kind, UpgradeScript};
use tidewaiter_upgrade::signed::is_signed;

use super::actions::read;
use super::output::print;
use super::session::{Session, text};
use super::upgrades;
use crate::cli::SetScriptArgs;
use crate::text_file;

/// Uploads the script, and says what is still to be done until a node runs it.
pub(super) async fn set(args: &SetScriptArgs) -> Result<()> {
    let script: UpgradeScript = read(&args.filename)?
        .parse()
        .with_context(|| text_file::origin(&args.filename))?;
    let is_signed = is_signed(script.as_str());
    let session = Session::open(&args.place)?;
    let (mut path, upgrade) = upgrades::find(&session, &args.upgrade).await?;
    if let Some(node) = &args.node {
        let nodes = session.list_path(Kind::Node).await?;
        path = path.below("nodes").below(session.id(Kind::Node, &nodes, node).await?);
    }
    let mut request = Request::new(Method::PUT, path.below("script"));
    request.body = Some(Body::Script(script));
    session.send(&request).await?;
    print(&confirmation(&upgrade, args.node.as_deref(), is_signed))
}

fn confirmation(upgrade: &Value, node: Option<&str>, is_signed: bool) -> String {
    let id = text(upgrade, "id");
    let nodes = node.map_or_else(
        || "all nodes that have none of their own".to_owned(),
        |node| format!("the node {node}"),
    );
    let mut message = format!("the script of Upgrade {id} is set for {nodes}\n");
    if !is_signed {
        message += "it has no signature, so nodes run it only if the server signs it (its setting scriptKeys): \
                 otherwise sign it with tidewaiter cloud sign-script, and set it again\n";
    }
    if upgrades::is_over(upgrade) {
        message += "the upgrade is over, so no node runs the script: create another upgrade\n";
    } else if upgrade.pointer("/policy/paused") == Some(&Value::Bool(true)) {
        let _ = writeln!(
            message,
            "the upgrade is paused: begin it with tidewaiter cloud resume-upgrade {id}"
        );
    }
    message
}
