use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::*;
use crate::controllers::plugin::cluster::observe::Observed;
use crate::controllers::plugin::cluster::plan::plan;
use crate::controllers::plugin::desired::{Object, Sent};
use crate::controllers::plugin::settings::PluginDrift;

const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";

/// The kinds of the tables, with their API version and whether they are namespaced.
const KINDS: [(&str, &str, &str, bool); 14] = [
    ("APIService", "apiregistration.k8s.io/v1", "APIService", false),
    ("Chart", "charts.example.org/v1", "Chart", true),
    ("Claim", "claims.example.org/v1", "Claim", true),
    ("ConfigMap", "v1", "ConfigMap", true),
    (
        "Definition",
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        false,
    ),
    ("Deployment", "apps/v1", "Deployment", true),
    ("Measure", "computed.example.com/v1", "Measure", true),
    ("Namespace", "v1", "Namespace", false),
    ("PVC", "v1", "PersistentVolumeClaim", true),
    ("ResourceClaim", "resource.k8s.io/v1", "ResourceClaim", true),
    ("Secret", "v1", "Secret", true),
    ("Service", "v1", "Service", true),
    (
        "Webhook",
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        false,
    ),
    ("Widget", "example.com/v1", "Widget", true),
];

/// The objects of the version before, and the phases in which they go. `NAME:KIND<OTHER` has a finalizer that OTHER
/// removes, if it exists; `NAME:KIND~OTHER` is protected while OTHER exists.
const ROWS: &str = "
a:ConfigMap / b:ConfigMap / c:ConfigMap d:ConfigMap                                 | c d / b / a
n:Namespace / a:ConfigMap                                                           | a / n
op:Deployment / w:Widget<op                                                         | w / op
op:Deployment w:Widget<op                                                           | w / op
op:Deployment / s:Secret<op                                                         | s / op
op:Deployment s:Secret<op                                                           | s / op
op:Deployment / a:ConfigMap s:Secret<op                                             | a s / op
widgets.example.com:Definition w:Widget<op / op:Deployment                          | w / op / widgets.example.com
op:Chart / d:Deployment s:Service<op                                                | s / d / op
op:Deployment / q:Chart<op / c:Claim<q                                              | c / q / op
widgets.example.com:Definition d:Deployment / w:Widget<op / c:Claim<w / op:Deployment | c / w / op / d / widgets.example.com
d:Deployment / v:PVC~d                                                              | v / d
d:Deployment r:ResourceClaim~d                                                      | r / d
d:Deployment n:Namespace v:PVC~d                                                    | d v / n
v1.computed.example.com:APIService d:Deployment m:Measure<d                         | m / v1.computed.example.com / d
m:Measure<d / d:Deployment v1.computed.example.com:APIService                       | m / v1.computed.example.com / d
hook:Webhook d:Deployment / c:ConfigMap                                             | hook / c / d
";

fn named(name: &str, kind: &str) -> Value {
    let (_, api_version, kind, _) = KINDS.iter().find(|(short, ..)| *short == kind).unwrap();
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}})
}

fn release(groups: &Value) -> Release {
    Release::read(PLUGIN, "1.0.0", &Sent::from(&json!({ "manifests": groups })), &[]).unwrap()
}

/// The reason for which an object stays after its deletion.
enum Stays {
    /// Until this operator has removed its finalizer.
    Finalized(String),
    /// While this object exists.
    Used(String),
}

/// A cluster in which the version is applied.
struct Cluster {
    record: Record,
    observed: Observed,
    stays: BTreeMap<String, Stays>,
}

impl Cluster {
    fn new(groups: &str) -> Self {
        let mut stays = BTreeMap::new();
        let mut object = |word: &str| {
            let (name, kind) = word.split_once(':').unwrap();
            let (kind, why) = match (kind.split_once('<'), kind.split_once('~')) {
                (Some((kind, operator)), _) => (kind, Some(Stays::Finalized(operator.to_owned()))),
                (_, Some((kind, user))) => (kind, Some(Stays::Used(user.to_owned()))),
                _ => (kind, None),
            };
            stays.extend(why.map(|why| (name.to_owned(), why)));
            named(name, kind)
        };
        let groups = groups.split(" / ");
        let groups: Vec<Vec<Value>> = groups
            .map(|group| group.split_whitespace().map(&mut object).collect())
            .collect();
        let release = release(&json!(groups));
        let kinds = KINDS.map(|(_, api_version, kind, namespaced)| {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            ((group.to_owned(), version.to_owned(), kind.to_owned()), namespaced)
        });
        let mut cluster = Self {
            record: Record::default(),
            observed: Observed {
                kinds: kinds.into(),
                ..Observed::default()
            },
            stays,
        };
        for (position, object) in release.in_order() {
            cluster.put(position, object);
        }
        // An earlier leader wrote it.
        cluster.record = Record::read(&cluster.record.write());
        cluster
    }

