//! Upgrade scripts on real nodes: the units of `deploy/host`, a real kubelet of the release before, and the examples of
//! `deploy/host/examples`, unchanged. Here is one node, and the agent's part is written as the agent writes it; `whole`
//! and `trouble` have three nodes and the whole system.
#![allow(clippy::disallowed_methods, reason = "files of the test")]

mod cloud;
mod system;
mod trouble;
mod whole;

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use minisign::KeyPair;
use serde_json::{Value, json};
use tidewaiter_agent::upgrade::files::{Outcome, RunResult, script_name};
use tidewaiter_api::containership::UpgradeStatus;
use tidewaiter_cloud::signed::{SignatureError, SigningKey};
use tidewaiter_kit::SystemClock;
use tidewaiter_testkit::site::room;
use tidewaiter_testkit::{ControlPlane, KubeletVersion, NodeOptions, RealNode, Scratch, eventually};
use tidewaiter_upgrade::signed::{Statement, digest};
use tidewaiter_upgrade::{NodeState, Progress, Version, form};
use tokio::sync::SemaphorePermit;

const SOON: Duration = Duration::from_mins(4);
const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
const FOLDER: &str = "/etc/containership/scripts/upgrade";
const SCRIPT: &str = include_str!("../../../../deploy/host/examples/systemd.sh");
const KUBEADM: &str = include_str!("../../../../deploy/host/examples/kubeadm.sh");

/// Programs that a node of kubeadm has. They write down how they are called, and install the kubelet that is there;
/// `/usr/local/bin` comes first in the PATH of a unit.
const SHIMS: &str = r#"
cat >/usr/local/bin/shim <<'END'
#!/bin/sh
echo "${0##*/} $*" >>/root/calls
for word; do
    case $word in
    kubelet=*-\*) version=${word#kubelet=} && ln -sfn "/opt/node/kubelet-v${version%-*}" /usr/local/bin/kubelet ;;
    esac
done
END
chmod 755 /usr/local/bin/shim
for name in apt-get apt-mark kubeadm; do
    ln -s shim "/usr/local/bin/$name"
done
"#;

/// As the documentation of kubeadm has them.
const CALLS: &str = "\
apt-get update
apt-mark unhold kubeadm kubelet kubectl
apt-get install -y kubeadm=1.36.3-*
kubeadm upgrade node
apt-get install -y kubelet=1.36.3-* kubectl=1.36.3-*
apt-mark hold kubeadm kubelet kubectl
";

/// Installs the kubelet, says so, and takes longer than the power lasts: its last steps are never done.
const HANGS: &str = "#!/bin/sh
ln -sfn /opt/node/kubelet-$TIDEWAITER_VERSION /usr/local/bin/kubelet
echo began >> /root/began
sync
sleep 600
";

struct World {
    node: RealNode,
    pair: KeyPair,
    scratch: Scratch,
    control_plane: ControlPlane,
    _room: SemaphorePermit<'static>,
}

impl World {
    async fn start() -> Self {
        let room = room(1).await;
        let control_plane = ControlPlane::builder().with_nodes().start().await;
        let node = RealNode::start(&control_plane, KubeletVersion::Previous, &NodeOptions::new("w1")).await;
        let world = Self {
            node,
            pair: KeyPair::generate_unencrypted_keypair().unwrap(),
            scratch: Scratch::new("node-upgrade"),
            control_plane,
            _room: room,
        };
        world.node.links_kubelet(KubeletVersion::Previous).await;
        let program = Path::new(env!("CARGO_BIN_EXE_tidewaiter"));
        let key = world.pair.pk.to_box().unwrap().into_string();
        world.node.installs_host(program, CLUSTER, &key).await;
        world
    }

    async fn put(&self, text: &str, mode: &str, to: &str) {
        let file: PathBuf = self.scratch.path().join("file");
        std::fs::write(&file, text).unwrap();
        self.node.put(&file, mode, to).await;
    }

    /// Offers a script, signed for this node and version, as the agent does.
    async fn offer(&self, id: &str, script: &str, version: &str) {
        self.offer_by(&self.pair, id, script, version).await;
    }

    /// The same with another key.
    async fn offer_by(&self, pair: &KeyPair, id: &str, script: &str, version: &str) {
        let key = pair.sk.to_box(None).unwrap().into_string();
        let key = SigningKey::read::<SignatureError>(&key, || unreachable!("it has no password")).unwrap();
        let now = SystemClock::shared().now().as_second();
        let target: Version = version.parse().unwrap();
        let name = script_name(&target, id);
        let statement = Statement {
            cluster: CLUSTER.to_owned(),
            node: "w1".parse().unwrap(),
            upgrade: id.to_owned(),
            generation: now,
            version: target,
            sha256: digest(script),
            not_before: None,
            expires: Timestamp::from_second(now + 3600).unwrap(),
        };
        let script = format!("{script}{}", statement.block(&key).unwrap());
        self.put(&script, "0700", &format!("{FOLDER}/{name}")).await;
        let order = order(id, version, now).to_string();
        let json = name.replace(".sh", ".json");
        self.put(&order, "0600", &format!("{FOLDER}/{json}")).await;
        // Whole at once.
        self.put(&format!("{FOLDER}/{name}\n"), "0600", &format!("{FOLDER}/.next"))
            .await;
        let [from, to] = [".next", "current"].map(|name| format!("{FOLDER}/{name}"));
        self.node.run(["mv", &from, &to]).await;
    }

    /// Waits until the host says this of the upgrade.
    async fn says(&self, id: &str, outcome: Outcome) -> RunResult {
        eventually(format!("{id} to be {outcome:?}"), SOON, async || {
            let path = format!("{FOLDER}/result.json");
            let text = self.node.try_run(["cat", &path]).await?;
            let result: RunResult = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if result.id == id && result.outcome == outcome {
                return Ok(result);
            }
            let journal = ["journalctl", "--no-pager", "-n", "20", "-u", "tidewaiter-upgrade"];
            Err(format!("{result:?}\n{}", self.node.run(journal).await))
        })
        .await
    }

    async fn kubelet(&self) -> String {
        self.node.kubelet_version().await
    }
}

/// The turn of the node `w1`.
fn order(id: &str, version: &str, began: i64) -> Value {
    let node: tidewaiter_api::NodeName = "w1".parse().unwrap();
    let since = Some(Timestamp::from_second(began).unwrap());
    let progress = Progress {
        cluster: UpgradeStatus::InProgress,
        nodes: [(node.clone(), NodeState::InProgress { since })].into(),
        current: Some(node),
        ..Progress::default()
    };
    json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade",
        "metadata": {"name": id, "uid": id, "generation": 3},
        "spec": {"id": id, "type": "kubernetes", "targetVersion": version, "labelSelector": [], "nodeTimeoutSeconds": 900,
            "status": form::write(&progress)}})
}

