//! A cluster with Nodes, and agents with the tokens of pods on them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::User;
use tidewaiter_api::{NodeReport, NodeReportStatus};
use tidewaiter_testkit::{ControlPlane, Identity, Process, Program, Reused, Scratch, eventually, free_port};

pub const SOON: Duration = Duration::from_mins(2);

// Created for these tests; the private keys were deleted.
pub const KEYS: [&str; 3] = [
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5",
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKohQ80ObZWEG/S9wLD9bE/4q4MIu72ixvI4d+E2rxqmYcngU41+nDB4VDTOx973z5lpwPlQcF/rXavbG3rbRao=",
    "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIKEsW+O3/J4+f0ONATjM6hhK3v1KmQ9TQ80d79vJTbtQAAAABHNzaDo=",
];

const CORE: &str = "containership-core";
pub const HOME: &str = "tidewaiter-agent";

pub fn account() -> Identity {
    Identity::service_account(HOME, "tidewaiter-agent")
}

/// The id of a user.
pub fn id(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

pub struct World {
    pub cluster: Reused,
    scratch: Scratch,
    numbers: AtomicU32,
}

/// A running agent.
pub struct Agent {
    pub node: String,
    pub process: Process,
    pub folder: PathBuf,
    pub admin: String,
    reports: Api<NodeReport>,
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

async fn prepare(cluster: &ControlPlane) {
    for path in ["coordinator", "crds/coordinator", "crds/agent", "agent"] {
        cluster.apply_manifests(deploy().join(path)).await;
    }
}

impl World {
    pub async fn start() -> Self {
        Self::on(ControlPlane::reused(prepare).await)
    }

    /// A control plane that no other test gets.
    pub async fn alone() -> Self {
        let cluster = ControlPlane::start().await;
        prepare(&cluster).await;
        Self::on(cluster.into())
    }

    fn on(cluster: Reused) -> Self {
        Self {
            cluster,
            scratch: Scratch::new("agent-world"),
            numbers: AtomicU32::new(0),
        }
    }

    pub fn users(&self) -> Api<User> {
        Api::namespaced(self.cluster.client(&Identity::Admin), CORE)
    }

    /// A User with these keys, stored as an older version without a schema could have.
    pub async fn user(&self, number: u32, keys: &[&str]) {
        let id = id(number);
        let keys: Vec<Value> = keys
            .iter()
            .map(|key| json!({"id": "", "name": "laptop", "fingerprint": "", "key": key}))
            .collect();
        let user = json!({"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": id, "namespace": CORE},
            "spec": {"id": id, "name": format!("user-{number}"), "avatar_url": "", "added_at": "", "ssh_keys": keys}});
        let good = serde_json::from_value::<User>(user.clone()).unwrap();
        // As the mirror writes it.
        let params = PatchParams::apply("tidewaiter/sync-users").force();
        if let Err(refused) = self.users().patch(&id, &params, &Patch::Apply(&good)).await {
            // The schema refuses it, so it is written past the API server, over an object that it accepts.
            assert!(refused.to_string().contains("ssh_keys"), "{refused}");
            let mut accepted = good.clone();
            accepted.spec.ssh_keys.clear();
            let stored = self
                .users()
                .patch(&id, &params, &Patch::Apply(&accepted))
                .await
                .unwrap();
            let mut stored = serde_json::to_value(stored).unwrap();
            stored["spec"] = user["spec"].clone();
            stored["apiVersion"] = user["apiVersion"].clone();
            stored["kind"] = user["kind"].clone();
            self.cluster
                .store(&format!("containership.io/users/{CORE}/{id}"), &stored)
                .await;
        }
    }

    /// Waits for an Event on the Node.
    pub async fn event(&self, node: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.cluster.client(&Identity::Admin), "default");
        eventually(format!("the Event {reason} on {node}"), SOON, async || {
            let list = events
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let about = |event: &Event| {
                event
                    .regarding
                    .as_ref()
                    .and_then(|it| it.name.clone())
                    .unwrap_or_default()
            };
            let mut found = list.items.into_iter().filter(|event| about(event) == node);
            let found = found.find(|event| event.reason.as_deref() == Some(reason));
            found.and_then(|event| event.note).ok_or("there is none".to_owned())
        })
        .await
    }

    pub async fn remove(&self, number: u32) {
        self.users()
            .delete(&id(number), &DeleteParams::default())
            .await
            .unwrap();
    }

    /// A Node of this name, and the token of an agent's pod on it.
    pub async fn token(&self, node: &str) -> String {
        self.cluster.pod_token(HOME, "tidewaiter-agent", node).await
    }

    pub fn kubeconfig(&self, token: &str) -> PathBuf {
        self.cluster.kubeconfig_of(&json!({"token": token}))
    }

    /// A name that no other Node has.
    pub fn node(&self) -> String {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        format!("node-{number}")
    }

    /// An agent on a node of its own, ready.
    pub async fn agent(&self, variables: &[(&str, &str)]) -> Agent {
        let node = self.node();
        let token = self.token(&node).await;
        self.ready(self.kubeconfig(&token), node, variables).await
    }

    /// The first agent on a node whose `authorized_keys` has this content.
    pub async fn agent_on(&self, content: &str, variables: &[(&str, &str)]) -> Agent {
        let node = self.node();
        let token = self.token(&node).await;
        let folder = self.scratch.path().join(&node);
        fs::create_dir_all(folder.join("home/.ssh")).unwrap();
        fs::write(folder.join("home/.ssh/authorized_keys"), content).unwrap();
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"));
        self.ready_in(folder, program, self.kubeconfig(&token), node, variables)
            .await
    }

    /// The same with other credentials.
    pub async fn agent_with(&self, kubeconfig: PathBuf, variables: &[(&str, &str)]) -> Agent {
        let node = self.node();
        self.ready(kubeconfig, node, variables).await
    }

    /// An agent in a mount namespace of its own, as in a container.
    pub async fn agent_in_namespace(&self) -> Agent {
        let node = self.node();
        let token = self.token(&node).await;
        let program =
            Program::new("/usr/bin/unshare").args(["--map-root-user", "--mount", env!("CARGO_BIN_EXE_tidewaiter")]);
        // Inside, the user who runs the tests is root.
        let owner = [("TIDEWAITER_OWNER_UID", "0"), ("TIDEWAITER_OWNER_GID", "0")];
        self.ready_as(program, self.kubeconfig(&token), node, &owner).await
    }

    /// The same on a node that has no inotify instance to give.
    pub async fn agent_without_inotify(&self) -> Agent {
        let script = "echo 0 >/proc/sys/user/max_inotify_instances && exec \"$0\" \"$@\"";
        self.agent_by(self.node(), script).await
    }

    /// The same with a folder on a disk that has little room.
    pub async fn agent_on_small_disk(&self) -> Agent {
        let script = "mount -t tmpfs -o size=128k,mode=755 none \"$TIDEWAITER_FOLDER\" && exec \"$0\" \"$@\"";
        self.agent_by(self.node(), script).await
    }

    /// An agent that this script starts, in namespaces of its own.
    async fn agent_by(&self, node: String, script: &str) -> Agent {
        let token = self.token(&node).await;
        let arguments = [
            "--map-root-user",
            "--mount",
            "/bin/sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_tidewaiter"),
        ];
        let program = Program::new("/usr/bin/unshare").args(arguments);
        let owner = [("TIDEWAITER_OWNER_UID", "0"), ("TIDEWAITER_OWNER_GID", "0")];
        self.ready_as(program, self.kubeconfig(&token), node, &owner).await
    }

    /// The same with a folder of the host mounted, which is returned: the kubelet does so.
    pub async fn agent_in_container(&self) -> (Agent, PathBuf) {
        let node = self.node();
        let host = self.scratch.path().join(format!("{node}-host"));
        fs::create_dir(&host).unwrap();
        let script = "mount --bind \"$TIDEWAITER_FOLDER-host\" \"$TIDEWAITER_FOLDER\" && exec \"$0\" \"$@\"";
        (self.agent_by(node, script).await, host)
    }

    async fn ready(&self, kubeconfig: PathBuf, node: String, variables: &[(&str, &str)]) -> Agent {
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"));
        self.ready_as(program, kubeconfig, node, variables).await
    }

    async fn ready_as(&self, program: Program, kubeconfig: PathBuf, node: String, variables: &[(&str, &str)]) -> Agent {
        let folder = self.scratch.path().join(&node);
        fs::create_dir(&folder).unwrap();
        self.ready_in(folder, program, kubeconfig, node, variables).await
    }

    /// Another agent on the same node, as while its pod is replaced.
    pub async fn beside(&self, agent: &Agent) -> Agent {
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"));
        let token = self
            .cluster
            .another_pod_token(HOME, "tidewaiter-agent", &agent.node, &[])
            .await;
        let kubeconfig = self.kubeconfig(&token);
        self.ready_in(agent.folder.clone(), program, kubeconfig, agent.node.clone(), &[])
            .await
    }

    async fn ready_in(
        &self,
        folder: PathBuf,
        program: Program,
        kubeconfig: PathBuf,
        node: String,
        variables: &[(&str, &str)],
    ) -> Agent {
        let admin = format!("127.0.0.1:{}", free_port());
        let [state, pinned] = ["state", "pinned"].map(|name| format!("{}-{name}", folder.display()));
        // The kubelet creates it.
        fs::create_dir_all(&pinned).unwrap();
        let place = [
            ("NODE_NAME", node.as_str()),
            ("TIDEWAITER_FOLDER", folder.to_str().unwrap()),
            ("TIDEWAITER_STATE_FOLDER", &state),
            ("TIDEWAITER_PINNED_FOLDER", &pinned),
            ("TIDEWAITER_ADMIN_ADDRESS", &admin),
        ];
        let program = program.name(format!("agent-{node}"));
        let process = self.process(program, kubeconfig, &[&place, variables].concat());
        let agent = Agent {
            node,
            process,
            folder,
            admin,
            reports: Api::all(self.cluster.client(&Identity::Admin)),
        };
        agent.is_ready().await;
        agent
    }

    /// A process that need not become ready.
    pub fn unready(&self, kubeconfig: PathBuf, variables: &[(&str, &str)]) -> Process {
        self.process(Program::new(env!("CARGO_BIN_EXE_tidewaiter")), kubeconfig, variables)
    }

    fn process(&self, program: Program, kubeconfig: PathBuf, variables: &[(&str, &str)]) -> Process {
        let owner = [rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()];
        let program = program
            .arg("agent")
            .env("TIDEWAITER_KUBECONFIG", kubeconfig)
            .env("TIDEWAITER_HEALTH_ADDRESS", "127.0.0.1:0")
            .env("TIDEWAITER_ADMIN_ADDRESS", "127.0.0.1:0")
            .env("TIDEWAITER_OWNER_UID", owner[0].to_string())
            .env("TIDEWAITER_OWNER_GID", owner[1].to_string())
            .env("TIDEWAITER_LOG__FILTER", "debug");
        let program = variables
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        Process::start(&self.scratch, program)
    }
}

