//! A person logs in with the cloud's token on an API server that trusts it, and may do what the cloud says: with the
//! binary as the cloud, as the coordinator, as the person's own commands, and as kubectl's credential plugin.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use tidewaiter_kit::settings::environment;
use tidewaiter_testkit::{
    ControlPlane, Identity, Process, Program, Scratch, assets, eventually, free_port, issuer, leaks,
};
use tokio::process::Command;
use tokio::time::Instant;

use crate::{SOON, World, prepare, write};

const PASSWORD: &str = "an example of a password";

/// A second where nothing else runs.
const AT_ONCE: Duration = Duration::from_secs(20);

const PEOPLE: &str = "kind: User
spec: {name: Alice, email: alice@example.com, role: member, password: {fromEnv: PASSWORD}}
---
kind: Team
spec: {name: developers, users: [alice@example.com]}
";

const VIEWER: &str = "kind: Role
spec: {name: viewer, rules: [{type: kubernetes, api_groups: [''], resources: [pods], verbs: [get, list]}]}
---
kind: RoleBinding
cluster: production
spec: {role: viewer, team: developers, namespace: dev}
";

/// A cloud that an API server can trust, and its owner.
struct Cloud {
    folder: Scratch,
    url: String,
    authority: String,
    _server: Process,
}

/// Somebody with a folder of his own for what he is logged in to.
struct Person<'a> {
    cloud: &'a Cloud,
    home: PathBuf,
}

impl Cloud {
    async fn start() -> Self {
        let folder = Scratch::new("trusted-cloud");
        let at = |name: &str| folder.path().join(name);
        let authority = issuer::certificate(folder.path());
        leaks::secret(PASSWORD);
        let address = format!("127.0.0.1:{}", free_port());
        let data = at("data").display().to_string();
        let init = [
            "cloud",
            "init",
            "--data",
            &data,
            "--organization",
            "Acme",
            "--email",
            "olivia@example.com",
        ];
        ran(command(folder.path(), &at("olivia"), &init)).await;
        let serve = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .args([
                "cloud",
                "serve",
                "--address",
                &address,
                "--data",
                &data,
                "--tls-certificate",
            ])
            .arg(at("tls.crt"))
            .arg("--tls-key")
            .arg(at("tls.key"))
            .arg("--health-address=127.0.0.1:0");
        let server = Process::start(&folder, serve);
        let url = format!("https://{address}");
        let cloud = Self {
            folder,
            url,
            authority,
            _server: server,
        };
        cloud.owner().logs_in().await;
        cloud
    }

    fn person(&self, name: &str) -> Person<'_> {
        Person {
            cloud: self,
            home: self.folder.path().join(name),
        }
    }

    fn owner(&self) -> Person<'_> {
        self.person("olivia")
    }

    /// Creates the cluster; the variables of its coordinator, and its id.
    async fn attach(&self) -> (Vec<(&'static str, String)>, String) {
        let file = self.file("cluster.yaml", "name: production\n");
        let owner = self.owner();
        let made = owner
            .runs(&["cloud", "create", "cluster", "-f", &file, "-o", "json"])
            .await;
        let made: Value = serde_json::from_str(&made).unwrap();
        owner
            .runs(&["cloud", "context", "set", "--cluster", "production"])
            .await;
        let field = |name: &str| made[name].as_str().unwrap().to_owned();
        let variables = vec![
            ("CONTAINERSHIP_CLOUD_API_BASE_URL", self.url.clone()),
            (
                "CONTAINERSHIP_CLOUD_CA_FILE",
                self.folder.path().join("ca.crt").display().to_string(),
            ),
            ("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", field("organization_id")),
            ("CONTAINERSHIP_CLOUD_CLUSTER_ID", field("id")),
            ("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", leaks::secret(field("api_key"))),
        ];
        (variables, field("id"))
    }

    /// Writes a file; returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        write(&path, text);
        path.display().to_string()
    }
}

