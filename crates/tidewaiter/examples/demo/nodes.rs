//! The story on real nodes (`make demo NODES=2`): the image and the chart are installed, and people log in. On three
//! nodes, they are upgraded after that.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tidewaiter_testkit::command::tried;
use tidewaiter_testkit::site::{CONTROL_PLANE, Cloud, SOON, Site, WORKERS, cloud};
use tidewaiter_testkit::{AUTHORIZED_KEYS, ControlPlane, Identity, Images, KubeletVersion, RealNode, eventually};

use crate::narrator::{Narrator, command, output, say};
use crate::world::{binary, words};
use crate::{Play, upgrades};

/// On the first node.
const ALICE: &str = "/root/alice";
const BOB: &str = "/root/bob";
const INTRUDER: &str = "/root/intruder";

/// The minimum number of nodes that are upgraded: then all have the kubelet of the release before.
const UPGRADED: usize = 3;

/// Everything that runs. Dropped, it is gone: the cloud's database first.
#[derive(Debug)]
pub struct World {
    number: u8,
    cloud: Option<Cloud>,
    site: Option<Site>,
}

impl World {
    pub fn new(number: u8) -> Self {
        Self {
            number,
            cloud: None,
            site: None,
        }
    }

    pub fn site(&self) -> Result<&Site> {
        self.site.as_ref().context("no node runs yet")
    }

    fn cloud(&self) -> Result<&Cloud> {
        self.cloud.as_ref().context("the cloud does not run yet")
    }

    /// From which people log in, and at which they do.
    fn ends(&self) -> Result<(&RealNode, &RealNode)> {
        let nodes = &self.site()?.nodes;
        Ok((&nodes[0], nodes.last().context("there is a node")?))
    }
}

impl Play for World {
    async fn tell(&mut self, narrator: &Narrator) -> Result<()> {
        narrator.step("Machines: each has systemd, containerd, kubelet and sshd. moto is in the place of AWS");
        self.boot().await?;

        narrator.step("A cloud that says what the cluster should have, in the cluster itself");
        self.install_cloud().await?;

        narrator.step("Tidewaiter: the controller, the coordinator, and an agent on each node");
        self.install().await?;

        narrator.step("Alice and Bob are added in the cloud, and may log in");
        self.add_people().await?;

        narrator.step("An intruder adds a key to the file that sshd reads");
        self.intrude().await?;

        narrator.step("Alice is removed in the cloud");
        self.remove_alice().await?;

        narrator.step("Who can log in where, for an auditor");
        self.explain().await?;
        if usize::from(self.number) < UPGRADED {
            return Ok(());
        }

        narrator.step("Kubernetes is to be upgraded: each node trusts a key, and runs no script without its signature");
        upgrades::are_prepared(self).await?;

        narrator.step("The upgrade: the control plane first, one node at a time, and no budget is broken");
        upgrades::run(self).await
    }

    fn last_log(&self) -> String {
        "The pods' logs: make demo NODES=2 KEEP=1, or the tests in crates/tidewaiter/tests/nodes.".to_owned()
    }

    fn cluster(&self) -> Result<&ControlPlane> {
        Ok(&self.site()?.control_plane)
    }

    fn ways_in(&self) -> Result<String> {
        let (site, cloud) = (self.site()?, self.cloud()?);
        let kubeconfig = site.control_plane.kubeconfig(&Identity::Admin);
        let addresses: Vec<_> = site.nodes.iter().map(|node| node.address().to_string()).collect();
        Ok(format!(
            "export KUBECONFIG={}\nkubectl:  {}\nnodes:    {}\ncloud:    https://{} (from the nodes)\nCtrl-C stops and removes everything.",
            kubeconfig.display(),
            tidewaiter_testkit::assets::binary("kubectl").display(),
            addresses.join(", "),
            cloud.address,
        ))
    }

    fn summary(&self) -> String {
        let logins = "Logins: those of the cloud's users, and of nobody else: not of an intruder, nor of Alice after her removal.";
        if usize::from(self.number) < UPGRADED {
            return logins.to_owned();
        }
        format!(
            "{logins}\nUpgrades: one node at a time, by a script that each node verified, and within the budget of the workload."
        )
    }
}

impl World {
    async fn boot(&mut self) -> Result<()> {
        let binary = binary()?;
        let mut groups = vec![WORKERS; self.number.into()];
        groups[0] = CONTROL_PLANE;
        let images = async { Arc::new(Images::build(&binary).await) };
        let first = if groups.len() < UPGRADED {
            KubeletVersion::Current
        } else {
            KubeletVersion::Previous
        };
        self.site = Some(Box::pin(Site::start_at(first, images, &groups)).await);
        command(
            "make image && skopeo copy oci-archive:dist/tidewaiter-0.1.0-linux-amd64.tar docker://REGISTRY/tidewaiter:0.1.0",
        );
        self.show_nodes().await
    }

