//! The order in which anything was observed changes nothing, and tolerance only ever takes failures away.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::json;
use tidewaiter_kops::{GroupSummary, Role};
use tidewaiter_validation::{
    ClaimTable, Claims, CloudGroup, Dns, Failure, FailureKind, Identities, IdentityRecord, Instances, LISTED, Member,
    MemberStatus, Node, Observation, Options, Outcome, Part, Pod, Sizes, Verdict, judge, matters,
};

const GROUPS: [&str; 4] = ["a", "b", "c", "d"];
/// Few, so that groups share instances and Nodes share claims.
const INSTANCES: [&str; 6] = ["i-0", "i-1", "i-2", "i-3", "i-4", "i-5"];
const NODES: [&str; 6] = ["n-0", "n-1", "n-2", "n-3", "n-4", "n-5"];

fn group(name: &'static str) -> impl Strategy<Value = GroupSummary> {
    let role = select(vec![
        Role::ControlPlane,
        Role::Node,
        Role::Node,
        Role::Bastion,
        Role::ApiServer,
        Role::Etcd,
    ]);
    (role, any::<Option<u32>>(), any::<bool>()).prop_map(move |(role, size, karpenter)| GroupSummary {
        name: name.parse().unwrap(),
        role,
        machine_type: String::new(),
        min_size: size,
        max_size: size,
        subnets: Vec::new(),
        karpenter,
    })
}

fn groups() -> impl Strategy<Value = Vec<GroupSummary>> {
    subsequence(GROUPS.to_vec(), 0..=4).prop_flat_map(|names| names.into_iter().map(group).collect::<Vec<_>>())
}

fn provider_id(id: &str) -> String {
    format!("aws:///zone/{id}")
}

fn member(id: &'static str) -> impl Strategy<Value = Member> {
    let status = select(vec![
        MemberStatus::UpToDate,
        MemberStatus::NeedsUpdate,
        MemberStatus::Unresolved,
        MemberStatus::Detached,
    ]);
    (status, any::<bool>(), prop::option::of(select(NODES.to_vec()))).prop_map(move |(status, warm_pool, node)| {
        Member {
            id: id.to_owned(),
            provider_id: provider_id(id).parse().unwrap(),
            node_name: node.map(|name| name.parse().unwrap()),
            status,
            warm_pool,
        }
    })
}

fn cloud() -> impl Strategy<Value = Vec<CloudGroup>> {
    let members =
        subsequence(INSTANCES.to_vec(), 0..=6).prop_flat_map(|ids| ids.into_iter().map(member).collect::<Vec<_>>());
    let of_cloud = |size| Sizes::OfCloud {
        target: size,
        min: size,
        max: size,
    };
    let sizes = (0..6_u32).prop_map(of_cloud);
    let sizes = prop_oneof![3 => sizes, 1 => Just(Sizes::Unmanaged), 1 => Just(Sizes::OfInstanceGroup)];
    let one = (select(GROUPS.to_vec()), sizes, members);
    prop::collection::vec(one, 0..6).prop_map(|groups| {
        let named = groups.into_iter().enumerate();
        let made = named.map(|(number, (group, sizes, members))| CloudGroup {
            name: format!("cloud-{number}"),
            instance_group: group.parse().unwrap(),
            role: None,
            sizes,
            members,
        });
        made.collect()
    })
}

fn nodes() -> impl Strategy<Value = Vec<(&'static str, Arc<Node>)>> {
    let one = |name: &'static str| {
        let status = || select(vec!["True", "True", "False", "Unknown"]);
        (
            prop::option::of(select(INSTANCES.to_vec())),
            any::<bool>(),
            status(),
            prop::option::of(status()),
        )
            .prop_map(move |(instance, control_plane, ready, network)| {
                let labels = if control_plane {
                    json!({"node-role.kubernetes.io/control-plane": ""})
                } else {
                    json!({})
                };
                let mut conditions = vec![json!({"type": "Ready", "status": ready})];
                conditions.extend(network.map(|status| json!({"type": "NetworkUnavailable", "status": status})));
                let provider_id = instance.map(provider_id);
                let node = json!({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {"providerID": provider_id},
                    "status": {"conditions": conditions}});
                (name, Arc::new(serde_json::from_value(node).unwrap()))
            })
    };
    subsequence(NODES.to_vec(), 0..=6).prop_flat_map(move |names| names.into_iter().map(one).collect::<Vec<_>>())
}

/// Records of any Nodes for any claims: proven, forged, or neither; None where Tidewaiter is not installed.
fn records() -> impl Strategy<Value = Option<Vec<IdentityRecord>>> {
    let one = |name: &'static str| {
        let condition = select(vec![
            ("True", "Proven"),
            ("True", "Proven"),
            ("False", "NameMismatch"),
            ("Unknown", "Throttled"),
        ]);
        (condition, select(INSTANCES.to_vec()), select(vec!["", "another"])).prop_map(
            move |((status, reason), instance, uid)| {
                let condition = json!({"type": "Verified", "status": status, "reason": reason, "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"});
                let uid = format!("{name}{uid}");
                let spec = json!({"nodeUID": uid, "providerID": provider_id(instance)});
                let status = json!({"conditions": [condition]});
                let [spec, status] = [spec, status].map(|value| value.to_string());
                let spec = serde_json::from_str(&spec).unwrap();
                IdentityRecord::new(name, &spec, &serde_json::from_str(&status).unwrap())
            },
        )
    };
    let records =
        subsequence(NODES.to_vec(), 0..=6).prop_flat_map(move |names| names.into_iter().map(one).collect::<Vec<_>>());
    prop_oneof![
        1 => Just(None),
        4 => records.prop_map(Some),
    ]
}

