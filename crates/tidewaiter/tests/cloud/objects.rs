//! One object, or a list.

use std::fs;
use std::path::PathBuf;

use http::StatusCode;
use serde_json::{Value, json};
use tidewaiter_cloud::models::Kind;

use crate::world::{ALICE, API_KEY, CLUSTER, ORGANIZATION, Person, of_cluster, of_organization};

const REGISTRY: &str = "44444444-4444-4444-8444-444444444444";

fn registry() -> Value {
    json!({"id": REGISTRY, "serveraddress": "quay.io", "provider": "quay", "description": "pulls\u{1b}[2J",
        "credentials": {"username": "hunter2-user", "password": "hunter2"}})
}

#[tokio::test]
async fn lists_are_printed_for_people_and_programs_without_secrets() {
    let person = Person::logged_in().await;
    person.cloud.put(&of_organization("registries"), vec![registry()]);
    let out = person.run(&["cloud", "get", "registries"]).await.well();
    assert!(
        out.starts_with("SERVERADDRESS") && out.contains("quay.io") && out.contains("pulls\\u{1b}[2J"),
        "{out}"
    );
    assert!(!out.contains(REGISTRY), "{out}");
    let out = person.run(&["cloud", "get", "registries", "-o", "wide"]).await.well();
    assert!(out.contains("ID\n") && out.contains(REGISTRY), "{out}");
    let template = "jsonpath={[*].serveraddress} {[0].credentials}";
    let out = person.run(&["cloud", "get", "registries", "-o", template]).await.well();
    assert_eq!(out, "quay.io ");
    let refused = person.run(&["cloud", "get", "registries", "-o", "jsonpath={.a"]).await;
    assert!(
        refused.code == 2 && refused.err.contains("a { has no }"),
        "{}",
        refused.err
    );
    let past = person
        .run(&["cloud", "get", "registries", "-o", "jsonpath={.items[1].id}"])
        .await;
    past.refused(1, &["array index out of bounds: index 1, length 1"]);
    let out = person.run(&["cloud", "get", "registry", "-o", "name"]).await.well();
    assert_eq!(out, format!("Registry/{REGISTRY}\n"));
    let json: Value =
        serde_json::from_str(&person.run(&["cloud", "get", "registries", "-o", "json"]).await.well()).unwrap();
    assert_eq!(json[0]["serveraddress"], "quay.io");
    assert_eq!(json[0].get("credentials"), None);
    let out = person
        .run(&["cloud", "get", "registries", "quay.io", "-o", "yaml"])
        .await
        .well();
    assert!(out.contains("provider: quay"), "{out}");
    let open = person
        .run_open(
            &["cloud", "get", "registries", "quay.io", "-o", "json", "--show-secrets"],
            &[],
        )
        .await
        .well();
    assert!(open.contains("hunter2-user"), "{open}");
    person
        .run(&["cloud", "get", "registries", "gcr.io"])
        .await
        .refused(1, &["no Registry \"gcr.io\""]);
}

#[tokio::test]
async fn a_flag_for_a_parent_that_a_kind_does_not_have_is_refused() {
    let person = Person::logged_in().await;
    for (words, flag) in [
        ("get registries --cluster production", "--cluster"),
        ("get node-pools --node-pool workers", "--node-pool"),
        ("describe registry quay.io --user alice@example.com", "--user"),
        (
            &format!("get organizations --organization {ORGANIZATION}"),
            "--organization",
        ),
    ] {
        let words: Vec<&str> = ["cloud"].into_iter().chain(words.split(' ')).collect();
        let said = format!("{flag} has no meaning for ");
        person.run(&words).await.refused(1, &[&said, "omit it"]);
    }
    assert!(person.cloud.seen().is_empty());
    let users = ["cloud", "get", "users", "--organization", ORGANIZATION];
    person.run(&users).await.well();
}

#[tokio::test]
async fn what_is_no_kind_and_has_a_command_is_named() {
    let person = Person::logged_in().await;
    for (word, command) in [
        ("tokens", "tokens list"),
        ("operator", "operators list"),
        ("api-keys", "api-keys list"),
    ] {
        let said = format!("there is no kind {word:?}; use tidewaiter cloud {command}");
        let ran = person.run(&["cloud", "get", word]).await;
        assert!(ran.code == 2 && ran.err.contains(&said), "{}", ran.err);
    }
}

