//! The answer, from what was read. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tidewaiter_api::node_report::{APPLIED, ForeignKey};
use tidewaiter_api::values::EndTime;
use tidewaiter_api::{ConditionStatus, NodeReport, NodeReportStatus};
use uuid::Uuid;

use super::{LoginExplained, LoginQuestion, LoginsExplained, Node, NodeExplained, PendingExplained, RefusedExplained};
use crate::authorized_keys::Logins;
use crate::break_glass;
use crate::user_controller::{User, Wanted, wanted};

/// A key of a user: the id, and the fingerprint.
type UserKey = (String, String);

/// Compares the keys of the Users that have not ended at `now` with those in the reports. `agents` are the nodes on
/// which an agent is ready, if that is known.
#[must_use]
pub fn describe(
    users: &[User],
    reports: &[NodeReport],
    nodes: &[Node],
    agents: Option<&BTreeSet<String>>,
    question: &LoginQuestion,
    now: Timestamp,
) -> LoginsExplained {
    let users: Vec<Shared<'_>> = users.iter().map(Shared).collect();
    let wanted = wanted(&users, &Logins::new(), false);
    let query = UserQuery::new(&users, question);
    let ends = query.ends(&wanted);
    let (ended, due): (Vec<_>, Vec<_>) = ends
        .iter()
        .partition(|(_, end)| end.is_some_and(|it| it.has_passed(now)));
    let due: BTreeSet<UserKey> = due.into_iter().map(|(key, _)| key.clone()).collect();
    let reports: BTreeMap<&str, &NodeReport> = reports.iter().map(|report| (name(&report.metadata), report)).collect();
    let nodes: BTreeMap<&str, &Node> = nodes.iter().map(|node| (name(&node.metadata), node)).collect();
    let names: BTreeSet<&str> = reports.keys().chain(nodes.keys()).copied().collect();
    let names = names
        .into_iter()
        .filter(|name| question.node.as_deref().is_none_or(|queried| queried == *name));
    let refused = wanted.refused.iter().filter(|refused| query.matches(&refused.user));
    let refused = refused.map(|refused| RefusedExplained {
        user: refused.user.clone(),
        key: refused.key.clone(),
        why: refused.reason.clone(),
    });
    let ended = ended.into_iter().map(|((user, fingerprint), _)| RefusedExplained {
        user: user.clone(),
        key: fingerprint.clone(),
        why: "its time is over: expires_at of the User or of the key has passed".to_owned(),
    });
    let mut answer = LoginsExplained {
        refused: refused.chain(ended).collect(),
        ..LoginsExplained::default()
    };
    for node in names {
        let report = reports.get(node).and_then(|report| report.status.as_ref());
        query.compare(node, report, &due, &mut answer);
        answer.refused.extend(query.refused_there(node, report));
        let mut explained = explained(node, nodes.get(node).copied(), reports.get(node).copied(), agents);
        for key in &mut explained.break_glass_keys {
            key.push_str(&of_users(key, report, &wanted, &query));
        }
        answer.nodes.push(explained);
    }
    for login in &mut answer.applied {
        let end = ends.get(&(login.user.clone(), login.fingerprint.clone()));
        login.expires_at = end.copied().flatten().map(|end| end.to_string());
    }
    answer
}

/// A borrowed User, for [`wanted`].
struct Shared<'a>(&'a User);

impl AsRef<User> for Shared<'_> {
    fn as_ref(&self) -> &User {
        self.0
    }
}

/// The queried user.
struct UserQuery<'a> {
    user: Option<&'a str>,
    /// The queried user as an id. The journal of a node has it without dashes.
    id: Option<Uuid>,
    /// The names of the users, by id.
    names: BTreeMap<&'a str, &'a str>,
}

impl<'a> UserQuery<'a> {
    fn new(users: &[Shared<'a>], question: &'a LoginQuestion) -> Self {
        let specs = users.iter().map(|user| &user.0.spec);
        Self {
            user: question.user.as_deref(),
            id: question.user.as_ref().and_then(|user| Uuid::try_parse(user).ok()),
            names: specs.map(|spec| (spec.id.as_str(), spec.name.as_str())).collect(),
        }
    }

    fn matches(&self, id: &str) -> bool {
        self.user.is_none_or(|user| user == id || user == self.name(id))
            || self
                .id
                .is_some_and(|queried| Uuid::try_parse(id).is_ok_and(|id| id == queried))
    }

    fn name(&self, id: &str) -> &'a str {
        self.names.get(id).copied().unwrap_or_default()
    }

