//! The agent's DaemonSet on two real nodes, and people who log in at their sshd, which is configured as docs/agent.md
//! says.

mod cuts;
mod hosts;
mod others;
mod sessions;

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tidewaiter_api::containership::User;
use tidewaiter_api::node_report::{NodeReport, NodeReportStatus};
use tidewaiter_testkit::site::{SOON, Site, WORKERS};
use tidewaiter_testkit::{AUTHORIZED_KEYS, Identity, RealNode, assets, eventually};

use crate::{shown, site};

/// The types that are written.
const TYPES: [(&str, &str); 5] = [
    ("ed25519", "256"),
    ("ecdsa", "256"),
    ("ecdsa", "384"),
    ("ecdsa", "521"),
    ("rsa", "2048"),
];

/// Those that are not.
const WEAK: [(&str, &str); 2] = [("rsa", "1024"), ("dsa", "1024")];

/// Users with keys that are not written are numbered from here.
const REFUSED_USERS: usize = 30;

/// sshd would accept them, if the agent had written them. A client uses each of them only if it is told to.
const ACCEPTS_ALL: &str = "printf 'PubkeyAcceptedAlgorithms +ssh-dss\nRequiredRSASize 1024\n' >>/etc/ssh/sshd_config.d/tidewaiter.conf; \
    sshd -t; systemctl restart ssh";
const READS_ANOTHER_FILE: &str = "sed -i 's|^AuthorizedKeysFile |&.ssh/authorized_keys |' /etc/ssh/sshd_config.d/tidewaiter.conf; \
    sshd -t; systemctl restart ssh";
const READS_OURS_ALONE: &str = "sed -i 's| .ssh/authorized_keys | |' /etc/ssh/sshd_config.d/tidewaiter.conf; \
    sshd -t; systemctl restart ssh; \
    sshd -T -C user=root,host=localhost,addr=127.0.0.1 | grep -x 'authorizedkeysfile /etc/containership/home/.ssh/authorized_keys'";
const USES_ALL: [&str; 2] = ["-oPubkeyAcceptedAlgorithms=+ssh-dss", "-oRequiredRSASize=1024"];

/// Keys on devices. Nobody has these devices, so sshd accepts the key and the login ends there.
const SECURITY_KEYS: [&str; 2] = [
    "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIKEsW+O3/J4+f0ONATjM6hhK3v1KmQ9TQ80d79vJTbtQAAAABHNzaDo=",
    "sk-ecdsa-sha2-nistp256@openssh.com AAAAInNrLWVjZHNhLXNoYTItbmlzdHAyNTZAb3BlbnNzaC5jb20AAAAIbmlzdHAyNTYAAABBBKohQ80ObZWEG/S9wLD9bE/4q4MIu72ixvI4d+E2rxqmYcngU41+nDB4VDTOx973z5lpwPlQcF/rXavbG3rbRaoAAAAEc3NoOg==",
];

const REFUSED: &str = "Permission denied (publickey)";

