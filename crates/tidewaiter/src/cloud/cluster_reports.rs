//! The reports of clusters: the columns of a table, and the wait until the clusters have followed changes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tidewaiter_cloud::client::{ClientError, Path};
pub(super) use tidewaiter_cloud::reports::Made;
use tidewaiter_cloud::reports::{self, Progress, progress};
use tidewaiter_kit::SystemClock;

use super::output::note;
use super::session::{Session, if_found, text};

/// The columns of a table of clusters that their reports fill.
pub(super) const COLUMNS: [&str; 5] = ["synced", "held", "plugins", "agents", "last_seen"];

/// The interval at which the reports are read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The number of clusters that a message names.
const MAX_NAMED: usize = 10;

/// Adds the last report to each cluster, as the field `report`: `null` if it has not reported, or if the server is
/// older.
pub(super) async fn add(session: &Session, clusters: &mut [Value]) -> Result<()> {
    let ids: Vec<&str> = clusters.iter().map(|cluster| text(cluster, "id")).collect();
    let mut reports = read(session, &session.organization()?, &ids).await?;
    for cluster in clusters {
        let report = reports.remove(text(cluster, "id")).unwrap_or_default();
        if let Some(cluster) = cluster.as_object_mut() {
            cluster.insert("report".to_owned(), report);
        }
    }
    Ok(())
}

/// The last reports of the clusters with these ids, by the ids. That of a single cluster has the diffs of plugins, too.
async fn read(session: &Session, organization: &Path, ids: &[&str]) -> Result<BTreeMap<String, Value>> {
    let organization = organization.clone();
    let reports: Vec<Value> = if let [id] = ids {
        let path = organization.below("clusters").below(id).below("report");
        let found = if_found(session.get(path).await)?;
        found.into_iter().map(|(report, _)| report).collect()
    } else {
        let found = if_found(session.list(organization.below("reports")).await)?;
        found.unwrap_or_default()
    };
    let by_id = |report: Value| (text(&report, "cluster_id").to_owned(), report);
    Ok(reports.into_iter().map(by_id).collect())
}

/// The cluster with the columns of a table.
pub(super) fn row(cluster: &Value) -> Value {
    let mut row = cluster.clone();
    let report = &cluster["report"];
    if report.is_null() {
        return row;
    }
    row["synced"] = json!(if report["synced"] == true { "yes" } else { "no" });
    row["held"] = json!(reports::held(report));
    row["plugins"] = json!(reports::plugins(report));
    row["agents"] = json!(reports::agents(report));
    row["last_seen"] = report["reported_at"].clone();
    row
}

/// Waits until each cluster that the changes concern has followed them, at most for `limit`, and says how many have.
///
/// # Errors
/// If a cluster has not: the message names it with the reason.
pub(super) async fn wait(session: &Session, made: &[Made], limit: Duration) -> Result<()> {
    let (followed, behind) = follow(session, &session.organization()?, made, limit, note).await?;
    if behind.is_empty() {
        return Ok(());
    }
    let (left, all) = (behind.len(), followed.len() + behind.len());
    let behind = named(&behind);
    bail!("the changes are made, but {left} of {all} clusters have not followed: {behind}");
}

/// Waits as [`wait`], and tells how many have followed. Returns the names of the clusters that have, and of the others
/// with the reasons.
pub(super) async fn follow(
    session: &Session,
    organization: &Path,
    made: &[Made],
    limit: Duration,
    tell: fn(&str),
) -> Result<(Vec<String>, Vec<String>)> {
    let clock = SystemClock::shared();
    let end = clock.monotonic().saturating_add(limit);
    let clusters = session.list(organization.clone().below("clusters")).await?;
    let concerned: Vec<(&Value, Vec<&Made>)> = clusters
        .iter()
        .map(|cluster| (cluster, made.iter().filter(|made| made.concerns(cluster)).collect()))
        .filter(|(_, made): &(_, Vec<_>)| !made.is_empty())
        .collect();
    let ids: Vec<&str> = concerned.iter().map(|(cluster, _)| text(cluster, "id")).collect();
    let mut said = None;
    loop {
        let (reports, unread) = match read(session, organization, &ids).await {
            Err(error) if matches!(error.downcast_ref(), Some(ClientError::Unavailable { .. })) => {
                (BTreeMap::new(), Some(format!("its report cannot be read: {error}")))
            }
            found => (found?, None),
        };
        let (mut followed, mut behind, mut may_follow) = (Vec::new(), Vec::new(), false);
        for (cluster, made) in &concerned {
            let name = text(cluster, "name");
            let progress = unread.clone().map_or_else(
                || progress(reports.get(text(cluster, "id")), made, clock.now()),
                Progress::Behind,
            );
            let (reason, may) = match progress {
                Progress::Followed => {
                    followed.push(name.to_owned());
                    continue;
                }
                Progress::Behind(reason) => (reason, true),
                Progress::Refused(reason) => (reason, false),
            };
            may_follow |= may;
            behind.push(format!("{name} ({reason})"));
        }
        if said.replace(followed.len()) != Some(followed.len()) {
            tell(&format!(
                "{} of {} clusters have followed",
                followed.len(),
                concerned.len()
            ));
        }
        if behind.is_empty() || !may_follow || clock.monotonic() >= end {
            return Ok((followed, behind));
        }
        clock.sleep(POLL_INTERVAL).await;
    }
}

fn named(clusters: &[String]) -> String {
    match clusters.len().saturating_sub(MAX_NAMED) {
        0 => clusters.join("; "),
        more => format!("{}; and {more} more", clusters[..MAX_NAMED].join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::in_format;
    use super::*;
    use crate::cli::CloudFormat;

    #[test]
    fn a_table_shows_what_a_cluster_reports() {
        let report = json!({
            "reported_at": "2026-01-01T00:00:00Z", "synced": false,
            "kinds": [{"kind": "User", "held": {"deletions": 3, "additions": 1}}, {"kind": "Registry", "held": null}],
            "plugins": [{"ready": true, "waiting": null}, {"ready": false, "waiting": {"digest": "a"}}],
            "agents": {"nodes": 5, "reporting": 4, "not_applied": 1, "stale": 0, "foreign_lines": 0},
        });
        let rows = [
            row(&json!({"name": "prod", "report": report})),
            row(&json!({"name": "new", "report": null})),
        ];
        let columns = [&["name"][..], &COLUMNS].concat();
        let shown = in_format(&CloudFormat::Wide, &columns, &rows);
        let lines: Vec<String> = shown
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let expected = [
            "NAME SYNCED HELD PLUGINS AGENTS LAST SEEN",
            "prod no 4 User 1/2, 1 to approve 4/5, 1 not applied 2026-01-01T00:00:00Z",
            "new - - - - -",
        ];
        assert_eq!(lines, expected, "{shown}");
    }
}
