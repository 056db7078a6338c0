//! The chapter about the cloud: a server, a folder that says what is wanted, and an API server that trusts its tokens.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tidewaiter_testkit::{ControlPlane, Identity, Process, Program, Scratch, assets, eventually, free_port};

use crate::narrator::{command, output, say};
use crate::world::{SOON, binary, words};

const PASSWORD: &str = "an example of a password";

/// What the cloud should say, in the words of a person.
const FOLDER: [(&str, &str); 3] = [
    (
        "people.yaml",
        "kind: User
spec: {name: Alice, email: alice@example.com, password: {fromEnv: ALICE_PASSWORD}}
---
kind: SshKey
user: alice@example.com
spec: {name: laptop, key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5}
---
kind: Team
spec: {name: developers, users: [alice@example.com]}
",
    ),
    (
        "access.yaml",
        "kind: Role
spec: {name: pod viewer, rules: [{type: kubernetes, api_groups: [''], resources: [pods], verbs: [get, list]}]}
---
kind: RoleBinding
cluster: production
spec: {role: pod viewer, user: alice@example.com, namespace: dev}
",
    ),
    (
        "cluster.yaml",
        "kind: ClusterLabel
spec: {key: cluster.containership.io/environment, value: production}
---
kind: Registry
spec: {serveraddress: quay.io, provider: quay, credentials: {username: acme, password: {fromEnv: QUAY_PASSWORD}}}
",
    ),
];

/// The cloud, while it runs.
pub struct Cloud {
    folder: Scratch,
    url: String,
    server: Process,
}

/// A server with its first organization, to which its owner logs in.
pub async fn begins() -> Result<Cloud> {
    let folder = Scratch::new("demo-cloud");
    let at = |name: &str| folder.path().join(name);
    certificate(folder.path())?;
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("https://{address}");
    let data = at("data");
    let person = Person::new(folder.path(), "olivia");
    let init = [
        "cloud",
        "init",
        "--data",
        "data",
        "--organization",
        "Acme",
        "--email",
        "olivia@example.com",
    ];
    let told = person.runs(&init).await?;
    let keys = told
        .lines()
        .filter(|line| line.starts_with("Organization") || line.starts_with("Owner"));
    command(&format!("tidewaiter {}", init.join(" ")));
    output(&keys.collect::<Vec<_>>().join("\n"));
    let serve = Program::new(binary()?)
        .args(["cloud", "serve", "--address", &address, "--data"])
        .arg(data)
        .arg("--tls-certificate")
        .arg(at("tls.crt"))
        .arg("--tls-key")
        .arg(at("tls.key"))
        .arg("--health-address=127.0.0.1:0");
    let server = Process::start(&folder, serve);
    command(&format!(
        "tidewaiter cloud serve --data data --address {address} --tls-certificate tls.crt --tls-key tls.key &"
    ));
    let cloud = Cloud { folder, url, server };
    cloud.login(&person, "olivia@example.com").await?;
    Ok(cloud)
}

/// A folder is made true; the second time nothing is left to do.
pub async fn is_filled(cloud: &Cloud) -> Result<()> {
    let folder = cloud.folder.path().join("acme");
    fs::create_dir(&folder)?;
    for (file, text) in FOLDER {
        write(&folder.join(file), text)?;
    }
    write(&cloud.folder.path().join("production.yaml"), "name: production\n")?;
    let person = Person::new(cloud.folder.path(), "olivia");
    person
        .shows(&["cloud", "create", "cluster", "-f", "production.yaml", "-o", "name"])
        .await?;
    person
        .runs(&["cloud", "context", "set", "--cluster", "production"])
        .await?;
    person.shows(&["cloud", "apply", "-f", "acme"]).await?;
    person.shows(&["cloud", "apply", "-f", "acme"]).await
}

/// Alice's token may list pods in `dev`, and nothing else.
pub async fn is_believed(cloud: &Cloud) -> Result<()> {
    let owner = Person::new(cloud.folder.path(), "olivia");
    let id = async |kind: &str, name: &str| -> Result<String> {
        let told = owner.runs(&["cloud", "get", kind, name, "-o", "json"]).await?;
        let object: Value = serde_json::from_str(&told).context("an object in JSON")?;
        Ok(object["id"].as_str().context("it has an id")?.to_owned())
    };
    let (cluster, user, role) = (
        id("cluster", "production").await?,
        id("user", "alice@example.com").await?,
        id("role", "pod viewer").await?,
    );
    let trust = cloud.trust(&cluster)?;
    let plane = ControlPlane::builder().with_authentication(trust).start().await;
    say(
        "kube-apiserver --authentication-config trusts the cloud's tokens for this cluster. What the coordinator will make of the \
         role and its binding is applied by hand:",
    );
    let rbac = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": "dev"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
                "name": format!("containership.io/user_id#{user}")}]},
    ]});
    write(&cloud.folder.path().join("rbac.yaml"), &rbac.to_string())?;
    let admin = plane.kubeconfig(&Identity::Admin);
    kubectl(cloud, &admin, &["apply", "-f", "rbac.yaml"]).await?;
    let alice = Person::new(cloud.folder.path(), "alice");
    cloud.login(&alice, "alice@example.com").await?;
    let kubeconfig = cloud.kubeconfig(&admin, &alice)?;
    eventually("the API server to know the cloud's keys", SOON, async || {
        let (told, code) = kubectl_runs(cloud, &kubeconfig, &["get", "pods", "-n", "dev"])
            .await
            .map_err(words)?;
        if code == 0 { Ok(()) } else { Err(told) }
    })
    .await;
    kubectl(cloud, &kubeconfig, &["get", "pods", "-n", "dev"]).await?;
    for (what, place) in [("pods", "default"), ("secrets", "dev")] {
        let args = ["get", what, "-n", place];
        let (told, code) = kubectl_runs(cloud, &kubeconfig, &args).await?;
        ensure!(code == 1 && told.contains("Forbidden"), "she may: {told}");
        command(&format!("kubectl {}", args.join(" ")));
        output(&told);
    }
    Ok(())
}

