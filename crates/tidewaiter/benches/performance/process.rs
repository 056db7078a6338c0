//! The released roles as processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tidewaiter_testkit::{ApiProxy, AuditEntry, FakeGce, Process, Program, Scratch, eventually, free_port};

use crate::bed::Bed;
use crate::observer::Observer;
use tidewaiter_testkit::usage::{Memory, cpu_seconds};

pub const SOON: Duration = Duration::from_secs(30);

/// One client for all requests while something is measured: each new one would prepare TLS again, on the cores
/// that are measured.
static CLIENT: LazyLock<reqwest::Client> =
    LazyLock::new(|| reqwest::Client::builder().no_proxy().build().unwrap_or_default());

/// Returns the page of a role at this address.
///
/// # Errors
/// When it does not answer with 200.
pub async fn page(url: &str) -> reqwest::Result<String> {
    let answer = CLIENT.get(url).send().await?;
    answer.error_for_status()?.text().await
}

/// One cold start.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ColdStart {
    /// From the start of the process to the last label seen.
    pub seconds: f64,
    /// From the moment that it held the Lease to the last label seen.
    pub seconds_from_leadership: f64,
    /// The CPU time until then.
    pub cpu_seconds: f64,
    /// The CPU time of the API server for it.
    pub api_server_cpu_seconds: f64,
    /// The number of its calls to EC2 about instances, throttled calls included.
    pub ec2_calls: usize,
    /// Its requests to the API server, by verb and resource.
    pub requests: BTreeMap<String, usize>,
    /// When the last label was seen.
    pub memory: Memory,
}

/// Starts a controller that goes to the API server directly.
pub fn start(bed: &Bed) -> Role {
    start_as(
        bed,
        &bed.config(),
        &bed.cluster.kubeconfig(&Bed::account()),
        bed.ec2.environment(),
    )
}

/// Starts one that goes through `proxy`.
pub fn start_through(bed: &Bed, proxy: &ApiProxy) -> Role {
    start_as(bed, &bed.config(), &proxy.kubeconfig(), bed.ec2.environment())
}

/// Starts one for a cluster on Compute Engine.
pub fn start_on_gce(bed: &Bed, gce: &FakeGce) -> Role {
    let mut environment = gce.environment();
    environment.push(("TIDEWAITER_GCE_ENDPOINT", gce.endpoint()));
    start_as(
        bed,
        &bed.config_on_gce(),
        &bed.cluster.kubeconfig(&Bed::account()),
        environment,
    )
}

fn start_as(bed: &Bed, config: &Path, kubeconfig: &Path, environment: Vec<(&'static str, String)>) -> Role {
    launch(&bed.controller, &bed.scratch, config, kubeconfig, environment)
}

/// Starts `program` as a controller.
pub fn launch(
    program: &Path,
    scratch: &Scratch,
    config: &Path,
    kubeconfig: &Path,
    environment: Vec<(&'static str, String)>,
) -> Role {
    let (port, metrics) = (free_port(), free_port());
    let program = Program::new(program)
        .name(format!("controller-{port}"))
        .arg("controller")
        .arg("--conf")
        .arg(config)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--admin-address")
        .arg(format!("127.0.0.1:{port}"))
        .arg("--metrics-address")
        .arg(format!("127.0.0.1:{metrics}"))
        .arg("--health-address=127.0.0.1:0");
    let environment = environment.into_iter();
    let program = environment.fold(program, |program, (key, value)| program.env(key, value));
    Role {
        process: Process::start(scratch, program),
        admin: format!("http://127.0.0.1:{port}"),
        metrics: format!("http://127.0.0.1:{metrics}/metrics"),
    }
}

/// A running role. It ends when this is dropped.
pub struct Role {
    pub process: Process,
    /// Its admin port.
    pub admin: String,
    /// The metrics that it has besides its own: where the MetricsServer tells of the cluster.
    pub metrics: String,
}

impl Role {
    /// Waits until its caches are full.
    pub async fn ready(&self) {
        eventually("the controller to be ready", SOON, async || {
            page(&format!("{}/readyz", self.admin)).await.map(drop)
        })
        .await;
    }

    /// Ends it in order.
    pub async fn stop(&self) {
        self.process.stop(SOON).await;
    }

    /// The value of a series that the role exports, as `name` or `name{label="value"}` with its labels in order; NaN if
    /// there is none.
    pub async fn series(&self, name: &str) -> Result<f64> {
        let page = page(&format!("{}/metrics", self.admin)).await?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Ok(value.map_or(Ok(f64::NAN), str::parse)?)
    }

    /// The sum of the series that begin so.
    pub async fn total(&self, prefix: &str) -> Result<f64> {
        let page = page(&format!("{}/metrics", self.admin)).await?;
        let values = page
            .lines()
            .filter_map(|line| line.strip_prefix(prefix)?.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum())
    }

    pub fn memory(&self) -> Memory {
        Memory::of(self.process.pid())
    }

    /// Seconds on a core so far.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(self.process.pid())
    }
}

/// Starts one on `nodes` Nodes that are there, and waits until the last of them has its label.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn cold_start(bed: &Bed, nodes: usize) -> Result<(ColdStart, Role)> {
    let mark = bed.cluster.audit_mark().await;
    let mut observer = Observer::start(bed).await?;
    let before = bed.api_server_cpu_seconds();
    let begin = Instant::now();
    let controller = start(bed);
    let end = observer.labelled(nodes).await?;
    let memory = controller.memory();
    let cpu_seconds = controller.cpu_seconds();
    let api_server_cpu_seconds = bed.api_server_cpu_seconds() - before;
    let (led, _) = observer.led().await?;
    let audit = bed.cluster.audit().await.since(mark).by(&Bed::account());
    let mut requests = BTreeMap::new();
    for entry in audit.iter().filter(|entry| is_request(entry)) {
        *requests
            .entry(format!("{} {}", entry.verb, entry.object_ref.resource))
            .or_default() += 1;
    }
    let run = ColdStart {
        seconds: (end - begin).as_secs_f64(),
        seconds_from_leadership: (end - led).as_secs_f64(),
        cpu_seconds,
        api_server_cpu_seconds,
        ec2_calls: bed.take_identity_calls().len(),
        requests,
        memory,
    };
    Ok((run, controller))
}

/// A watch counts when it begins, everything else when it is answered.
fn is_request(entry: &AuditEntry) -> bool {
    (entry.verb == "watch") == (entry.stage == "ResponseStarted")
}

/// The watches have told of the controller's own last writes when it writes no more.
pub async fn settled(bed: &Bed) {
    let mut before = usize::MAX;
    eventually("the controller's writes to end", SOON, async || {
        let writes = writes(bed).await;
        let same = writes == before;
        before = writes;
        if same { Ok(()) } else { Err(format!("{writes} writes")) }
    })
    .await;
}

/// Writes of the controller so far, to Nodes and to records.
pub async fn writes(bed: &Bed) -> usize {
    let writes = bed.cluster.audit().await.by(&Bed::account()).writes();
    let of_nodes = |entry: &AuditEntry| matches!(entry.object_ref.resource.as_str(), "nodes" | "nodeidentities");
    writes.filter(of_nodes).count()
}