    async fn show_nodes(&self) -> Result<()> {
        self.show("get nodes -L kops.k8s.io/instancegroup,team").await
    }

    /// Shows a kubectl command and what it answers.
    pub async fn show(&self, words: &str) -> Result<()> {
        command(&format!("kubectl {words}"));
        output(&self.site()?.kubectl(words).await);
        Ok(())
    }

    async fn install_cloud(&mut self) -> Result<()> {
        let site = self.site.as_ref().context("no node runs yet")?;
        command("helm install cloud deploy/chart --namespace tidewaiter-cloud --values cloud.yaml");
        let cloud = self.cloud.insert(Cloud::install(site).await);
        site.file("ca.crt", &cloud.authority);
        let server = format!("https://{}", cloud.address);
        self.owner(&[
            "cloud",
            "login",
            "--server",
            &server,
            "--ca-file",
            "ca.crt",
            cloud::EMAIL,
        ])
        .await?;
        self.owner(&["cloud", "context", "set", "--cluster", "prod"]).await
    }

    /// Runs the released binary where the cloud can be reached, and shows what it says.
    pub async fn owner(&self, args: &[&str]) -> Result<()> {
        let told = self.owner_runs(args).await?;
        command(&format!("tidewaiter {}", args.join(" ")));
        output(&told);
        Ok(())
    }

    pub async fn owner_runs(&self, args: &[&str]) -> Result<String> {
        let site = self.site()?;
        let mut program = site.nodes[0].program_on_its_network(&binary()?);
        program.args(args).current_dir(site.scratch.path());
        program.env("XDG_CONFIG_HOME", site.scratch.path());
        for name in ["TIDEWAITER_CLOUD_PASSWORD", "ALICE_PASSWORD", "BOB_PASSWORD"] {
            program.env(name, cloud::PASSWORD);
        }
        tried(program.stdin(Stdio::null())).await.map_err(anyhow::Error::msg)
    }

    fn values(&self) -> Result<Value> {
        let mut values = self.site()?.controller_values();
        values["coordinator"] = self.cloud()?.coordinator_values();
        // A user who is not in the cloud cannot log in.
        values["agent"] = json!({"enabled": true});
        Ok(values)
    }

    async fn install(&self) -> Result<()> {
        let site = self.site()?;
        let start = now();
        site.helm("install tidewaiter deploy/chart", &self.values()?).await;
        command("helm install tidewaiter deploy/chart --values values.yaml");
        self.cloud()?.create_key(site).await;
        command(
            "kubectl -n containership-core create secret generic tidewaiter-coordinator-cloud --from-file=api-key --from-file=ca.crt",
        );
        site.is_labelled(site.nodes[0].name(), CONTROL_PLANE).await;
        let first = start.elapsed().as_secs_f64();
        for node in &site.nodes[1..] {
            site.is_labelled(node.name(), WORKERS).await;
        }
        say(&format!(
            "The first node has its labels {first:.1} s after helm install."
        ));
        self.show_nodes().await?;
        site.rolled_out("containership-core", "deployment/tidewaiter-coordinator")
            .await;
        site.rolled_out("tidewaiter-agent", "daemonset/tidewaiter-agent").await;
        self.show(
            "get pods -A -l app.kubernetes.io/name=tidewaiter -o custom-columns=POD:.metadata.name,NODE:.spec.nodeName",
        )
        .await?;
        self.is_synced().await;
        say("sshd on each node reads the keys, as docs/agent.md says.");
        for node in &site.nodes {
            node.accepts_logins().await;
        }
        Ok(())
    }

    async fn is_synced(&self) {
        eventually("the coordinator to have read the cloud", SOON, async || {
            let site = self.site().map_err(words)?;
            site.try_kubectl("wait --for=condition=Synced --timeout=1s cloudsync/cloud")
                .await
        })
        .await;
    }

    async fn add_people(&self) -> Result<()> {
        let (from, to) = self.ends()?;
        let people = format!(
            "{}---\n{}",
            person(from, "Alice", ALICE).await,
            person(from, "Bob", BOB).await
        );
        self.site()?.file("people.yaml", &people);
        command("sed 's/AAAA.*/AAAA…}/' people.yaml");
        output(&people.lines().map(shortened).collect::<Vec<_>>().join("\n"));
        let apply = ["cloud", "apply", "-f", "people.yaml"];
        let told = self.owner_runs(&apply).await?;
        let start = now();
        let id = eventually("Alice to log in", SOON, async || {
            from.logs_in(to, ALICE, "echo $CONTAINERSHIP_USER_ID").await
        })
        .await;
        let time = start.elapsed().as_millis();
        let created: Vec<_> = told.lines().filter(|line| line.starts_with("created")).collect();
        command(&format!("tidewaiter {} | tail -{}", apply.join(" "), created.len()));
        output(&created.join("\n"));
        say(&format!("Alice is in {time} ms later:"));
        command(&format!(
            "ssh -i alice root@{} 'echo $CONTAINERSHIP_USER_ID'",
            to.address()
        ));
        output(&id);
        say("The node's journal has each login:");
        let journal = ["journalctl", "-t", "containership-login", "-o", "cat", "-n", "1"];
        command(&journal.join(" "));
        output(&to.run(journal).await);
        Ok(())
    }

