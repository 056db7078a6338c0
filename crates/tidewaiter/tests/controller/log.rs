//! A log that cannot be written delays nothing: neither labels, nor probes, nor the end of the process.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_testkit::{eventually, settled};

use crate::world::{Controller, SOON, World};

/// Labels a Node, answers probes, and ends when it is told to.
async fn works(world: &World, controller: Controller, number: u32) {
    let node = world.join(number, "nodes").await;
    let labels = [(INSTANCE_GROUP_LABEL, "nodes"), ("node-role.kubernetes.io/node", "")];
    world.has_labels(node.name(), &labels).await;
    let health = format!("http://{}", controller.health_address);
    let probe = controller.get(&health, "/healthz").await.unwrap();
    probe.error_for_status().unwrap();
    controller.stops().await;
}

#[tokio::test]
async fn a_full_disk_and_a_pipe_that_nobody_reads_stop_nothing() {
    let world = World::start().await;
    world.group("nodes", &[]);
    let full = world.controller_that_logs_to(Path::new("/dev/full"), "debug").await;
    works(&world, full, 1).await;

    let pipe = world.file("log", "").with_file_name("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Open at both ends, so that the process can open it, too. Nobody reads.
    let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let unread = world.controller_that_logs_to(&pipe, "trace").await;
    let written = async || rustix::io::ioctl_fionread(&reader).unwrap();
    // It has 16 pages, and no line goes on in the next one: so it is full with less than 64 KiB.
    let full = async || match written().await {
        32_000.. => Ok(()),
        bytes => Err(bytes),
    };
    eventually("the pipe to be nearly full", SOON, full).await;
    settled("what is in the pipe", Duration::from_secs(1), SOON, written).await;
    works(&world, unread, 2).await;
}