#[tokio::test]
async fn a_real_kubelet_is_upgraded_by_the_units_and_a_power_cut_does_not_run_a_script_twice() {
    let world = World::start().await;
    let (previous, current) = (KubeletVersion::Previous.as_str(), KubeletVersion::Current.as_str());
    assert_eq!(world.kubelet().await, previous);
    // It returns 0 whatever it finds.
    let units = "systemd-analyze verify /etc/systemd/system/tidewaiter-upgrade.path /etc/systemd/system/tidewaiter-upgrade.service /etc/systemd/system/tidewaiter-upgrade-way-back.service 2>&1 | \
        grep tidewaiter-upgrade || true";
    assert_eq!(world.node.run(["sh", "-ec", units]).await, "");
    let security =
        "systemd-analyze security --offline=yes --threshold=90 /etc/systemd/system/tidewaiter-upgrade.service";
    world.node.run(["sh", "-ec", security]).await;

    // The power fails while a script runs that does not say that it may run again.
    world.offer("first", HANGS, current).await;
    world.says("first", Outcome::Running).await;
    let began = async || world.node.try_run(["cat", "/root/began"]).await.unwrap_or_default();
    eventually("the script to begin", SOON, async || match began().await.trim() {
        "began" => Ok(()),
        other => Err(other.to_owned()),
    })
    .await;
    world.node.power_cut().await;
    world.node.power_on().await;
    world.says("first", Outcome::Interrupted).await;
    assert_eq!(began().await.trim(), "began");
    world.node.has_kubelet(KubeletVersion::Current).await;
    world.node.links_kubelet(KubeletVersion::Previous).await;

    // Another upgrade, with the documented script.
    world.offer("second", SCRIPT, current).await;
    let result = world.says("second", Outcome::Succeeded).await;
    assert_eq!(result.exit_code, Some(0), "{result:?}");
    world.node.ready().await;
    world.node.has_kubelet(KubeletVersion::Current).await;

    // A downgrade, signed by mistake.
    world.offer("third", SCRIPT, previous).await;
    let result = world.says("third", Outcome::Refused).await;
    assert!(result.message.contains("so an upgrade to"), "{result:?}");
    world.node.reboot().await;
    world.node.ready().await;
    assert_eq!(world.kubelet().await, current);

    // A node of kubeadm.
    world.node.links_kubelet(KubeletVersion::Previous).await;
    world.node.run(["sh", "-ec", SHIMS]).await;
    world.offer("fourth", KUBEADM, current).await;
    let result = world.says("fourth", Outcome::Succeeded).await;
    assert_eq!(world.node.run(["cat", "/root/calls"]).await, CALLS, "{result:?}");
    world.node.has_kubelet(KubeletVersion::Current).await;
    world.node.ready().await;

    what_the_agent_can_write_pins_nothing(&world).await;
    a_new_key_and_a_mount_without_exec(&world).await;
    is_removed(&world).await;
    drop(world.node);
    drop(world.control_plane);
}

