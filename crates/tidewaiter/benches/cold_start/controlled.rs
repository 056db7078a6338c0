//! The released controller, started on Nodes that nobody has labelled yet.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use tidewaiter_testkit::{AuditEntry, Process, Program, eventually, free_port};

use crate::bed::Bed;
use crate::observer::Observer;
use crate::usage::{Memory, cpu_seconds};

/// One cold start.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// From the start of the process to the last label seen.
    pub seconds: f64,
    /// From the moment that it held the Lease to the last label seen.
    pub seconds_from_leadership: f64,
    /// What it used of the cores until then.
    pub cpu_seconds: f64,
    /// What the API server used of the cores for it.
    pub api_server_cpu_seconds: f64,
    /// What it asked of EC2, throttled calls included.
    pub ec2_calls: usize,
    /// What it asked of the API server, by verb and resource.
    pub requests: BTreeMap<String, usize>,
    /// When the last label was seen.
    pub memory: Memory,
}

/// What the controller does when there is nothing to do.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// How long it was watched.
    pub seconds: u64,
    /// Heartbeats of Nodes in that time.
    pub heartbeats: usize,
    /// Writes to anything but its Lease.
    pub writes: usize,
    /// Writes to its Lease.
    pub lease_renewals: usize,
    /// What it asked of EC2.
    pub ec2_calls: usize,
    /// The part of one core that it used.
    pub core_share: f64,
    /// At the end.
    pub memory: Memory,
}

const SOON: Duration = Duration::from_secs(30);

/// Starts the controller, waits until every Node has its label, and stops it.
pub async fn cold_start(bed: &Bed) -> Result<Run> {
    let (run, process) = start(bed).await?;
    process.stop(SOON).await;
    Ok(run)
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
async fn start(bed: &Bed) -> Result<(Run, Process)> {
    let mark = bed.cluster.audit_mark().await;
    let mut observer = Observer::start(bed).await?;
    let mut program = Program::new(&bed.controller)
        .name("controller")
        .arg("controller")
        .arg("--conf")
        .arg(bed.config())
        .arg("--kubeconfig")
        .arg(bed.cluster.kubeconfig(&Bed::account()))
        .arg("--admin-address")
        .arg(format!("127.0.0.1:{}", free_port()));
    for (key, value) in bed.ec2.environment() {
        program = program.env(key, value);
    }
    let before = bed.api_server_cpu_seconds()?;
    let begin = Instant::now();
    let process = Process::start(&bed.scratch, program);
    let end = observer.labelled().await?;
    let memory = Memory::of(process.pid())?;
    let cpu_seconds = cpu_seconds(process.pid())?;
    let api_server_cpu_seconds = bed.api_server_cpu_seconds()? - before;
    let led = observer.led().await?;
    let audit = bed.cluster.audit().await.since(mark).by(&Bed::account());
    let mut requests = BTreeMap::new();
    for entry in audit.iter().filter(|entry| is_request(entry)) {
        *requests
            .entry(format!("{} {}", entry.verb, entry.object_ref.resource))
            .or_default() += 1;
    }
    let run = Run {
        seconds: (end - begin).as_secs_f64(),
        seconds_from_leadership: (end - led).as_secs_f64(),
        cpu_seconds,
        api_server_cpu_seconds,
        ec2_calls: bed.ec2.take_calls().len(),
        requests,
        memory,
    };
    Ok((run, process))
}

/// A watch counts when it begins, everything else when it is answered.
fn is_request(entry: &AuditEntry) -> bool {
    (entry.verb == "watch") == (entry.stage == "ResponseStarted")
}

/// Lets a controller label every Node, then watches it while each Node has a heartbeat.
pub async fn idle(bed: &Bed, seconds: u64) -> Result<Idle> {
    let (_, process) = start(bed).await?;
    settled(bed).await;
    let nodes = bed.instances.len();
    let mark = bed.cluster.audit_mark().await;
    let before = cpu_seconds(process.pid())?;
    let mut pace = tokio::time::interval(Duration::from_secs(seconds) / u32::try_from(nodes)?);
    for number in 0..nodes {
        pace.tick().await;
        bed.heartbeat(number).await?;
    }
    pace.tick().await;
    let used = cpu_seconds(process.pid())? - before;
    let writes = bed.cluster.audit().await.since(mark).by(&Bed::account()).writes();
    let lease_renewals = writes.clone().of("leases").count();
    ensure!(process.is_running(), "the controller ended:\n{}", process.log_tail());
    let idle = Idle {
        seconds,
        heartbeats: nodes,
        writes: writes.count() - lease_renewals,
        lease_renewals,
        ec2_calls: bed.ec2.take_calls().len(),
        core_share: used / Duration::from_secs(seconds).as_secs_f64(),
        memory: Memory::of(process.pid())?,
    };
    process.stop(SOON).await;
    Ok(idle)
}

/// The watches have told of the controller's own last writes when it writes no more.
async fn settled(bed: &Bed) {
    let mut before = usize::MAX;
    eventually("the controller's writes to end", SOON, async || {
        let writes = bed
            .cluster
            .audit()
            .await
            .by(&Bed::account())
            .writes()
            .filter(|entry| entry.object_ref.resource != "leases")
            .count();
        let same = writes == before;
        before = writes;
        if same { Ok(()) } else { Err(format!("{writes} writes")) }
    })
    .await;
}