    /// The keys of the Users, which are on every node until they end.
    fn ends(&self, wanted: &Wanted) -> BTreeMap<UserKey, Option<EndTime>> {
        let users = wanted.logins.iter().map(|(id, keys)| (id.to_string(), keys));
        let users = users.filter(|(id, _)| self.matches(id));
        users
            .flat_map(|(id, keys)| {
                keys.iter()
                    .map(move |key| ((id.clone(), key.fingerprint.clone()), key.end))
            })
            .collect()
    }

    /// The lines of break-glass keys that do not count on a node. No User says so.
    fn refused_there(&self, node: &str, report: Option<&NodeReportStatus>) -> impl Iterator<Item = RefusedExplained> {
        let refused = report.into_iter().flat_map(|report| &report.refused);
        let there = refused.filter(|refused| refused.user == break_glass::FILE && self.matches(break_glass::FILE));
        there.map(move |refused| RefusedExplained {
            user: refused.user.clone(),
            key: format!("{} on {node}", refused.key),
            why: refused.reason.clone(),
        })
    }

    fn compare(
        &self,
        node: &str,
        report: Option<&NodeReportStatus>,
        due: &BTreeSet<UserKey>,
        answer: &mut LoginsExplained,
    ) {
        let mut present = BTreeSet::new();
        let users = report.iter().flat_map(|report| &report.users);
        for user in users.filter(|user| self.matches(&user.id)) {
            for fingerprint in &user.fingerprints {
                present.insert((user.id.clone(), fingerprint.clone()));
                answer.applied.push(LoginExplained {
                    node: node.to_owned(),
                    user: user.id.clone(),
                    name: self.name(&user.id).to_owned(),
                    fingerprint: fingerprint.clone(),
                    expires_at: None,
                    since: user.since.to_string(),
                });
            }
        }
        let why = why(report);
        let pending = |(user, fingerprint): &UserKey, due| PendingExplained {
            node: node.to_owned(),
            user: user.clone(),
            name: self.name(user).to_owned(),
            fingerprint: fingerprint.clone(),
            due,
            why: why.clone(),
        };
        answer
            .pending
            .extend(due.difference(&present).map(|key| pending(key, "add")));
        answer
            .pending
            .extend(present.difference(due).map(|key| pending(key, "remove")));
    }
}

/// The reason why an agent has not done what is due.
fn why(report: Option<&NodeReportStatus>) -> String {
    let Some(report) = report else {
        return "the node has no report: its agent does not run, or cannot reach the API server".to_owned();
    };
    let applied = report.conditions.iter().find(|condition| condition.type_ == APPLIED);
    match applied {
        Some(condition) if condition.status != ConditionStatus::True => condition.message.clone(),
        _ => "the agent has not reported the change yet".to_owned(),
    }
}

fn explained(
    name: &str,
    node: Option<&Node>,
    report: Option<&NodeReport>,
    agents: Option<&BTreeSet<String>>,
) -> NodeExplained {
    let runs = agents.map(|agents| agents.contains(name));
    let status = report.and_then(|report| report.status.as_ref());
    let applied = report.and_then(|report| report.condition(APPLIED));
    let is_applied = applied.is_some_and(|condition| condition.status == ConditionStatus::True);
    let state = match (node, applied) {
        (None, _) => "there is no such Node any more; the report is what its agent last said".to_owned(),
        (Some(_), None) => "no report: the agent does not run here, or cannot reach the API server".to_owned(),
        (Some(node), Some(_)) if !node.status.is_ready() => {
            "the Node is not Ready: the report may be old, and who could log in still can".to_owned()
        }
        (Some(_), Some(_)) if runs == Some(false) => {
            "no agent is ready on the node: the report may be old, and who could log in still can".to_owned()
        }
        (Some(_), Some(condition)) if runs.is_none() => format!(
            "{}; it is not known whether the agent still runs, because you may not list the pods in the namespace \
             tidewaiter-agent",
            condition.message
        ),
        (Some(_), Some(condition)) => condition.message.clone(),
    };
    NodeExplained {
        node: name.to_owned(),
        is_current: is_applied && runs == Some(true) && node.is_some_and(|node| node.status.is_ready()),
        state,
        foreign_lines: status.map_or(0, |status| status.foreign_lines),
        foreign_keys: status
            .iter()
            .flat_map(|status| &status.foreign_keys)
            .map(foreign_key)
            .collect(),
        foreign_lines_until: status
            .and_then(|status| status.foreign_lines_until)
            .map(|until| until.to_string())
            .unwrap_or_default(),
        break_glass_keys: status.map(|status| status.break_glass_keys.clone()).unwrap_or_default(),
        restores: status.map_or(0, |status| status.restores),
    }
}

