//! Upgrade scripts on their way: signed, through the cloud and the coordinator to the agent of the node whose turn it
//! is, and to its host. Everything is real but the kubelet: its version is what the test says.
#![allow(clippy::disallowed_methods, reason = "files of the test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use minisign::KeyPair;
use serde_json::{Value, json};
use tidewaiter_api::NodeReport;
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeStatus};
use tidewaiter_api::node_report::UpgradeState;
use tidewaiter_cloud::signed::{SignatureError, SigningKey};
use tidewaiter_kit::SystemClock;
use tidewaiter_testkit::{Identity, Process, Program, eventually, free_port};
use tidewaiter_upgrade::signed::{Statement, digest};

use crate::cloud::Cloud;
use crate::{Replica, SOON, World, unshared};

pub const AGENT: &str = "tidewaiter-agent";
const AUDIENCE: &str = "tidewaiter-coordinator";
pub const TARGET: &str = "v1.36.3";

/// A world with agents, and a cloud with the nodes `w1` and `w2`, which the coordinator may upgrade.
pub struct Upgrading {
    pub world: World,
    pub cloud: Cloud,
    pub replica: Replica,
    pub pair: KeyPair,
}

impl Upgrading {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same, whose coordinator has these settings, too.
    pub async fn start_with(settings: &[(&'static str, String)]) -> Self {
        let world = World::on(unshared().await);
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
        for path in ["crds/agent", "agent", "coordinator/upgrades"] {
            world.cluster.apply_manifests(deploy.join(path)).await;
        }
        let cloud = Cloud::start().await;
        let pool = cloud.pool().await;
        for node in ["w1", "w2"] {
            cloud.node(&pool, Some(node)).await;
        }
        let mut variables = cloud.variables();
        variables.push(("TIDEWAITER_UPGRADES", "enabled".to_owned()));
        variables.extend(settings.iter().cloned());
        let replica = world.replica(&variables, None);
        Self {
            world,
            cloud,
            replica,
            pair: KeyPair::generate_unencrypted_keypair().unwrap(),
        }
    }

    /// A Node with an old kubelet, which may be upgraded, and the token of its agent.
    pub async fn node(&self, name: &str) -> String {
        let token = self.world.cluster.pod_token(AGENT, AGENT, name).await;
        self.reports(name, "v1.35.4").await;
        let label = json!({"metadata": {"labels": {"containership.io/managed": "true"}}});
        let nodes = self.nodes();
        let labelled = nodes.patch(name, &PatchParams::default(), &Patch::Merge(label)).await;
        labelled.unwrap();
        token
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.world.cluster.client(&Identity::Admin))
    }

    pub fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::namespaced(self.world.cluster.client(&Identity::Admin), "containership-core")
    }

    /// Waits until the upgrade is over, as the cluster says.
    pub async fn ends(&self, upgrade: &str, status: UpgradeStatus) {
        let upgrades = self.upgrades();
        eventually(format!("the upgrade to be {status:?}"), SOON, async || {
            let object = upgrades.get(upgrade).await.map_err(|error| error.to_string())?;
            match object.spec.status {
                Some(found) if found.cluster_status == status => Ok(()),
                found => Err(format!("{found:?}")),
            }
        })
        .await;
    }

