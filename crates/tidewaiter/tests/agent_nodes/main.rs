//! The agent's DaemonSet on two real nodes, and people who log in at their sshd.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tidewaiter_api::NodeReport;
use tidewaiter_api::containership::User;
use tidewaiter_testkit::{ControlPlane, Identity, Image, KubeletVersion, NodeOptions, RealNode, eventually};

/// For what takes seconds on an idle machine.
const SOON: Duration = Duration::from_mins(4);

const FILE: &str = "/etc/containership/home/.ssh/authorized_keys";

/// As docs/agent.md says, and nothing else lets anybody in.
const SSHD: &str = "printf 'AuthorizedKeysFile /etc/containership/home/.ssh/authorized_keys\\nPermitRootLogin prohibit-password\\nPasswordAuthentication no\\n\
StrictModes yes\\n' >/etc/ssh/sshd_config.d/tidewaiter.conf && systemctl restart ssh";

/// The types that are written, and two that are not.
const TYPES: [(&str, &str); 6] = [
    ("ed25519", "256"),
    ("ecdsa", "256"),
    ("ecdsa", "384"),
    ("ecdsa", "521"),
    ("rsa", "2048"),
    ("rsa", "1024"),
];

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn id(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// An image with the binary of this build, stripped, and the libraries that it is linked to.
async fn image(cluster: &ControlPlane) -> Image {
    let program = cluster.folder().join("tidewaiter");
    let strip = Command::new("strip")
        .arg("-o")
        .arg(&program)
        .arg(env!("CARGO_BIN_EXE_tidewaiter"))
        .status();
    assert!(strip.expect("strip, of the package binutils").success());
    let libraries = Command::new("ldd").arg(&program).output().expect("ldd");
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    let mut files = vec![(program.clone(), "tidewaiter".to_owned())];
    files.extend(libraries.map(|library| (library.into(), library.trim_start_matches('/').to_owned())));
    let files: Vec<(&Path, &str)> = files.iter().map(|(from, to)| (from.as_path(), to.as_str())).collect();
    let name = concat!("registry.invalid/tidewaiter:", env!("CARGO_PKG_VERSION"));
    Image::build(cluster.folder(), name, &files, &["/tidewaiter"]).await
}

struct World {
    cluster: ControlPlane,
    one: RealNode,
    two: RealNode,
}

impl World {
    async fn start() -> Self {
        let cluster = ControlPlane::builder().with_nodes().start().await;
        cluster
            .apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: containership-core}\n")
            .await;
        let options = ["one", "two"].map(NodeOptions::new);
        let start = |options| RealNode::start(&cluster, KubeletVersion::Current, options);
        let (one, two) = tokio::join!(start(&options[0]), start(&options[1]));
        let image = image(&cluster).await;
        for node in [&one, &two] {
            node.load(&image).await;
            node.run(["sh", "-c", SSHD]).await;
        }
        for path in ["crds/coordinator", "crds/agent", "agent"] {
            cluster.apply_manifests(deploy(path)).await;
        }
        Self { cluster, one, two }
    }

    fn users(&self) -> Api<User> {
        Api::namespaced(self.cluster.client(&Identity::Admin), "containership-core")
    }

    async fn user(&self, number: usize, key: &str) {
        let id = id(number);
        let key = json!({"id": "", "name": "laptop", "fingerprint": "", "key": key.trim()});
        let user = json!({"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": id},
            "spec": {"id": id, "name": format!("user-{number}"), "avatar_url": "", "added_at": "", "ssh_keys": [key]}});
        let params = PatchParams::apply("test").force();
        self.users().patch(&id, &params, &Patch::Apply(&user)).await.unwrap();
    }

    /// Waits until both nodes report so many keys.
    async fn report(&self, keys: u32, refused: u32) {
        let reports: Api<NodeReport> = Api::all(self.cluster.client(&Identity::Admin));
        for node in [&self.one, &self.two] {
            eventually(format!("{} to report {keys} keys", node.name()), SOON, async || {
                let report = reports.get(node.name()).await.map_err(|error| error.to_string())?;
                let status = report.status.ok_or("no status")?;
                if (status.keys, status.refused_keys) == (keys, refused) {
                    Ok(())
                } else {
                    Err(format!("{status:?}"))
                }
            })
            .await;
        }
    }

    /// What a login with this key prints, from one node to the other; `refused` when sshd refuses it.
    async fn login(&self, key: &str, command: &str) -> String {
        let login = "ssh -i \"$1\" -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
             -o LogLevel=ERROR -o ConnectTimeout=10 \"root@$2\" \"$3\" 2>/tmp/ssh-errors || { echo refused; cat /tmp/ssh-errors >&2; }";
        let host = self.two.address().to_string();
        self.one.run(["sh", "-c", login, "sh", key, &host, command]).await
    }

    async fn logs_in(&self, key: &str, expected: &str) {
        eventually(format!("a login with {key}"), SOON, async || {
            let said = self.login(key, "echo $CONTAINERSHIP_USER_ID").await;
            if said.trim() == expected { Ok(()) } else { Err(said) }
        })
        .await;
    }
}

