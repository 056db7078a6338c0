//! The scripts of upgrades: what operators upload, and what nodes run. An upgrade without a script has that of a
//! template. With keys of its own, the server signs each script for the node that asks.

use std::ops::ControlFlow;

use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidewaiter_signature::sha256;
use tidewaiter_upgrade::signed::{Statement, digest as script_digest, is_signed, statements};
use zeroize::Zeroizing;

use super::Error;
use super::call::{Call, Reply, unless_known};
use super::cloud::Cloud;
use super::clusters::node_row;
use super::digest::etag;
use super::refusal::Refusal;
use super::remember::written;
use super::script_templates::template;
use super::source::Spot;
use super::store::{Listed, References, Row, ScriptWindow as Window, SecretColumn, Source, Transaction};
use crate::models::Kind;
use crate::models::UpgradeScript;
use crate::models::values::KubernetesVersion;

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

/// The script in the body of a request.
pub(super) fn said(body: &[u8]) -> Result<UpgradeScript, Refusal> {
    let script = str::from_utf8(body).map_err(|_| Refusal::field("script", "must be UTF-8"))?;
    script.parse().map_err(|error| Refusal::field("script", error))
}

/// Responds with a script.
pub(super) fn script_response(call: &Call, script: String) -> Response {
    let body = Bytes::from(script);
    let mut response = unless_known(call, &etag(&body), body);
    let shell = HeaderValue::from_static("text/x-shellscript; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, shell);
    response
}

/// Stores a script as the object `row`, encrypted because it may contain a token for joining. The spec, and so the
/// audit log, has its digest. The same script again changes nothing.
pub(super) async fn store(
    cloud: &Cloud,
    transaction: &mut Transaction,
    mut row: Row,
    script: &UpgradeScript,
) -> Result<(), Error> {
    let text = script.as_str();
    let sha256 = sha256(text.as_bytes());
    row.spec.insert("sha256".to_owned(), sha256.into());
    let before = transaction.get(row.kind, &row.id).await?;
    if before.as_ref().is_none_or(|before| before.spec != row.spec) {
        row.secret = SecretColumn(cloud.seal(row.kind, &row.id, &row.organization_id, text)?);
        transaction.put(before.as_ref(), row, &References::default()).await?;
    }
    Ok(())
}

/// Refuses a script that is signed for something else: every node would refuse it, and has failed then.
fn check_signed(script: &str, upgrade: &Row, node: Option<&Row>) -> Result<(), Refusal> {
    let refuse = |rule: String| {
        Refusal::field(
            "script",
            format!("{rule}: sign it again with tidewaiter cloud sign-script"),
        )
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
pub(super) async fn set_script(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let script = said(&call.body)?;
    let spot = Spot::of(call)?;
    let (upgrade, owner, state) = (call.key("upgrade_id")?, call.owner(), cloud.clone());
    written(cloud, call, async move |transaction| {
        spot.check(transaction, Kind::UpgradeScript, true).await?;
        let above = transaction.get(Kind::Upgrade, &upgrade).await?;
        let above = above
            .filter(|row| row.parent_id == spot.cluster)
            .ok_or_else(Refusal::not_found)?;
        let mut node = None;
        if !spot.id.is_empty() {
            let found = transaction.get(Kind::Node, &spot.id).await?;
            let found = found.filter(|row| row.cluster_id == spot.cluster);
            node = Some(found.ok_or_else(Refusal::not_found)?);
        }
        check_signed(script.as_str(), &above, node.as_ref())?;
        let row = Row {
            organization_id: spot.organization.clone(),
            cluster_id: spot.cluster.clone(),
            parent_id: upgrade.clone(),
            owner_id: owner,
            ..Row::new(Kind::UpgradeScript, script_id(&upgrade, &spot.id))
        };
        store(&state, transaction, row, &script).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// The script that upgrades a node to a version: the node's own one of the upgrade, that of the upgrade, or the closest
/// template. Of several upgrades to the version, the one in progress counts, then the newest that is not over, and no
/// other: without a script, it never gets that of an older one.
pub(super) async fn script(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let asked = call.asked("version").unwrap_or_default();
    let version: KubernetesVersion = asked.parse().map_err(|error| Refusal::parameter("version", error))?;
    let node = node_row(cloud, &Spot::of(call)?).await?;
    let wanted = format!("v{version}");
    let (upgrades, mut found) = (Listed::Children(Kind::Upgrade, &node.cluster_id), None);
    let each = cloud.store.each(upgrades, i64::MIN, i64::MAX, |row| {
        // The newest is read last.
        let is_better = |best: &Row| place_in_turn(&row) <= place_in_turn(best);
        if row.text("targetVersion") == Some(&wanted) && found.as_ref().is_none_or(is_better) {
            found = Some(row);
        }
        Ok(ControlFlow::Continue(()))
    });
    each.await?;
    let template = template(cloud, &node, &wanted).await?;
    if let Some(upgrade) = found
        && let Some(script) = stored(cloud, &upgrade, &node, template.as_ref()).await?
    {
        let script = signed(cloud, call, &script, &upgrade, &node).await?;
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
    cloud: &Cloud,
    upgrade: &Row,
    node: &Row,
    template: Option<&Row>,
) -> Result<Option<Zeroizing<String>>, Error> {
    for id in [script_id(&upgrade.id, &node.id), upgrade.id.clone()] {
        if let Some(row) = cloud.store.get(Kind::UpgradeScript, &id).await? {
            return cloud.open(&row);
        }
    }
    template.map_or(Ok(None), |row| cloud.open(row))
}

/// The script with a signature of each key of the server. One that an operator has signed, or that a server without
/// keys serves, stays as it is.
async fn signed(cloud: &Cloud, call: &Call, script: &str, upgrade: &Row, node: &Row) -> Result<String, Error> {
    let mut text = script.to_owned();
    let keys = cloud.script_keys.load_full();
    if !keys.sign() || is_signed(script) {
        return Ok(text);
    }
    let keys = keys.left()?;
    let name = node.text("name").unwrap_or_default();
    let unsigned =
        || Refusal::conflict("the node has no name, so its script cannot be signed: set the name of its Node");
    let now = Timestamp::from_second(cloud.clock.now().as_second()).map_err(Error::internal)?;
    let window = window(cloud, call, upgrade, node, now).await?;
    let statement = Statement {
        cluster: node.cluster_id.clone(),
        node: name.parse().map_err(|_| unsigned())?,
        upgrade: upgrade.id.clone(),
        generation: now.as_second(),
        version: upgrade
            .text("targetVersion")
            .unwrap_or_default()
            .parse()
            .map_err(Error::internal)?,
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
    cloud: &Cloud,
    call: &Call,
    upgrade: &Row,
    node: &Row,
    now: Timestamp,
) -> Result<Option<Window>, Error> {
    // A pool that is deleted meanwhile makes no worker of the node.
    let pool = cloud.store.get(Kind::NodePool, &node.parent_id).await?;
    let pool = pool.ok_or_else(Refusal::not_found)?;
    if pool.text("kubernetes_mode") == Some("worker") {
        return Ok(None);
    }
    let timeout = upgrade.spec.get("nodeTimeoutSeconds").and_then(Value::as_i64);
    let length = SignedDuration::from_secs(timeout.unwrap_or_default()) + SLACK;
    let (cluster, node, upgrade) = (node.cluster_id.clone(), node.id.clone(), upgrade.id.clone());
    let given = cloud.store.write(call.by(), async move |transaction| {
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