/// The users that have a break-glass key, too, or had it, as the report says: they keep access when their User is
/// deleted.
fn of_users(fingerprint: &str, report: Option<&NodeReportStatus>, wanted: &Wanted, query: &UserQuery<'_>) -> String {
    let users = wanted.logins.iter();
    let users = users.filter(|(_, keys)| keys.iter().any(|key| key.fingerprint == fingerprint));
    let mut ids: BTreeSet<String> = users.map(|(id, _)| id.to_string()).collect();
    let known = report.into_iter().flat_map(|report| &report.break_glass_users);
    ids.extend(
        known
            .filter(|user| user.fingerprint == fingerprint)
            .map(|user| user.user.clone()),
    );
    let names = ids.iter().map(|id| match query.name(id) {
        "" => format!("{id}, who has no User any more"),
        name => name.to_owned(),
    });
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        return String::new();
    }
    format!(
        " (also of the user {}; on the node, tidewaiter host break-glass remove {fingerprint} ends that)",
        names.join(", ")
    )
}

fn foreign_key(key: &ForeignKey) -> String {
    format!("{} {}", key.fingerprint, key.comment).trim_end().to_owned()
}

fn name(meta: &kube::core::ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const A: &str = "00000000-0000-4000-8000-00000000000a";
    const B: &str = "00000000-0000-4000-8000-00000000000b";
    const GONE: &str = "00000000-0000-4000-8000-00000000000c";
    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
    const PRINT: &str = "SHA256:m17ZU7hsyzWBFKqJ1CFX9iV5aFCCCwvuDg+IdcK5NY4";
    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn user(id: &str, name: &str, keys: &[&str]) -> User {
        let keys: Vec<Value> = keys.iter().map(|key| json!({"key": key, "name": "laptop"})).collect();
        read(json!({"metadata": {"name": id}, "spec": {"id": id, "name": name, "ssh_keys": keys}}))
    }

    fn report(node: &str, users: &[&str], applied: &str) -> NodeReport {
        let users: Vec<Value> = users
            .iter()
            .map(|id| json!({"id": id, "fingerprints": [PRINT], "since": "2026-01-01T00:00:00Z"}))
            .collect();
        read(
            json!({"metadata": {"name": node}, "spec": {}, "status": {"users": users, "breakGlassKeys": [PRINT],
            "breakGlassUsers": [{"fingerprint": PRINT, "user": GONE}, {"fingerprint": "SHA256:other", "user": B}],
            "refused": [{"user": "break-glass", "key": "line 2", "reason": "must be"}, {"user": B, "reason": "r"}],
            "conditions": [{"type": "Applied", "status": applied, "reason": "NotWritten", "message": "the disk is full",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
        )
    }

    fn node(name: &str, ready: &str) -> Node {
        read(json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    }

    fn pending(answer: &LoginsExplained) -> Vec<(&str, &str, &str, &str)> {
        let rows = answer.pending.iter();
        rows.map(|row| (row.node.as_str(), row.user.as_str(), row.due, row.why.as_str()))
            .collect()
    }

    #[test]
    fn promised_applied_and_stale_are_told_apart() {
        let users = [user(A, "alice", &[KEY]), user(B, "bob", &["bad"])];
        let reports = [
            report("n1", &[A], "True"),
            report("n2", &[B], "False"),
            report("gone", &[A], "True"),
        ];
        let nodes = [node("n1", "True"), node("n2", "Unknown"), node("n3", "True")];
        let agents = BTreeSet::from(["n1", "n2"].map(str::to_owned));
        let question = LoginQuestion::default();
        let answer = describe(&users, &reports, &nodes, Some(&agents), &question, NOW);
        let applied: Vec<_> = answer
            .applied
            .iter()
            .map(|row| (row.node.as_str(), row.name.as_str()))
            .collect();
        assert_eq!(applied, [("gone", "alice"), ("n1", "alice"), ("n2", "bob")]);
        let no_report = "the node has no report: its agent does not run, or cannot reach the API server";
        assert_eq!(
            pending(&answer),
            [
                ("n2", A, "add", "the disk is full"),
                ("n2", B, "remove", "the disk is full"),
                ("n3", A, "add", no_report)
            ]
        );
        assert_eq!(
            answer.nodes[0].break_glass_keys,
            [format!(
                "{PRINT} (also of the user alice, {GONE}, who has no User any more; on the node, tidewaiter host break-glass \
                 remove {PRINT} ends that)"
            )]
        );
        let current: Vec<_> = answer
            .nodes
            .iter()
            .map(|node| (node.node.as_str(), node.is_current))
            .collect();
        assert_eq!(current, [("gone", false), ("n1", true), ("n2", false), ("n3", false)]);
        assert_eq!(
            (answer.refused[0].user.as_str(), answer.refused[0].key.as_str()),
            (B, "laptop")
        );
        let keys: Vec<_> = answer.refused.iter().map(|row| row.key.as_str()).collect();
        assert_eq!(keys, ["laptop", "line 2 on gone", "line 2 on n1", "line 2 on n2"]);
    }

    #[test]
    fn an_end_is_shown_and_a_key_that_has_ended_is_due_nowhere() {
        let ending = |end: &str| {
            let mut ending = user(A, "alice", &[KEY]);
            end.clone_into(&mut ending.spec.expires_at);
            [ending]
        };
        let (reports, nodes) = ([report("n1", &[A], "True")], [node("n1", "True")]);
        let question = LoginQuestion::default();
        let answer = |end: &str| describe(&ending(end), &reports, &nodes, None, &question, NOW);
        let (past, ahead) = ("2027-01-15T08:00:00Z", "2027-01-15T08:00:01Z");
        let open = answer(ahead);
        assert_eq!(open.applied[0].expires_at.as_deref(), Some(ahead));
        assert_eq!((pending(&open), open.applied.len()), (vec![], 1));
        let ended = answer(past);
        assert_eq!(ended.pending[0].due, "remove");
        assert!(
            ended
                .refused
                .iter()
                .any(|row| row.key == PRINT && row.why.contains("expires_at"))
        );
    }

    #[test]
    fn one_user_or_one_node_is_asked_about() {
        let users = [user(A, "alice", &[KEY]), user(B, "bob", &["bad"])];
        let reports = [report("n1", &[A, B], "True"), report("n2", &[A], "True")];
        let nodes = [node("n1", "True"), node("n2", "True")];
        let asked = |user: Option<&str>, node: Option<&str>| {
            let question = LoginQuestion {
                user: user.map(str::to_owned),
                node: node.map(str::to_owned),
            };
            let answer = describe(&users, &reports, &nodes, None, &question, NOW);
            let applied = answer.applied.iter().map(|row| format!("{} {}", row.node, row.name));
            (
                applied.collect::<Vec<_>>().join(", "),
                answer.refused.len(),
                answer.nodes.len(),
            )
        };
        assert_eq!(asked(Some("alice"), None), ("n1 alice, n2 alice".to_owned(), 0, 2));
        for id in [B.to_owned(), B.replace('-', "")] {
            assert_eq!(asked(Some(&id), None), ("n1 bob".to_owned(), 1, 2), "{id}");
        }
        // Also the line of a break-glass key that does not count there.
        assert_eq!(asked(None, Some("n2")), ("n2 alice".to_owned(), 2, 1));
        assert_eq!(asked(Some("alice"), Some("n1")), ("n1 alice".to_owned(), 0, 1));
    }

    #[test]
    fn a_report_of_an_agent_that_does_not_run_is_not_relied_on() {
        let (reports, nodes) = ([report("n1", &[A], "True")], [node("n1", "True")]);
        let none = BTreeSet::new();
        let here = BTreeSet::from(["n1".to_owned()]);
        for (agents, is_current, words) in [
            (Some(&here), true, "the disk is full"),
            (Some(&none), false, "no agent is ready on the node"),
            (None, false, "it is not known whether the agent still runs"),
        ] {
            let answer = describe(&[], &reports, &nodes, agents, &LoginQuestion::default(), NOW);
            let found = &answer.nodes[0];
            assert!(
                found.is_current == is_current && found.state.contains(words),
                "{found:?}"
            );
        }
    }
}
