//! The cost of a verdict for each Node, in clusters of 5,000 and of 50,000, in a process that does nothing else.
//!
//! ```text
//! cargo run --release --example cost
//! ```
//!
//! Before each verdict its data is evicted from the caches of the processor, as the other work of a controller does.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark")]
#![expect(clippy::disallowed_methods, reason = "it measures in real time")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tidewaiter_kops::{GroupSummary, Role};
use tidewaiter_validation::{
    ClaimTable, CloudGroup, Dns, Identities, IdentityRecord, Instances, Member, MemberStatus, Observation, Options,
    Part, Sizes, judge,
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Larger than the caches of any processor that runs this.
const EVICTED: usize = 256 << 20;
const VERDICTS: usize = 41;
const GROUPS: usize = 50;

#[derive(Clone, Copy)]
enum Nodes {
    Ready,
    NotReady,
    Missing,
}

fn main() {
    let mut memory = vec![0_u8; EVICTED];
    let time_each =
        |nodes, counts_only, memory: &mut [u8]| [5_000, 50_000].map(|count| each(count, nodes, counts_only, memory));
    for (named, nodes) in [
        ("every Node is ready", Nodes::Ready),
        ("every Node is not ready", Nodes::NotReady),
        ("every Node is missing", Nodes::Missing),
    ] {
        for (who, counts_only) in [("controller", true), ("validate", false)] {
            let [small, large] = time_each(nodes, counts_only, &mut memory);
            println!(
                "{named:24} {who:11} {small:7.1} ns {large:7.1} ns, ratio {:.2}",
                large / small
            );
        }
    }
}

/// The lower quartile of the time of a verdict for each Node, in nanoseconds.
fn each(count: usize, nodes: Nodes, counts_only: bool, memory: &mut [u8]) -> f64 {
    let options = Options {
        counts_only,
        ..Options::default()
    };
    let seen = observation(count, nodes);
    let mut verdict = judge(&seen, &options);
    let mut times: Vec<Duration> = (0..VERDICTS)
        .map(|number| {
            memory.fill(number.to_le_bytes()[0]);
            black_box(&memory);
            let begin = Instant::now();
            // The last verdict is dropped when there is a new one, as in the controller.
            verdict = judge(&seen, &options);
            begin.elapsed()
        })
        .collect();
    black_box(&verdict);
    times.sort_unstable();
    times[VERDICTS / 4].as_secs_f64() * 1e9 / f64::from(u32::try_from(count).unwrap())
}

fn observation(count: usize, nodes: Nodes) -> Observation {
    let group = |number: usize| format!("nodes-{number:02}");
    let id = |number: usize| format!("i-{number:017x}");
    let name = |number: usize| format!("ip-10-{}-{}.ec2.internal", number / 250, number % 250);
    let provider_id = |number: usize| format!("aws:///us-test-1a/{}", id(number));
    let member = |number: usize| Member {
        id: id(number),
        provider_id: provider_id(number).parse().unwrap(),
        node_name: None,
        status: MemberStatus::UpToDate,
        warm_pool: false,
    };
    let in_cloud = |number: usize| {
        let size = u32::try_from(count / GROUPS).unwrap();
        CloudGroup {
            name: format!("{}.c.example.com", group(number)),
            instance_group: group(number).parse().unwrap(),
            role: None,
            sizes: Sizes::OfCloud {
                target: size,
                min: size,
                max: size,
            },
            members: (0..count).skip(number).step_by(GROUPS).map(member).collect(),
        }
    };
    let summary = |number: usize| GroupSummary {
        name: group(number).parse().unwrap(),
        role: Role::Node,
        machine_type: String::new(),
        min_size: None,
        max_size: None,
        subnets: Vec::new(),
        karpenter: false,
    };
    let mut table = ClaimTable::default();
    let ready = if matches!(nodes, Nodes::Ready) { "True" } else { "False" };
    let present = if matches!(nodes, Nodes::Missing) { 0 } else { count };
    for number in 0..present {
        let (name, provider_id): (Arc<str>, _) = (name(number).into(), provider_id(number));
        let uid = format!("{number:08x}-0000-4000-8000-000000000000");
        let node = json!({"metadata": {"name": *name, "uid": uid, "labels": {"kubernetes.io/hostname": *name}},
            "spec": {"providerID": provider_id}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        table.set_node(&name, Some(Arc::new(serde_json::from_value(node).unwrap())));
        let condition = json!({"type": "Verified", "status": "True", "reason": "Proven", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let spec = serde_json::from_value(json!({"nodeUID": uid, "providerID": provider_id})).unwrap();
        let status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
        table.set_record(&name, Some(IdentityRecord::new(&name, &spec, &status)));
    }
    let instances = Arc::new(Instances::new((0..GROUPS).map(in_cloud).collect()));
    Observation {
        cluster: "c.example.com".parse().unwrap(),
        groups: Part::Known((0..GROUPS).map(summary).collect()),
        nodes: Part::Known(table.claims(Some(&instances))),
        cloud: Part::Known(instances),
        cloud_location: None,
        identities: Identities::Installed(Part::Known(())),
        pods: Part::Known(Vec::new()),
        dns: Part::Known(Dns::NotAsked),
    }
}
