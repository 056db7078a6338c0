//! The commands that do something with an object other than to create, change or delete it, against a real server.

use std::fs::File;
use std::process::Stdio;

use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::real::{Real, real};
use crate::world::after;

const POLICY: &str = "kind: AutoscalingPolicy
spec:
  name: By CPU
  metrics_backend: prometheus
  metric: cpu_percent_utilization
  metric_configuration: {}
  poll_interval: 15
  sample_period: 600
  scaling_policy:
    scale_up: {threshold: 0.5, comparison_operator: '>=', adjustment_type: absolute, adjustment_value: 1}
    scale_down: {threshold: 0.2, comparison_operator: '<=', adjustment_type: absolute, adjustment_value: 1}
---
kind: NodePool
spec: {name: workers, count: 3, kubernetes_mode: worker, kubernetes_version: v1.30.1, etcd: false, is_schedulable: true}
";
const BOB: (&str, &str) = ("BOB", "hunter2-hunter2");
const ACCOUNT: &str = "TIDEWAITER_CLOUD_PASSWORD";
const NEW: (&str, &str) = ("TIDEWAITER_CLOUD_NEW_PASSWORD", "hunter2-another-one");

impl Real {
    /// Runs the words of a line after `tidewaiter cloud`.
    async fn types(&self, line: &str) -> String {
        let words: Vec<&str> = ["cloud"].into_iter().chain(line.split(' ')).collect();
        self.person.run_open(&words, &[NEW]).await.well()
    }

    async fn refused(&self, line: &str, words: &[&str]) {
        let line: Vec<&str> = ["cloud"].into_iter().chain(line.split(' ')).collect();
        self.person.run_open(&line, &[]).await.refused(1, words);
    }

    /// Returns the status of a request with this token or key.
    async fn status(&self, token: &str, path: &str) -> u16 {
        let request = reqwest::Client::new().get(format!("{}{path}", self.url));
        let sent = request.header("authorization", format!("JWT {token}")).send().await;
        sent.unwrap().status().as_u16()
    }
}

fn field(text: &str, name: &str) -> String {
    let value: Value = serde_saphyr::from_str(text).unwrap();
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}

/// Documents name the users of ends, also new ones, and take ends away that they omit.
async fn ends_of_a_team(real: &Real) {
    let apply = async |users: &str| {
        let carol = "kind: User\nspec: {name: Carol, email: carol@example.com}\n---\n";
        let team = format!("{carol}kind: Team\nspec: {{name: shift, {users}}}\n");
        let file = real.person.file("team.yaml", &team);
        real.types(&format!("apply -f {file}")).await;
        let teams: Value = serde_json::from_str(&real.types("get teams -o json").await).unwrap();
        teams[0]["user_ends"].clone()
    };
    let users = "users: [bob@example.com, carol@example.com]";
    let ends = apply(&format!("{users}, ends: {{carol@example.com: 2099-12-31T18:00:00Z}}")).await;
    let carol: Value = serde_json::from_str(&real.types("get user carol@example.com -o json").await).unwrap();
    assert_eq!(ends, json!({carol["id"].as_str().unwrap(): "2099-12-31T18:00:00Z"}));
    assert_eq!(apply(users).await, Value::Null);
}

