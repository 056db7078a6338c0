//! A control plane to try things on:
//! `cargo run -p tidewaiter-testkit --bin control-plane [-- --controller-manager | --node]`,
//! the latter with a real node, as root.
//!
//! Says where its kubeconfig lies and runs until Ctrl-C or SIGTERM; whatever ends it takes everything away.

use tidewaiter_testkit::{ControlPlane, Identity, KubeletVersion, NodeOptions, RealNode, assets};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the kubeconfig's path is for a person or a script")]
async fn main() -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut builder = ControlPlane::builder();
    let mut with_node = false;
    for argument in std::env::args().skip(1) {
        builder = match &*argument {
            "--controller-manager" => builder.with_controller_manager(),
            "--node" => {
                with_node = true;
                builder.with_nodes()
            }
            _ => {
                return Err(std::io::Error::other(
                    "usage: control-plane [--controller-manager | --node]",
                ));
            }
        };
    }
    let control_plane = builder.start().await;
    let mut node = None;
    if with_node {
        let options = NodeOptions::new("node");
        node = Some(RealNode::start(&control_plane, KubeletVersion::Current, &options).await);
    }
    if let Some(node) = &node {
        println!("node: {}", node.address());
    }
    println!("folder: {}", control_plane.folder().display());
    println!(
        "export KUBECONFIG={}",
        control_plane.kubeconfig(&Identity::Admin).display()
    );
    println!("kubectl: {}", assets::binary("kubectl").display());
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminated.recv() => Ok(()),
    }
}
