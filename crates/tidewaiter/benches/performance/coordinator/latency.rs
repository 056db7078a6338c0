//! From a change in the cloud to its effect in the cluster, with one cluster connected to the cloud and with a
//! thousand.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::Api;
use kube::api::{DeleteParams, PartialObjectMeta, PostParams};
use kube::runtime::watcher;
use serde::Serialize;
use serde_json::{Value, json};
use tidewaiter_api::containership::User;
use tidewaiter_testkit::builders::node;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::bed::{Bed, HOSTS, PASSWORD};
use super::load::{CHANGES_PER_SECOND, Load};
use super::{Sizes, now, pause};
use crate::cloud::wire::Wire;
use crate::observer::{follow, next};
use crate::process::{Role, SOON};
use crate::report::{Chapter, Figure, count, figure, note, quantile};

const LABEL: &str = "cluster.containership.io/env";

/// The labels of a Node are written twenty times at once and then once in ten seconds, so each Node is used for fewer
/// changes.
const ROUNDS_OF_A_NODE: usize = 15;

/// The interval of the changes. The coordinator lists a kind twice a second at most, and every third change is of the
/// same kind.
const CHANGE_INTERVAL: Duration = Duration::from_millis(220);

/// Seconds from the request to the cloud until a watcher saw the effect.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    resource: Vec<f64>,
    label: Vec<f64>,
    pull_secret: Vec<f64>,
    /// Of a core, by the coordinator.
    core: f64,
}

pub async fn measure(program: &Path, sizes: &Sizes) -> Result<Chapter> {
    let rounds = sizes.rounds;
    note(&format!("latency: one cluster on the cloud, {rounds} rounds"));
    let alone = rounds_and_end(&Bed::start(program, 1).await?, rounds).await?;
    note(&format!("latency: {} clusters beside it", sizes.streams));
    let bed = Bed::start(program, sizes.streams + 1).await?;
    let mut load = Load::start(&bed.cloud).await?;
    let beside = rounds_and_end(&bed, rounds).await?;
    let requests = load.requests_per_second()?;
    let mut figures = of_found(
        &alone,
        "at rest",
        ["restResource", "restLabel", "restPullSecret"],
        150.0,
    );
    let clusters = format!("{} clusters", sizes.streams + 1);
    figures.extend(of_found(
        &beside,
        &clusters,
        ["resource", "label", "pullSecret"],
        1000.0,
    ));
    figures.extend([
        figure("  lists a second of the others", "othersLists", requests, "", 0),
        figure(
            "  changes a second of the others",
            "othersChanges",
            f64::from(CHANGES_PER_SECOND),
            "",
            0,
        ),
        figure("  a core, coordinator", "core", beside.core * 100.0, " %", 1),
    ]);
    Ok(Chapter {
        key: "latency",
        title: format!("From a change in the cloud to its effect, {rounds} of each kind"),
        figures,
        details: json!({"alone": alone, "beside": beside}),
    })
}