impl Agent {
    /// The checks pass: the Users are listed.
    async fn is_ready(&self) {
        let url = format!("http://{}/readyz", self.admin);
        eventually("the agent to be ready", SOON, async || {
            let answer = reqwest::get(&url).await.map_err(|error| error.to_string())?;
            if answer.status().is_success() {
                return Ok(());
            }
            Err(format!(
                "{}\n{}",
                answer.text().await.unwrap_or_default(),
                self.process.log_tail()
            ))
        })
        .await;
    }

    pub fn file(&self) -> PathBuf {
        self.folder.join("home/.ssh/authorized_keys")
    }

    /// The file as the agent's own mount namespace shows it.
    pub fn file_inside(&self) -> PathBuf {
        let file = self.file();
        if self.process.is_running() {
            let root = PathBuf::from(format!("/proc/{}/root", self.process.pid()));
            root.join(file.strip_prefix("/").unwrap())
        } else {
            file
        }
    }

    pub fn content(&self) -> String {
        let path = self.file_inside();
        fs::read_to_string(path).unwrap_or_else(|error| error.to_string())
    }

    pub async fn metric(&self, series: &str) -> f64 {
        let answer = reqwest::get(format!("http://{}/metrics", self.admin)).await.unwrap();
        let text = answer.text().await.unwrap();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {series} in\n{text}"))
            .parse()
            .unwrap()
    }

