//! The released server, and an organization with its clusters.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{TryStreamExt as _, stream};
use serde_json::{Value, json};
use tidewaiter_testkit::{Process, Program, Scratch, eventually, free_port};

use super::wire::{Wire, request};
use crate::process::page;

pub const CLUSTERS: usize = 1_000;
pub const USERS: usize = 20;
const ROLES: usize = 5;
const REGISTRIES: usize = 5;
const SETTING_UP: usize = 64;
const SOON: Duration = Duration::from_mins(1);
pub const PASSWORD: &str = "correct horse battery staple";
pub const EMAIL: &str = "olivia@example.org";

/// The contents of a server, besides its roles.
pub struct Contents {
    pub clusters: usize,
    pub users: usize,
    /// The number of SSH keys of each user.
    pub keys: usize,
    pub registries: Vec<Value>,
}

impl Contents {
    /// The 1,000 clusters of an organization, whose registries do not exist.
    pub fn large() -> Self {
        let registry = |number| private_registry(&format!("registry-{number}.example.org"), "p");
        Self {
            clusters: CLUSTERS,
            users: USERS,
            keys: 1,
            registries: (0..REGISTRIES).map(registry).collect(),
        }
    }
}

/// A registry at this host, for the account `u`.
pub fn private_registry(host: &str, password: &str) -> Value {
    json!({"description": "ours", "provider": "private", "serveraddress": host, "credentials": {"username": "u", "password": password}})
}

/// A public key that nobody has the private one of; another one for each number. Every second one is an RSA key of
/// 3,072 bits, the others are Ed25519 keys (RFC 4253, section 6.6; RFC 8709).
pub fn ssh_key(number: usize) -> String {
    let string = |bytes: &[u8]| {
        let length = u32::try_from(bytes.len()).unwrap_or_default();
        [&length.to_be_bytes(), bytes].concat()
    };
    let (algorithm, rest) = if number.is_multiple_of(2) {
        ("ssh-ed25519", string(&numbered::<32>(number)))
    } else {
        // The leading zero makes it positive.
        let modulus = [&[0], &numbered::<384>(number)[..]].concat();
        ("ssh-rsa", [string(&[1, 0, 1]), string(&modulus)].concat())
    };
    let blob = [string(algorithm.as_bytes()), rest].concat();
    format!("{algorithm} {}", STANDARD.encode(blob))
}

fn numbered<const N: usize>(number: usize) -> [u8; N] {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let mut bytes = [0; N];
    random.fill(&mut bytes);
    // The highest and the lowest bit of a modulus are set.
    bytes[0] |= 0x80;
    bytes[N - 1] |= 1;
    bytes
}

/// A running server.
pub struct Cloud {
    pub process: Process,
    program: PathBuf,
    settings: PathBuf,
    pub scratch: Scratch,
    pub address: SocketAddr,
    /// The address of the metrics.
    pub admin: SocketAddr,
    pub token: String,
    /// `/v3/organizations/ID`
    pub organization: String,
    pub clusters: Vec<Cluster>,
    /// The paths of the registries.
    pub registries: Vec<String>,
    /// The paths of the users.
    pub users: Vec<String>,
}

/// A cluster with a label.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub api_key: String,
    pub id: String,
    /// `/v3/organizations/ID/clusters/ID`
    pub path: String,
    /// The path of its label.
    pub label: String,
}

