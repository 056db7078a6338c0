//! The cost of the controller in a cluster of one size.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use tidewaiter_testkit::Call;
use tidewaiter_testkit::usage::Peak;
use tokio::time::interval;

use super::world::World;
use crate::process::Role;
use crate::report::{count, median};
use crate::steady::REPORT_EVERY;

/// The interval at which the memory is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time for which the controller is observed at rest: longer than it keeps an answer of Auto Scaling.
const REST_SECONDS: u32 = 40;
/// The number of changes of a Node to ready or not ready, one after the other.
const CHANGES: usize = 10;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    pub nodes: u32,
    /// From the start of the process to the last label.
    pub seconds: f64,
    /// Of it, until all Nodes were listed.
    pub list_seconds: f64,
    /// Of the controller, until the last label.
    pub cpu_seconds: f64,
    /// Of the API server, EC2 and the observer, which are one process, meanwhile.
    pub fakes_cpu_seconds: f64,
    /// The number of its calls to EC2 about instances until the last label.
    pub identity_calls: usize,
    /// The number of its calls to EC2 and Auto Scaling about groups until the last label.
    pub group_calls: usize,
    /// Of both, those that EC2 refused as too many.
    pub throttled_calls: usize,
    /// Its requests to the API server until the last label, by verb and resource.
    pub requests: BTreeMap<String, usize>,
    /// The most memory of the process alone until the last label, in MiB.
    pub peak: f64,
    /// The verdicts until the last label.
    pub verdicts: Verdicts,
    /// Afterwards.
    pub rest: Rest,
}

/// Verdicts that were made over some time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Verdicts {
    pub count: f64,
    /// Of all of them.
    pub seconds: f64,
}

/// The controller when every Node has its labels, with as many heartbeats as kubelets send.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rest {
    /// The part of a core that the controller uses.
    pub core: f64,
    /// The part that the API server and EC2 use.
    pub fakes_core: f64,
    /// Memory of the process alone, in MiB.
    pub settled: f64,
    /// The most of it.
    pub peak: f64,
    /// The number of its calls to EC2 and Auto Scaling about groups.
    pub group_calls: usize,
    /// The number of its calls to EC2 about instances.
    pub identity_calls: usize,
    /// Seconds that a verdict takes.
    pub verdict_seconds: f64,
    /// Seconds from a change to the gauges that tell of it.
    pub told_seconds: f64,
    pub health_bytes: usize,
}

impl Point {
    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    pub async fn measure(program: &Path, nodes: u32) -> Result<Self> {
        let world = World::start(nodes).await?;
        let fakes = World::fakes_cpu_seconds();
        let (begin, started) = (Instant::now(), world.elapsed());
        let controller = world.run(program);
        let mut memory = Peak::begin(controller.process.pid());
        let end = looking(&mut memory, world.all_labelled()).await?;
        let (peak, cpu_seconds) = (memory.end(), controller.cpu_seconds());
        let fakes_cpu_seconds = World::fakes_cpu_seconds() - fakes;
        let counts = world.request_counts()?;
        let calls = Calls::take(&world);
        let verdicts = Verdicts::of(&controller).await?;
        world.settled(&controller).await;
        let rest = Rest::measure(&world, &controller, nodes).await?;
        controller.stop().await;
        Ok(Self {
            nodes,
            seconds: (end - begin).as_secs_f64(),
            list_seconds: counts.listed.saturating_sub(started).as_secs_f64(),
            cpu_seconds,
            fakes_cpu_seconds,
            identity_calls: calls.identity,
            group_calls: calls.group,
            throttled_calls: calls.throttled,
            requests: counts.requests,
            peak: peak.anonymous,
            verdicts,
            rest,
        })
    }

    pub fn all_requests(&self) -> usize {
        self.requests.values().sum()
    }
}

impl Rest {
    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    async fn measure(world: &World, controller: &Role, nodes: u32) -> Result<Self> {
        // Memory that the cold start left over is returned.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let _ = Calls::take(world);
        let (cpu, fakes) = (controller.cpu_seconds(), World::fakes_cpu_seconds());
        let mut memory = Peak::begin(controller.process.pid());
        looking(&mut memory, heartbeats(world, nodes)).await;
        let (settled, peak) = (controller.memory(), memory.end());
        let of_a_core = |seconds: f64| seconds / f64::from(REST_SECONDS);
        let (core, fakes_core) = (
            of_a_core(controller.cpu_seconds() - cpu),
            of_a_core(World::fakes_cpu_seconds() - fakes),
        );
        let calls = Calls::take(world);
        let before = Verdicts::of(controller).await?;
        let mut told = Vec::new();
        for number in 0..CHANGES {
            told.push(world.told(controller, number % 2 == 1).await?);
        }
        let after = Verdicts::of(controller).await?;
        Ok(Self {
            core,
            fakes_core,
            settled: settled.anonymous,
            peak: peak.anonymous,
            group_calls: calls.group,
            identity_calls: calls.identity,
            verdict_seconds: (after.seconds - before.seconds) / (after.count - before.count),
            told_seconds: median(told),
            health_bytes: world.health_bytes()?,
        })
    }
}

impl Verdicts {
    async fn of(controller: &Role) -> Result<Self> {
        let series = async |part: &str| {
            controller
                .series(&format!("tidewaiter_cluster_verdict_duration_seconds_{part}"))
                .await
        };
        Ok(Self {
            count: series("count").await?,
            seconds: series("sum").await?,
        })
    }
}

/// The calls of EC2 and Auto Scaling since the last time.
struct Calls {
    identity: usize,
    group: usize,
    throttled: usize,
}

impl Calls {
    fn take(world: &World) -> Self {
        let calls = world.ec2.take_calls();
        let is_identity = |call: &&Call| call.api == "DescribeInstances" && !call.names.is_empty();
        let identity = calls.iter().filter(is_identity).count();
        Self {
            identity,
            group: calls.len() - identity,
            throttled: calls
                .iter()
                .filter(|call| call.outcome == "RequestLimitExceeded")
                .count(),
        }
    }
}

/// Looks at the memory until `done`.
async fn looking<T>(memory: &mut Peak, done: impl Future<Output = T>) -> T {
    let mut looks = interval(POLL_INTERVAL);
    let mut done = std::pin::pin!(done);
    loop {
        tokio::select! {
            done = &mut done => return done,
            _ = looks.tick() => memory.look(),
        }
    }
}

/// The heartbeats of this number of kubelets.
async fn heartbeats(world: &World, nodes: u32) {
    let every = REPORT_EVERY / nodes;
    let mut pace = interval(every);
    let reports = Duration::from_secs(REST_SECONDS.into()).div_duration_f64(every);
    let mut number = 0;
    while count(number) < reports {
        pace.tick().await;
        world.heartbeat(number);
        number += 1;
    }
}