#[tokio::test]
async fn roles_passwords_and_logins_of_users() {
    let real = real().await;
    let user = "kind: User\nspec: {name: Bob, email: bob@example.com, password: {fromEnv: BOB}}\n";
    let file = real.person.file("bob.yaml", user);
    real.person
        .run_with(&["cloud", "apply", "-f", &file], &[BOB])
        .await
        .well();
    let said = real.types("set-role bob@example.com admin").await;
    assert_eq!(said, "bob@example.com now has the role admin\n");
    let users = real.types("get users -o json").await;
    assert!(users.contains("\"admin\""), "{users}");
    let set = "set-role bob@example.com admin --expires-at";
    let said = real.types(&format!("{set} 2099-12-31T18:00:00Z")).await;
    assert_eq!(
        said,
        "bob@example.com now has the role admin until 2099-12-31T18:00:00Z\n"
    );
    let users = real.types("get users -o wide").await;
    assert!(
        users.contains("ROLE EXPIRES AT") && users.contains("2099-12-31T18:00:00Z"),
        "{users}"
    );
    let soon = after(SignedDuration::from_hours(60));
    real.types(&format!("{set} {soon}")).await;
    let users = real.types("get users").await;
    assert!(users.contains("in 2d") && users.contains("(soon)"), "{users}");
    let said = real.types(&format!("{set} never")).await;
    assert_eq!(said, "bob@example.com now has the role admin\n");
    ends_of_a_team(&real).await;
    let wrong = ["cloud", "set-role", "bob@example.com", "superadmin"];
    let wrong = real.person.run(&wrong).await;
    assert!(
        wrong.code == 2 && wrong.err.contains("read_only, member, admin or owner"),
        "{}",
        wrong.err
    );
    real.refused("set-role eve@example.com admin", &["no User \"eve@example.com\""])
        .await;

    real.types("set-password bob@example.com").await;
    let login = format!("login --server {} --context bob bob@example.com", real.url);
    let login: Vec<&str> = ["cloud"].into_iter().chain(login.split(' ')).collect();
    let (old, account) = ([(ACCOUNT, BOB.1)], (ACCOUNT, NEW.1));
    real.person.run_with(&login, &old).await.refused(1, &["401"]);
    real.person.run_with(&login, &[account]).await.well();
    let same = login
        .iter()
        .map(|word| word.replace("bob@", "Bob@"))
        .collect::<Vec<_>>();
    let same: Vec<&str> = same.iter().map(String::as_str).collect();
    for spelled in [&same, &login] {
        real.person.run_with(spelled, &[account]).await.well();
    }
    // Nobody takes the place of a login by an oversight.
    let other = format!("login --server {} --context bob eve@example.com", real.url);
    real.refused(
        &other,
        &[
            "bob has the login of bob@example.com",
            "--context",
            "logout --context bob",
        ],
    )
    .await;
    // A password of an account is never taken for a new one. Bob's own needs the one before.
    let bob = ["cloud", "set-password", "bob@example.com"];
    let without = real.person.run_with(&bob, &[account]).await;
    without.refused(1, &["--password-file", NEW.0]);
    let without = real.person.run_open(&["cloud", "set-password"], &[NEW]).await;
    without.refused(1, &["no password", "--old-password-file", ACCOUNT]);
    let last = (NEW.0, "hunter2-the-third");
    let set = real.person.run_with(&["cloud", "set-password"], &[account, last]).await;
    assert_eq!(set.well(), "your password is set\n");
    let file = real.person.file("old", NEW.1);
    let own = ["cloud", "set-password", "--old-password-file", &file];
    let again = real.person.run_with(&own, &[last]).await;
    assert!(
        again.code == 1 && again.err.contains("is not your current password"),
        "{}",
        again.err
    );
    real.types("whoami").await;
    real.types("context use 127.0.0.1").await;
    real.types("end-logins bob@example.com").await;
    let ended = real.person.run(&["cloud", "whoami", "--context", "bob"]).await;
    ended.refused(1, &["401", "run tidewaiter cloud login --context bob"]);
    let out = real.person.run(&["cloud", "logout", "--context", "bob"]).await.well();
    assert_eq!(out, "logged out of bob\n");
}

/// Tokens that are limited to kinds, clusters and reading, and those of a service account.
async fn service_accounts_and_scopes(real: &Real) {
    let organization = format!(
        "/v3/organizations/{}",
        real.cluster["organization_id"].as_str().unwrap()
    );
    let of = |list: &str| format!("{organization}/{list}");
    let made = real.types("tokens create viewer --kind registry --read-only").await;
    let token = field(&made, "token");
    assert_eq!(real.status(&token, &of("registries")).await, 200);
    assert_eq!(real.status(&token, &of("roles")).await, 403);
    real.types("tokens create deployer --cluster production").await;
    let listed = real.types("tokens list").await;
    for words in ["SCOPE", "read registries", "clusters: 1"] {
        assert!(listed.contains(words), "{words} in {listed}");
    }
    real.types("create service-account --name robot --role admin").await;
    let mine = "tokens create ci --service-account robot --days 365";
    let token = field(&real.types(mine).await, "token");
    assert_eq!(real.status(&token, &of("roles")).await, 200);
    let listed = real.types("tokens list --service-account robot").await;
    assert!(listed.contains("ci") && !listed.contains("viewer"), "{listed}");
    real.types("tokens revoke ci --service-account robot --yes").await;
    assert_eq!(real.status(&token, &of("roles")).await, 401);
    let token = field(&real.types(mine).await, "token");
    real.types("delete service-account robot --yes").await;
    assert_eq!(real.status(&token, &of("roles")).await, 401);
}