    /// The kubelet says that it has this version, and is Ready.
    pub async fn reports(&self, node: &str, version: &str) {
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"nodeInfo": {"kubeletVersion": version}, "conditions": [ready]}});
        let nodes = self.nodes();
        let reported = nodes
            .patch_status(node, &PatchParams::default(), &Patch::Merge(status))
            .await;
        reported.unwrap();
    }

    /// An upgrade in the cloud of the node `w1`, and its id.
    pub async fn upgrade(&self) -> String {
        let upgrade = json!({"type": "kubernetes", "targetVersion": TARGET, "labelSelector": [
            {"label": "kubernetes.io/hostname", "operator": "=", "value": ["w1"]}], "nodeTimeoutSeconds": 900,
            "policy": {"minReadySeconds": 1}});
        let made = self.cloud.post("^/upgrades", upgrade).await;
        made["id"].as_str().unwrap().to_owned()
    }

    /// A script, signed for these nodes.
    pub fn signed(&self, upgrade: &str, script: &str, nodes: &[&str]) -> String {
        self.signed_to(TARGET, upgrade, script, nodes)
    }

    pub fn signed_to(&self, target: &str, upgrade: &str, script: &str, nodes: &[&str]) -> String {
        let text = self.pair.sk.to_box(None).unwrap().into_string();
        let key = SigningKey::read::<SignatureError>(&text, || unreachable!("it has no password")).unwrap();
        let now = SystemClock::shared().now().as_second();
        let mut signed = script.to_owned();
        for node in nodes {
            let statement = Statement {
                cluster: self.cloud.cluster.clone(),
                node: node.parse().unwrap(),
                upgrade: upgrade.to_owned(),
                generation: now,
                version: target.parse().unwrap(),
                sha256: digest(script),
                not_before: None,
                expires: Timestamp::from_second(now + 3600).unwrap(),
            };
            signed.push_str(&statement.block(&key).unwrap());
        }
        signed
    }

    /// Uploads a script, signed for these nodes.
    pub async fn script(&self, upgrade: &str, script: &str, nodes: &[&str]) {
        let signed = self.signed(upgrade, script, nodes);
        let Cloud {
            url,
            organization,
            cluster,
            owner,
            ..
        } = &self.cloud;
        let url = format!("{url}/v3/organizations/{organization}/clusters/{cluster}/upgrades/{upgrade}/script");
        let request = self.world.http.put(url).header("authorization", format!("JWT {owner}"));
        let answer = request.body(signed).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 204, "{}", answer.text().await.unwrap());
    }

    /// Returns the coordinator's response to this token: the status, and the body.
    pub async fn asks(&self, token: &str) -> (u16, String) {
        let answer = self
            .world
            .get(&self.replica, "/upgrade/kubernetes?version=1.36.3", token)
            .await;
        match answer {
            Ok(answer) => (answer.status().as_u16(), answer.text().await.unwrap()),
            Err(_) => (0, String::new()),
        }
    }

    pub async fn coordinator_token(&self, namespace: &str, account: &str, pod: &str) -> String {
        let cluster = &self.world.cluster;
        cluster.another_pod_token(namespace, account, pod, &[AUDIENCE]).await
    }
}