    /// As root on the node. Prints how long the line was in the file.
    async fn intrude(&self) -> Result<()> {
        let (from, to) = self.ends()?;
        let key = from.make_key(INTRUDER, "ed25519", "256").await;
        // The file is replaced in one step, so it is always there.
        let append = "echo \"$1\" >>$2; begun=$(date +%s%N); while grep -qF \"$1\" $2; do :; done; echo $((($(date +%s%N) - begun) / 1000000))";
        let time = to.run(["sh", "-c", append, "sh", &key, AUTHORIZED_KEYS]).await;
        command(&format!("echo '{}' >>{AUTHORIZED_KEYS}", shortened(&key)));
        say(&format!(
            "The line is gone {} ms later. The intruder is refused:",
            time.trim()
        ));
        self.is_refused(from, to, "intruder", INTRUDER).await?;
        eventually("the report to count it", SOON, async || {
            let site = self.site().map_err(words)?;
            let count = format!("get nodereport {} -o jsonpath={{.status.restores}}", to.name());
            match site.kubectl(&count).await.as_str() {
                "" | "0" => Err("none is counted"),
                _ => Ok(()),
            }
            .map_err(words)
        })
        .await;
        self.show(&format!("get nodereport {}", to.name())).await
    }

    async fn is_refused(&self, from: &RealNode, to: &RealNode, name: &str, key: &str) -> Result<()> {
        let said = from.logs_in(to, key, "true").await;
        let said = said.err().context("the login is refused")?;
        let last = said.lines().last().unwrap_or_default();
        ensure!(last.contains("Permission denied"), "{said}");
        command(&format!("ssh -i {name} root@{}", to.address()));
        output(last);
        Ok(())
    }

    async fn remove_alice(&self) -> Result<()> {
        let (from, to) = self.ends()?;
        self.owner(&["cloud", "delete", "user", "alice@example.com", "--yes"])
            .await?;
        let start = now();
        eventually("Alice to be refused", SOON, async || {
            match from.logs_in(to, ALICE, "true").await {
                Ok(_) => Err("she is let in"),
                Err(_) => Ok(()),
            }
        })
        .await;
        say(&format!(
            "She is refused {} ms later; Bob is not:",
            start.elapsed().as_millis()
        ));
        self.is_refused(from, to, "alice", ALICE).await?;
        let said = from.logs_in(to, BOB, "hostname").await.map_err(anyhow::Error::msg)?;
        command(&format!("ssh -i bob root@{} hostname", to.address()));
        output(&said);
        Ok(())
    }

    async fn explain(&self) -> Result<()> {
        let (_, to) = self.ends()?;
        let words = ["explain", "access", "--node", to.name()];
        let mut explain = tokio::process::Command::new(binary()?);
        explain.args(words).arg("--kubeconfig");
        explain.arg(self.cluster()?.kubeconfig(&Identity::Admin));
        let told = eventually("the report of the node", SOON, async || {
            let told = tried(&mut explain).await?;
            // The report follows the file.
            if told.contains("no such User any more") {
                Err(told)
            } else {
                Ok(told)
            }
        })
        .await;
        command(&format!("tidewaiter {}", words.join(" ")));
        output(&told);
        Ok(())
    }
}

/// A user with a new key, whose private part stays on the node.
async fn person(node: &RealNode, name: &str, path: &str) -> String {
    let key = node.make_key(path, "ed25519", "256").await;
    let (email, password) = (
        format!("{}@example.com", name.to_lowercase()),
        format!("{}_PASSWORD", name.to_uppercase()),
    );
    format!(
        "kind: User\nspec: {{name: {name}, email: {email}, role: member, password: {{fromEnv: {password}}}}}\n---\n\
         kind: SshKey\nuser: {email}\nspec: {{name: laptop, key: {key}}}\n"
    )
}

/// Without the data of a key.
fn shortened(line: &str) -> String {
    match line.split_once("AAAA") {
        Some((head, rest)) => format!("{head}AAAA…{}", if rest.ends_with('}') { "}" } else { "" }),
        None => line.to_owned(),
    }
}

#[expect(clippy::disallowed_methods, reason = "how long it takes, for the viewer")]
fn now() -> Instant {
    Instant::now()
}
