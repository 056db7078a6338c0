//! The reports of clusters: the columns of a table, and the wait until the clusters have followed changes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tidewaiter_cloud::client::{ClientError, Path};
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::reports;
use tidewaiter_kit::SystemClock;

use super::output::note;
use super::session::{Session, if_found, text};
use crate::ages;

/// The columns of a table of clusters that their reports fill.
pub(super) const COLUMNS: [&str; 5] = ["synced", "held", "plugins", "agents", "last_seen"];

/// The interval at which the reports are read.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A cluster that reported longer ago than this is not connected: it reports every five minutes at least.
const SILENT: SignedDuration = SignedDuration::from_mins(6);

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

fn kinds(report: &Value) -> impl Iterator<Item = &Value> {
    report["kinds"].as_array().into_iter().flatten()
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_default()
}

/// A change that was made, which clusters have to follow.
pub(super) struct Made {
    kind: Kind,
    /// The id of the object.
    id: String,
    /// The id of its cluster; `None` if every cluster of the organization is concerned.
    cluster: Option<String>,
    /// Its number; 0 if it was made before.
    change: u64,
    /// The time of a change that was made before.
    at: Option<Timestamp>,
}

impl Made {
    /// The change with this number of the object `id` in `list`.
    pub(super) fn new(kind: Kind, list: &Path, id: &str, change: u64) -> Self {
        let list = list.to_string();
        let mut segments = list.split('/').skip_while(|segment| *segment != "clusters");
        Self {
            kind,
            id: id.to_owned(),
            cluster: segments.nth(1).map(str::to_owned),
            change,
            at: None,
        }
    }

    /// The last change of the object in `list`, which was made before. Its number is not known.
    pub(super) fn before(kind: Kind, list: &Path, object: &Value) -> Self {
        Self {
            at: ages::read(text(object, "updated_at")),
            ..Self::new(kind, list, text(object, "id"), 0)
        }
    }

    /// Returns true if the cluster has to follow it.
    fn concerns(&self, cluster: &Value) -> bool {
        self.cluster.as_deref().is_none_or(|id| id == text(cluster, "id"))
    }
}

/// What a cluster has made of changes.
#[derive(Debug, PartialEq)]
enum Progress {
    Followed,
    /// It may still follow; the reason why it has not.
    Behind(String),
    /// It does not follow until somebody changes something; the reason.
    Refused(String),
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

/// What a cluster with this report has made of the changes. Pure.
fn progress(report: Option<&Value>, made: &[&Made], now: Timestamp) -> Progress {
    let Some(report) = report else {
        return Progress::Behind("it has never reported".to_owned());
    };
    let mut behind = None;
    for made in made {
        let Some(event) = made.kind.facts().event.map(Kind::word) else {
            continue;
        };
        let follows = |kind: &&Value| {
            kind["follows"]
                .as_array()
                .is_some_and(|words| words.contains(&json!(event)))
        };
        for kind in kinds(report).filter(follows) {
            match of_kind(kind, made) {
                Progress::Followed => {}
                Progress::Behind(reason) => behind = behind.or(Some(reason)),
                refused @ Progress::Refused(_) => return refused,
            }
        }
    }
    let Some(reason) = behind else {
        return Progress::Followed;
    };
    let seen = ages::read(text(report, "reported_at")).filter(|seen| now.duration_since(*seen) > SILENT);
    Progress::Behind(seen.map_or(reason, |seen| format!("not seen since {seen}")))
}

fn of_kind(kind: &Value, made: &Made) -> Progress {
    let (name, error) = (text(kind, "kind"), text(kind, "error"));
    if let Some(held) = reports::held_of_kind(kind) {
        return Progress::Behind(format!("{held} held: {}", text(&kind["held"], "reason")));
    }
    if !error.is_empty() {
        return Progress::Behind(format!("{name}: {error}"));
    }
    let change = text(kind, "change").parse::<u64>();
    let listed = ages::read(text(kind, "last_success"));
    if !change.is_ok_and(|change| change >= made.change) || listed < made.at {
        return Progress::Behind(format!("{name} is not synced yet"));
    }
    let refused = kind["refused"].as_array().map_or(&[][..], Vec::as_slice);
    if let Some(refused) = refused.iter().find(|refused| text(refused, "id") == made.id) {
        let reason = text(refused, "reason");
        return Progress::Refused(format!("{name} {} is rejected: {reason}", made.id));
    }
    let count = number(kind, "refused_objects");
    if usize::try_from(count).is_ok_and(|count| count <= refused.len()) {
        return Progress::Followed;
    }
    Progress::Behind(format!(
        "{count} {name} are rejected, and its report does not name all of them"
    ))
}

#[cfg(test)]
mod tests {
    use super::super::output::in_format;
    use super::*;
    use crate::cli::CloudFormat;