#[tokio::test]
async fn a_kind_has_the_names_of_the_page_and_an_unknown_one_lists_all() {
    let person = Person::logged_in().await;
    for name in ["registries", "registry", "Registry", "REGISTRIES"] {
        person.run(&["cloud", "get", name]).await.well();
        let seen = person.cloud.seen();
        assert!(
            seen.len() == 1 && seen[0].line.ends_with("/registries"),
            "{name}: {seen:?}"
        );
    }
    let ran = person.run(&["cloud", "get", "registrys"]).await;
    assert_eq!(ran.code, 2, "{}", ran.err);
    let first = ran.err.lines().next().unwrap();
    assert!(
        first.contains("no kind \"registrys\"") && first.contains("did you mean registries?"),
        "{first}"
    );
    let help = person.run(&["cloud", "get", "--help"]).await.well();
    for kind in Kind::resources() {
        // One kind a line, with its other names.
        let mut lines = ran.err.lines();
        let line = lines.find(|line| line.split_whitespace().next() == Some(kind.word()));
        let line = line.unwrap_or_else(|| panic!("no {} in {}", kind.word(), ran.err));
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for other in kind.facts().aliases.iter().chain(&[kind.name()]) {
            let other = other.to_lowercase();
            assert!(line.to_lowercase().contains(&other), "{other} in {line}");
            assert!(help.to_lowercase().contains(&other), "{other} in {help}");
        }
    }
    assert!(!ran.err.contains("possible values"), "{}", ran.err);
}

#[tokio::test]
async fn a_cluster_is_described_with_what_is_in_it() {
    let person = Person::logged_in().await;
    person.cloud.put(
        &of_cluster("labels"),
        vec![json!({"id": ALICE, "key": "cluster.containership.io/zone", "value": "a"})],
    );
    let out = person.run(&["cloud", "describe", "cluster", "production"]).await.well();
    for word in ["name: production", "LABELS", "zone"] {
        assert!(out.contains(word), "{word} in {out}");
    }
}

#[tokio::test]
async fn a_cluster_is_attached_and_its_key_is_printed_once() {
    let person = Person::logged_in().await;
    let file = person.file("cluster.yaml", "name: staging\n");
    let out = person
        .run_open(&["cloud", "create", "cluster", "-f", &file], &[])
        .await
        .well();
    assert!(out.contains(API_KEY) && out.contains("name: staging"), "{out}");
    let file = person.file("cluster.yaml", "nam: staging\n");
    person
        .run(&["cloud", "create", "cluster", "-f", &file])
        .await
        .refused(1, &["cluster.yaml", "nam", "name"]);
    let file = person.file("node.yaml", "name: node-1\n");
    person
        .run(&["cloud", "create", "node", "-f", &file])
        .await
        .refused(1, &["--node-pool"]);
}

#[tokio::test]
async fn flags_take_the_place_of_a_file() {
    let person = Person::logged_in().await;
    let password = person.file("new", "hunter2-bobs-password\n");
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
    let public = person.file("key.pub", &format!("{key}\n"));
    for (words, list, fields) in [
        (
            &[
                "user",
                "--name",
                "Bob",
                "--email",
                "bob@example.com",
                "--role",
                "member",
                "--password-file",
                &password,
            ][..],
            "/users",
            json!({"name": "Bob", "email": "bob@example.com", "role": "member", "password": "hunter2-bobs-password"}),
        ),
        (
            &["ssh-key", "--name", "laptop", "--key-file", &public],
            "/v3/account/ssh_keys",
            json!({"name": "laptop", "key": key}),
        ),
        (
            &["team", "--name", "developers", "--member", "alice@example.com"],
            "/teams",
            json!({"name": "developers", "user_ids": [ALICE]}),
        ),
        (
            &["organization", "--name", "labs"],
            "/organizations",
            json!({"name": "labs"}),
        ),
        (
            &[
                "registry",
                "--address",
                "quay.io",
                "--provider",
                "quay",
                "--username",
                "u",
                "--password-file",
                &password,
            ],
            "/registries",
            json!({"serveraddress": "quay.io", "provider": "quay",
                "credentials": {"username": "u", "password": "hunter2-bobs-password"}}),
        ),
    ] {
        person.run(&[&["cloud", "create"][..], words].concat()).await.well();
        let writes = person.cloud.writes();
        assert!(writes.len() == 1 && writes[0].line.ends_with(list), "{writes:?}");
        for (field, value) in fields.as_object().unwrap() {
            assert_eq!(&writes[0].body[field], value, "{field}");
        }
    }
    for (words, said) in [
        ("team --email a@example.com", "--email has no meaning for teams"),
        ("role --name a", "--name has no meaning for roles"),
        ("user --email a@example.com", "the flags: spec: name"),
        ("user", "no fields are given: use -f FILE"),
        (&format!("team --name a -f {password}"), "use either"),
        ("team --name a --start", "--start has no meaning for teams"),
    ] {
        let words: Vec<&str> = ["cloud", "create"].into_iter().chain(words.split(' ')).collect();
        person.run(&words).await.refused(1, &[said]);
    }
    assert!(person.cloud.writes().is_empty());
}

