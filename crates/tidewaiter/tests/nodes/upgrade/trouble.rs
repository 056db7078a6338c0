//! Faults of the nodes during an upgrade, one scene on each of two workers. The node of the control plane is at the
//! version already. Each upgrade ends as docs/upgrades.md says, and the next one finds the nodes as it needs them.

use std::time::Duration;

use tidewaiter_agent::upgrade::files::Outcome;
use tidewaiter_api::containership::{UpgradeProgress, UpgradeStatus};
use tidewaiter_api::node_report::UpgradeState;
use tidewaiter_testkit::{KubeletVersion, RealNode, eventually};

use super::system::{Asked, System};
use super::{SCRIPT, SOON};
use crate::{now, took};

/// Long enough for the control plane to notice everything: the Lease of the coordinator has expired, and no node is
/// Ready any more.
const AWAY: Duration = Duration::from_mins(1);

/// For nodes that are to fail: the host stops a script when half of it is over.
const SHORT: u32 = 20;

/// Starts a process that does not outlive it.
const HANGS: &str = "(while :; do date +%s >/root/alive; done) &\nwait\n";

/// It takes back what it has done.
const FAILS: &str = "
if [ -n \"$TIDEWAITER_WAY_BACK\" ]; then
    rm /root/half-done
    exit 0
fi
touch /root/half-done
exit 3
";
const WAY_BACK: &str = "# tidewaiter: way back\nset -eu";

const FILLS_THE_DISK: &str = r#"
fallocate --length="$(df --output=avail --block-size=1 /root | tail --lines=1)" /root/filler || true
dd if=/dev/zero bs=4k >>/root/filler
"#;

/// The kubelet is started at the version, without a network for pods.
const BREAKS_THE_NETWORK: &str =
    "mkdir /etc/cni/away\nmv /etc/cni/net.d/* /etc/cni/away\nsystemctl restart containerd\n";
const REPAIR: &str = "mv /etc/cni/away/* /etc/cni/net.d; systemctl restart containerd";

/// It may run again.
const REBOOTS: &str = "
echo \"$TIDEWAITER_UPGRADE\" >>/root/runs
if [ ! -e /root/rebooted ]; then
    touch /root/rebooted
    sync
    systemctl reboot
    sleep 600
fi
";

#[tokio::test]
async fn upgrades_end_whatever_goes_wrong_on_a_node() {
    let start = now();
    let system = System::start(KubeletVersion::Current).await;
    took("three nodes with the whole system", start);

    let start = now();
    hangs_and_fails(&system).await;
    took(
        "a script hangs while the API server is away for a minute, and another one fails",
        start,
    );

    let start = now();
    full_disk_and_abort(&system).await;
    took("a script fills the disk, and the upgrade is aborted", start);

    let start = now();
    never_ready_and_deleted(&system).await;
    took("a kubelet is never Ready, and a Node is deleted", start);

    let start = now();
    reboots(&system).await;
    took("a script reboots its node", start);
}

/// A script with a part for each of the two workers.
fn parts(system: &System, one: &str, two: &str) -> String {
    let [_, first, second] = system.nodes().map(RealNode::name);
    format!("#!/bin/sh\nset -eu\ncase $(hostname) in\n{first})\n{one}\n;;\n{second})\n{two}\n;;\nesac\n")
}

/// The example, after this.
fn and_then(part: &str) -> String {
    let body = SCRIPT.split_once("set -eu\n").unwrap().1;
    format!("{part}\n{body}")
}

async fn order(system: &System, script: &str, timeout: u32) -> String {
    let policy = None;
    system
        .order(&Asked {
            script,
            timeout,
            policy,
        })
        .await
}

fn states(progress: &UpgradeProgress, nodes: &[&str]) -> Vec<Option<UpgradeStatus>> {
    nodes
        .iter()
        .map(|node| progress.node_statuses.get(*node).copied())
        .collect()
}

/// The host stops the script at the deadline, with what it has started, without anybody's word. When the API server is
/// back, the node has failed, and the next one has its turn. There the script fails, and takes back what it has done.
async fn hangs_and_fails(system: &System) {
    let [master, one, two] = system.nodes();
    let id = order(system, &parts(system, HANGS, FAILS).replace("set -eu", WAY_BACK), SHORT).await;
    system.host_says(one, &id, Outcome::Running).await;
    let away = now();
    system.site.control_plane.apiserver().kill();
    system.host_says(one, &id, Outcome::TimedOut).await;
    let alive = one.run(["cat", "/root/alive"]).await;
    eventually("a minute without the API server", SOON, async || {
        if away.elapsed() > AWAY {
            Ok(())
        } else {
            Err(format!("{:?}", away.elapsed()))
        }
    })
    .await;
    assert_eq!(
        one.run(["cat", "/root/alive"]).await,
        alive,
        "what the script started has ended"
    );
    system.site.control_plane.recover().await;
    // As its Deployment would.
    system.coordinator.start_again();

    system.host_says(two, &id, Outcome::Failed).await;
    eventually("the way back", SOON, async || {
        let report = system.reports(two, &id, UpgradeState::Failed).await;
        assert_eq!(report.exit_code, Some(3), "{report:?}");
        if report.rolled_back {
            Ok(())
        } else {
            Err(report.message)
        }
    })
    .await;
    assert_eq!(two.run(["ls", "/root"]).await.matches("half-done").count(), 0);
    let end = system.ends(&id, UpgradeStatus::Failed, |_| ()).await;
    let failed = Some(UpgradeStatus::Failed);
    assert_eq!(
        states(&end, &[master.name(), one.name(), two.name()]),
        [None, failed, failed]
    );
    for node in [one, two] {
        node.ready().await;
        assert_eq!(node.kubelet_version().await, KubeletVersion::Previous.as_str());
    }
    system.reports(one, &id, UpgradeState::TimedOut).await;
}

/// The node that is in progress is finished; the other one is not started.
async fn full_disk_and_abort(system: &System) {
    let [_, one, two] = system.nodes();
    let id = order(system, &parts(system, FILLS_THE_DISK, "exit 0"), SHORT).await;
    system.turn(&id, one.name()).await;
    let abort =
        "-n containership-core patch clusterupgrade ID --type merge -p {\"spec\":{\"policy\":{\"aborted\":true}}}";
    system.site.kubectl(&abort.replace("ID", &id)).await;
    eventually("the disk to be full", SOON, async || {
        let left = one.run(["df", "--output=avail", "--block-size=1", "/root"]).await;
        match left.lines().last().map(str::trim) {
            Some("0") => Ok(()),
            _ => Err(left),
        }
    })
    .await;
    let end = system.ends(&id, UpgradeStatus::Failed, |_| ()).await;
    assert_eq!(
        states(&end, &[one.name(), two.name()]),
        [Some(UpgradeStatus::Failed), None]
    );
    // Conditions and Events follow the progress.
    eventually("the upgrade to say why it failed", SOON, async || {
        let says = system.says(&id).await;
        if says.contains("abort") { Ok(()) } else { Err(says) }
    })
    .await;
    one.run(["rm", "/root/filler"]).await;
    one.has_condition("DiskPressure", "False").await;
    system
        .site
        .rolled_out("tidewaiter-agent", "daemonset/tidewaiter-agent")
        .await;
    assert_eq!(one.kubelet_version().await, KubeletVersion::Previous.as_str());
}

/// The first worker is at the version, and fails. The second one is upgraded. A Node that joins has its turn, and is
/// deleted.
async fn never_ready_and_deleted(system: &System) {
    let [_, one, two] = system.nodes();
    let joined = system.joins(78).await;
    let script = parts(system, &and_then(BREAKS_THE_NETWORK), &and_then(""));
    let id = order(system, &script, 2 * SHORT).await;
    let deleted = async {
        system.turn(&id, joined.name()).await;
        system.site.kubectl(&format!("delete node {}", joined.name())).await;
    };
    let end = system.ends(&id, UpgradeStatus::Failed, |_| ());
    let ((), end) = tokio::join!(deleted, end);
    let (failed, done) = (Some(UpgradeStatus::Failed), Some(UpgradeStatus::Success));
    let nodes = [one.name(), two.name(), joined.name()];
    assert_eq!(
        states(&end, &nodes),
        [failed, done, failed],
        "{}",
        system.says(&id).await
    );
    one.has_condition("Ready", "False").await;
    assert_eq!(one.kubelet_version().await, KubeletVersion::Current.as_str());
    let events = "-n containership-core get events -o jsonpath={.items[?(@.reason==\"NodeUpgradeFailure\")].message}";
    eventually("an Event to say why the node failed", SOON, async || {
        let told = system.site.try_kubectl(events).await?;
        if told.contains("Ready") { Ok(()) } else { Err(told) }
    })
    .await;
    one.run(["sh", "-ec", REPAIR]).await;
    one.ready().await;
}

/// A script that may run again goes on after the reboot that it asked for.
async fn reboots(system: &System) {
    let [_, one, _] = system.nodes();
    one.links_kubelet(KubeletVersion::Previous).await;
    let script = parts(system, &and_then(REBOOTS), "exit 1").replace("set -eu", "# tidewaiter: repeatable\nset -eu");
    let id = order(system, &script, 600).await;
    system.host_says(one, &id, Outcome::Running).await;
    one.boots_again().await;
    let end = system.ends(&id, UpgradeStatus::Success, |_| ()).await;
    assert_eq!(end.node_statuses.len(), 1, "{end:?}");
    one.has_kubelet(KubeletVersion::Current).await;
    assert_eq!(one.run(["cat", "/root/runs"]).await, format!("{id}\n{id}\n"));
    system.reports(one, &id, UpgradeState::Succeeded).await;
}