    const ID: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";

    fn report(change: &str, more: &Value) -> Value {
        let mut users = json!({"kind": "User", "follows": ["users"], "change": change});
        json_patch::merge(&mut users, more);
        let labels = json!({"kind": "ClusterLabel", "follows": ["labels"], "change": "3"});
        json!({"reported_at": "2026-01-01T00:00:00Z", "synced": true, "kinds": [users, labels]})
    }

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

    #[test]
    fn a_cluster_has_followed_when_each_kind_that_follows_the_change_is_as_new() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let later = "2026-01-01T01:00:00Z".parse().unwrap();
        let list = Path::new(["organizations", "o", "users"]);
        let user = Made::new(Kind::User, &list, ID, 7);
        let of = |change: &str, more: Value| progress(Some(&report(change, &more)), &[&user], now);
        let behind = |reason: &str| Progress::Behind(reason.to_owned());
        assert_eq!(of("7", json!({})), Progress::Followed);
        assert_eq!(of("6", json!({})), behind("User is not synced yet"));
        let held = json!({"held": {"deletions": 2, "reason": "most of them"}});
        assert_eq!(of("7", held), behind("2 User held: most of them"));
        assert_eq!(of("7", json!({"error": "it is full"})), behind("User: it is full"));
        let refused = json!({"refused": [{"id": ID, "reason": "no name"}]});
        let reason = format!("User {ID} is rejected: no name");
        // It may have been rejected before the change.
        assert_eq!(of("6", refused.clone()), behind("User is not synced yet"));
        assert_eq!(of("7", refused), Progress::Refused(reason));
        let many = "2 User are rejected, and its report does not name all of them";
        assert_eq!(of("7", json!({"refused_objects": 2})), behind(many));
        assert_eq!(of("7", json!({"refused": [{"id": "another"}]})), Progress::Followed);
        // The cluster has to have listed what was changed before.
        let object = json!({"id": ID, "updated_at": "1767225600000"});
        let before = Made::before(Kind::User, &list, &object);
        let listed = |at: &str| progress(Some(&report("3", &json!({"last_success": at}))), &[&before], now);
        assert_eq!(listed("2026-01-01T00:00:00Z"), Progress::Followed);
        assert_eq!(listed("2025-12-31T23:59:59Z"), behind("User is not synced yet"));
        // A kind that nothing mirrors concerns no cluster.
        let provider = Made::new(Kind::Provider, &list, ID, 99);
        assert_eq!(
            progress(Some(&report("1", &json!({}))), &[&provider], now),
            Progress::Followed
        );
        assert_eq!(progress(None, &[&user], now), behind("it has never reported"));
        let silent = progress(Some(&report("6", &json!({}))), &[&user], later);
        assert_eq!(silent, behind("not seen since 2026-01-01T00:00:00Z"));
    }

    #[test]
    fn a_change_in_a_cluster_concerns_that_one_alone() {
        let of = |segments: &[&str]| Made::new(Kind::ClusterLabel, &Path::new(segments), ID, 1).cluster;
        assert_eq!(
            of(&["organizations", "o", "clusters", "c", "labels"]).as_deref(),
            Some("c")
        );
        let below = ["organizations", "o", "clusters", "c", "node-pools", "p", "labels"];
        assert_eq!(of(&below).as_deref(), Some("c"));
        assert_eq!(of(&["organizations", "o", "registries"]), None);
        assert_eq!(of(&["organizations", "o", "clusters"]), None);
    }
}
