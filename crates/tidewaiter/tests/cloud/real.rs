//! The commands, and the client of a cluster, against the server that the same binary is.

use std::process::Stdio;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_cloud::client::{Client, ClientError, ClientSettings, Cluster, Fetched, Listing, Method, Request, Wake};
use tidewaiter_cloud::models::{ClusterDecision, ClusterLabel, Kind, Registry, Role, RoleBinding, User};
use tidewaiter_kit::{Clock as _, SystemClock};
use tidewaiter_testkit::{ControlPlane, Identity, Process, Program, Scratch, eventually, free_port};

use crate::world::{PASSWORD, Person};

pub const LONG: Duration = Duration::from_mins(1);

const DOCUMENTS: &str = "kind: Scope
prune: [Role, RoleBinding, ClusterLabel, NodePoolLabel, Registry, Team, SshKey]
clusters: [production]
---
kind: User
spec: {name: Bob, email: bob@example.com, password: {fromEnv: BOB}}
---
kind: SshKey
user: bob@example.com
spec: {name: laptop, key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5}
---
kind: Team
spec: {name: developers, users: [bob@example.com]}
---
kind: Role
spec: {name: viewer, rules: [{type: kubernetes, api_groups: [''], resources: [pods], verbs: [get, list]}]}
---
kind: RoleBinding
cluster: production
spec: {role: viewer, team: developers, namespace: dev}
---
kind: NodePool
spec: {name: workers, count: 3, kubernetes_mode: worker, kubernetes_version: v1.30.1, etcd: false, is_schedulable: true}
---
kind: NodePoolLabel
nodePool: workers
spec: {key: nodepool.containership.io/disk, value: ssd}
---
kind: ClusterLabel
spec: {key: cluster.containership.io/zone, value: a}
---
kind: Registry
spec: {serveraddress: quay.io, provider: quay, credentials: {username: hunter2, password: {fromEnv: BOB}}}
";

const BOB: (&str, &str) = ("BOB", "hunter2-hunter2");

/// A server with its first organization, and its owner, who has attached a cluster.
pub struct Real {
    pub person: Person,
    pub url: String,
    pub cluster: Value,
    _server: Process,
}

pub async fn real() -> Real {
    let person = Person::new().await;
    let data = person.path("data").to_str().unwrap().to_owned();
    let password = ("TIDEWAITER_CLOUD_PASSWORD", PASSWORD);
    let init = [
        "cloud",
        "init",
        "--data",
        &data,
        "--organization",
        "acme",
        "--email",
        "alice@example.com",
    ];
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("http://{address}");
    // Without it, the server would have a certificate.
    let plain = ("TIDEWAITER_PUBLIC_URL", &*url);
    person.run_with(&init, &[password, plain]).await.well();
    let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"));
    let program = program.args(["cloud", "serve", "--data", &data, "--address", &address]);
    let program = program.arg("--health-address=127.0.0.1:0");
    let server = Process::start(&Scratch::new("cloud-server"), program);
    let login = ["cloud", "login", "--server", &url, "alice@example.com"];
    eventually("the server to take a login", LONG, async || {
        let ran = person.run_with(&login, &[password]).await;
        if ran.code == 0 { Ok(()) } else { Err(ran.err) }
    })
    .await;
    let file = person.file("cluster.yaml", "name: production\n");
    let made = person
        .run_open(&["cloud", "create", "cluster", "-f", &file, "-o", "json"], &[])
        .await
        .well();
    person
        .run(&["cloud", "context", "set", "--cluster", "production"])
        .await
        .well();
    Real {
        person,
        url,
        cluster: serde_json::from_str(&made).unwrap(),
        _server: server,
    }
}

impl Real {
    /// The cluster's own client, with the token or key.
    pub fn client(&self, token: &str) -> Client {
        let mut settings = ClientSettings::new(self.url.parse().unwrap());
        settings.token = Some(token.parse().unwrap());
        Client::new(&settings, SystemClock::shared()).unwrap()
    }

    /// An id of the cluster.
    pub fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(&self, field: &str) -> T {
        self.cluster[field].as_str().unwrap().parse().unwrap()
    }
}