fn id(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// As the login script knows the user.
pub fn login_id(number: usize) -> String {
    id(number).replace('-', "")
}

pub struct World {
    site: Site,
}

impl World {
    async fn start() -> Self {
        let site = site([WORKERS; 2]).await;
        let cluster = &site.control_plane;
        cluster
            .apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: containership-core}\n")
            .await;
        for node in &site.nodes {
            node.accepts_logins().await;
        }
        hosts::small_file_system(&site.nodes[0]).await;
        for path in ["crds/coordinator", "crds/agent", "agent"] {
            cluster
                .apply_manifests(assets::repository().join("deploy").join(path))
                .await;
        }
        Self { site }
    }

    /// Has the folder of the agent on a small file system, and the private keys.
    pub fn one(&self) -> &RealNode {
        &self.site.nodes[0]
    }

    pub fn two(&self) -> &RealNode {
        &self.site.nodes[1]
    }

    fn users(&self) -> Api<User> {
        Api::namespaced(self.site.control_plane.client(&Identity::Admin), "containership-core")
    }

    pub async fn user(&self, number: usize, key: &str) {
        self.user_with(number, &[key.to_owned()]).await;
    }

    pub async fn user_with(&self, number: usize, keys: &[String]) {
        let id = id(number);
        let key = |key| json!({"id": "", "name": "laptop", "fingerprint": "", "key": key});
        let keys: Vec<_> = keys.iter().map(key).collect();
        let user = json!({"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": id},
            "spec": {"id": id, "name": format!("user-{number}"), "avatar_url": "", "added_at": "", "ssh_keys": keys}});
        let params = PatchParams::apply("test").force();
        self.users().patch(&id, &params, &Patch::Apply(&user)).await.unwrap();
    }

    /// Replaces the agent of a node.
    pub async fn another_agent(&self, node: &RealNode) {
        let of_node = format!(
            "-n tidewaiter-agent delete pods --field-selector spec.nodeName={}",
            node.name()
        );
        self.site.kubectl(&of_node).await;
        self.site
            .rolled_out("tidewaiter-agent", "daemonset/tidewaiter-agent")
            .await;
    }

    /// Waits until the report of a node says this.
    pub async fn reports(&self, node: &RealNode, what: &str, is_so: impl Fn(&NodeReportStatus) -> bool) {
        let reports: Api<NodeReport> = Api::all(self.site.control_plane.client(&Identity::Admin));
        eventually(format!("{} to report {what}", node.name()), SOON, async || {
            let report = reports.get(node.name()).await.map_err(shown)?;
            let status = report.status.ok_or("no status")?;
            if is_so(&status) { Ok(()) } else { Err(shown(status)) }
        })
        .await;
    }

    /// Waits until both nodes report so many keys.
    async fn both_report(&self, keys: u32, refused: u32) {
        for node in &self.site.nodes {
            let is_so = |status: &NodeReportStatus| (status.keys, status.refused_keys) == (keys, refused);
            self.reports(node, &format!("{keys} keys"), is_so).await;
        }
    }

    /// Logs in at this node until it succeeds, as this user.
    pub async fn logs_in(&self, node: &RealNode, key: &str, number: usize) {
        eventually(format!("a login with {key}"), SOON, async || {
            let said = self.one().logs_in(node, key, "echo $CONTAINERSHIP_USER_ID").await?;
            if said.trim() == login_id(number) {
                Ok(())
            } else {
                Err(said)
            }
        })
        .await;
    }

    async fn is_refused(&self, key: &str) {
        let said = self.one().ssh(self.two(), key, &USES_ALL, &["id"]).await;
        assert!(said.as_ref().is_err_and(|said| said.contains(REFUSED)), "{said:?}");
    }
}

#[tokio::test]
async fn people_log_in_at_a_real_sshd() {
    let world = World::start().await;
    let keys = each_type_logs_in(&world).await;
    no_other_type_does(&world, &keys[0]).await;
    security_keys_are_accepted(&world).await;
    sessions::each_is_recorded(&world, &keys[0]).await;
    others::get_in_by_a_pinned_key_alone(&world, &keys[0]).await;
    changes_are_undone(&world, &keys[0]).await;
    hosts::trouble_passes(&world, &keys[0]).await;
    cuts::the_network_is_cut(&world, &keys[0]).await;
    cuts::the_power_is_cut(&world).await;

    // A user that is removed is refused, also if somebody has made the file immutable.
    world.logs_in(world.two(), &keys[1], 1).await;
    world.two().run(["chattr", "+i", AUTHORIZED_KEYS]).await;
    world.users().delete(&id(1), &DeleteParams::default()).await.unwrap();
    world.both_report(26, 3).await;
    world.is_refused(&keys[1]).await;

    rolls_out(&world, &keys[0]).await;

    // The node starts without the API server, and without the agent: the keys are there.
    world.site.control_plane.apiserver().kill();
    world.two().power_cut().await;
    world.two().power_on().await;
    world.logs_in(world.two(), &keys[0], 0).await;
}

/// Each type logs in as its user, by way of the script. Returns the paths of the private keys.
async fn each_type_logs_in(world: &World) -> Vec<String> {
    let mut keys = Vec::new();
    for (number, (kind, bits)) in TYPES.iter().enumerate() {
        let path = format!("/root/key-{number}");
        let key = world.one().make_key(&path, kind, bits).await;
        // The comment of a key makes it nothing else.
        world.user(number, &format!("{key} x # break-glass")).await;
        keys.push(path);
    }
    world.both_report(5, 0).await;
    for (number, key) in keys.iter().enumerate() {
        world.logs_in(world.two(), key, number).await;
    }
    keys
}