/// The files that the agent's container can write: those that earlier versions trusted.
const FORMER: &str = "
mkdir /etc/containership/trust
cd /etc/containership/trust
echo $1 >cluster
echo w1 >node
echo $2 >key-1.pub
echo allow >unsigned-scripts
";
const INSTALL_AGAIN: &str = "tidewaiter host install --cluster $1 --node w1 --key /root/minisign.pub";

/// Neither the unit nor another installation believes it.
async fn what_the_agent_can_write_pins_nothing(world: &World) {
    let foreign = KeyPair::generate_unencrypted_keypair().unwrap();
    let key = foreign.pk.to_base64();
    world.node.run(["sh", "-ec", FORMER, "sh", CLUSTER, &key]).await;
    let script = "#!/bin/sh\ntouch /root/foreign\n";
    let current = KubeletVersion::Current.as_str();
    world.offer_by(&foreign, "fifth", script, current).await;
    let result = world.says("fifth", Outcome::Refused).await;
    assert!(result.message.contains("which is not trusted"), "{result:?}");
    let said = world.node.run(["sh", "-ec", INSTALL_AGAIN, "sh", CLUSTER]).await;
    assert!(
        said.contains(&format!("the key {key} is not pinned in the new one")),
        "{said}"
    );
    world.offer_by(&foreign, "sixth", script, current).await;
    world.says("sixth", Outcome::Refused).await;
    let left = world.node.run([
        "sh",
        "-c",
        "ls /root/foreign /etc/containership/trust 2>/dev/null || true",
    ]);
    assert_eq!(left.await, "");
}

const NO_EXEC: &str = "
mount --bind /var/lib/tidewaiter-host /var/lib/tidewaiter-host
mount -o remount,bind,noexec /var/lib/tidewaiter-host
printf %s \"$1\" >/root/new.pub
tidewaiter host keys add /root/new.pub
tidewaiter host keys list
";

/// The script of a new key waits, and runs when it can.
async fn a_new_key_and_a_mount_without_exec(world: &World) {
    world.node.links_kubelet(KubeletVersion::Previous).await;
    let new = KeyPair::generate_unencrypted_keypair().unwrap();
    let file = new.pk.to_box().unwrap().into_string();
    let said = world.node.run(["sh", "-ec", NO_EXEC, "sh", &file]).await;
    for pair in [&world.pair, &new] {
        assert!(
            said.contains(&format!("key {} with the id ", pair.pk.to_base64())),
            "{said}"
        );
    }
    let current = KubeletVersion::Current.as_str();
    world.offer_by(&new, "seventh", SCRIPT, current).await;
    let result = world.says("seventh", Outcome::Blocked).await;
    assert!(result.message.contains("mounted with noexec"), "{result:?}");
    assert_eq!(world.kubelet().await, KubeletVersion::Previous.as_str());
    world.node.run(["umount", "/var/lib/tidewaiter-host"]).await;
    // As the agent does after a minute.
    world.node.run(["systemctl", "start", "tidewaiter-upgrade"]).await;
    world.says("seventh", Outcome::Succeeded).await;
    world.node.has_kubelet(KubeletVersion::Current).await;
}

/// The units, and what was pinned.
const INSTALLED: &str = "find /etc/systemd/system /etc/tidewaiter/pinned /etc/containership/scripts \
    -name 'tidewaiter-upgrade*' -o -path '*/pinned/*' -o -path '*/scripts/upgrade*'";

/// Not while a script runs.
async fn is_removed(world: &World) {
    world.node.links_kubelet(KubeletVersion::Previous).await;
    let current = KubeletVersion::Current.as_str();
    let waits = format!("#!/bin/sh\nuntil [ -e /root/goes-on ]; do sleep 0.1; done\n{SCRIPT}");
    world.offer("eighth", &waits, current).await;
    world.says("eighth", Outcome::Running).await;
    let refused = world
        .node
        .try_run(["tidewaiter", "host", "uninstall"])
        .await
        .unwrap_err();
    assert!(refused.contains("an upgrade script runs"), "{refused}");
    world.node.run(["touch", "/root/goes-on"]).await;
    world.says("eighth", Outcome::Succeeded).await;
    eventually("the unit to end", SOON, async || {
        world.node.try_run(["tidewaiter", "host", "uninstall"]).await.map(drop)
    })
    .await;
    assert_eq!(world.node.run(["sh", "-ec", INSTALLED]).await, "");
    let again = world.node.run(["tidewaiter", "host", "uninstall"]).await;
    assert_eq!(again, "there is nothing to remove\n");
    world.node.ready().await;
}