/// Nobody sees a token, key or link that is written to a full disk, or to a pipe without a reader.
async fn what_cannot_be_printed_is_withdrawn(real: &Real) {
    for (create, list) in [
        ("tokens create unseen", "tokens list -o json"),
        ("api-keys create", "api-keys list -o json"),
        ("invite unseen@example.com --role member", "invitations list -o json"),
    ] {
        let before = real.types(list).await;
        let words: Vec<&str> = ["cloud"].into_iter().chain(create.split(' ')).collect();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        for out in [Stdio::from(full), Stdio::from(closed)] {
            let mut command = real.person.command(&words);
            let child = command.stdout(out).stderr(Stdio::piped()).spawn().unwrap();
            let ended = child.wait_with_output().await.unwrap();
            let error = String::from_utf8(ended.stderr).unwrap();
            assert!(
                ended.status.code() == Some(1) && error.contains("it is withdrawn"),
                "{create}: {error}"
            );
        }
        assert_eq!(real.types(list).await, before, "{create}");
    }
}

#[tokio::test]
async fn tokens_and_keys_are_shown_once_and_revoked() {
    let real = real().await;
    let token = field(&real.types("tokens create ci --days 2").await, "token");
    assert_eq!(real.status(&token, "/v3/account").await, 200);
    let listed = real.types("tokens list").await;
    assert!(listed.contains("ci") && !listed.contains(&token), "{listed}");
    real.refused("tokens revoke ci", &["no terminal to confirm", "--yes"])
        .await;
    assert_eq!(real.status(&token, "/v3/account").await, 200, "nothing was revoked");
    real.types("tokens revoke ci --yes").await;
    assert_eq!(real.status(&token, "/v3/account").await, 401);
    real.refused("tokens revoke ci", &["no token \"ci\""]).await;
    service_accounts_and_scopes(&real).await;
    what_cannot_be_printed_is_withdrawn(&real).await;

    let cluster = format!(
        "/v3/organizations/{}/clusters/{}",
        real.cluster["organization_id"].as_str().unwrap(),
        real.cluster["id"].as_str().unwrap()
    );
    let made = real.types("api-keys create").await;
    let (new, old) = (field(&made, "api_key"), real.cluster["api_key"].as_str().unwrap());
    let listed: Vec<Value> = serde_json::from_str(&real.types("api-keys list -o json").await).unwrap();
    assert_eq!(listed.len(), 2);
    for key in [&*new, old] {
        assert_eq!(real.status(key, &cluster).await, 200);
    }
    let first = listed.iter().find(|key| key["id"] != field(&made, "id")).unwrap();
    let delete = format!("api-keys delete {}", first["id"].as_str().unwrap());
    real.refused(&delete, &["no terminal to confirm", "--yes"]).await;
    assert_eq!(real.status(old, &cluster).await, 200, "nothing was deleted");
    let unknown = real.cluster["id"].as_str().unwrap();
    real.refused(
        &format!("api-keys delete {unknown} --yes"),
        &["no API key", unknown, "api-keys list"],
    )
    .await;
    let pasted = "twk_0123456789abcdef_the-text-of-a-key";
    real.refused(
        &format!("api-keys delete {pasted} --yes"),
        &["the cluster has no API key of this text"],
    )
    .await;
    let said = real.types(&format!("{delete} --yes")).await;
    assert!(!said.contains("none left"), "{said}");
    assert_eq!(
        (real.status(&new, &cluster).await, real.status(old, &cluster).await),
        (200, 401)
    );
    let last = format!("api-keys delete {} --yes", field(&made, "id"));
    let said = real.types(&last).await;
    assert!(said.contains("the cluster has none left"), "{said}");
    assert_eq!(real.status(&new, &cluster).await, 401);
}

