//! `tidewaiter explain node`: the identity of a Node, the reasons for its labels, and what the controller would change
//! now.

use anyhow::anyhow;
use tidewaiter_controller::explain::{
    ChangeExplained, LabelExplained, NodeExplained, TaintExplained, TreatmentExplained,
};

use super::output::{Table, print};
use super::sources::explainer;
use crate::Failure;
use crate::ages::from_now;
use crate::cli::ExplainNodeArgs;

/// Prints the answer. Labels that cannot be set make it fail, after it has printed everything.
pub(super) async fn explain(args: &ExplainNodeArgs) -> Result<(), Failure> {
    let reader = Box::pin(explainer(&args.sources, args.from_cloud)).await;
    let reader = reader.map_err(Failure::Configuration)?;
    let explained = Box::pin(reader.node(&args.node)).await;
    let explained = explained.map_err(|error| Failure::Running(error.into()))?;
    print(&args.sources.output, &explained, || tables(&explained)).map_err(Failure::Running)?;
    match explained.rejected.len() {
        0 => Ok(()),
        1 => Err(Failure::Running(anyhow!("1 label is invalid"))),
        several => Err(Failure::Running(anyhow!("{several} labels are invalid"))),
    }
}

fn tables(node: &NodeExplained) -> Vec<Table> {
    let mut tables = vec![about(node)];
    let change = &node.change;
    let mut set = Table::new("WOULD BE SET", &["KEY", "VALUE"]);
    for label in &change.set {
        set.row([&label.key, &label.value]);
    }
    let mut remove = Table::new("WOULD BE REMOVED", &["KEY", "WHY"]);
    for label in &change.remove {
        remove.row([&label.key, &label.why]);
    }
    let mut foreign = Table::new("OF OTHER GROUPS", &["KEY", "GROUPS"]);
    for label in &node.foreign {
        foreign.row([&label.key, &label.groups.join(", ")]);
    }
    let mut rejected = Table::new("CANNOT BE SET", &["KEY", "VALUE", "FIELD", "FILE", "REASON"]);
    for label in &node.rejected {
        rejected.row([&label.key, &label.value, &label.field, &label.file, &label.reason]);
    }
    let mut conditions = Table::new("CONDITIONS OF THE RECORD", &["TYPE", "STATUS", "REASON", "MESSAGE"]);
    for told in &node.conditions {
        conditions.row([&told.type_, &format!("{:?}", told.status), &told.reason, &told.message]);
    }
    let mut events = Table::new("EVENTS", &["LAST SEEN", "TYPE", "ON", "REASON", "MESSAGE"]);
    for event in &node.events {
        let seen = event.last_seen.map(|time| from_now(&time.to_string()));
        let seen = seen.unwrap_or_default();
        events.row([&seen, &event.type_, &event.about, &event.reason, &event.message]);
    }
    let more = [labels(node), set, remove, foreign, rejected, conditions, events];
    tables.extend(more.into_iter().filter(|table| !table.is_empty()));
    tables
}

fn about(node: &NodeExplained) -> Table {
    let lifecycle = node
        .lifecycle
        .and_then(|lifecycle| serde_json::to_value(lifecycle).ok());
    let lifecycle = lifecycle.as_ref().and_then(serde_json::Value::as_str);
    let who = match node.asked {
        "cloud" => "according to the cloud",
        _ => "according to its record",
    };
    let verified = &node.verified;
    let others = match node.others {
        1 => "1, left unchanged".to_owned(),
        others => format!("{others}, left unchanged"),
    };
    let verdict = format!("{:?} ({}), {who}", verified.status, verified.reason);
    let mut about = Table::new("", &[]);
    about.row(["Node", &node.node]);
    for (name, value) in [
        ("ProviderID", Some(node.provider_id.as_str())),
        ("Instance", node.instance.as_deref()),
        ("Group", node.group.as_deref()),
        ("Zone", node.zone.as_deref()),
        ("Lifecycle", lifecycle),
        ("Verified", Some(&verdict)),
        ("Why", Some(&verified.message)),
        ("Differs", Some(&differs(&node.change))),
        (
            "onForgery: quarantine",
            node.quarantine.as_ref().map(quarantine).as_deref(),
        ),
        ("Other labels", Some(&others)),
    ] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            about.row([name, value]);
        }
    }
    for note in &node.notes {
        about.row(["Note", note]);
    }
    about
}

fn labels(node: &NodeExplained) -> Table {
    let mut labels = Table::new("LABELS", &["KEY", "VALUE", "SOURCE", "FILE", "ON THE NODE"]);
    for label in &node.labels {
        let LabelExplained {
            key,
            value,
            source,
            file,
            on_node,
        } = label;
        let found = match on_node {
            Some(found) if found == value => "yes".to_owned(),
            Some(found) if found.is_empty() => "empty".to_owned(),
            Some(found) => found.clone(),
            None => "no".to_owned(),
        };
        labels.row([key, value, &format!("{source:?}"), file, &found]);
    }
    labels
}

/// The changes of a pass, in one sentence.
fn differs(change: &ChangeExplained) -> String {
    let because = |text: &str| match change.why.as_str() {
        "" => text.to_owned(),
        why => format!("{text}: {why}"),
    };
    if !change.compared {
        return because("not compared");
    }
    if !change.differs {
        return because("no");
    }
    let count = |what: &str, count: usize| (count > 0).then(|| format!("{what} {count}"));
    let taint = change.taint.map(|taint| match taint {
        TaintExplained::Set => "sets the startup taint".to_owned(),
        TaintExplained::Lifted => "lifts the startup taint".to_owned(),
    });
    let parts = [
        count("labels to set:", change.set.len()),
        count("labels to remove:", change.remove.len()),
        taint,
        change.record.then(|| "writes the record".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    because(&format!("yes ({})", parts.join(", ")))
}

/// The changes of quarantine, in one sentence.
pub(super) fn quarantine(treatment: &TreatmentExplained) -> String {
    let mut done = treatment.labels.join(", ");
    if !done.is_empty() {
        done = format!("; it loses {done}");
    }
    let taint = if treatment.taint { "; it gets the taint" } else { "" };
    format!("{}: {}{done}{taint}", treatment.decision, treatment.why)
}
