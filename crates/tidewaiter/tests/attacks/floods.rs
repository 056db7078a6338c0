//! Floods: bounded work for the attackers' Nodes, and none that delays the others.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use kube::api::PostParams;
use serde_json::json;
use tidewaiter_api::ConditionStatus::False;
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{Kubelet, Scripted, eventually, throughout};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::attack::now;
use crate::clouds::throttles;
use crate::field::{Field, OF_WORKER};
use crate::world::{SOON, World};

/// The controller writes so often at once for a Node, and then once in [`PACE`].
const WRITES: u64 = 22;
const PACE: Duration = Duration::from_secs(10);

/// Kubelets flip their addresses as fast as they can, until they are told of. In the end they lie.
pub async fn flipped_addresses(field: &Field) -> Vec<String> {
    const FLIPS: usize = 1_000;
    let world = &field.world;
    let workers = [field.joins().await, field.joins().await, field.joins().await];
    let (mark, begin) = (world.cluster.audit_mark().await, now());
    let flood = async |worker: &FakeInstance| {
        let kubelet = Kubelet::new(&world.cluster, worker.node_name());
        let lists = async |address: &str| {
            let addresses = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
            kubelet.patch_status(addresses).await.unwrap();
        };
        for _ in 0..FLIPS {
            lists(worker.address()).await;
            lists("10.9.9.9").await;
            let events = world.events(worker.node_name()).await;
            if events.iter().any(|(reason, _)| reason == "ChangesTooOften") {
                return;
            }
        }
    };
    let floods = join_all(workers.iter().map(flood));
    let (_, honest) = futures::join!(floods, field.joins());
    field.is_labelled_as_ever(&honest).await;
    for worker in &workers {
        let name = worker.node_name();
        world.tells(name, "ChangesTooOften", "written only every 10 s").await;
        // The final state is written as soon as permitted.
        world
            .says(name, "Verified", False, "AddressMismatch", "none of the addresses")
            .await;
        let about = format!(" {name}");
        let written = world.writes_since(mark).await;
        let written = written.iter().filter(|write| write.ends_with(&about)).count();
        let most = WRITES + begin.elapsed().as_secs() / PACE.as_secs();
        assert!(written as u64 <= most, "{written} writes for {name}, most {most}");
        field.is_labelled_as_ever(worker).await;
    }
    workers.map(|worker| worker.node_name().to_owned()).into()
}

/// An administrator's credentials and a loop.
pub async fn missing_instances(field: &Field) -> Vec<String> {
    const NODES: u32 = 60;
    let world = &field.world;
    world.ec2.clear_calls();
    let create = async |number: u32| {
        let name = format!("missing-{number}");
        let claims = node(&name)
            .provider_id(&format!("aws:///us-east-1a/i-f{number:016x}"))
            .build();
        world.nodes().create(&PostParams::default(), &claims).await.unwrap();
        name
    };
    let (mut names, _) = futures::join!(join_all((0..NODES).map(create)), field.joins());
    // Each unknown id costs a call of its own, once in an hour, and the others are asked for together.
    let calls = world.identity_calls();
    assert!(
        calls.len() <= 3 * usize::try_from(NODES).unwrap(),
        "{} calls",
        calls.len()
    );
    names.truncate(5);
    names
}

/// Not one of the Nodes makes a call of its own, and all are labelled when the cloud is back.
pub async fn nodes_during_an_outage(field: &Field) -> Vec<String> {
    const NODES: usize = 40;
    let world = &field.world;
    throttles(&world.ec2);
    let fleet: Vec<FakeInstance> = (0..NODES).map(|_| field.launches("nodes")).collect();
    let register = async |instance: &FakeInstance| {
        let node = World::node_of(instance).build();
        world.nodes().create(&PostParams::default(), &node).await.unwrap();
    };
    join_all(fleet.iter().map(register)).await;
    for instance in &fleet {
        world.tells(instance.node_name(), "Throttled", "is throttled").await;
    }
    // The pause grows to half a minute.
    assert!(calls_during(field, Duration::from_secs(3)).await <= 6);
    world.ec2.throttle(None);
    world.ec2.always(Some(Scripted::Failed));
    world.ec2.clear_calls();
    eventually("EC2 to be asked again", SOON, async || {
        match world.identity_calls().len() {
            0 => Err("it is not"),
            _ => Ok(()),
        }
    })
    .await;
    // A call a second at most, and one more for each zone.
    assert!(calls_during(field, Duration::from_secs(3)).await <= 40);
    field.heals().await;
    for instance in &fleet {
        world.has_labels(instance.node_name(), &OF_WORKER).await;
    }
    Vec::new()
}

/// One machine holds as many connections to every port as it can: idle ones, ones whose request never ends, and ones
/// that send requests and read no response. Another machine is answered on every port, hardly later.
pub async fn busy_ports(field: &Field) -> Vec<String> {
    const EACH: usize = 150;
    const REQUEST: &str = "GET /metrics HTTP/1.1\r\nHost: tidewaiter\r\n\r\n";
    let controller = &field.controller;
    let admin = controller.admin_address();
    let ports = [&admin, &controller.metrics_address, &controller.health_address];
    let quiet = answers(field).await;
    let mut open = Vec::new();
    for port in ports {
        for begun in ["", &REQUEST[..REQUEST.len() - 2], &REQUEST.repeat(200)] {
            for _ in 0..EACH {
                let mut stream = TcpStream::connect(port).await.unwrap();
                // The port may have closed it already, and a client that reads nothing cannot send everything.
                let sent = tokio::time::timeout(Duration::from_millis(20), stream.write_all(begun.as_bytes()));
                sent.await.unwrap_or(Ok(())).ok();
                open.push(stream);
            }
        }
    }
    let busy = answers(field).await;
    // A connection without a request is closed after fifteen seconds; a busy machine takes its part.
    let most = 3 * quiet + Duration::from_secs(2);
    assert!(busy <= most, "{busy:?} beside a flood, {quiet:?} without");
    Vec::new()
}

/// Returns the time that a client at another address waits for an answer of every port: the median of nine.
async fn answers(field: &Field) -> Duration {
    let controller = &field.controller;
    let (admin, metrics, health) = (
        controller.admin_address(),
        &controller.metrics_address,
        &controller.health_address,
    );
    let urls = [
        format!("http://{health}/healthz"),
        format!("http://{health}/readyz"),
        format!("http://{admin}/metrics"),
        format!("http://{metrics}/metrics"),
    ];
    let mut times = Vec::new();
    for _ in 0..9 {
        let begin = now();
        for url in &urls {
            // Not over a connection of before.
            let client = reqwest::Client::builder()
                .local_address(IpAddr::from([127, 0, 0, 2]))
                .timeout(SOON);
            let answer = client.build().unwrap().get(url).send().await.unwrap();
            answer.error_for_status().unwrap().bytes().await.unwrap();
        }
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

async fn calls_during(field: &Field, time: Duration) -> usize {
    field.world.ec2.clear_calls();
    throughout("nothing", time, async || Ok::<_, String>(())).await;
    field.world.identity_calls().len()
}
