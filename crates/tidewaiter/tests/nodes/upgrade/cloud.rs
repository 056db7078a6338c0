//! `tidewaiter cloud serve` beside the cluster, and its operator, who types the commands of docs/upgrades.md.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidewaiter_testkit::command::tried;
use tidewaiter_testkit::{Process, Program, Scratch, eventually, free_port};
use tokio::process::Command;

use super::SOON;

const EMAIL: &str = "olivia@example.com";
const PASSWORD: &str = "correct horse battery staple";

/// The server, with a cluster in it. Dropped, it is gone.
pub struct Cloud {
    pub server: Process,
    pub url: String,
    pub organization: String,
    pub cluster: String,
    pub key: String,
    binary: PathBuf,
    scratch: Scratch,
}

impl Cloud {
    /// With a cluster of these nodes.
    pub async fn start(binary: &Path, nodes: &[&str]) -> Self {
        let scratch = Scratch::new("upgrade-cloud");
        let data = scratch.path().join("data");
        let address = format!("127.0.0.1:{}", free_port());
        let serve = Program::new(binary)
            .name("serve")
            .args([
                "cloud",
                "serve",
                "--address",
                &address,
                "--health-address=127.0.0.1:0",
                "--data",
            ])
            .arg(&data);
        let init = Program::new(binary)
            .name("init")
            .args(["cloud", "init", "--organization", "Acme", "--email", EMAIL, "--data"])
            .arg(&data)
            .env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)
            // Without it, the server would have a certificate.
            .env("TIDEWAITER_PUBLIC_URL", format!("http://{address}"));
        let init = Process::start(&scratch, init);
        assert!(init.exited(SOON).await.success(), "{}", init.log());
        let mut cloud = Self {
            server: Process::start(&scratch, serve),
            url: format!("http://{address}"),
            organization: String::new(),
            cluster: String::new(),
            key: String::new(),
            binary: binary.to_owned(),
            scratch,
        };
        cloud.attach(nodes).await;
        cloud
    }

    async fn attach(&mut self, nodes: &[&str]) {
        let url = self.url.clone();
        eventually("the cloud to take a login", SOON, async || {
            self.tries(&["cloud", "login", "--server", &url, EMAIL]).await
        })
        .await;
        let made = self.creates(&["cluster"], &json!({"name": "prod"})).await;
        [self.cluster, self.key] = ["id", "api_key"].map(|field| text(&made, field));
        let organizations = self.runs(&["cloud", "get", "organizations", "-o", "json"]).await;
        let organizations: Value = serde_json::from_str(&organizations).unwrap();
        self.organization = text(&organizations[0], "id");
        self.runs(&["cloud", "context", "set", "--cluster", "prod"]).await;
        let pool = json!({"name": "all", "count": 3, "os": "linux", "kubernetes_mode": "worker", "kubernetes_version": "v1.35.4",
            "etcd": false, "is_schedulable": true});
        self.creates(&["node-pool"], &pool).await;
        for node in nodes {
            self.creates(&["node", "--node-pool", "all"], &json!({ "name": node }))
                .await;
        }
    }

    /// The id of a new upgrade, which is not paused.
    pub async fn upgrade(&self, upgrade: &Value) -> String {
        text(&self.creates(&["upgrade", "--start"], upgrade).await, "id")
    }

    /// Signs a script for these nodes with the key in this file, and uploads it.
    pub async fn signs(&self, upgrade: &str, script: &str, version: &str, nodes: &[&str], key: &str) {
        let script = self.file("upgrade.sh", script);
        let mut sign = vec![
            "cloud",
            "sign-script",
            "-f",
            &script,
            "--cluster",
            &self.cluster,
            "--upgrade",
            upgrade,
        ];
        sign.extend(["--target-version", version, "--expires-in", "24h", "--secret-key", key]);
        sign.extend(nodes.iter().flat_map(|node| ["--node", node]));
        let signed = self.file("signed.sh", &self.runs(&sign).await);
        self.runs(&["cloud", "set-script", upgrade, "-f", &signed]).await;
    }

    /// Creates an object of this kind and at this place.
    async fn creates(&self, what: &[&str], object: &Value) -> Value {
        let file = self.file("object.json", &object.to_string());
        let words = [&["cloud", "create"], what, &["-f", &file, "-o", "json"]].concat();
        serde_json::from_str(&self.runs(&words).await).unwrap()
    }

    async fn runs(&self, words: &[&str]) -> String {
        self.tries(words).await.unwrap_or_else(|error| panic!("{error}"))
    }

    async fn tries(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.binary);
        command.args(words).current_dir(self.scratch.path());
        command.env("XDG_CONFIG_HOME", self.scratch.path());
        tried(command.env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)).await
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.scratch.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// The variables of a coordinator of the cluster.
    pub fn variables(&self) -> [(&'static str, &str); 4] {
        [
            ("CONTAINERSHIP_CLOUD_API_BASE_URL", &self.url),
            ("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", &self.organization),
            ("CONTAINERSHIP_CLOUD_CLUSTER_ID", &self.cluster),
            ("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", &self.key),
        ]
    }
}

fn text(value: &Value, field: &str) -> String {
    let text = value[field].as_str();
    text.unwrap_or_else(|| panic!("no {field} in {value}")).to_owned()
}