#[tokio::test]
async fn a_person_sees_what_a_cluster_reports_and_waits_until_it_has_followed() {
    let real = real().await;
    let person = &real.person;
    let cluster = Cluster {
        organization: real.id("organization_id"),
        id: real.id("id"),
    };
    let client = real.client(real.cluster["api_key"].as_str().unwrap());
    let report = async |change: &str, held: Value| {
        let kind = json!({"kind": "ClusterLabel", "follows": ["labels"], "change": change, "held": held,
            "last_success": SystemClock.now().to_string()});
        let body = json!({"synced": held.is_null(), "kinds": [kind], "agents": {"nodes": 5, "reporting": 4}});
        let request = Request::new(Method::PUT, cluster.report()).json(body);
        client.request(&request).await.unwrap();
    };
    let apply = |value: &str, limit: &str| {
        let text = format!("kind: ClusterLabel\nspec: {{key: cluster.containership.io/zone, value: {value}}}\n");
        let file = person.file("label.yaml", &text);
        ["cloud", "apply", "-f", &file, limit].map(str::to_owned)
    };
    let run = async |arguments: [String; 5]| person.run(&arguments.each_ref().map(String::as_str)).await;

    let table = person.run(&["cloud", "get", "clusters"]).await.well();
    assert!(table.contains("SYNCED") && table.contains("LAST SEEN"), "{table}");
    let ran = run(apply("a", "--wait=1s")).await;
    assert!(ran.code == 1 && ran.out.contains("created ClusterLabel"), "{}", ran.out);
    let behind = "1 of 1 clusters have not followed: production (it has never reported)";
    assert!(ran.err.contains(behind), "{}", ran.err);

    report(
        "0",
        json!({"revision": "0123456789ab", "deletions": 3, "reason": "most of them"}),
    )
    .await;
    let ran = run(apply("b", "--wait=1s")).await;
    let held = "production (3 ClusterLabel held: most of them)";
    assert!(ran.code == 1 && ran.err.contains(held), "{}", ran.err);
    report("0", Value::Null).await;
    let ran = run(apply("c", "--wait=1s")).await;
    assert!(ran.code == 1 && ran.err.contains("is not synced yet"), "{}", ran.err);

    let follows = async {
        eventually("the change", LONG, async || {
            let labels: Listing<ClusterLabel> = client.list(cluster.labels(), None).await.unwrap();
            match labels {
                Fetched::Complete { value, .. } if value[0].spec.value.as_str() == "d" => Ok(()),
                labels => Err(format!("{labels:?}")),
            }
        })
        .await;
        report("999999999", Value::Null).await;
    };
    let (ran, ()) = tokio::join!(run(apply("d", "--wait")), follows);
    assert!(ran.err.contains("1 of 1 clusters have followed"), "{}", ran.err);
    ran.well();
    // The second run changes nothing, and waits all the same.
    let again = run(apply("d", "--wait=1s")).await;
    assert!(again.err.contains("1 of 1 clusters have followed"), "{}", again.err);
    again.well();
    let held = json!({"revision": "0123456789ab", "deletions": 3, "reason": "most of them"});
    report("999999999", held).await;
    let again = run(apply("d", "--wait=1s")).await;
    assert!(
        again.code == 1 && again.err.contains("3 ClusterLabel held"),
        "{}",
        again.err
    );
    report("999999999", Value::Null).await;

    let table = person.run(&["cloud", "get", "clusters"]).await.well();
    assert!(table.contains("yes") && table.contains("4/5"), "{table}");
    let json = person.run(&["cloud", "get", "clusters", "-o", "json"]).await.well();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["report"]["kinds"][0]["change"], "999999999");
    let one = ["cloud", "get", "cluster", "production", "-o", "json"];
    let one: Value = serde_json::from_str(&person.run(&one).await.well()).unwrap();
    assert_eq!(one["report"]["agents"]["reporting"], 4);
}

