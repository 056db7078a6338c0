//! The chapters about the cloud: a server, an API server that trusts its tokens, and a permission that is given and
//! taken away.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tidewaiter_testkit::{Process, Program, Scratch, assets, eventually, free_port, issuer};
use tokio::time::Instant;

use crate::narrator::{command, output, say};
use crate::world::{SOON, Stage, World, binary, show, words};

pub const PASSWORD: &str = "an example of a password";

/// The password of the registry of `examples/acme`.
pub const REGISTRY_PASSWORD: &str = "an example of a secret";

/// The arguments of kubectl's credential plugin.
const CREDENTIAL: [&str; 3] = ["credential", "--cluster", "production"];

/// The cloud, while it runs.
#[derive(Debug)]
pub struct Cloud {
    folder: Scratch,
    url: String,
    /// The authority of its certificate, as PEM.
    authority: String,
    server: Process,
}

/// A server with its first organization, to which its owner logs in.
pub async fn begins() -> Result<Cloud> {
    let folder = Scratch::new("demo-cloud");
    let at = |name: &str| folder.path().join(name);
    let authority = issuer::certificate(folder.path());
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("https://{address}");
    let data = at("data");
    // As if the commands were typed in the folder of the repository.
    symlink(assets::repository().join("examples"), at("examples"))?;
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
    let cloud = Cloud {
        folder,
        url,
        authority,
        server,
    };
    cloud.login(&person, "olivia@example.com").await?;
    Ok(cloud)
}

/// Alice's token may list pods in `dev`, and nothing else.
pub async fn is_believed(world: &World) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    let cluster = cloud.id("cluster", "production").await?;
    stage.trust(&issuer::authentication(&cloud.url, &cloud.authority, &cluster))?;
    say(
        "The file of kube-apiserver --authentication-config now names the cloud as the issuer of tokens for this cluster. The role of the \
         folder is a ClusterRole, and its binding waits for the namespace:",
    );
    show(stage, &["create", "namespace", "dev"]).await?;
    let alice = cloud.alice();
    cloud.login(&alice, "alice@example.com").await?;
    let kubeconfig = alice.kubeconfig(stage)?;
    eventually("the API server to know the cloud's keys", SOON, async || {
        let (told, code) = kubectl_runs(cloud, &kubeconfig, &["get", "pods", "-n", "dev"])
            .await
            .map_err(words)?;
        if code == 0 { Ok(()) } else { Err(told) }
    })
    .await;
    kubectl(cloud, &kubeconfig, &["get", "pods", "-n", "dev"]).await?;
    for (what, place) in [("pods", "default"), ("secrets", "dev")] {
        kubectl_is_forbidden(cloud, &kubeconfig, &["get", what, "-n", place]).await?;
    }
    Ok(())
}

/// The role that Alice's team is given and loses again.
const READER: &str = "kind: Role
spec: {name: reader, rules: [{type: kubernetes, api_groups: [''], resources: [configmaps], verbs: [get, list]}]}
---
kind: RoleBinding
cluster: production
spec: {role: reader, team: developers, namespace: dev}
";

/// Alice gets a permission by her team, and loses it.
pub async fn gives_and_takes(world: &World) -> Result<()> {
    let (stage, cloud) = (world.stage()?, world.cloud()?);
    let (alice, owner) = (cloud.alice(), cloud.owner());
    let (kubeconfig, token) = (alice.kubeconfig(stage)?, alice.token().await?);
    let get = ["get", "configmaps", "-n", "dev"];
    kubectl_is_forbidden(cloud, &kubeconfig, &get).await?;
    write(&cloud.folder().join("reader.yaml"), READER)?;
    command("cat reader.yaml");
    output(READER);
    let apply = ["cloud", "apply", "-f", "reader.yaml"];
    let told = owner.runs(&[&apply[..], &["--dry-run"]].concat()).await?;
    let access = told.find("Access in").context("it shows who gains access")?;
    command(&format!(
        "tidewaiter {} --dry-run | sed -n '/^Access/,$p'",
        apply.join(" ")
    ));
    output(&told[access..]);

    let told = owner.runs(&apply).await?;
    let given = answered(stage, &token, 200).await;
    let done = told
        .lines()
        .filter(|line| line.starts_with("created"))
        .collect::<Vec<_>>();
    command(&format!("tidewaiter {} | tail -{}", apply.join(" "), done.len()));
    output(&done.join("\n"));
    say(&format!("She may, {given} ms later:"));
    kubectl(cloud, &kubeconfig, &get).await?;
    let team = cloud.id("team", "developers").await?;
    let explain = ["explain", "access", "--user", "Alice", "--team", &team, "-n", "dev"];
    let (told, code) = stage.tidewaiter(&explain).await?;
    ensure!(
        code == 0 && told.contains("get,list configmaps"),
        "it ended with {code}: {told}"
    );
    command(&format!("tidewaiter {}", explain.join(" ")));
    output(&told);

    let role = cloud.id("role", "reader").await?;
    let bindings = owner.runs(&["cloud", "get", "role-bindings", "-o", "json"]).await?;
    let bindings: Vec<Value> = serde_json::from_str(&bindings).context("bindings in JSON")?;
    let binding = bindings.iter().find(|it| it["authorization_role_id"] == *role);
    let binding = binding.and_then(|it| it["id"].as_str()).context("it is bound")?;
    owner
        .shows(&["cloud", "delete", "role-binding", binding, "--yes"])
        .await?;
    let lost = answered(stage, &token, 403).await;
    say(&format!("She may not any more, {lost} ms later:"));
    kubectl_is_forbidden(cloud, &kubeconfig, &get).await
}

