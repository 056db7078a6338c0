//! `tidewaiter cloud sign` and `sign-script`: sign the manifests of a plugin, and the script of an upgrade. Nothing
//! comes from the cloud, so it cannot say what is signed, and the key stays here.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;
use tidewaiter_cloud::models::{PluginManifests, Unknown, UpgradeScript, parse};
use tidewaiter_cloud::signed::{self, SigningKey, Statement, manifests_digest};
use tidewaiter_kit::{SystemClock, yaml};
use tidewaiter_upgrade::signed as script;

use super::actions::read;
use super::manifests;
use super::output::note;
use crate::cli::{SignArgs, SignScriptArgs};
use crate::password::{self, Variable};
use crate::{text_file, write_stdout};

/// The shortest time for the nodes after those of the control plane.
const MIN_WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// Prints the signature, or, without a key, the text to sign.
pub(super) fn sign(args: &SignArgs) -> Result<()> {
    let digest = digest(args).with_context(|| text_file::origin(&args.filename))?;
    let (cluster, plugin) = (args.cluster.to_string(), args.plugin.to_string());
    let version = args.plugin_version.to_string();
    let statement = Statement {
        cluster: &cluster,
        plugin: &plugin,
        plugin_type: args.plugin_type.as_str(),
        implementation: args.implementation.as_str(),
        version: &version,
        digest: &digest,
    };
    let text = match &args.secret_key {
        None => statement.text()?,
        Some(path) => {
            let key = key(path, args.password_file.as_deref())?;
            signed::sign(&key, &statement, SystemClock::shared().now().as_second())?
        }
    };
    write_stdout(&text)
}

/// Prints the script with a signature for each node. Signatures that it has already stay, so that it can be signed with
/// two keys. What to do next goes to standard error, because standard output is the script.
pub(super) fn sign_script(args: &SignScriptArgs) -> Result<()> {
    let text: UpgradeScript = read(&args.filename)?
        .parse()
        .with_context(|| text_file::origin(&args.filename))?;
    let key = key(&args.secret_key, args.password_file.as_deref())?;
    let now = Timestamp::from_second(SystemClock::shared().now().as_second())?;
    let before = script::statements(text.as_str()).with_context(|| text_file::origin(&args.filename))?;
    let turns = turns(args, &before, now)?;
    let mut signed = text.as_str().to_owned();
    for turn in &turns {
        let statement = script::Statement {
            cluster: args.cluster.to_string(),
            node: turn.node.clone(),
            upgrade: args.upgrade.to_string(),
            generation: now.as_second(),
            version: args.target_version.clone(),
            sha256: script::digest(text.as_str()),
            not_before: turn.not_before,
            expires: turn.expires,
        };
        signed.push_str(&statement.block(&key)?);
    }
    // A script that the cloud would refuse, for example because of its length, is not printed.
    let signed: UpgradeScript = signed.parse().context("the signed script")?;
    write_stdout(signed.as_str())?;
    for turn in &turns {
        let begin = turn
            .not_before
            .map(|begin| format!(" from {begin}"))
            .unwrap_or_default();
        note(&format!("signed for {}{begin} until {}", turn.node, turn.expires));
    }
    if args.control_plane.is_empty() && turns.len() > 1 {
        note("these nodes can run it at the same time: give those of the control plane with --control-plane");
    }
    note(&format!(
        "upload it: tidewaiter cloud set-script {} -f FILE",
        args.upgrade
    ));
    Ok(())
}

/// When a node may run the script.
struct Turn<'a> {
    node: &'a NodeName,
    not_before: Option<Timestamp>,
    expires: Timestamp,
}