#[tokio::test]
async fn a_person_releases_and_approves_what_a_cluster_reports() {
    let real = real().await;
    let person = &real.person;
    let cluster = Cluster {
        organization: real.id("organization_id"),
        id: real.id("id"),
    };
    let client = real.client(real.cluster["api_key"].as_str().unwrap());
    let report = async |accepts: bool| {
        let body = json!({"accepts_releases": accepts,
            "kinds": [{"kind": "User", "held": {"revision": "0123456789ab", "deletions": 6}}],
            "plugins": [{"id": "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "name": "metrics/prometheus",
                "waiting": {"digest": "abc", "diff": ["create ConfigMap a/b"]}}]});
        let request = Request::new(Method::PUT, cluster.report()).json(body);
        client.request(&request).await.unwrap();
    };
    let (release, approve) = (["cloud", "release", "user"], ["cloud", "approve", "metrics"]);
    person.run(&release).await.refused(1, &["never reported"]);
    report(false).await;
    for command in [release, approve] {
        person.run(&command).await.refused(1, &["acceptReleasesFromCloud"]);
    }
    report(true).await;
    person.run(&release).await.refused(1, &["no terminal to confirm on"]);
    let shown = person.run(&[&release[..], &["--yes"]].concat()).await.well();
    assert!(
        shown.contains("User: 6 would be deleted") && shown.contains("asked to release User until 2"),
        "{shown}"
    );
    let shown = person.run(&[&approve[..], &["--yes"]].concat()).await.well();
    assert!(
        shown.contains("  create ConfigMap a/b\n") && shown.contains("digest abc"),
        "{shown}"
    );
    let decisions: Listing<ClusterDecision> = client.list(cluster.decisions(), None).await.unwrap();
    let Fetched::Complete { value, .. } = decisions else {
        panic!("nothing was known before");
    };
    let released = value[0].release.as_ref().map(|release| release.revision.to_string());
    let approved = value[1].approval.as_ref().map(|approval| approval.digest.to_string());
    assert_eq!(
        (released.as_deref(), approved.as_deref()),
        (Some("0123456789ab"), Some("abc"))
    );
    let list = ["cloud", "release", "--list"];
    let listed = person.run(&list).await.well();
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 2 && lines[0].ends_with(" release of User"), "{listed}");
    let id = lines[0].split(' ').next().unwrap();
    let withdraw = ["cloud", "release", "--withdraw", id];
    assert_eq!(person.run(&withdraw).await.well(), "withdrawn\n");
    assert_eq!(person.run(&list).await.well().lines().count(), 1);
}

#[tokio::test]
async fn the_folder_of_examples_can_be_applied() {
    let real = real().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/acme");
    let secrets = ["ALICE_PASSWORD", "BOB_PASSWORD", "REGISTRY_PASSWORD"].map(|name| (name, BOB.1));
    let apply = ["cloud", "apply", "-f", folder, "--dry-run"];
    let out = real.person.run_with(&apply, &secrets).await.well();
    for object in [
        "User Bob",
        "Registry acme.registries.test",
        "NodePool workers",
        "Plugin logs fluentd",
    ] {
        assert!(out.contains(&format!("+ {object}")), "{object}: {out}");
    }
}

/// The versions of all parts, of which the cluster has the image with which it was attached.
async fn versions(real: &Real, kubeconfig: &str) {
    let own = env!("CARGO_PKG_VERSION");
    let version = ["version", "--kubeconfig", kubeconfig];
    let json = real.person.run(&[&version[..], &["-o", "json"]].concat()).await.well();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["client"], &json["server"]["version"]),
        (&json!(own), &json!(own))
    );
    let kubernetes = json["cluster"]["version"].as_str().unwrap();
    assert!(kubernetes.starts_with("v1."), "{json}");
    let program = json!({"namespace": "containership-core", "name": "tidewaiter-coordinator", "image": "registry.test/tidewaiter:1"});
    assert_eq!(json["programs"], json!([program]));
    let table = real.person.run(&version).await.well();
    for word in [own, kubernetes, "containership-core/tidewaiter-coordinator"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    // Nobody learns the version who is not logged in.
    let answer = reqwest::get(format!("{}/v3/account", real.url)).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().get("server")), (401, None));
}