#[tokio::test]
async fn only_the_agent_of_a_node_gets_its_script() {
    let upgrading = Upgrading::start().await;
    let upgrade = upgrading.upgrade().await;
    upgrading.script(&upgrade, "#!/bin/sh\necho all\n", &["w1"]).await;
    let for_the_api_server = upgrading.node("w1").await;
    let token = upgrading.coordinator_token(AGENT, AGENT, "w1").await;
    eventually("the script of w1", SOON, async || match upgrading.asks(&token).await {
        (200, script) if script.contains("node w1") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    upgrading.node("unknown").await;
    let unknown = upgrading.coordinator_token(AGENT, AGENT, "unknown").await;
    let account = serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap();
    let accounts = upgrading.world.accounts(AGENT);
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let other = upgrading.world.cluster.pod_token(AGENT, "other", "w2").await;
    let another = upgrading.coordinator_token(AGENT, "other", "w2").await;
    for (name, token, status) in [
        ("nobody", "", 401),
        ("a forged token", "a.b.c", 401),
        ("the agent's token for the API server", &for_the_api_server, 401),
        ("a member of the organization", &upgrading.cloud.owner, 401),
        ("another account, for the API server", &other, 401),
        ("another account on a node", &another, 403),
        ("the agent of a node that the cloud does not know", &unknown, 404),
    ] {
        let (said, body) = upgrading.asks(token).await;
        assert_eq!(said, status, "{name}: {body}");
        assert!(!body.contains("#!/bin/sh"), "{name}: {body}");
    }
    for (query, token, status) in [("", "", 401), ("", &token, 400), ("?version=new", &token, 400)] {
        let path = format!("/upgrade/kubernetes{query}");
        let answer = upgrading.world.get(&upgrading.replica, &path, token).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
        let said: serde_json::Value = answer.json().await.unwrap();
        assert!(said["message"].is_string(), "{path}: {said}");
    }
}

#[tokio::test]
async fn a_signed_script_of_the_cloud_runs_on_the_node_whose_turn_it_is() {
    let upgrading = Upgrading::start().await;
    let host = Host::new(&upgrading, "w1");
    let token = upgrading.node("w1").await;
    let agent = host.agent(&upgrading, &token).await;
    let upgrade = upgrading.upgrade().await;
    let ran = host.folder.join("ran");
    // Signed for another node: neither the agent nor the host lets it run, and the node has failed, which the cloud
    // says with the reason.
    let script = format!(
        "#!/bin/sh\necho $TIDEWAITER_VERSION >> {}\necho hunter2\n",
        ran.display()
    );
    upgrading.script(&upgrade, &script, &["w2"]).await;
    host.reports(&upgrading, UpgradeState::Refused, "is signed for the node w2")
        .await;
    assert!(!host.current().exists());
    host.shows("tidewaiter_agent_unsigned_scripts_permitted 0").await;
    upgrading.ends(&upgrade, UpgradeStatus::Failed).await;
    let path = format!("^/upgrades/{upgrade}");
    eventually("the cloud to say why", SOON, async || {
        let owner = &upgrading.cloud.owner;
        let (_, shown) = upgrading.cloud.send(owner, Method::GET, &path, Value::Null).await;
        let message = shown["status"]["message"].as_str().unwrap_or_default();
        let why = "node w1 failed: its host reports Refused: the script is signed for the node w2, and this is w1";
        if message.starts_with(why) {
            Ok(())
        } else {
            Err(shown.to_string())
        }
    })
    .await;

    let upgrade = upgrading.upgrade().await;
    // While there is no script, the node waits for it.
    host.reports(&upgrading, UpgradeState::Blocked, "the coordinator has no script")
        .await;
    host.shows("tidewaiter_agent_upgrade_script_refused 1").await;
    upgrading.script(&upgrade, &script, &["w2", "w1"]).await;
    eventually("the script to be offered", SOON, async || {
        let offered = host.current().exists().then_some(());
        offered.ok_or_else(|| agent.log_tail())
    })
    .await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let current = fs::read_to_string(host.current()).unwrap();
    assert_eq!(
        current.trim(),
        format!(
            "{}/scripts/upgrade/upgrade-kubernetes-{TARGET}-{upgrade}.sh",
            host.shared().display()
        )
    );
    assert_eq!(
        [
            mode(&host.current()),
            mode(Path::new(current.trim())),
            mode(&host.shared().join("scripts/upgrade"))
        ],
        [0o600, 0o700, 0o700]
    );
    let output = host.run();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(&ran).unwrap(), format!("{TARGET}\n"));
    host.reports(&upgrading, UpgradeState::Succeeded, "the status 0").await;
    host.shows("tidewaiter_agent_upgrade_script_refused 0").await;
    // After a reboot: nothing runs again.
    let output = host.run();
    assert!(
        output.status.success() && fs::read_to_string(&ran).unwrap().lines().count() == 1,
        "{output:?}"
    );

    upgrading.reports("w1", TARGET).await;
    upgrading.ends(&upgrade, UpgradeStatus::Success).await;
    eventually("the offer to be taken back", SOON, async || {
        let gone = !host.current().exists();
        gone.then_some(()).ok_or("it is there")
    })
    .await;
    // It has watched nothing of upgrades but the order of its node.
    let audit = upgrading.world.cluster.audit().await;
    let agents = audit.by(&Identity::service_account(AGENT, AGENT));
    assert_eq!(agents.clone().of("clusterupgrades").count(), 0);
    let orders = agents.of("nodeupgrades");
    assert!(orders.count() > 0);
    assert!(
        orders
            .iter()
            .all(|asked| asked.uri.contains("fieldSelector=metadata.name%3Dw1"))
    );
    // The output of a script stays on the node.
    assert!(!agent.log_tail().contains("hunter2"));

    // The permissions and problems of the host are reported while no upgrade is in progress.
    let unsigned = host.pinned().join("unsigned-scripts");
    fs::write(&unsigned, "allow\n").unwrap();
    host.shows("tidewaiter_agent_unsigned_scripts_permitted 1").await;
    fs::remove_file(&unsigned).unwrap();
    host.shows("tidewaiter_agent_unsigned_scripts_permitted 0").await;
    host.shows("tidewaiter_agent_upgrade_host_unprepared 0").await;
    let [cluster, aside] = ["cluster", "aside"].map(|name| host.pinned().join(name));
    fs::rename(&cluster, &aside).unwrap();
    host.shows("tidewaiter_agent_upgrade_host_unprepared 1").await;
    fs::rename(&aside, &cluster).unwrap();
    host.shows("tidewaiter_agent_upgrade_host_unprepared 0").await;
    // The id of the cluster is in CloudSync.
    let own = fs::read_to_string(&cluster).unwrap();
    fs::write(&cluster, "22222222-2222-4222-8222-222222222222").unwrap();
    host.shows("tidewaiter_agent_upgrade_host_unprepared 1").await;
    fs::write(&cluster, own).unwrap();
    host.shows("tidewaiter_agent_upgrade_host_unprepared 0").await;
}

/// An agent that cannot see its orders would let its node fail without a word.
#[tokio::test]
async fn an_agent_that_cannot_read_orders_says_so_and_goes_on_when_it_can() {
    let upgrading = Upgrading::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(upgrading.world.cluster.client(&Identity::Admin));
    let name = "nodeupgrades.tidewaiter.dev";
    definitions.delete(name, &DeleteParams::default()).await.unwrap();
    let host = Host::new(&upgrading, "w1");
    let token = upgrading.node("w1").await;
    let agent = host.agent(&upgrading, &token).await;
    let reports: Api<NodeReport> = Api::all(upgrading.world.cluster.client(&Identity::Admin));
    let problem = async |words: &str| {
        eventually(format!("the problem of the host to be {words:?}"), SOON, async || {
            let report = reports.get("w1").await.map_err(|error| error.to_string())?;
            let upgrade = report
                .status
                .and_then(|status| status.upgrade)
                .ok_or("it says nothing")?;
            let is_said = upgrade.host_problem.contains(words) && words.is_empty() == upgrade.host_problem.is_empty();
            if is_said { Ok(()) } else { Err(format!("{upgrade:?}")) }
        })
        .await;
    };
    problem("the orders of the coordinator cannot be read; upgrade it, and apply deploy/crds/coordinator").await;
    host.shows("tidewaiter_agent_upgrade_host_unprepared 1").await;
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds/coordinator/nodeupgrades.yaml");
    upgrading.world.cluster.apply_manifests(deploy).await;
    let upgrade = upgrading.upgrade().await;
    let ran = host.folder.join("ran");
    let script = format!("#!/bin/sh\ntouch {}\n", ran.display());
    upgrading.script(&upgrade, &script, &["w1"]).await;
    eventually("the script to run", SOON, async || {
        let output = host.run();
        if ran.exists() {
            Ok(())
        } else {
            Err(format!("{output:?} {}", agent.log_tail()))
        }
    })
    .await;
    problem("").await;
}

/// The host of a node: its folders, its kubelet, and its program.
pub struct Host {
    pub node: String,
    pub folder: PathBuf,
    /// The address of its agent's metrics.
    admin: String,
}

impl Host {
    pub fn new(upgrading: &Upgrading, node: &str) -> Self {
        let host = Self {
            node: node.to_owned(),
            folder: upgrading.world.scratch.path().join(node),
            admin: format!("127.0.0.1:{}", free_port()),
        };
        fs::create_dir(&host.folder).unwrap();
        let kubelet = host.folder.join("kubelet");
        fs::write(&kubelet, "#!/bin/sh\necho Kubernetes v1.35.4\n").unwrap();
        fs::set_permissions(&kubelet, Permissions::from_mode(0o755)).unwrap();
        // As `tidewaiter host install` pins it on a host, which this is not.
        fs::create_dir(host.pinned()).unwrap();
        let key = upgrading.pair.pk.to_box().unwrap().into_string();
        for (name, text) in [
            ("cluster", &*upgrading.cloud.cluster),
            ("node", node),
            ("operator.pub", &key),
        ] {
            fs::write(host.pinned().join(name), text).unwrap();
        }
        fs::create_dir(host.shared()).unwrap();
        host
    }

    pub fn pinned(&self) -> PathBuf {
        self.folder.join("pinned")
    }

    pub fn shared(&self) -> PathBuf {
        self.folder.join("containership")
    }

    pub fn current(&self) -> PathBuf {
        self.shared().join("scripts/upgrade/current")
    }

    fn tidewaiter(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        command.arg("host").args(arguments).arg("--folder").arg(self.shared());
        command.output().unwrap()
    }

    pub fn run(&self) -> Output {
        let [state, kubelet] = ["state", "kubelet"].map(|name| self.folder.join(name));
        self.tidewaiter(&[
            "run",
            "--pinned",
            self.pinned().to_str().unwrap(),
            "--state",
            state.to_str().unwrap(),
            "--kubelet",
            kubelet.to_str().unwrap(),
        ])
    }

    pub async fn agent(&self, upgrading: &Upgrading, token: &str) -> Process {
        let url = format!("http://{}", upgrading.replica.endpoints);
        self.agent_of(upgrading, token, &url, None).await
    }

    /// The agent, with this address of a coordinator and the file of its authority.
    pub async fn agent_of(&self, upgrading: &Upgrading, token: &str, url: &str, authority: Option<&Path>) -> Process {
        let world = &upgrading.world;
        let file = self.folder.join("token");
        fs::write(&file, upgrading.coordinator_token(AGENT, AGENT, &self.node).await).unwrap();
        let user = [rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()];
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .name("agent")
            .arg("agent")
            .env("NODE_NAME", &self.node)
            .env(
                "TIDEWAITER_KUBECONFIG",
                world.cluster.kubeconfig_of(&json!({ "token": token })),
            )
            .env("TIDEWAITER_FOLDER", self.shared())
            .env("TIDEWAITER_STATE_FOLDER", self.folder.join("agent-state"))
            .env("TIDEWAITER_PINNED_FOLDER", self.pinned())
            .env("TIDEWAITER_HEALTH_ADDRESS", format!("127.0.0.1:{}", free_port()))
            .env("TIDEWAITER_ADMIN_ADDRESS", &self.admin)
            .env("TIDEWAITER_OWNER_UID", user[0].to_string())
            .env("TIDEWAITER_OWNER_GID", user[1].to_string())
            .env("TIDEWAITER_UPGRADES", "enabled")
            .env("TIDEWAITER_COORDINATOR__URL", url)
            .env("TIDEWAITER_COORDINATOR__TOKEN_FILE", file)
            .env("TIDEWAITER_LOG__FILTER", "debug");
        let program = authority.into_iter().fold(program, |program, file| {
            program.env("TIDEWAITER_COORDINATOR__CA_FILE", file)
        });
        Process::start(&world.scratch, program)
    }

    /// Waits until the metrics of the agent have this line.
    async fn shows(&self, line: &str) {
        eventually(line.to_owned(), SOON, async || {
            let answer = reqwest::get(format!("http://{}/metrics", self.admin)).await;
            let text = answer.map_err(|error| error.to_string())?.text().await;
            let text = text.map_err(|error| error.to_string())?;
            let found = text.lines().any(|it| it == line);
            found.then_some(()).ok_or(text)
        })
        .await;
    }

    /// Waits until the `NodeReport` says this of the upgrade.
    pub async fn reports(&self, upgrading: &Upgrading, state: UpgradeState, words: &str) {
        let reports: Api<NodeReport> = Api::all(upgrading.world.cluster.client(&Identity::Admin));
        eventually(format!("the report to be {state:?}: {words}"), SOON, async || {
            let report = reports.get(&self.node).await.map_err(|error| error.to_string())?;
            let upgrade = report
                .status
                .and_then(|status| status.upgrade)
                .ok_or("it says nothing")?;
            if upgrade.state == state && upgrade.message.contains(words) {
                Ok(())
            } else {
                Err(format!("{upgrade:?}"))
            }
        })
        .await;
    }
}
