//! What a cluster has made of changes of the cloud, by its last report.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{held_of_kind, items, number};
use crate::client::Path;
use crate::models::Kind;

/// A cluster that reported longer ago than this is not connected: it reports every five minutes at least.
const SILENT: SignedDuration = SignedDuration::from_mins(6);

/// A change that was made, which clusters have to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The kind of the object.
    pub kind: Kind,
    /// The id of the object.
    pub id: String,
    /// The id of its cluster; `None` if every cluster of the organization is concerned.
    pub cluster: Option<String>,
    /// Its number; 0 if it was made before.
    pub change: u64,
    /// The time of a change that was made before.
    pub at: Option<Timestamp>,
}

impl Made {
    /// The change with this number of the object `id` in `list`.
    #[must_use]
    pub fn new(kind: Kind, list: &Path, id: &str, change: u64) -> Self {
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
    #[must_use]
    pub fn before(kind: Kind, list: &Path, object: &Value) -> Self {
        Self {
            at: time(text(object, "updated_at")),
            ..Self::new(kind, list, text(object, "id"), 0)
        }
    }

    /// Returns true if the cluster has to follow it.
    #[must_use]
    pub fn concerns(&self, cluster: &Value) -> bool {
        self.cluster.as_deref().is_none_or(|id| id == text(cluster, "id"))
    }
}

/// What a cluster has made of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has what the cloud lists since.
    Followed,
    /// It may still follow; the reason why it has not.
    Behind(String),
    /// It does not follow until somebody changes something; the reason.
    Refused(String),
}

/// What a cluster with this report has made of the changes. Pure.
#[must_use]
pub fn progress(report: Option<&Value>, made: &[&Made], now: Timestamp) -> Progress {
    let Some(report) = report else {
        return Progress::Behind("it has never reported".to_owned());
    };
    let mut behind = None;
    for made in made {
        let Some(event) = made.kind.facts().event.map(Kind::word) else {
            continue;
        };
        let follows = |kind: &&Value| items(kind, "follows").contains(&json!(event));
        for kind in items(report, "kinds").iter().filter(follows) {
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
    let seen = time(text(report, "reported_at")).filter(|seen| now.duration_since(*seen) > SILENT);
    Progress::Behind(seen.map_or(reason, |seen| format!("not seen since {seen}")))
}

fn of_kind(kind: &Value, made: &Made) -> Progress {
    let (name, error) = (text(kind, "kind"), text(kind, "error"));
    if let Some(held) = held_of_kind(kind) {
        return Progress::Behind(format!("{held} held: {}", text(&kind["held"], "reason")));
    }
    if !error.is_empty() {
        return Progress::Behind(format!("{name}: {error}"));
    }
    let change = text(kind, "change").parse::<u64>();
    let listed = time(text(kind, "last_success"));
    if !change.is_ok_and(|change| change >= made.change) || listed < made.at {
        return Progress::Behind(format!("{name} is not synced yet"));
    }
    let refused = items(kind, "refused");
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

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A time of the API: milliseconds since 1970, or RFC 3339.
fn time(text: &str) -> Option<Timestamp> {
    let millis = text.parse().ok().map(Timestamp::from_millisecond);
    millis.map_or_else(|| text.parse().ok(), Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";

    fn report(change: &str, more: &Value) -> Value {
        let mut users = json!({"kind": "User", "follows": ["users"], "change": change});
        json_patch::merge(&mut users, more);
        let labels = json!({"kind": "ClusterLabel", "follows": ["labels"], "change": "3"});
        json!({"reported_at": "2026-01-01T00:00:00Z", "synced": true, "kinds": [users, labels]})
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