impl Cloud {
    pub async fn start(program: &Path, contents: &Contents) -> Result<Self> {
        let scratch = Scratch::new("bench-cloud");
        let (port, admin) = (free_port(), free_port());
        let file = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            write(&path, text).map(|()| path)
        };
        let data = scratch.path().join("data");
        let settings = format!(
            "data: {}\naddress: 127.0.0.1:{port}\npublicUrl: http://127.0.0.1:{port}\nhealthAddress: 127.0.0.1:0\nadminAddress: 127.0.0.1:{admin}\nrequestsPerSecond: 1000000\nrequestsAtOnce: 512\nlog: {{filter: warn}}\n",
            data.display()
        );
        let settings = file("settings.yaml", &settings)?;
        let password = file("password", PASSWORD)?;
        let init = command(program, &settings, "init").args(["--organization", "Acme", "--email", EMAIL]);
        let init = Process::start(&scratch, init.arg("--password-file").arg(password));
        ensure!(init.exited(SOON).await.success(), "{}", init.log_tail());
        let mut cloud = Self {
            process: Process::start(&scratch, command(program, &settings, "serve")),
            program: program.to_owned(),
            settings,
            scratch,
            address: ([127, 0, 0, 1], port).into(),
            admin: ([127, 0, 0, 1], admin).into(),
            token: String::new(),
            organization: String::new(),
            clusters: Vec::new(),
            registries: Vec::new(),
            users: Vec::new(),
        };
        cloud.ready().await;
        cloud.fill(contents).await?;
        Ok(cloud)
    }

    async fn ready(&self) {
        let ready = format!("http://{}/readyz", self.address);
        eventually("the server to be ready", SOON, async || page(&ready).await.map(drop)).await;
    }

    /// Kills it with SIGKILL; after how many seconds the next one is ready.
    pub async fn killed(&mut self) -> f64 {
        self.process.kill();
        self.started().await
    }

    /// Starts the next process after the last one ended; after how many seconds it is ready.
    #[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
    pub async fn started(&mut self) -> f64 {
        let begin = Instant::now();
        self.process = Process::start(&self.scratch, command(&self.program, &self.settings, "serve"));
        self.ready().await;
        begin.elapsed().as_secs_f64()
    }

    /// Ends it in order.
    pub async fn stop(&self) {
        self.process.stop(SOON).await;
    }

    /// Sends a request of the owner's; what it answers, which is not refused.
    pub async fn ask(&self, wire: &mut Wire, method: &str, path: &str, body: &Value) -> Result<Value> {
        Ok(serde_json::from_str(&self.send(wire, method, path, body).await?)?)
    }

    /// The owner deletes an object.
    pub async fn delete(&self, wire: &mut Wire, path: &str) -> Result<()> {
        self.send(wire, "DELETE", path, &Value::Null).await.map(drop)
    }

    /// Adds a plugin with these manifests to cluster 0, and its version to the catalogue. Returns its id.
    pub async fn add_plugin(&self, wire: &mut Wire, kind: &str, manifests: &Value) -> Result<String> {
        let version = format!("/v3/plugins/{kind}/implementations/objects/versions/1.0.0");
        self.send(wire, "PUT", &version, &json!({"version": "1.0.0"})).await?;
        let manifests = json!({"manifests": manifests, "jobs": {}});
        self.send(wire, "PUT", &format!("{version}/manifests"), &manifests)
            .await?;
        let plugins = format!("{}/plugins", self.clusters[0].path);
        let plugin = json!({"type": kind, "implementation": "objects", "version": "1.0.0"});
        word(&self.ask(wire, "POST", &plugins, &plugin).await?, "id")
    }

    /// Sends a request of the owner's; the text that it answers.
    async fn send(&self, wire: &mut Wire, method: &str, path: &str, body: &Value) -> Result<String> {
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let reply = wire.ask(&request(method, path, &self.token, "", &text)).await?;
        ensure!(reply.status < 300, "{method} {path}: {reply:?}");
        Ok(reply.body)
    }

    async fn fill(&mut self, contents: &Contents) -> Result<()> {
        let mut wire = Wire::open(self.address).await?;
        let login = json!({"email": EMAIL, "password": PASSWORD});
        self.token = word(
            &self.ask(&mut wire, "POST", "/v3/login/password", &login).await?,
            "token",
        )?;
        let organizations = self.ask(&mut wire, "GET", "/v3/organizations", &Value::Null).await?;
        self.organization = format!("/v3/organizations/{}", word(&organizations[0], "id")?);
        let below = |path: &str| format!("{}/{path}", self.organization);
        let (mut users, mut registries) = (Vec::new(), Vec::new());
        for number in 0..contents.users {
            let user = json!({"name": format!("User {number}"), "email": format!("user-{number}@example.org")});
            let user = self.ask(&mut wire, "POST", &below("users"), &user).await?;
            let user = below(&format!("users/{}", word(&user, "id")?));
            for key in 0..contents.keys {
                let key = json!({"name": format!("key-{key}"), "key": ssh_key(number * contents.keys + key)});
                self.ask(&mut wire, "POST", &format!("{user}/ssh_keys"), &key).await?;
            }
            users.push(user);
        }
        for registry in &contents.registries {
            let registry = self.ask(&mut wire, "POST", &below("registries"), registry).await?;
            registries.push(below(&format!("registries/{}", word(&registry, "id")?)));
        }
        for number in 0..ROLES {
            let rule = json!({"type": "kubernetes", "api_groups": [""], "resources": ["pods"], "resource_names": [], "non_resource_urls": [], "verbs": ["get", "list"]});
            let reader = json!({"name": format!("role-{number}"), "description": "", "rules": [rule]});
            self.ask(&mut wire, "POST", &below("roles"), &reader).await?;
        }
        (self.users, self.registries) = (users, registries);
        let clusters =
            stream::iter((0..contents.clusters).map(Ok::<_, anyhow::Error>)).map_ok(|number| self.cluster(number));
        let clusters: Vec<Cluster> = clusters.try_buffered(SETTING_UP).try_collect().await?;
        self.clusters = clusters;
        Ok(())
    }

    async fn cluster(&self, number: usize) -> Result<Cluster> {
        let mut wire = Wire::open(self.address).await?;
        let clusters = format!("{}/clusters", self.organization);
        let name = json!({"name": format!("cluster-{number}")});
        let made = self.ask(&mut wire, "POST", &clusters, &name).await?;
        let id = word(&made, "id")?;
        let path = format!("{clusters}/{id}");
        let pool = json!({"name": "workers", "count": 3, "kubernetes_mode": "worker", "kubernetes_version": "1.30.1", "etcd": false, "is_schedulable": true});
        self.ask(&mut wire, "POST", &format!("{path}/node-pools"), &pool)
            .await?;
        let labels = format!("{path}/labels");
        let label = self
            .ask(
                &mut wire,
                "POST",
                &labels,
                &json!({"key": "cluster.containership.io/env", "value": "0"}),
            )
            .await?;
        Ok(Cluster {
            api_key: word(&made, "api_key")?,
            label: format!("{labels}/{}", word(&label, "id")?),
            id,
            path,
        })
    }
}

impl Cluster {
    /// The eight lists that it polls.
    pub fn lists(&self, organization: &str) -> [String; 8] {
        let (path, id) = (&self.path, &self.id);
        [
            format!("{organization}/users"),
            format!("{organization}/registries"),
            format!("{organization}/role-bindings?cluster_id={id}"),
            format!("{path}/roles?side_load=rules&remove_empty=true&rule_type=kubernetes"),
            format!("{path}/plugins"),
            format!("{path}/labels"),
            format!("{path}/node-pools"),
            format!("{path}/autoscaling-policies"),
        ]
    }
}

fn command(program: &Path, settings: &Path, word: &str) -> Program {
    let program = Program::new(program).name(word);
    program.arg("cloud").arg(word).arg("--settings").arg(settings)
}

pub fn word(value: &Value, field: &str) -> Result<String> {
    let text = value[field].as_str().with_context(|| format!("{field} of {value}"))?;
    Ok(text.to_owned())
}

#[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
fn write(path: &Path, text: &str) -> Result<()> {
    Ok(std::fs::write(path, text)?)
}