#[tokio::test]
async fn policies_scripts_and_locks() {
    let real = real().await;
    let person = &real.person;
    let file = person.file("policy.yaml", POLICY);
    person.run(&["cloud", "apply", "-f", &file]).await.well();
    let assigned = async |verb| {
        let words = ["cloud", verb, "By CPU", "--node-pool", "workers"];
        person.run(&words).await.well()
    };
    let pools: Value = serde_json::from_str(&real.types("get node-pools -o json").await).unwrap();
    let cluster = format!(
        "/v3/organizations/{}/clusters/{}",
        real.cluster["organization_id"].as_str().unwrap(),
        real.cluster["id"].as_str().unwrap()
    );
    let policies = async || {
        let path = format!(
            "{cluster}/node-pools/{}/autoscaling-policies",
            pools[0]["id"].as_str().unwrap()
        );
        let request = reqwest::Client::new().get(format!("{}{path}", real.url));
        let key = real.cluster["api_key"].as_str().unwrap();
        let sent = request.bearer_auth(key).send().await.unwrap();
        sent.text().await.unwrap().matches("By CPU").count()
    };
    assert_eq!(assigned("assign").await, "By CPU is assigned to workers\n");
    assert_eq!(policies().await, 1);
    assigned("unassign").await;
    assert_eq!(policies().await, 0);
    let without = person.run(&["cloud", "assign", "By CPU"]).await;
    without.refused(1, &["--node-pool"]);

    let upgrade = "{type: kubernetes, targetVersion: v1.30.1, labelSelector: [], nodeTimeoutSeconds: 900, policy: {paused: true}}";
    let file = person.file("upgrade.yaml", upgrade);
    let made = person.run(&["cloud", "create", "upgrade", "-f", &file]).await.well();
    let node = person.file("node.yaml", "name: node-1\n");
    let node = ["cloud", "create", "node", "-f", &node, "--node-pool", "workers"];
    let node = field(&person.run(&node).await.well(), "id");
    for words in [&["cloud", "get", "nodes"][..], &["cloud", "get", "node", "node-1"]] {
        let found = person.run(words).await.well();
        assert!(found.contains("node-1"), "{found}");
    }
    // It is found in the whole cluster, but changed in its pool alone: that is said before an editor opens.
    for words in [
        &["cloud", "delete", "node", "node-1", "--yes"][..],
        &["cloud", "edit", "node", "node-1"],
    ] {
        person
            .run(words)
            .await
            .refused(1, &["in its node pool: use --node-pool NAME"]);
    }
    let script = person.file("script.sh", "#!/bin/sh\necho all\n");
    let id = field(&made, "id");
    let set = person.run(&["cloud", "set-script", &id, "-f", &script]).await.well();
    let lines: Vec<&str> = set.lines().collect();
    assert_eq!(
        lines[0],
        format!("the script of Upgrade {id} is set for all nodes that have none of their own")
    );
    // The missing parts, and the next step.
    assert!(
        lines[1].contains("no signature") && lines[1].contains("sign-script"),
        "{set}"
    );
    assert!(lines[2].ends_with(&format!("resume-upgrade {id}")), "{set}");
    let script = person.file("script.sh", "#!/bin/sh\necho one\n");
    let set = ["cloud", "set-script", &id, "-f", &script, "--node", "node-1"];
    let set = person.run(&set).await.well();
    assert!(set.contains("is set for the node node-1\n"), "{set}");
    real.refused(
        &format!("set-script {node} -f {script}"),
        &["the cluster has no Upgrade", "get upgrades"],
    )
    .await;
    let path = format!("{}{cluster}/nodes/{node}/upgrade/kubernetes?version=1.30.1", real.url);
    let asked = reqwest::Client::new()
        .get(path)
        .bearer_auth(real.cluster["api_key"].as_str().unwrap());
    assert_eq!(
        asked.send().await.unwrap().text().await.unwrap(),
        "#!/bin/sh\necho one\n"
    );

    script_templates(&real, &id, &node).await;
    progress_and_policy(&real, &id).await;

    assert_eq!(real.types("lock").await, "acme is locked\n");
    real.refused("delete node-pool workers --yes", &["locked"]).await;
    assert_eq!(real.types("unlock").await, "acme is unlocked\n");
    real.types("delete node-pool workers --yes").await;
}

impl Real {
    /// Returns the cloud's response to the cluster; `~` is its path.
    async fn as_cluster(&self, method: reqwest::Method, path: &str, body: Value) -> String {
        let [organization, cluster] = ["organization_id", "id"].map(|field| self.cluster[field].as_str().unwrap());
        let path = path.replace('~', &format!("/v3/organizations/{organization}/clusters/{cluster}"));
        let request = reqwest::Client::new().request(method, format!("{}{path}", self.url));
        let request = request.bearer_auth(self.cluster["api_key"].as_str().unwrap());
        let answer = if body.is_null() { request } else { request.json(&body) };
        let answer = answer.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {answer:?}");
        answer.text().await.unwrap()
    }
}