impl Person<'_> {
    async fn logs_in(&self) {
        let email = format!("{}@example.com", self.home.file_name().unwrap().display());
        let login = [
            "cloud",
            "login",
            "--server",
            &self.cloud.url,
            "--ca-file",
            "ca.crt",
            &email,
        ];
        eventually("the cloud to take a login", SOON, async || {
            let output = self.command(&login).output().await.unwrap();
            if output.status.success() {
                Ok(())
            } else {
                Err(words(&output))
            }
        })
        .await;
    }

    fn command(&self, arguments: &[&str]) -> Command {
        command(self.cloud.folder.path(), &self.home, arguments)
    }

    /// Runs the binary; returns what it printed.
    async fn runs(&self, arguments: &[&str]) -> String {
        ran(self.command(arguments)).await
    }

    /// The token that kubectl would be given.
    async fn token(&self) -> String {
        let credential = self.runs(&["credential", "--cluster", "production"]).await;
        let credential: Value = serde_json::from_str(&credential).unwrap();
        leaks::secret(credential["status"]["token"].as_str().unwrap())
    }

    /// The user of a kubeconfig who has this person's credential.
    fn kubeconfig_user(&self) -> Value {
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": env!("CARGO_BIN_EXE_tidewaiter"),
            "args": ["credential", "--cluster", "production"],
            "env": [{"name": "XDG_CONFIG_HOME", "value": self.home}],
            "interactiveMode": "Never",
        }})
    }
}

fn command(folder: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(environment().into_iter().filter(|(name, _)| name == "PATH"));
    command
        .env("XDG_CONFIG_HOME", home)
        .env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)
        .env("PASSWORD", PASSWORD)
        .kill_on_drop(true);
    command
}

async fn ran(mut command: Command) -> String {
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{command:?}: {}", words(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn words(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a right takes to arrive is the subject"
)]
fn now() -> Instant {
    Instant::now()
}

impl World {
    /// kubectl with this kubeconfig: its exit code, and what it said.
    async fn kubectl(&self, kubeconfig: &Path, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(assets::binary("kubectl"));
        command.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir");
        command.arg(self.scratch.path().join("kubectl-cache")).args(arguments);
        let output = command.kill_on_drop(true).output().await.unwrap();
        (output.status.code().unwrap(), words(&output))
    }

    /// Asks the API server with the token until it answers with this status; returns how long it took.
    async fn answers(&self, token: &str, status: u16) -> Duration {
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_danger_accept_invalid_certs(true)
            .build()
            .unwrap();
        let url = format!("{}/api/v1/namespaces/dev/pods", self.cluster.url());
        let begun = now();
        eventually(format!("the answer {status}"), SOON, async || {
            let answer = http.get(&url).bearer_auth(token).send().await.unwrap();
            let found = answer.status().as_u16();
            if found == status { Ok(()) } else { Err(found) }
        })
        .await;
        now() - begun
    }

    async fn tidewaiter(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
        command.args(arguments).arg("--kubeconfig");
        command.arg(self.cluster.kubeconfig(&Identity::Admin));
        command.output().await.unwrap()
    }
}