#[tokio::test]
async fn people_log_in_at_a_real_sshd() {
    let world = World::start().await;
    let mut keys = Vec::new();
    for (number, (kind, bits)) in TYPES.iter().enumerate() {
        let path = format!("/root/key-{number}");
        world
            .one
            .run([
                "ssh-keygen",
                "-q",
                "-t",
                kind,
                "-b",
                bits,
                "-N",
                "",
                "-C",
                "x # break-glass",
                "-f",
                &path,
            ])
            .await;
        let key = world.one.run(["cat", &format!("{path}.pub")]).await;
        world.user(number, &key).await;
        keys.push(path);
    }
    world.report(5, 1).await;
    // Each type logs in as its user, by way of the script; a weak key does not.
    for (number, key) in keys.iter().enumerate().take(5) {
        world.logs_in(key, &id(number).replace('-', "")).await;
    }
    assert_eq!(world.login(&keys[5], "id").await.trim(), "refused");
    let journal = world
        .two
        .run(["journalctl", "-t", "containership-login", "--no-pager", "-q"])
        .await;
    assert!(
        journal.contains(&format!("user_id={} account=root from=", id(0).replace('-', ""))),
        "{journal}"
    );

    // What an intruder does to the file is undone.
    let right = world.two.run(["cat", FILE]).await;
    for change in [
        "sed -i 's/command=[^ ]* [^ ]* //' \"$0\"",
        "rm \"$0\"",
        "mv \"${0%/*}\" /etc/containership/moved",
        "chmod 666 \"$0\"",
    ] {
        world.two.run(["sh", "-c", change, FILE]).await;
        eventually(format!("{change} to be undone"), SOON, async || {
            let found = world
                .two
                .run(["sh", "-c", "cat \"$0\" 2>&1; stat -c %a \"$0\" 2>&1 || true", FILE])
                .await;
            if found == format!("{right}600\n") {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    }
    world.logs_in(&keys[0], &id(0).replace('-', "")).await;

    // A user that is removed is refused, also if somebody has made the file immutable.
    world.two.run(["chattr", "+i", FILE]).await;
    world.users().delete(&id(1), &DeleteParams::default()).await.unwrap();
    world.report(4, 1).await;
    assert_eq!(world.login(&keys[1], "id").await.trim(), "refused");

    rolls_out(&world, &keys[0]).await;

    // The node starts without the API server, and without the agent: the keys are there.
    world.cluster.apiserver().kill();
    world.two.power_cut().await;
    world.two.power_on().await;
    world.logs_in(&keys[0], &id(0).replace('-', "")).await;
}

/// Another version of the pods: there is no moment without keys.
async fn rolls_out(world: &World, key: &str) {
    let sets: Api<DaemonSet> = Api::namespaced(world.cluster.client(&Identity::Admin), "tidewaiter-agent");
    let other = json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}},
        "template": {"metadata": {"annotations": {"example.com/version": "2"}}}}});
    sets.patch("tidewaiter-agent", &PatchParams::default(), &Patch::Merge(other))
        .await
        .unwrap();
    let mut logins = 0;
    eventually("the roll-out", SOON, async || {
        let said = world.login(key, "echo $CONTAINERSHIP_USER_ID").await;
        assert_eq!(
            said.trim(),
            id(0).replace('-', ""),
            "login {logins} during the roll-out"
        );
        logins += 1;
        let set = sets.get("tidewaiter-agent").await.unwrap();
        let status = set.status.unwrap();
        let counts = (
            status.updated_number_scheduled,
            status.number_ready,
            status.observed_generation,
        );
        if counts == (Some(2), 2, set.metadata.generation) {
            Ok(())
        } else {
            Err(format!("{counts:?}"))
        }
    })
    .await;
}
