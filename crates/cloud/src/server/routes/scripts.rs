//! The scripts of upgrades: what operators upload, and what nodes run. An upgrade without a script has that of a
//! template. With keys of its own, the server signs each script for the node that asks.

use std::ops::ControlFlow;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_upgrade::signed::{Statement, digest as script_digest, is_signed, statements};
use zeroize::Zeroizing;

use super::clusters::node_row;
use super::prelude::*;
use super::script_templates::template;
use super::stored_scripts::{parse_script, script_response, store};
use crate::models::values::KubernetesVersion;
use crate::server::store::ScriptWindow as Window;

/// The validity of a signature of the server: an agent asks for the script when it is the turn of its node.
const LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// The extra time of the window of a control-plane node, beyond `nodeTimeoutSeconds`.
const SLACK: SignedDuration = SignedDuration::from_mins(1);

fn script_id(upgrade: &str, node: &str) -> String {
    if node.is_empty() {
        upgrade.to_owned()
    } else {
        format!("{upgrade}/{node}")
    }
}

/// Refuses a script that is signed for something else: every node would refuse it, and has failed then.
fn check_signed(script: &str, upgrade: &Row, node: Option<&Row>) -> Result<(), Refusal> {
    let refuse = |rule: String| {
        let reason = format!("{rule}: sign it again with tidewaiter cloud sign-script");
        Refusal::field("script", reason)
    };
    let statements = statements(script).map_err(|error| refuse(error.to_string()))?;
    let digest = script_digest(script);
    for statement in &statements {
        let version = statement.version.to_string();
        for (part, signed, wanted) in [
            ("cluster", statement.cluster.as_str(), upgrade.parent_id.as_str()),
            ("upgrade", &statement.upgrade, &upgrade.id),
            ("version", &version, upgrade.text("targetVersion").unwrap_or_default()),
            ("text with the SHA-256", &statement.sha256, &digest),
        ] {
            if signed != wanted {
                return Err(refuse(format!(
                    "is signed for the {part} {signed}, and this is {wanted}"
                )));
            }
        }
    }
    let name = node.and_then(|node| node.text("name"));
    if let Some(name) = name.filter(|name| !statements.iter().any(|statement| statement.node.as_str() == *name))
        && !statements.is_empty()
    {
        return Err(refuse(format!("has no signature for the node {name}")));
    }
    Ok(())
}