fn of_found(found: &Found, when: &str, keys: [&'static str; 3], most: f64) -> Vec<Figure> {
    let kinds = found.seconds();
    let names = ["a resource", "a label on a Node", "a pull secret in a namespace"];
    let rows = keys.into_iter().zip(kinds).zip(names);
    rows.flat_map(|((key, seconds), name)| {
        let at = |part| quantile(seconds.iter().copied(), part) * 1000.0;
        [
            figure(format!("{name}, {when}, p99"), key, at(0.99), " ms", 0).at_most(most),
            // A key must be its own.
            figure("  p50", half(key), at(0.5), " ms", 0),
        ]
    })
    .collect()
}

fn half(key: &'static str) -> &'static str {
    match key {
        "restResource" => "restResourceP50",
        "restLabel" => "restLabelP50",
        "restPullSecret" => "restPullSecretP50",
        "resource" => "resourceP50",
        "label" => "labelP50",
        _ => "pullSecretP50",
    }
}

impl Found {
    /// Of a resource, a label and a pull secret.
    pub fn seconds(&self) -> [&[f64]; 3] {
        [&self.resource, &self.label, &self.pull_secret]
    }
}

async fn rounds_and_end(bed: &Bed, rounds: usize) -> Result<Found> {
    let (found, coordinator) = rounds_of(bed, rounds).await?;
    coordinator.stop().await;
    Ok(found)
}

/// One change of each kind in each round, one after the other, beside a coordinator, which goes on.
pub async fn rounds_of(bed: &Bed, rounds: usize) -> Result<(Found, Role)> {
    let mut effects = Effects::start(bed).await?;
    let coordinator = bed.coordinator();
    effects.pull_secret.until(PASSWORD).await?;
    let mut wire = Wire::open(bed.cloud.address).await?;
    let mut found = Found::default();
    let (begin, before) = (now(), coordinator.cpu_seconds());
    let mut value = "0".to_owned();
    for round in 0..rounds {
        if round % ROUNDS_OF_A_NODE == 0 {
            new_node(bed, round).await?;
            effects.label.until(&value).await?;
            pause(CHANGE_INTERVAL * 4).await;
        }
        value = format!("value-{round}");
        let mut change = async |path: &str, body: Value| bed.cloud.ask(&mut wire, "PATCH", path, &body).await;
        let asked = now();
        change(&bed.cloud.users[0], json!({"name": value})).await?;
        found.resource.push(
            effects
                .resource
                .until(&value)
                .await?
                .duration_since(asked)
                .as_secs_f64(),
        );
        pause(CHANGE_INTERVAL).await;
        let asked = now();
        change(&bed.cloud.clusters[0].label, json!({"value": value})).await?;
        found
            .label
            .push(effects.label.until(&value).await?.duration_since(asked).as_secs_f64());
        pause(CHANGE_INTERVAL).await;
        bed.registries.accept(HOSTS[0], &[&format!("u:{value}")]);
        let asked = now();
        let credentials = json!({"credentials": {"username": "u", "password": value}});
        change(&bed.cloud.registries[0], credentials).await?;
        found.pull_secret.push(
            effects
                .pull_secret
                .until(&value)
                .await?
                .duration_since(asked)
                .as_secs_f64(),
        );
        pause(CHANGE_INTERVAL).await;
    }
    found.core = (coordinator.cpu_seconds() - before) / begin.elapsed().as_secs_f64();
    ensure!(count(found.label.len()) > 0.0, "there were no rounds");
    Ok((found, coordinator))
}

/// A Node in the place of the one before.
async fn new_node(bed: &Bed, round: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(bed.admin());
    let params = DeleteParams::default();
    nodes
        .delete_collection(&params, &kube::api::ListParams::default())
        .await?;
    let registered = node(&format!("node-{round}")).internal_ip("172.20.0.1").build();
    nodes.create(&PostParams::default(), &registered).await?;
    Ok(())
}

/// The views of independent watchers.
struct Effects {
    resource: Seen,
    label: Seen,
    pull_secret: Seen,
}

struct Seen {
    events: UnboundedReceiver<(Instant, String)>,
    watch: JoinHandle<()>,
}

impl Effects {
    async fn start(bed: &Bed) -> Result<Self> {
        let any = watcher::Config::default;
        let user = bed.cloud.users[0].rsplit('/').next().context("a path")?;
        let user = any().fields(&format!("metadata.name={user}"));
        let users = Api::<User>::namespaced(bed.admin(), "containership-core");
        let nodes = Api::<PartialObjectMeta<Node>>::all(bed.admin());
        let secret = any().fields(&format!("metadata.name={}", bed.registry_id(0)));
        let secrets = Api::<Secret>::namespaced(bed.admin(), "default");
        Ok(Self {
            resource: Seen::of(follow(users, user, |user| Some(user.spec.name.clone())).await?),
            label: Seen::of(follow(nodes, any(), |node| node.metadata.labels.as_ref()?.get(LABEL).cloned()).await?),
            pull_secret: Seen::of(follow(secrets, secret, password).await?),
        })
    }
}

impl Seen {
    fn of((events, watch): (UnboundedReceiver<(Instant, String)>, JoinHandle<()>)) -> Self {
        Self { events, watch }
    }

    /// When it had this value.
    async fn until(&mut self, value: &str) -> Result<Instant> {
        let waiting = async {
            loop {
                let (at, seen) = next(&mut self.events).await?;
                if seen == value {
                    return Ok(at);
                }
            }
        };
        let seen = tokio::time::timeout(SOON, waiting).await;
        seen.with_context(|| format!("{value} was not seen within {SOON:?}"))?
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// The password for the first registry in its pull secret.
fn password(secret: &Secret) -> Option<String> {
    let config: Value = serde_json::from_slice(&secret.data.as_ref()?.get(".dockerconfigjson")?.0).ok()?;
    let login = STANDARD.decode(config["auths"][HOSTS[0]]["auth"].as_str()?).ok()?;
    Some(String::from_utf8(login).ok()?.strip_prefix("u:")?.to_owned())
}