#[tokio::test]
async fn one_command_attaches_a_cluster_and_may_be_repeated() {
    let real = real().await;
    let (person, cluster) = (&real.person, ControlPlane::start().await);
    let attach = ["cloud", "attach", "staging", "--image", "registry.test/tidewaiter:1"];
    let refused = person.run(&attach).await;
    refused.refused(1, &["pods cannot reach", "--url"]);
    let staging = async || {
        let found = person.run(&["cloud", "get", "clusters", "-o", "json"]).await.well();
        let found: Vec<Value> = serde_json::from_str(&found).unwrap();
        let mut ids = found
            .iter()
            .filter(|found| found["name"] == "staging")
            .map(|found| found["id"].clone());
        (ids.next(), ids.next())
    };
    let image = [
        "cloud",
        "attach",
        "staging",
        "--image",
        "",
        "--url",
        "https://cloud.test",
    ];
    assert_eq!(person.run(&image).await.code, 2);
    assert_eq!(staging().await, (None, None), "nothing is created before all is known");

    let attach = [&attach[..], &["--url", "https://cloud.test"]].concat();
    let mut keys = Vec::new();
    for said in ["created the cluster staging", "one more API key"] {
        let ran = person.run_open(&attach, &[]).await;
        assert!(ran.err.contains(said), "{said}: {}", ran.err);
        let manifests = ran.well();
        let file = person.file("attached.yaml", &manifests);
        let apply = ["apply", "--server-side", "-f", &file];
        let ran = cluster.kubectl(&Identity::Admin).args(apply).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let client = cluster.client(&Identity::Admin);
        let secrets = Api::<Secret>::namespaced(client, "containership-core");
        let secret = secrets.get("tidewaiter-coordinator-cloud").await.unwrap();
        keys.push(String::from_utf8(secret.data.unwrap()["api-key"].0.clone()).unwrap());
    }
    let kubeconfig = cluster.kubeconfig(&Identity::Admin);
    versions(&real, kubeconfig.to_str().unwrap()).await;
    // A reader that ended has applied nothing.
    let mut ended = person.command(&attach);
    let mut ended = ended.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(ended.stdout.take());
    assert_eq!(ended.wait().await.unwrap().code(), Some(1));
    // The key of another owner, Helm for example, is a conflict.
    let secrets = Api::<Secret>::namespaced(cluster.client(&Identity::Admin), "containership-core");
    let theirs = json!({"apiVersion": "v1", "kind": "Secret", "data": {"api-key": "dGhlaXJz"}});
    let by_helm = PatchParams::apply("helm").force();
    let theirs = Patch::Apply(theirs);
    let patched = secrets.patch("tidewaiter-coordinator-cloud", &by_helm, &theirs);
    patched.await.unwrap();
    let apply = [
        "apply",
        "--server-side",
        "-f",
        &person.file("attached.yaml", &person.run_open(&attach, &[]).await.well()),
    ];
    let ran = cluster.kubectl(&Identity::Admin).args(apply).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && said.contains(".data.api-key"), "{said}");
    let secret = secrets.get("tidewaiter-coordinator-cloud").await.unwrap();
    assert_eq!(secret.data.unwrap()["api-key"].0, b"theirs");
    let (Some(id), None) = staging().await else {
        panic!("one cluster");
    };
    assert_ne!(keys[0], keys[1]);
    let attached = Cluster {
        organization: real.id("organization_id"),
        id: id.as_str().unwrap().parse().unwrap(),
    };
    for key in keys {
        let labels: Listing<ClusterLabel> = real.client(&key).list(attached.labels(), None).await.unwrap();
        assert!(matches!(labels, Fetched::Complete { .. }));
    }
    let settings = Api::<ConfigMap>::namespaced(cluster.client(&Identity::Admin), "containership-core");
    let settings = settings.get("tidewaiter-coordinator").await.unwrap().data.unwrap();
    let settings = person.file("settings.yaml", &settings["settings.yaml"]);
    let settings = format!("--settings={settings}");
    let printed = person.run(&["coordinator", &settings, "--print-config"]).await.well();
    for words in [
        "https://cloud.test",
        id.as_str().unwrap(),
        &attached.organization.to_string(),
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

#[tokio::test]
async fn a_folder_is_made_true_changed_and_pruned() {
    let real = real().await;
    let person = &real.person;
    let file = person.file("a.yaml", DOCUMENTS);
    let apply = ["cloud", "apply", "-f", &file, "--prune", "--yes"];
    let out = person.run_with(&apply, &[BOB]).await.well();
    assert!(
        out.contains("9 to create, 0 to change, 0 to delete, 0 unchanged"),
        "{out}"
    );
    let out = person.run_with(&apply, &[BOB]).await.well();
    assert_eq!(out, "0 to create, 0 to change, 0 to delete, 9 unchanged\n");

    let changed = DOCUMENTS
        .replace("value: ssd", "value: nvme")
        .replace("namespace: dev", "namespace: prod");
    person.file("a.yaml", &changed.replace("verbs: [get, list]", "verbs: [get]"));
    let other = ("BOB", "hunter2-another");
    let diff = person
        .run_with(&["cloud", "diff", "-f", &file, "--prune"], &[other])
        .await;
    assert!(
        diff.code == 1 && diff.out.contains("1 to create, 3 to change, 1 to delete"),
        "{}{}",
        diff.out,
        diff.err
    );
    person.run_with(&apply, &[other]).await.well();
    let again = person
        .run_with(&["cloud", "diff", "-f", &file, "--prune"], &[other])
        .await;
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    let bindings = person
        .run(&["cloud", "get", "role-bindings", "-o", "json"])
        .await
        .well();
    assert!(
        bindings.contains("\"prod\"") && !bindings.contains("\"dev\""),
        "{bindings}"
    );

    let editor = [("EDITOR", "sed -i 's/count: 3/count: 4/'")];
    person
        .run_with(&["cloud", "edit", "node-pool", "workers"], &editor)
        .await
        .well();
    assert!(
        person
            .run(&["cloud", "describe", "node-pool", "workers"])
            .await
            .well()
            .contains("count: 4")
    );
    person
        .run(&["cloud", "delete", "label", "cluster.containership.io/zone", "--yes"])
        .await
        .well();
    // Counts of reads are written beside the changes, so the newest row may be one of them.
    let audit = person.run(&["cloud", "audit", "--limit", "20"]).await.well();
    let deleted = |row: &str| row.contains("  delete  ") && row.contains("  labels  ");
    assert!(audit.lines().any(deleted), "{audit}");
    let whoami = person.run(&["cloud", "whoami"]).await.well();
    assert!(
        whoami.contains("alice@example.com") && whoami.contains("owner"),
        "{whoami}"
    );
    let credential = person.run_open(&["credential"], &[]).await.well();
    let credential: Value = serde_json::from_str(&credential).unwrap();
    let token = credential["status"]["token"].as_str().unwrap();
    let expires: jiff::Timestamp = credential["status"]["expirationTimestamp"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        expires > SystemClock.now() && token.split('.').count() == 3,
        "{expires}"
    );
    let contexts = std::fs::read_to_string(person.contexts()).unwrap();
    // A long text has lines of its own in YAML.
    let login = contexts.lines().map(str::trim).find(|line| line.starts_with("eyJ"));
    let account = format!("{}/v3/account", real.url);
    let asked = async || {
        let request = reqwest::Client::new().get(&account).bearer_auth(login.unwrap());
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(asked().await, 200);
    let out = person.run(&["cloud", "logout"]).await.well();
    assert!(!out.contains("did not revoke"), "{out}");
    assert_eq!(asked().await, 401);
}

#[tokio::test]
async fn operators_are_added_and_removed_by_name() {
    let real = real().await;
    let person = &real.person;
    let user = "kind: User\nspec: {name: Bob, email: bob@example.com, password: {fromEnv: BOB}}\n";
    let file = person.file("bob.yaml", user);
    person.run_with(&["cloud", "apply", "-f", &file], &[BOB]).await.well();
    let listed = async || person.run(&["cloud", "operators", "list"]).await.well();
    assert!(!listed().await.contains("bob@example.com"));
    let add = ["cloud", "operators", "add", "bob@example.com"];
    let said = person.run(&add).await.well();
    assert_eq!(said, "bob@example.com is now an operator\n");
    assert!(listed().await.contains("bob@example.com"));
    let names = ["cloud", "operators", "list", "-o", "name"];
    assert_eq!(person.run(&names).await.well().matches("Operator/").count(), 2);
    let asked = person.run(&["cloud", "operators", "remove", "bob@example.com"]).await;
    asked.refused(1, &["no terminal to confirm", "--yes"]);
    assert!(listed().await.contains("bob@example.com"));
    let remove = |who| ["cloud", "operators", "remove", who, "--yes"];
    person.run(&remove("bob@example.com")).await.well();
    assert!(!listed().await.contains("bob@example.com"));
    let again = person.run(&remove("bob@example.com")).await;
    again.refused(1, &["bob@example.com is not an operator"]);
    let last = person.run(&remove("alice@example.com")).await;
    assert!(last.code == 1 && last.err.contains("last operator"), "{}", last.err);
}

#[tokio::test]
async fn a_cluster_lists_what_is_its_own_and_is_told_of_changes() {
    let real = real().await;
    let person = &real.person;
    let file = person.file("a.yaml", DOCUMENTS);
    person.run_with(&["cloud", "apply", "-f", &file], &[BOB]).await.well();
    let cluster = Cluster {
        organization: real.id("organization_id"),
        id: real.id("id"),
    };
    let client = real.client(real.cluster["api_key"].as_str().unwrap());
    let users: Listing<User> = client.list(cluster.organization().users(), None).await.unwrap();
    let Fetched::Complete { value: users, etag } = users else {
        panic!("nothing was known");
    };
    assert!(users.iter().any(|user| user.ssh_keys.len() == 1), "{users:?}");
    let again: Listing<User> = client
        .list(cluster.organization().users(), etag.as_ref())
        .await
        .unwrap();
    assert_eq!(again, Fetched::Unchanged);
    let registries: Listing<Registry> = client.list(cluster.organization().registries(), None).await.unwrap();
    let Fetched::Complete { value, .. } = registries else {
        panic!("nothing was known");
    };
    assert_eq!(value[0].spec.credentials.get("password").unwrap().expose(), BOB.1);
    let roles: Listing<Role> = client.list(cluster.roles(), None).await.unwrap();
    assert!(matches!(roles, Fetched::Complete { value, .. } if value[0].rules.as_ref().unwrap().len() == 1));
    let bindings: Listing<RoleBinding> = client.list(cluster.role_bindings(), None).await.unwrap();
    assert!(matches!(bindings, Fetched::Complete { value, .. } if value.len() == 1));

    let mut wakes = client.watch(cluster, |_| ()).boxed();
    let mut next = async || tokio::time::timeout(LONG, wakes.next()).await.unwrap().unwrap();
    assert_eq!(next().await, Wake::Everything);
    person.file("a.yaml", &DOCUMENTS.replace("value: a}", "value: b}"));
    person.run_with(&["cloud", "apply", "-f", &file], &[BOB]).await.well();
    let wake = next().await;
    assert!(
        matches!(&wake, Wake::Changed(kinds) if kinds.contains(&Kind::ClusterLabel)),
        "{wake:?}"
    );

    let mut other = cluster;
    other.id = "99999999-9999-4999-8999-999999999999".parse().unwrap();
    let found: Result<Listing<ClusterLabel>, _> = client.list(other.labels(), None).await;
    assert!(matches!(found, Err(ClientError::NotOurs { .. })), "{found:?}");
    let stranger = real.client("twk_0123456789abcdef0123456789abcdef_0123456789012345678901234567890123456789012");
    let found: Result<Listing<ClusterLabel>, _> = stranger.list(cluster.labels(), None).await;
    assert!(
        matches!(found, Err(ClientError::Refused { status: 401, .. })),
        "{found:?}"
    );
}