    fn put(&mut self, position: i64, object: &Object) {
        let id = self.observed.place(object).unwrap();
        self.record.expect(id.clone(), &object.version, position);
        self.record.apply(&id, &object.digest, "ours".to_owned());
        let mut live = Live::created("u".to_owned(), "ours".to_owned());
        live.finalizers.extend(self.stays.get(&id.name).map(|why| match why {
            Stays::Finalized(operator) => format!("example.com/{operator}"),
            Stays::Used(_) => PROTECTIONS[0].to_owned(),
        }));
        self.observed.seen.insert(id, Seen::Ours(live));
    }

    fn exists(&self, name: &str) -> bool {
        self.observed.seen.keys().any(|id| id.name == name)
    }

    /// The operators and the control plane remove the finalizers that they remove now. Whether they removed any.
    fn operate(&mut self) -> bool {
        let goes = |cluster: &Self, id: &ObjectId, seen: &Seen| {
            let deleting = matches!(seen, Seen::Ours(live) if live.deleting);
            deleting
                && match cluster.stays.get(&id.name) {
                    Some(Stays::Finalized(operator)) => cluster.exists(operator),
                    Some(Stays::Used(user)) => !cluster.exists(user),
                    None => true,
                }
        };
        let seen = &self.observed.seen;
        let gone: Vec<_> = seen.iter().filter(|(id, seen)| goes(self, id, seen)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(id, _)| id.clone()).collect();
        self.observed.seen.retain(|id, _| !gone.contains(id));
        !gone.is_empty()
    }

    /// The phases in which everything goes that the release does not have; or what is waited for without end.
    fn remove(&mut self, release: &Release) -> Result<Vec<String>, String> {
        let mut phases = Vec::new();
        loop {
            let plan = plan(release, &self.record, &self.observed, PluginDrift::Correct);
            self.record = plan.record;
            match plan.end {
                End::Waits(waits) if plan.actions.is_empty() && !self.operate() => return Err(waits.message),
                End::Done if plan.actions.is_empty() => return Ok(phases),
                _ => {}
            }
            let mut deleted = Vec::new();
            for action in plan.actions.into_iter().flatten() {
                match action {
                    Action::Apply { object, .. } => self.put(1, object),
                    Action::Delete { id, .. } => {
                        deleted.push(id.name.clone());
                        let Some(Seen::Ours(live)) = self.observed.seen.get_mut(&id) else {
                            panic!("{id} does not exist")
                        };
                        live.deleting = true;
                        if live.finalizers.is_empty() {
                            self.observed.seen.remove(&id);
                        }
                    }
                    Action::Run { id, .. } => panic!("{id} runs"),
                }
            }
            phases.extend((!deleted.is_empty()).then(|| deleted.join(" ")));
        }
    }
}

/// Nothing, and a version with another object: a plugin that goes, and an upgrade.
fn nexts() -> [Release; 2] {
    [Release::default(), release(&json!([[named("kept", "ConfigMap")]]))]
}

#[test]
fn groups_go_in_reverse_order_each_after_the_one_before_is_gone() {
    for row in ROWS.lines().filter(|row| !row.is_empty()) {
        let (groups, phases) = row.split_once(" | ").unwrap();
        for next in nexts() {
            let found = Cluster::new(groups.trim()).remove(&next);
            assert_eq!(
                found.map(|phases| phases.join(" / ")),
                Ok(phases.trim().to_owned()),
                "{row}"
            );
        }
    }
}

#[test]
fn an_operator_outlives_what_it_finalizes_whatever_their_kinds_are() {
    let kinds: &[&str] = &["Deployment", "Secret", "Service", "Chart", "Claim"];
    let mut rows = 0;
    for (first, second, third) in kinds
        .iter()
        .flat_map(|a| kinds.iter().flat_map(move |b| kinds.iter().map(move |c| (a, b, c))))
    {
        let apart = format!("a:{first} / b:{second}<a / c:{third}<b");
        let together = format!("a:{first} b:{second}<a / c:{third}<b");
        let all = [Some(apart), (*first == "Deployment").then_some(together)];
        for (row, next) in all.iter().flatten().flat_map(|row| nexts().map(|next| (row, next))) {
            let found = Cluster::new(row).remove(&next);
            assert_eq!(found.map(|phases| phases.concat()), Ok("cba".to_owned()), "{row}");
            rows += 1;
        }
    }
    assert_eq!(rows, 300);
}

#[test]
fn what_is_waited_for_is_said_with_what_keeps_it_and_what_follows() {
    let mut cluster = Cluster::new("op:Deployment d:ConfigMap / a:Widget<nobody b:Widget<nobody");
    let message = cluster.remove(&Release::default()).unwrap_err();
    let expected = "waits until Widget.example.com default/a is gone, which is being deleted: its finalizers example.com/nobody keep it, which \
                    their controllers remove; also awaited: 1; deleted after that: 2";
    assert_eq!(message, expected);
}