fn pods() -> impl Strategy<Value = Vec<Arc<Pod>>> {
    let class = select(vec!["system-node-critical", "system-cluster-critical", "batch"]);
    let app = select(vec![
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "other",
    ]);
    let phase = select(vec!["Pending", "Running", "Running", "Succeeded", "Failed", "Unknown"]);
    let one = (
        class,
        app,
        phase,
        prop::option::of(select(NODES.to_vec())),
        any::<[bool; 2]>(),
    );
    prop::collection::vec(one, 0..20).prop_map(|pods| {
        let named = pods.into_iter().enumerate();
        let made = named.map(|(number, (class, app, phase, node, [one, other]))| {
            let pod = json!({"metadata": {"namespace": "kube-system", "name": format!("p-{number}"), "labels": {"k8s-app": app}},
                "spec": {"priorityClassName": class, "nodeName": node},
                "status": {"phase": phase, "containerStatuses": [{"name": "c", "ready": one}, {"name": "d", "ready": other}]}});
            Arc::new(serde_json::from_value(pod).unwrap())
        });
        made.collect()
    })
}

/// The observations, before they are sorted.
#[derive(Clone, Debug)]
struct Seen {
    groups: Vec<GroupSummary>,
    cloud: Vec<CloudGroup>,
    nodes: Vec<(&'static str, Arc<Node>)>,
    records: Option<Vec<IdentityRecord>>,
    pods: Vec<Arc<Pod>>,
    addresses: Vec<IpAddr>,
}

impl Seen {
    fn observation(&self) -> Observation {
        let mut table = ClaimTable::default();
        self.fill(&mut table);
        self.with(table.claims(None), Arc::new(Instances::new(self.cloud.clone())))
    }

    fn fill(&self, table: &mut ClaimTable) {
        for record in self.records.iter().flatten() {
            table.set_record(record.node(), Some(record.clone()));
        }
        for (name, node) in &self.nodes {
            table.set_node(&Arc::from(*name), Some(Arc::clone(node)));
        }
    }

    fn with(&self, claims: Claims, instances: Arc<Instances>) -> Observation {
        let installed = Identities::Installed(Part::Known(()));
        Observation {
            cluster: "cluster.example.com".parse().unwrap(),
            groups: Part::Known(self.groups.clone()),
            cloud: Part::Known(instances),
            cloud_location: None,
            nodes: Part::Known(claims),
            identities: self.records.as_ref().map_or(Identities::NotInstalled, |_| installed),
            pods: Part::Known(self.pods.clone()),
            dns: Part::Known(Dns::Addresses(self.addresses.clone())),
        }
    }