/// Neither weak keys nor certificates of a key that may log in, although sshd would accept them.
async fn no_other_type_does(world: &World, good: &str) {
    let (one, two) = (world.one(), world.two());
    two.run(["sh", "-ec", ACCEPTS_ALL]).await;
    let mut refused = Vec::new();
    for (kind, bits) in WEAK {
        let path = format!("/root/weak-{kind}");
        refused.push((one.make_key(&path, kind, bits).await, path));
    }
    let sign = "cp $1 /root/certified && ssh-keygen -q -N '' -t ed25519 -f /root/authority && ssh-keygen -q -N '' -t ed25519 -f /root/other && \
        cp /root/other /root/certified && ssh-keygen -q -s /root/authority -I certified -n root /root/other.pub && \
        cp /root/other-cert.pub /root/certified-cert.pub && cat /root/certified-cert.pub";
    let certificate = one.run(["sh", "-ec", sign, "sh", good]).await;
    assert!(
        certificate.starts_with("ssh-ed25519-cert-v01@openssh.com "),
        "{certificate}"
    );
    refused.push((certificate.trim().to_owned(), "/root/certified".to_owned()));
    for (number, (key, _)) in (REFUSED_USERS..).zip(&refused) {
        world.user(number, key).await;
    }
    world.both_report(5, 3).await;
    for (_, path) in &refused {
        world.is_refused(path).await;
    }
    // Refused keys are refused by the agent alone: sshd reads no other file, and accepts them from one.
    let lines = format!("{}\n{}\n", refused[0].0, refused[1].0);
    two.run([
        "sh",
        "-c",
        "mkdir -pm 700 /root/.ssh && printf %s \"$1\" >/root/.ssh/authorized_keys",
        "sh",
        &lines,
    ])
    .await;
    for is_read in [false, true] {
        if is_read {
            two.run(["sh", "-ec", READS_ANOTHER_FILE]).await;
        }
        for (_, path) in &refused[..2] {
            let said = one.ssh(two, path, &USES_ALL, &["true"]).await;
            assert_eq!(said.is_ok(), is_read, "{path}: {said:?}");
        }
    }
    two.run(["rm", "/root/.ssh/authorized_keys"]).await;
    two.run(["sh", "-ec", READS_OURS_ALONE]).await;
}

async fn security_keys_are_accepted(world: &World) {
    for (number, key) in (6..).zip(SECURITY_KEYS) {
        world.user(number, key).await;
    }
    world.both_report(7, 3).await;
    for key in SECURITY_KEYS {
        let write = "umask 077 && : >/root/device && echo \"$1\" >/root/device.pub";
        world.one().run(["sh", "-c", write, "sh", key]).await;
        let options = ["-oLogLevel=DEBUG1"];
        let said = world.one().ssh(world.two(), "/root/device", &options, &["true"]).await;
        let said = said.expect_err("nobody has the device");
        assert!(said.contains("Server accepts key: /root/device"), "{said}");
    }
}

/// An intruder's changes of the file and its folders are undone, and then sshd accepts the file: nothing is left that
/// `StrictModes` refuses.
async fn changes_are_undone(world: &World, key: &str) {
    let two = world.two();
    let right = two.run(["cat", AUTHORIZED_KEYS]).await;
    for change in [
        "sed -i 's/command=[^ ]* [^ ]* //' \"$0\"",
        "rm \"$0\"",
        "mv \"${0%/*}\" /etc/containership/moved",
        "chmod 666 \"$0\"",
        "chown 1000:1000 \"$0\"",
        "chmod 777 \"${0%/*}\"",
        "chown 1000 \"${0%/*/*}\"",
        "mkdir /etc/containership/other && mv \"$0\" /etc/containership/other && ln -sf /etc/containership/other/authorized_keys \"$0\"",
        "rm /etc/containership/scripts/containership_login.sh",
    ] {
        two.run(["sh", "-c", change, AUTHORIZED_KEYS]).await;
        eventually(format!("{change} to be undone"), SOON, async || {
            let look = "cat \"$0\" && stat -c '%a %u %F' \"$0\" \"${0%/*}\" \"${0%/*/*}\" && test -x /etc/containership/scripts/*.sh";
            let found = two.try_run(["sh", "-c", look, AUTHORIZED_KEYS]).await?;
            let modes = "600 0 regular file\n755 0 directory\n755 0 directory\n";
            if found == format!("{right}{modes}") {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
        let said = world.one().logs_in(two, key, "true").await;
        assert!(said.is_ok(), "after {change}: {said:?}");
    }
}

/// Another version of the pods: there is no moment without keys.
async fn rolls_out(world: &World, key: &str) {
    let client = world.site.control_plane.client(&Identity::Admin);
    let sets: Api<DaemonSet> = Api::namespaced(client, "tidewaiter-agent");
    let other = json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}},
        "template": {"metadata": {"annotations": {"example.com/version": "2"}}}}});
    sets.patch("tidewaiter-agent", &PatchParams::default(), &Patch::Merge(other))
        .await
        .unwrap();
    let mut logins = 0;
    eventually("the roll-out", SOON, async || {
        let said = world
            .one()
            .logs_in(world.two(), key, "echo $CONTAINERSHIP_USER_ID")
            .await;
        assert_eq!(
            said.as_deref().map(str::trim),
            Ok(login_id(0).as_str()),
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