impl Cloud {
    async fn login(&self, person: &Person, email: &str) -> Result<()> {
        let args = ["cloud", "login", "--server", &self.url, "--ca-file", "ca.crt", email];
        let told = eventually("the cloud to take a login", SOON, async || {
            ensure!(self.server.is_running(), "the cloud ended: {}", self.server.log_tail());
            person.runs(&args).await
        });
        let told = told.await;
        command(&format!("tidewaiter {}", args.join(" ")));
        output(&told);
        Ok(())
    }

    /// The file by which an API server trusts the cloud's tokens for this cluster.
    fn trust(&self, cluster: &str) -> Result<PathBuf> {
        let authority = fs::read_to_string(self.folder.path().join("ca.crt"))?;
        let audience = format!("https://containership.io/clusters/{cluster}");
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": self.url, "certificateAuthority": authority, "audiences": [audience]},
                "claimMappings": {
                    "username": {"claim": "sub", "prefix": ""},
                    "groups": {"claim": "groups", "prefix": ""},
                },
            }],
        });
        let path = self.folder.path().join("authentication.json");
        write(&path, &configuration.to_string())?;
        Ok(path)
    }

    /// As an administrator's, with the person's own credential.
    fn kubeconfig(&self, admin: &Path, person: &Person) -> Result<PathBuf> {
        let mut config: Value = serde_saphyr::from_str(&fs::read_to_string(admin)?)?;
        let user = config.pointer_mut("/users/0/user").context("a kubeconfig has a user")?;
        *user = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": binary()?,
            "args": ["credential", "--cluster", "production"],
            "env": [{"name": "XDG_CONFIG_HOME", "value": person.home}],
            "interactiveMode": "Never",
        }});
        let path = self.folder.path().join("alice.json");
        write(&path, &config.to_string())?;
        Ok(path)
    }
}

/// Somebody with a folder of his own for what he is logged in to.
struct Person {
    folder: PathBuf,
    home: PathBuf,
}

impl Person {
    fn new(folder: &Path, name: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            home: folder.join(name),
        }
    }

    /// Runs the released binary; gives what it printed.
    async fn runs(&self, args: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new(binary()?)
            .args(args)
            .current_dir(&self.folder)
            .env("XDG_CONFIG_HOME", &self.home)
            .env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)
            .env("ALICE_PASSWORD", PASSWORD)
            .env("QUAY_PASSWORD", "an example of a secret")
            // Ctrl-C is the demo's to hear.
            .process_group(0)
            .kill_on_drop(true)
            .output()
            .await
            .context("tidewaiter cannot be run")?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let trouble = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "tidewaiter {}: {told}{trouble}",
            args.join(" ")
        );
        Ok(told)
    }

    async fn shows(&self, args: &[&str]) -> Result<()> {
        let told = self.runs(args).await?;
        command(&format!("tidewaiter {}", args.join(" ")));
        output(&told);
        Ok(())
    }
}

async fn kubectl_runs(cloud: &Cloud, kubeconfig: &Path, args: &[&str]) -> Result<(String, i32)> {
    let output = tokio::process::Command::new(assets::binary("kubectl"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--cache-dir")
        .arg(cloud.folder.path().join("kubectl-cache"))
        .args(args)
        .current_dir(cloud.folder.path())
        .process_group(0)
        .kill_on_drop(true)
        .output()
        .await
        .context("kubectl cannot be run")?;
    let told = [output.stdout, output.stderr].concat();
    let code = output.status.code().context("kubectl was killed")?;
    Ok((String::from_utf8_lossy(&told).into_owned(), code))
}

async fn kubectl(cloud: &Cloud, kubeconfig: &Path, args: &[&str]) -> Result<()> {
    let (told, code) = kubectl_runs(cloud, kubeconfig, args).await?;
    ensure!(code == 0, "kubectl {}: {told}", args.join(" "));
    command(&format!("kubectl {}", args.join(" ")));
    output(&told);
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    let file = fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    file.with_context(|| format!("{} cannot be written", path.display()))
}

/// An authority of the demo's own, and a certificate of 127.0.0.1.
fn certificate(folder: &Path) -> Result<()> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;
    write(&folder.join("ca.crt"), &authority.pem())?;
    write(&folder.join("tls.crt"), &certificate.pem())?;
    write(&folder.join("tls.key"), &key.serialize_pem())
}