/// A template is set, listed, read and deleted.
async fn script_templates(real: &Real, upgrade: &str, node: &str) {
    let person = &real.person;
    let text = "#!/bin/sh\necho template\n";
    let script = person.file("template.sh", text);
    for (flags, said) in [
        (&["--all-clusters"][..], "all clusters for any version"),
        (&["--target-version", "v1.30.1"][..], "the cluster for v1.30.1"),
    ] {
        let set = [&["cloud", "script-templates", "set", "-f", &script][..], flags].concat();
        let set = person.run(&set).await.well();
        let (done, next) = set.split_once('\n').unwrap();
        assert_eq!(done, format!("the script template of {said} is set"));
        assert!(next.contains("scriptKeys"), "{set}");
    }
    let listed = real.types("script-templates list").await;
    assert!(listed.contains("any") && listed.contains("v1.30.1"), "{listed}");
    assert_eq!(real.types("script-templates get --target-version v1.30.1").await, text);
    let delete = "script-templates delete --target-version v1.30.1";
    real.refused(delete, &["no terminal to confirm", "--yes"]).await;
    assert_eq!(real.types("script-templates get --target-version v1.30.1").await, text);
    let deleted = real.types(&format!("{delete} --yes")).await;
    assert_eq!(deleted, "deleted the script template of the cluster for v1.30.1\n");
    for command in ["get", "delete --yes"] {
        real.refused(
            &format!("script-templates {command} --target-version v1.30.1"),
            &["no script template of the cluster for v1.30.1", "script-templates list"],
        )
        .await;
    }
    // A script of the upgrade itself comes first.
    let path = format!("~/nodes/{node}/upgrade/kubernetes?version=1.30.1");
    let served = real.as_cluster(reqwest::Method::GET, &path, Value::Null).await;
    assert_eq!(served, "#!/bin/sh\necho one\n", "{upgrade}");
}

/// The reports of a cluster are shown, and the policy is changed.
async fn progress_and_policy(real: &Real, upgrade: &str) {
    let progress = json!({"status": {"clusterStatus": "InProgress", "nodeStatuses": {"node-1": "Success", "node-2": "InProgress"},
        "currentNode": "node-2", "nodes": 5, "done": 3, "failed": 1, "message": "upgrading node-2"}});
    real.as_cluster(reqwest::Method::PUT, &format!("~/upgrades/{upgrade}/status"), progress)
        .await;
    let table = real.types("get upgrades").await;
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().skip(1).collect();
    assert_eq!(row[..6], ["v1.30.1", "InProgress", "5", "3", "1", "node-2"], "{table}");
    let described = real.types(&format!("describe upgrade {upgrade}")).await;
    for line in [
        "node-1: Success",
        "currentNode: node-2",
        "message: upgrading node-2",
        "failed: 1",
    ] {
        assert!(described.contains(line), "{described}");
    }
    for (command, said, policy) in [
        ("pause-upgrade", "is paused", json!({"paused": true})),
        ("resume-upgrade", "is no longer paused", Value::Null),
        (
            "resume-upgrade",
            &format!("is not paused here; tidewaiter cloud describe upgrade {upgrade} shows what it waits for"),
            Value::Null,
        ),
        ("abort-upgrade", "is aborted", json!({"aborted": true})),
    ] {
        let done = real.types(&format!("{command} {upgrade}")).await;
        assert_eq!(done, format!("Upgrade {upgrade} {said}\n"));
        let shown = real.types(&format!("get upgrade {upgrade} -o json")).await;
        let shown: Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["policy"], policy);
    }
    is_over(real, upgrade).await;
    let file = real.person.file(
        "refused.yaml",
        "{type: kubernetes, targetVersion: v1.30.1, nodeTimeoutSeconds: 900, policy: {canary: 0}}",
    );
    let refused = real.person.run(&["cloud", "create", "upgrade", "-f", &file]).await;
    refused.refused(1, &["policy.canary", "the number 0", "from 1"]);
}