    fn judge(&self, options: Options) -> Verdict {
        judge(&self.observation(), &options)
    }
}

fn seen() -> impl Strategy<Value = Seen> {
    let addresses = ["203.0.113.123", "fd00:dead:add::", "10.0.0.1", "::1"].map(|address| address.parse().unwrap());
    (
        groups(),
        cloud(),
        nodes(),
        records(),
        pods(),
        subsequence(addresses.to_vec(), 0..=4),
    )
        .prop_map(|(groups, cloud, nodes, records, pods, addresses)| Seen {
            groups,
            cloud,
            nodes,
            records,
            pods,
            addresses,
        })
}

/// Returns the things in another order, by the numbers in `places`.
fn shuffled<T: Clone>(things: &[T], places: &[Index]) -> Vec<T> {
    let mut rest = things.to_vec();
    let mut places = places.iter().cycle();
    let mut order = Vec::new();
    while !rest.is_empty() {
        order.push(rest.swap_remove(places.next().unwrap().index(rest.len())));
    }
    order
}

fn reordered(seen: &Seen, places: &[Index]) -> Seen {
    let mut cloud = shuffled(&seen.cloud, places);
    for group in &mut cloud {
        group.members = shuffled(&group.members, places);
    }
    Seen {
        groups: shuffled(&seen.groups, places),
        cloud,
        nodes: shuffled(&seen.nodes, places),
        records: seen.records.as_ref().map(|records| shuffled(records, places)),
        pods: shuffled(&seen.pods, places),
        addresses: shuffled(&seen.addresses, places),
    }
}

fn tolerating(max_unready_nodes: u32) -> Options {
    Options {
        max_unready_nodes,
        counts_only: false,
    }
}

fn sorted(failures: impl IntoIterator<Item = Failure>) -> Vec<String> {
    let mut shown: Vec<String> = failures.into_iter().map(|failure| format!("{failure:?}")).collect();
    shown.sort();
    shown
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn the_order_of_what_was_observed_changes_nothing(
        seen in seen(),
        places in prop::collection::vec(any::<Index>(), 1..16),
        max_unready_nodes in 0..4_u32,
    ) {
        let options = tolerating(max_unready_nodes);
        prop_assert_eq!(seen.judge(options), reordered(&seen, &places).judge(options));
    }

    /// A table that is kept, while Nodes, records and the cloud become others, leads to the verdict of one that is made
    /// anew.
    #[test]
    fn a_table_that_is_kept_leads_to_the_same_verdict(history in prop::collection::vec((seen(), any::<bool>()), 1..6)) {
        let mut kept = ClaimTable::default();
        let mut instances = Arc::<Instances>::default();
        for (seen, other_cloud) in &history {
            if *other_cloud {
                instances = Arc::new(Instances::new(seen.cloud.clone()));
            }
            for name in NODES {
                let node = seen.nodes.iter().find(|(other, _)| *other == name);
                let shared = Arc::from(name);
                kept.set_node(&shared, node.map(|(_, node)| Arc::clone(node)));
                let record = seen.records.iter().flatten().find(|record| **record.node() == *name);
                kept.set_record(&shared, record.cloned());
            }
            let mut fresh = ClaimTable::default();
            seen.fill(&mut fresh);
            let kept = seen.with(kept.claims(Some(&instances)), Arc::clone(&instances));
            let fresh = seen.with(fresh.claims(None), Arc::clone(&instances));
            prop_assert_eq!(judge(&kept, &Options::default()), judge(&fresh, &Options::default()));
        }
    }

    #[test]
    fn who_only_counts_gets_the_same_verdict_without_the_lists(seen in seen()) {
        let counted = seen.judge(Options { counts_only: true, ..Options::default() });
        let listed = seen.judge(Options::default());
        for kind in FailureKind::ALL {
            prop_assert_eq!(counted.failures_of(kind), listed.failures_of(kind), "{}", kind);
        }
        prop_assert_eq!(counted.failure_count(), listed.failures.len());
        let unlisted = counted.unlisted.clone();
        let mut failures = listed.failures;
        failures.truncate(LISTED);
        prop_assert_eq!(counted, Verdict { nodes: Vec::new(), failures, unlisted, ..listed });
    }

    #[test]
    fn pods_that_do_not_matter_change_nothing(seen in seen()) {
        let mut fewer = seen.clone();
        fewer.pods.retain(|pod| matters(pod));
        prop_assert_eq!(seen.judge(Options::default()), fewer.judge(Options::default()));
    }

    #[test]
    fn no_node_and_no_instance_is_judged_twice(seen in seen()) {
        let verdict = seen.judge(Options::default());
        let nodes: Vec<&str> = verdict.nodes.iter().map(|node| &*node.name).collect();
        let of_kind = |kind| verdict.failures.iter().filter(move |failure| failure.kind == kind);
        let machines: Vec<&str> = of_kind(FailureKind::Machine).map(|failure| failure.name.as_str()).collect();
        let unready = of_kind(FailureKind::Node).filter(|failure| failure.message.ends_with("is not ready"));
        let unready: Vec<&str> = unready.map(|failure| failure.name.as_str()).collect();
        for names in [nodes, machines, unready] {
            let distinct: BTreeSet<&str> = names.iter().copied().collect();
            prop_assert_eq!(distinct.len(), names.len(), "{:?}", names);
        }
    }

    /// The verdict is never better for what is not proven.
    #[test]
    fn without_records_no_node_counts_and_no_cluster_with_instances_is_ready(seen in seen()) {
        let unread = Identities::Installed(Part::Unknown("denied".to_owned()));
        let denied = judge(&Observation { identities: unread, ..seen.observation() }, &Options::default());
        let without = |records| Seen { records, ..seen.clone() }.judge(Options::default());
        prop_assert_ne!(denied.outcome(), Outcome::Ready);
        prop_assert_eq!((denied.counts.nodes_ready, denied.nodes.len()), (None, 0));
        let none = without(Some(Vec::new()));
        prop_assert_eq!((none.counts.nodes_ready.unwrap_or_default(), none.nodes.len()), (0, 0));
        let trusted = without(None);
        let judged = trusted.nodes.len() + trusted.failures_of(FailureKind::Machine);
        prop_assert!(none.outcome() != Outcome::Ready || judged == 0);
    }

    #[test]
    fn what_is_tolerated_is_taken_from_the_failures_and_changes_nothing_else(
        seen in seen(),
        max_unready_nodes in 0..4_u32,
    ) {
        let strict = seen.judge(Options::default());
        let lenient = seen.judge(tolerating(max_unready_nodes));
        prop_assert!(strict.tolerated.is_empty());
        prop_assert_eq!(sorted(strict.failures), sorted(lenient.failures.into_iter().chain(lenient.tolerated)));
        prop_assert_eq!((strict.counts, strict.nodes, strict.groups), (lenient.counts, lenient.nodes, lenient.groups));
    }
}