/// Stores the script of an upgrade.
pub(super) async fn set_script(app: &AppState, call: &Call) -> Result<Response, Error> {
    let script = parse_script(&call.body)?;
    let resource = ResourcePath::of(call)?;
    let (upgrade, owner, state) = (call.key("upgrade_id")?, call.owner(), app.clone());
    write(app, call, async move |transaction| {
        resource.check_parents(transaction, Kind::UpgradeScript, true).await?;
        let above = transaction.get(Kind::Upgrade, &upgrade).await?;
        let above = above
            .filter(|row| row.parent_id == resource.cluster)
            .ok_or_else(Refusal::not_found)?;
        let mut node = None;
        if !resource.id.is_empty() {
            let found = transaction.get(Kind::Node, &resource.id).await?;
            let found = found.filter(|row| row.cluster_id == resource.cluster);
            node = Some(found.ok_or_else(Refusal::not_found)?);
        }
        check_signed(script.as_str(), &above, node.as_ref())?;
        let row = Row {
            organization_id: resource.organization.clone(),
            cluster_id: resource.cluster.clone(),
            parent_id: upgrade.clone(),
            owner_id: owner,
            ..Row::new(Kind::UpgradeScript, script_id(&upgrade, &resource.id))
        };
        store(&state, transaction, row, &script).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// The script that upgrades a node to a version: the node's own one of the upgrade, that of the upgrade, or the closest
/// template. Of several upgrades to the version, the one in progress counts, then the newest that is not over, and no
/// other: without a script, it never gets that of an older one.
pub(super) async fn script(app: &AppState, call: &Call) -> Result<Response, Error> {
    let asked = call.query_value("version").unwrap_or_default();
    let version: KubernetesVersion = asked.parse().map_err(|error| Refusal::parameter("version", error))?;
    let node = node_row(app, &ResourcePath::of(call)?).await?;
    let wanted = format!("v{version}");
    let (upgrades, mut found) = (Listed::Children(Kind::Upgrade, &node.cluster_id), None);
    let each = app.store.each(upgrades, i64::MIN, i64::MAX, |row| {
        // The newest is read last.
        let is_better = |best: &Row| place_in_turn(&row) <= place_in_turn(best);
        if row.text("targetVersion") == Some(&wanted) && found.as_ref().is_none_or(is_better) {
            found = Some(row);
        }
        Ok(ControlFlow::Continue(()))
    });
    each.await?;
    let template = template(app, &node, &wanted).await?;
    if let Some(upgrade) = found
        && let Some(script) = stored(app, &upgrade, &node, template.as_ref()).await?
    {
        let script = signed(app, call, &script, &upgrade, &node).await?;
        return Ok(script_response(call, script));
    }
    let message = format!(
        "the upgrade to {wanted} has no script; upload one with PUT …/upgrades/ID/script, or a template with PUT …/script-templates/VERSION"
    );
    Err(Refusal::new(http::StatusCode::NOT_FOUND, message).into())
}

/// In progress, then not over, then over, as its cluster reported last.
fn place_in_turn(upgrade: &Row) -> u8 {
    let status = upgrade.status.as_ref();
    match status.and_then(|status| status.get("clusterStatus")?.as_str()) {
        Some("InProgress") => 0,
        Some("Success" | "Failed") => 2,
        _ => 1,
    }
}

async fn stored(
    app: &AppState,
    upgrade: &Row,
    node: &Row,
    template: Option<&Row>,
) -> Result<Option<Zeroizing<String>>, Error> {
    for id in [script_id(&upgrade.id, &node.id), upgrade.id.clone()] {
        if let Some(row) = app.store.get(Kind::UpgradeScript, &id).await? {
            return app.open(&row);
        }
    }
    template.map_or(Ok(None), |row| app.open(row))
}

/// The script with a signature of each key of the server. One that an operator has signed, or that a server without
/// keys serves, stays as it is.
async fn signed(app: &AppState, call: &Call, script: &str, upgrade: &Row, node: &Row) -> Result<String, Error> {
    let mut text = script.to_owned();
    let keys = app.script_keys.load_full();
    if !keys.sign() || is_signed(script) {
        return Ok(text);
    }
    let keys = keys.left()?;
    let name = node.text("name").unwrap_or_default();
    let unsigned =
        || Refusal::conflict("the node has no name, so its script cannot be signed: set the name of its Node");
    let now = Timestamp::from_second(app.clock.now().as_second()).map_err(Error::internal)?;
    let window = window(app, call, upgrade, node, now).await?;
    let version = upgrade.text("targetVersion").unwrap_or_default();
    let statement = Statement {
        cluster: node.cluster_id.clone(),
        node: name.parse().map_err(|_| unsigned())?,
        upgrade: upgrade.id.clone(),
        generation: now.as_second(),
        version: version.parse().map_err(Error::internal)?,
        sha256: script_digest(script),
        not_before: window.as_ref().map(|window| window.begin),
        expires: window.map_or(now + LIFETIME, |window| window.end),
    };
    for key in keys {
        text.push_str(&statement.block(&key).map_err(Error::internal)?);
    }
    Ok(text)
}

/// The window in which a node of the control plane may run the script; None for a worker. The windows of the nodes of a
/// control plane never overlap, whatever its cluster says: so nobody who has the cluster starts several of them at
/// once.
async fn window(
    app: &AppState,
    call: &Call,
    upgrade: &Row,
    node: &Row,
    now: Timestamp,
) -> Result<Option<Window>, Error> {
    // A pool that is deleted meanwhile makes no worker of the node.
    let pool = app.store.get(Kind::NodePool, &node.parent_id).await?;
    let pool = pool.ok_or_else(Refusal::not_found)?;
    if pool.text("kubernetes_mode") == Some("worker") {
        return Ok(None);
    }
    let timeout = upgrade.spec.get("nodeTimeoutSeconds").and_then(Value::as_i64);
    let length = SignedDuration::from_secs(timeout.unwrap_or_default()) + SLACK;
    let (cluster, node, upgrade) = (node.cluster_id.clone(), node.id.clone(), upgrade.id.clone());
    let given = app.store.write(call.by(), async move |transaction| {
        let mut windows = transaction.script_windows(&cluster).await?;
        windows.retain(|window| now < window.end);
        let known = windows
            .iter()
            .find(|window| window.node == node && window.upgrade == upgrade);
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let others = windows.iter().filter(|window| window.node != node);
        let begin = others.map(|window| window.end).max().unwrap_or(now);
        let end = begin + length;
        let window = Window {
            node,
            upgrade,
            begin,
            end,
        };
        windows.push(window.clone());
        transaction.set_script_windows(&cluster, &windows).await?;
        Ok(window)
    });
    given.await.map(Some)
}