    /// Waits until so many restores were counted.
    pub async fn restored(&self, count: u32) {
        let series = "tidewaiter_agent_restores_total{file=\"authorized_keys\"}";
        let other = "tidewaiter_agent_restores_total{file=\"other\"}";
        eventually(format!("{count} restores"), SOON, async || {
            let found = self.metric(series).await + self.metric(other).await;
            if found >= f64::from(count) { Ok(()) } else { Err(found) }
        })
        .await;
    }

    pub fn inode(&self) -> u64 {
        fs::metadata(self.file()).unwrap().ino()
    }

    /// The file when these users may log in with these keys.
    pub fn expected(&self, users: &[(u32, usize)]) -> String {
        if users.is_empty() {
            return String::new();
        }
        let script = self.folder.join("scripts/containership_login.sh");
        let line = |(user, key): &(u32, usize)| {
            let id = id(*user).replace('-', "");
            format!("command=\"{} {id}\" {}\n", script.display(), KEYS[*key])
        };
        let lines: String = users.iter().map(line).collect();
        format!(
            "# BEGIN tidewaiter: changes to the lines up to END are undone (docs/agent.md)\n{lines}# END tidewaiter\n"
        )
    }

    /// Returns the folder that root has pinned on the host.
    pub fn pinned(&self) -> PathBuf {
        PathBuf::from(format!("{}-pinned", self.folder.display()))
    }

    pub fn tamper(&self, change: impl FnOnce(&Path)) {
        change(&self.file());
    }

    /// Waits until the agent has looked at the files, and watches them.
    pub async fn is_watching(&self) {
        let url = format!("http://{}/metrics", self.admin);
        eventually("the agent to have applied the keys", SOON, async || {
            let answer = reqwest::get(&url).await.map_err(|error| error.to_string())?;
            let text = answer.text().await.map_err(|error| error.to_string())?;
            let keys = text
                .lines()
                .find_map(|line| line.strip_prefix("tidewaiter_agent_keys "));
            let is_applied = keys.is_some_and(|keys| keys != "0");
            if is_applied {
                Ok(())
            } else {
                Err(self.process.log_tail())
            }
        })
        .await;
    }

    /// Waits until the report is so.
    pub async fn report(&self, wanted: impl Fn(&NodeReportStatus) -> bool) -> NodeReport {
        eventually("the report", SOON, async || {
            let report = self.reports.get(&self.node).await.map_err(|error| error.to_string())?;
            if report.status.as_ref().is_some_and(&wanted) {
                Ok(report)
            } else {
                Err(format!("{:?}", report.status))
            }
        })
        .await
    }
}