/// Asks for `ConfigMap`s of `dev` until the API server answers with this status; returns after how many milliseconds it
/// did.
#[expect(clippy::disallowed_methods, reason = "how long it takes, for the viewer")]
async fn answered(stage: &Stage, token: &str, status: u16) -> u128 {
    let begun = Instant::now();
    let url = format!("{}/api/v1/namespaces/dev/configmaps", stage.cluster.url());
    eventually(format!("the answer {status}"), SOON, async || {
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_danger_accept_invalid_certs(true);
        let request = client.build().map_err(words)?.get(&url).bearer_auth(token);
        let found = request.send().await.map_err(words)?.status().as_u16();
        if found == status {
            Ok(())
        } else {
            Err(found.to_string())
        }
    })
    .await;
    begun.elapsed().as_millis()
}

impl Cloud {
    /// Returns the folder in which its users type their commands.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn owner(&self) -> Person {
        Person::new(self.folder(), "olivia")
    }

    fn alice(&self) -> Person {
        Person::new(self.folder(), "alice")
    }

    /// The id of an object.
    pub async fn id(&self, kind: &str, name: &str) -> Result<String> {
        let told = self.owner().runs(&["cloud", "get", kind, name, "-o", "json"]).await?;
        let object: Value = serde_json::from_str(&told).context("an object in JSON")?;
        Ok(object["id"].as_str().context("it has an id")?.to_owned())
    }

    /// Returns the changes, the latest first.
    pub async fn changes(&self) -> Result<Vec<Value>> {
        let told = self
            .owner()
            .runs(&["cloud", "audit", "--limit", "1000", "-o", "json"])
            .await?;
        serde_json::from_str(&told).context("changes in JSON")
    }

    /// The owner, who is an operator, too, adds a version to the catalogue of plugins.
    pub async fn adds_plugin(&self, kind: &str, implementation: &str, version: &str) -> Result<()> {
        let path = format!("/v3/plugins/{kind}/implementations/{implementation}/versions/{version}");
        let body = json!({ "version": version });
        self.puts(&path, &body).await?;
        command(&format!(
            "curl --cacert ca.crt -X PUT -H \"Authorization: JWT $TOKEN\" --json '{body}' $CLOUD{path}"
        ));
        Ok(())
    }

    /// The same with the manifests of a version, which a file has.
    pub async fn adds_manifests(
        &self,
        kind: &str,
        implementation: &str,
        version: &str,
        file: &str,
        manifests: &Value,
    ) -> Result<()> {
        let path = format!("/v3/plugins/{kind}/implementations/{implementation}/versions/{version}/manifests");
        self.puts(&path, manifests).await?;
        command(&format!(
            "curl --cacert ca.crt -X PUT -H \"Authorization: JWT $TOKEN\" --json @{file} $CLOUD{path}"
        ));
        Ok(())
    }

    async fn puts(&self, path: &str, body: &Value) -> Result<()> {
        let authority = reqwest::Certificate::from_pem(&fs::read(self.folder().join("ca.crt"))?)?;
        let client = reqwest::Client::builder()
            .add_root_certificate(authority)
            .no_proxy()
            .build()?;
        let login = json!({"email": "olivia@example.com", "password": PASSWORD});
        let login = client
            .post(format!("{}/v3/login/password", self.url))
            .json(&login)
            .send()
            .await?;
        let login: Value = login.error_for_status()?.json().await?;
        let token = login["token"].as_str().context("a login gives a token")?;
        let put = client.put(format!("{}{path}", self.url)).json(body);
        put.header("authorization", format!("JWT {token}"))
            .send()
            .await?
            .error_for_status()?;
        Ok(())
    }

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
}

/// Somebody with a folder of his own for what he is logged in to.
pub struct Person {
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
    pub async fn runs(&self, args: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new(binary()?)
            .args(args)
            .current_dir(&self.folder)
            .env("XDG_CONFIG_HOME", &self.home)
            .env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)
            .env("ALICE_PASSWORD", PASSWORD)
            .env("BOB_PASSWORD", PASSWORD)
            .env("REGISTRY_PASSWORD", REGISTRY_PASSWORD)
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

    /// A kubeconfig with the person's own credential.
    fn kubeconfig(&self, stage: &Stage) -> Result<PathBuf> {
        Ok(stage.cluster.kubeconfig_of(&json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": binary()?,
            "args": CREDENTIAL,
            "env": [{"name": "XDG_CONFIG_HOME", "value": self.home}],
            "interactiveMode": "Never",
        }})))
    }

    /// The token that kubectl is given.
    async fn token(&self) -> Result<String> {
        let credential: Value = serde_json::from_str(&self.runs(&CREDENTIAL).await?)?;
        let token = credential.pointer("/status/token").and_then(Value::as_str);
        Ok(token.context("a credential has a token")?.to_owned())
    }

    pub async fn shows(&self, args: &[&str]) -> Result<()> {
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

async fn kubectl_is_forbidden(cloud: &Cloud, kubeconfig: &Path, args: &[&str]) -> Result<()> {
    let (told, code) = kubectl_runs(cloud, kubeconfig, args).await?;
    ensure!(code == 1 && told.contains("Forbidden"), "she may: {told}");
    command(&format!("kubectl {}", args.join(" ")));
    output(&told);
    Ok(())
}

/// Writes a file for a command to read.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let file = fs::File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    file.with_context(|| format!("{} cannot be written", path.display()))
}