#[tokio::test]
async fn an_upgrade_is_created_paused_unless_it_is_to_start() {
    let person = Person::logged_in().await;
    for (policy, flags, expected) in [
        ("", &["--start"][..], Value::Null),
        ("", &[], json!({"paused": true})),
        (", policy: {canary: 1}", &[], json!({"canary": 1, "paused": true})),
    ] {
        let text = format!("{{type: kubernetes, targetVersion: v1.36.3, nodeTimeoutSeconds: 900{policy}}}");
        let file = person.file("upgrade.yaml", &text);
        let create = ["cloud", "create", "upgrade", "-f", &file];
        let ran = person.run(&[&create[..], flags].concat()).await;
        let says_how = ran
            .err
            .contains("begin it with tidewaiter cloud resume-upgrade aaaaaaaa-");
        assert_eq!(says_how, flags.is_empty(), "{}", ran.err);
        ran.well();
        let writes = person.cloud.writes();
        assert_eq!((writes.len(), &writes[0].body["policy"]), (1, &expected));
    }
}

#[tokio::test]
async fn a_document_that_names_others_is_made_with_their_ids() {
    let person = Person::logged_in().await;
    person.cloud.put(
        &of_organization("roles"),
        vec![json!({"id": CLUSTER, "name": "viewer"})],
    );
    let text =
        "kind: RoleBinding\ncluster: production\nspec: {role: viewer, user: alice@example.com, namespace: dev}\n";
    let file = person.file("binding.yaml", text);
    person
        .run(&["cloud", "create", "role-binding", "-f", &file])
        .await
        .well();
    let body = person.cloud.writes()[0].body.clone();
    assert_eq!(
        (&body["user_id"], &body["authorization_role_id"], &body["cluster_id"]),
        (&json!(ALICE), &json!(CLUSTER), &json!(CLUSTER))
    );
}