/// An upgrade that is over is not changed: the message says how it ended, and what one can do.
async fn is_over(real: &Real, upgrade: &str) {
    let shown = async || real.types(&format!("get upgrade {upgrade} -o json")).await;
    let message = "2 nodes failed; no other selected node is left to upgrade";
    for (status, words) in [
        (
            json!({"clusterStatus": "Failed", "nodeStatuses": {"node-1": "Success", "node-2": "Failed", "node-3": "Failed"},
                "currentNode": null, "message": message}),
            &[
                "it has failed",
                message,
                "failed: node-2, node-3",
                "create upgrade",
                "describe upgrade",
            ][..],
        ),
        (
            json!({"clusterStatus": "Failed", "nodeStatuses": {}, "currentNode": null}),
            &["it has failed. To retry", "create upgrade"],
        ),
        (
            json!({"clusterStatus": "Success", "nodeStatuses": {"node-1": "Success"}, "currentNode": null}),
            &["it has succeeded", "another version", "create upgrade"],
        ),
    ] {
        let path = format!("~/upgrades/{upgrade}/status");
        real.as_cluster(reqwest::Method::PUT, &path, json!({ "status": status }))
            .await;
        let before = shown().await;
        for (command, word) in [("pause", "paused"), ("resume", "resumed"), ("abort", "aborted")] {
            let over = format!("Upgrade {upgrade} is over and cannot be {word}");
            real.refused(&format!("{command}-upgrade {upgrade}"), &[&[&*over], words].concat())
                .await;
        }
        assert_eq!(shown().await, before);
    }
    let script = real.person.file("late.sh", "#!/bin/sh\necho late\n");
    let set = real.types(&format!("set-script {upgrade} -f {script}")).await;
    assert!(set.contains("the upgrade is over"), "{set}");
}

#[tokio::test]
async fn versions_of_plugins() {
    let real = real().await;
    let person = &real.person;
    let objects = "apiVersion: v1\nkind: Namespace\nmetadata: {name: logs}\n";
    let file = person.file("objects.yaml", objects);
    let add = ["cloud", "catalogue", "add", "logs", "fluentd", "1.0.0", "-f", &file];
    person.run(&add).await.well();
    person.run(&add).await.well();
    let listed = real.types("catalogue list -o name").await;
    assert_eq!(listed, "PluginVersion/logs/fluentd/1.0.0\n");
    // Other manifests only on demand.
    person.file("objects.yaml", &objects.replace("{name: logs}", "{name: other}"));
    let definition = person.file("definition.yaml", "disabled: true\n");
    let disable = [&add[..], &["--definition", &definition]].concat();
    person.run(&disable).await.refused(
        1,
        &[
            "the catalogue has logs fluentd 1.0.0 already",
            "another version",
            "--replace",
        ],
    );
    // Nor is its definition changed then.
    let listed = real.types("catalogue list").await;
    assert!(listed.contains("false") && !listed.contains("true"), "{listed}");
    person.run(&[&disable[..], &["--replace"]].concat()).await.well();
    assert!(real.types("catalogue list").await.contains("true"));
    // A list is its items, and what the API server adds is left out: these are the same manifests.
    let applied = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}\nrules: []\n---\n\
                   {apiVersion: v1, kind: Pod, metadata: {name: b, generation: 1}, status: {}, spec: {mode: 256}}\n";
    let exported = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: rbac.authorization.k8s.io/v1\n  kind: RoleList\n  items:\n  \
                    - metadata: {name: a, uid: x, resourceVersion: '7', managedFields: [], creationTimestamp: null}\n    status: {}\n    \
                    rules: []\n- {apiVersion: v1, kind: Pod, metadata: {name: b, generation: 1}, status: {}, spec: {mode: 0400}}\n";
    let grouped = format!("manifests:\n- - {}\n", exported.trim_end().replace('\n', "\n    "));
    for text in [applied, exported, &grouped] {
        let file = person.file("list.yaml", text);
        person
            .run(&["cloud", "catalogue", "add", "logs", "fluentd", "2.0.0", "-f", &file])
            .await
            .well();
    }
    real.types("catalogue remove logs fluentd 2.0.0 --yes").await;
    for wrong in ["kind: [", "- 1\n", "name: a\n", ""] {
        person.file("objects.yaml", wrong);
        person.run(&add).await.refused(1, &["objects.yaml"]);
    }
    let remove = "catalogue remove logs fluentd 1.0.0";
    real.refused(remove, &["no terminal to confirm", "--yes"]).await;
    assert_ne!(real.types("catalogue list -o name").await, "");
    real.types(&format!("{remove} --yes")).await;
    assert_eq!(real.types("catalogue list -o name").await, "");
}