#[tokio::test]
async fn a_right_given_in_the_cloud_is_there_at_once_and_gone_when_it_is_taken_away() {
    let cloud = Cloud::start().await;
    let (mut variables, cluster) = cloud.attach().await;
    // Longer than anything is waited for: no poll finds the change.
    variables.push(("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "5m".to_owned()));
    let owner = cloud.owner();
    let people = cloud.file("people.yaml", PEOPLE);
    owner.runs(&["cloud", "apply", "-f", &people]).await;
    let trust = issuer::authentication(&cloud.url, &cloud.authority, &cluster);
    let trust = PathBuf::from(cloud.file("authentication.json", &trust.to_string()));
    let cluster = ControlPlane::builder().with_authentication(trust).start().await;
    prepare(&cluster).await;
    let world = World::on(cluster.into());
    world.namespace("dev").await;
    let _coordinator = world.replica(&variables, None);
    world.synced("True Applied", SOON).await;

    let alice = cloud.person("alice");
    alice.logs_in().await;
    let kubeconfig = world.cluster.kubeconfig_of(&alice.kubeconfig_user());
    let pods = ["get", "pods", "-n", "dev"];
    eventually("the API server to know Alice", SOON, async || {
        let (code, said) = world.kubectl(&kubeconfig, &pods).await;
        if code == 1 && said.contains("Forbidden") && said.contains("containership.io/user_id#") {
            Ok(())
        } else {
            Err(said)
        }
    })
    .await;

    let viewer = cloud.file("viewer.yaml", VIEWER);
    let diff = owner.command(&["cloud", "diff", "-f", &viewer]).output().await.unwrap();
    let shown = words(&diff);
    assert_eq!(diff.status.code(), Some(1), "{shown}");
    let expected = "Access in cluster production:\n  + team developers: get,list pods in namespace dev\n";
    assert!(shown.ends_with(expected), "{shown}");

    let token = alice.token().await;
    let (mut given, mut lost) = (Duration::MAX, Duration::MAX);
    // The best of three, because the other tests take their share of the machine.
    for round in 0..3 {
        owner.runs(&["cloud", "apply", "-f", &viewer]).await;
        given = given.min(world.answers(&token, 200).await);
        if round == 0 {
            let (code, said) = world.kubectl(&kubeconfig, &pods).await;
            assert!(code == 0 && said.contains("No resources found"), "{said}");
            let (code, said) = world.kubectl(&kubeconfig, &["get", "pods", "-n", "default"]).await;
            assert!(code == 1 && said.contains("Forbidden"), "{said}");
            explains(&world, &owner).await;
        }
        let bindings = owner.runs(&["cloud", "get", "role-bindings", "-o", "name"]).await;
        let binding = bindings.trim().strip_prefix("RoleBinding/").unwrap();
        owner.runs(&["cloud", "delete", "role-binding", binding, "--yes"]).await;
        lost = lost.min(world.answers(&token, 403).await);
    }
    assert!(
        given < AT_ONCE && lost < AT_ONCE,
        "given after {given:?}, taken away after {lost:?}"
    );
    let (code, said) = world.kubectl(&kubeconfig, &pods).await;
    assert!(code == 1 && said.contains("Forbidden"), "{said}");
}

/// The explanation of Alice's access while she has the role.
async fn explains(world: &World, owner: &Person<'_>) {
    let team = owner.runs(&["cloud", "get", "team", "developers", "-o", "json"]).await;
    let team: Value = serde_json::from_str(&team).unwrap();
    let team = team["id"].as_str().unwrap();
    let base = ["explain", "access", "--user", "Alice", "-n", "dev"];
    let alone = world.tidewaiter(&base).await;
    let said = words(&alone);
    assert!(alone.status.success(), "{said}");
    assert!(
        said.contains("nothing") && said.contains("add --team ID for each"),
        "{said}"
    );
    let with_team = [&base[..], &["--team", team]].concat();
    let table = words(&world.tidewaiter(&with_team).await);
    let line = table
        .lines()
        .find(|line| line.starts_with("get,list pods"))
        .unwrap_or_else(|| panic!("{table}"));
    assert!(
        line.contains("namespace dev") && line.contains("viewer (") && line.ends_with(&format!("team {team}")),
        "{line}"
    );
    // The cluster does not know the names of teams, and the cloud does.
    let named = [
        "explain",
        "access",
        "--user",
        "alice@example.com",
        "--team",
        "developers",
    ];
    let mut named = owner.command(&named);
    named
        .arg("--kubeconfig")
        .arg(world.cluster.kubeconfig(&Identity::Admin));
    let table = ran(named).await;
    assert!(
        table.contains(&format!("developers ({team})"))
            && table.contains("team developers\n")
            && table.contains("Alice "),
        "{table}"
    );
    let json = world.tidewaiter(&[&with_team[..], &["-o", "json"]].concat()).await;
    let explained: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(explained["user"]["name"], "Alice");
    let grant = &explained["grants"][0];
    assert_eq!(
        (&grant["what"], &grant["managed"]),
        (&json!("get,list pods"), &json!(true))
    );
    assert_eq!(grant["role"]["name"], "viewer");

    for (arguments, code, expected) in [
        (
            &["explain", "access", "--user", "Eve"][..],
            1,
            "there is no User \"Eve\" in this cluster",
        ),
        (
            &["explain", "access", "--team", "developers"],
            1,
            "give the id, which tidewaiter cloud get teams -o wide shows",
        ),
        (&["explain", "access", "-n", "dev"], 2, "--user <USER>"),
    ] {
        let output = world.tidewaiter(arguments).await;
        let said = words(&output);
        assert!(output.status.code() == Some(code) && said.contains(expected), "{said}");
    }
}