#[tokio::test]
async fn what_is_edited_is_sent_alone_with_the_version_that_it_was_made_from() {
    let person = Person::logged_in().await;
    person.cloud.put(&of_organization("registries"), vec![registry()]);
    let edit = ["cloud", "edit", "registry", "quay.io"];
    let editor = |script: &str| [("EDITOR", script.to_owned())];
    let with = async |script: &str| {
        let [(name, script)] = editor(script);
        person.run_with(&edit, &[(name, &script)]).await
    };
    assert_eq!(with("true").await.well(), "nothing was changed\n");
    assert!(person.cloud.writes().is_empty());
    // The editor sees no secret.
    with("! grep -q hunter2").await.well();
    with("sed -i 's/^provider: .*/provider: private/'").await.well();
    let writes = person.cloud.writes();
    assert_eq!(writes.len(), 1);
    assert!(
        writes[0].line.starts_with("PATCH ") && writes[0].if_match.is_some(),
        "{writes:?}"
    );
    assert_eq!(writes[0].body, json!({"provider": "private"}));
    assert_eq!(
        person.cloud.list(&of_organization("registries"))[0]["credentials"]["password"],
        "hunter2"
    );
    with("false")
        .await
        .refused(1, &["the editor false exited", "nothing was changed"]);
    assert!(person.cloud.writes().is_empty());
    let kept = || {
        let files = fs::read_dir(person.path("config/tidewaiter")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let edited = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("edit-");
        files.filter(edited).collect::<Vec<_>>()
    };
    for file in kept() {
        fs::remove_file(file).unwrap();
    }
    with("true").await.well();
    assert_eq!(kept().len(), 0, "what was edited is gone");
    // A text that cannot be used is kept, and the message names the file.
    with("echo '[' >")
        .await
        .refused(1, &["is not a YAML mapping", "what you typed is in"]);
    assert!(person.cloud.writes().is_empty());
    person.cloud.refuse("PATCH", StatusCode::PRECONDITION_FAILED);
    with("sed -i 's/^provider: .*/provider: azure/'")
        .await
        .refused(1, &["was rejected", "what you typed is in"]);
    let texts = kept().into_iter().map(|file| fs::read_to_string(file).unwrap());
    assert!(texts.filter(|text| text.contains("provider: azure")).count() == 1);
}

#[tokio::test]
async fn a_deletion_is_asked_for_and_is_of_the_version_that_was_seen() {
    let person = Person::logged_in().await;
    person.cloud.put(&of_organization("registries"), vec![registry()]);
    let delete = ["cloud", "delete", "registry", "quay.io"];
    person
        .run(&delete)
        .await
        .refused(1, &["no terminal to confirm", "--yes"]);
    assert!(person.cloud.writes().is_empty());
    person.run(&[&delete[..], &["--yes"]].concat()).await.well();
    let writes = person.cloud.writes();
    assert!(writes.len() == 1 && writes[0].if_match.is_some(), "{writes:?}");
    assert!(person.cloud.list(&of_organization("registries")).is_empty());
}

#[tokio::test]
async fn ssh_keys_are_ones_own_unless_a_user_is_named() {
    let person = Person::logged_in().await;
    person.run(&["cloud", "get", "ssh-keys"]).await.well();
    person
        .run(&["cloud", "get", "ssh-keys", "--user", "Alice@example.com"])
        .await
        .well();
    let lines: Vec<String> = person.cloud.seen().into_iter().map(|seen| seen.line).collect();
    assert!(lines.contains(&"GET /v3/account/ssh_keys".to_owned()), "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with(&format!("/users/{ALICE}/ssh_keys"))),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_table_has_names_and_ages_and_a_wide_one_ids_and_times() {
    let person = Person::logged_in().await;
    let [role, team] = [REGISTRY, "55555555-5555-4555-8555-555555555555"];
    person
        .cloud
        .put(&of_organization("roles"), vec![json!({"id": role, "name": "viewer"})]);
    let binding = |subject: &str, id: &str| {
        let mut binding = json!({"id": role, "created_at": "1767225600000", "authorization_role_id": role,
            "user_id": null, "team_id": null, "cluster_id": CLUSTER, "namespace": "dev"});
        binding[subject] = id.into();
        binding
    };
    let bindings = vec![binding("user_id", ALICE), binding("team_id", team)];
    person.cloud.put(&of_organization("role-bindings"), bindings);
    let get = ["cloud", "get", "role-bindings"];
    let out = person.run(&get).await.well();
    let lines: Vec<&str> = out.lines().collect();
    let header: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(
        header,
        ["TYPE", "ROLE", "USER", "TEAM", "CLUSTER", "NAMESPACE", "EXPIRES", "AGE"]
    );
    for word in ["viewer", "alice@example.com", "production", "dev"] {
        assert!(lines[1].contains(word), "{word}: {out}");
    }
    // The cloud does not list the team.
    assert!(
        lines[2].contains(team) && !out.contains(CLUSTER) && !out.contains("2026-01-01"),
        "{out}"
    );
    let age = lines[1].split_whitespace().last().unwrap();
    assert!(age.ends_with(['d', 'h', 'y']), "{out}");

    let wide = person.run(&[&get[..], &["-o", "wide"]].concat()).await.well();
    for word in [
        &*format!("alice@example.com ({ALICE})"),
        "2026-01-01T00:00:00Z",
        "CREATED AT",
        "ID\n",
    ] {
        assert!(wide.contains(word), "{word}: {wide}");
    }
    // A user who may not list the others sees their ids.
    let users = format!("GET /v3/{}", of_organization("users"));
    person.cloud.refuse(&users, StatusCode::FORBIDDEN);
    let out = person.run(&get).await.well();
    assert!(out.contains(ALICE) && out.contains("viewer"), "{out}");
}

#[tokio::test]
async fn the_audit_is_listed_with_names() {
    let person = Person::logged_in().await;
    let row = |id: u32, actor: &str, action: &str, kind: &str, object: &str| {
        json!({"id": id, "at": "2026-01-01T00:00:00Z", "actor": actor, "action": action, "kind": kind,
            "object_id": object, "cluster_id": "", "before": null, "after": null})
    };
    let user = format!("user:{ALICE}");
    let mut deleted = row(7, &user, "delete", "roles", REGISTRY);
    deleted["before"] = json!({"name": "viewer"});
    let rows = vec![
        deleted,
        row(6, &user, "update", "roles", REGISTRY),
        row(5, &format!("cluster:{CLUSTER}"), "update", "clusters", CLUSTER),
        row(4, &user, "create", "memberships", &format!("{ORGANIZATION}.{ALICE}")),
        row(3, "system", "create", "tokens", "other"),
    ];
    person.cloud.put(&of_organization("audit"), rows);
    let out = person.run(&["cloud", "audit", "--limit", "5"]).await.well();
    let lines: Vec<Vec<&str>> = out
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(lines[0], ["AT", "BY", "ACTION", "KIND", "OBJECT"]);
    for (line, expected) in lines[1..].iter().zip([
        ["alice@example.com", "delete", "roles", "viewer"],
        ["alice@example.com", "update", "roles", "viewer"],
        ["cluster production", "update", "clusters", "production"],
        ["alice@example.com", "create", "memberships", "alice@example.com"],
        ["system", "create", "tokens", "other"],
    ]) {
        assert!(line[0].ends_with(" ago"), "{out}");
        assert_eq!(line[1..], expected, "{out}");
    }
    let wide = person.run(&["cloud", "audit", "-o", "wide"]).await.well();
    for word in ["2026-01-01T00:00:00Z", REGISTRY, ALICE, "ID\n", "7\n"] {
        assert!(wide.contains(word), "{word}: {wide}");
    }
    let json = person.run(&["cloud", "audit", "-o", "json"]).await.well();
    assert!(json.contains(&user) && !json.contains("alice@example.com"), "{json}");
}