/// Those of the control plane one after the other, and then the others together. One that has its time by a signature
/// which `before` names keeps it, and the new times follow the last of these of the control plane.
fn turns<'a>(args: &'a SignScriptArgs, before: &[script::Statement], now: Timestamp) -> Result<Vec<Turn<'a>>> {
    let mut named = BTreeSet::new();
    let mut all = args.control_plane.iter().chain(&args.nodes);
    if let Some(twice) = all.find(|node| !named.insert(*node)) {
        return Err(anyhow!(
            "the node {twice} is named twice: name each once, with --control-plane or with --node"
        ));
    }
    let expires = now + args.expires_in;
    let mut begin = args.not_before.unwrap_or(now);
    if begin < now {
        return Err(anyhow!(
            "--not-before {begin}: it is over; name a later time, or leave it out to begin now"
        ));
    }
    let mut kept = Vec::new();
    for made in before {
        let Some(node) = args
            .control_plane
            .iter()
            .find(|node| **node == made.node && now < made.expires)
        else {
            continue;
        };
        if made.not_before.is_none() {
            return Err(anyhow!(
                "the script has a signature for {node} that has no beginning, so it could run beside another node of the control plane: sign the script \
                 without its signatures"
            ));
        }
        begin = begin.max(made.expires);
        kept.push((node, made));
    }
    let mut turns = Vec::new();
    for node in &args.control_plane {
        if let Some((_, made)) = kept.iter().find(|(kept, _)| *kept == node) {
            let (not_before, expires) = (made.not_before, made.expires);
            turns.push(Turn {
                node,
                not_before,
                expires,
            });
            continue;
        }
        let end = begin + args.stagger;
        refuse_others(args, before, node, begin, end)?;
        turns.push(Turn {
            node,
            not_before: Some(begin),
            expires: end,
        });
        begin = end;
    }
    // A node that has a window keeps it, by whichever flag it is named: another signature without it would end it.
    let window = |node: &NodeName| {
        let has = |made: &&script::Statement| made.node == *node && made.not_before.is_some() && now < made.expires;
        before.iter().find(has)
    };
    let is_late = if args.nodes.iter().all(|node| window(node).is_some()) {
        begin > expires
    } else {
        begin + MIN_WINDOW > expires
    };
    if is_late {
        return Err(anyhow!(
            "--expires-in {:#}: it counts from now, so the signatures expire at {expires}, and the last node has its time after that; give more, up to \
             30d, or an earlier --not-before",
            args.expires_in
        ));
    }
    let not_before = (begin > now).then_some(begin);
    turns.extend(args.nodes.iter().map(|node| {
        let kept = window(node);
        Turn {
            node,
            not_before: kept.map_or(not_before, |made| made.not_before),
            expires: kept.map_or(expires, |made| made.expires),
        }
    }));
    Ok(turns)
}

/// Refuses a new window of a node of the control plane in which others may run the script that are not named: nothing
/// says whether they are of the control plane, too.
fn refuse_others(
    args: &SignScriptArgs,
    before: &[script::Statement],
    node: &NodeName,
    begin: Timestamp,
    end: Timestamp,
) -> Result<()> {
    let named: Vec<&NodeName> = args.control_plane.iter().chain(&args.nodes).collect();
    let may_run = |made: &&script::Statement| made.not_before.is_none_or(|from| from < end) && begin < made.expires;
    let others = before.iter().filter(|made| !named.contains(&&made.node));
    let others: BTreeSet<&str> = others.filter(may_run).map(|made| made.node.as_str()).collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "the time of {node} would be from {begin} until {end}, and the script has signatures with which these nodes could run it then: {}. Name them, \
         too: those of the control plane with --control-plane, which keep their times and are followed by {node}, and the others with --node",
        Vec::from_iter(others).join(", ")
    ))
}

fn key(path: &Path, password_file: Option<&Path>) -> Result<SigningKey> {
    let flag = || format!("--secret-key {}", path.display());
    let text = zeroize::Zeroizing::new(text_file::read(path).with_context(flag)?);
    let prompt = format!("The password of {}", path.display());
    let key = SigningKey::read(&text, || -> Result<String> {
        let password = password::read(Variable::SigningKey, password_file, &prompt, false);
        if password.is_ok() {
            // Else the program seems to have stopped.
            note("decrypting the secret key, which takes some seconds");
        }
        password
    });
    key.with_context(flag)
}

/// The digest of the manifests as the cloud stores them.
fn digest(args: &SignArgs) -> Result<String> {
    let text = text_file::read_named(&args.filename)?;
    let mut documents = yaml::documents(&text)?;
    let (Some(document), true) = (documents.pop(), documents.is_empty()) else {
        return Err(anyhow!("must contain one document, with the field manifests"));
    };
    let document = manifests::groups(document)?;
    let manifests: PluginManifests = parse(document.to_string().as_bytes(), Unknown::Refuse)?;
    Ok(manifests_digest(&serde_json::to_value(manifests)?))
}
