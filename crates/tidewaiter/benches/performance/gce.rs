//! The cost on Compute Engine of the identification of every instance of a big managed instance group.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::json;
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::fake_gce::{FakeInstance, REGION, regional_group, template};
use tidewaiter_testkit::{FakeGce, TokenBucket};

use crate::bed::{Bed, CLUSTER, LATENCY, group_name};
use crate::observer::Observer;
use crate::process;
use crate::report::{Chapter, count, figure, note};

const NODES: u32 = 1000;

/// `listManagedInstances`: what grows with the square of the Nodes when it is done for each of them.
const MEMBERS: &str = "regionInstanceGroupManagers.listManagedInstances";
const TEMPLATES: &str = "instanceTemplates.get";
const INSTANCES: &str = "instances.aggregatedList";
/// Only the cluster's health lists the groups. Each time it then lists the members of ours once, and the first time it
/// reads its template.
const GROUPS: &str = "instanceGroupManagers.aggregatedList";

pub async fn measure(bed: &Bed) -> Result<Chapter> {
    note(&format!(
        "a regional managed instance group of {NODES} on Compute Engine"
    ));
    let gce = FakeGce::start().await;
    gce.latency(LATENCY);
    gce.throttle(Some(TokenBucket::COMPUTE));
    let name = group_name(0);
    let template = template("nodes-v1").kops(CLUSTER, &name);
    let group = regional_group(REGION, &name);
    let instances: Vec<FakeInstance> = (1..=NODES)
        .map(|number| FakeInstance::numbered(number).kops(CLUSTER, &group))
        .collect();
    let group = instances
        .iter()
        .fold(group, |group, instance| group.lists(instance, &template));
    gce.launch(instances.clone());
    gce.templates([template]);
    gce.groups([group]);
    bed.create(instances.iter().map(|instance| {
        node(instance.node_name())
            .provider_id(&instance.provider_id())
            .internal_ip(instance.address())
            .build()
    }))
    .await?;

    let mut observer = Observer::start(bed).await?;
    let controller = process::start_on_gce(bed, &gce);
    observer.labelled(instances.len()).await?;
    controller.stop().await;
    bed.clear().await?;

    let mut calls: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for call in gce.take_calls() {
        let (calls, rows) = calls.entry(call.api).or_default();
        *calls += 1;
        *rows += call.rows;
    }
    let of = |api: &str| calls.get(api).copied().unwrap_or_default();
    let all: usize = calls.values().map(|(calls, _)| calls).sum();
    let listings = of(GROUPS).0;
    let health = (listings + listings.min(1), listings * instances.len());
    Ok(Chapter {
        key: "gce",
        title: format!("A managed instance group of {NODES} on Compute Engine, cold"),
        figures: vec![
            figure(
                "calls for the group's members and templates, for identities",
                "calls",
                count(of(MEMBERS).0 + of(TEMPLATES).0 - health.0),
                "",
                0,
            )
            .at_most(3.0),
            figure("  rows of members", "rows", count(of(MEMBERS).1 - health.1), "", 0).at_most(f64::from(NODES)),
            figure(
                "the same calls, for the cluster's health",
                "healthCalls",
                count(health.0),
                "",
                0,
            ),
            figure("  rows of members", "healthRows", count(health.1), "", 0),
            figure("pages of instances", "pages", count(of(INSTANCES).0), "", 0),
            figure("calls in all", "allCalls", count(all), "", 0),
        ],
        details: json!({"callsAndRows": calls}),
    })
}
