//! The reason for which each kind is refused, rule by rule: the field that is named, and the message.

use serde_json::{Value, json};
use tidewaiter_cloud::models::UpgradeScript;

use crate::kinds::{ID, KEY, OTHER_ID, OTHER_KEY, SECRET, named};
use crate::refusals::{assert_safe, refuse};

/// The kind, where a value is put, the value, the field that is named, and a part of what is said.
type Row = (&'static str, &'static str, Value, &'static str, &'static str);

fn check(rows: Vec<Row>) {
    for (name, pointer, value, field, part) in rows {
        let kind = named(name);
        let mut document = kind.example.clone();
        match document.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => document[pointer.trim_start_matches('/')] = value,
        }
        let error = refuse(&kind, &document);
        assert_eq!(error.field, field, "{name}{pointer}: {error}");
        assert!(error.reason.contains(part), "{name}{pointer}: {error}");
        assert_safe(&error);
    }
}

/// Rows of text, with the value as JSON: kind | place | value | field | part of the reason.
fn table(rows: &'static str) {
    let rows = rows.lines().map(str::trim).filter(|row| !row.is_empty()).map(|row| {
        let columns: Vec<&str> = row.split(" | ").collect();
        let [kind, pointer, value, field, part] = columns[..] else {
            panic!("{row}");
        };
        (kind, pointer, serde_json::from_str(value).unwrap(), field, part)
    });
    check(rows.collect());
}

#[test]
fn people_are_refused_for_these_reasons() {
    let user = named("user").example;
    let key = user["ssh_keys"][0].clone();
    let mut renamed = key.clone();
    renamed["id"] = json!(OTHER_ID);
    let mut other = key.clone();
    other["key"] = json!(OTHER_KEY);
    other["fingerprint"] = Value::Null;
    table(
        r#"
        service account | /role | "owner" | role | one of read_only, member, admin
        user | /id | "7" | id | a UUID of 36 characters
        user | /name | "" | name | 1 to 128
        user | /email | "alice" | email | alice@example.com
        user | /avatar_url | "javascript:alert(1)" | avatar_url | http or https
        user | /avatar_url | "https://me:hunter2@example.com/" | avatar_url | not shown
        user | /added_at | "yesterday" | added_at | RFC 3339
        user | /added_at | "2019-03-01 12:00:00Z" | added_at | RFC 3339
        user | /added_at | "2019-03-01T12:00:00" | added_at | RFC 3339
        user | /added_at | "2019-02-30T12:00:00Z" | added_at | RFC 3339
        user | /added_at | "2019-03-01T12:00:00Z[UTC]" | added_at | RFC 3339
        user | /expires_at | "tomorrow" | expires_at | whole seconds of UTC, for example 2027-01-31T18:00:00Z
        user | /expires_at | "" | expires_at | whole seconds of UTC
        user | /ssh_keys/0/expires_at | "2027-01-31T18:00:00.5Z" | ssh_keys[0].expires_at | whole seconds
        role binding | /expires_at | "2027-01-31T19:00:00+01:00" | expires_at | UTC
        team | /user_ends | {"9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e": ""} | user_ends.9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e | UTC
        team | /user_ends | {"alice": "2027-01-31T18:00:00Z"} | user_ends.alice | a UUID of 36 characters
        user | /ssh_keys/0/key | "-----BEGIN OPENSSH PRIVATE KEY-----hunter2" | ssh_keys[0].key | .pub
        account | /phone | "call me" | phone | +1 555 0100
        failure | /code | 200 | code | from 400 to 599
        "#,
    );
    check(vec![
        (
            "user",
            "/ssh_keys/0/key",
            json!(format!("command=\"sh\" {KEY}")),
            "ssh_keys[0].key",
            "without options",
        ),
        (
            "user",
            "/ssh_keys/0/key",
            json!(format!("{KEY}\n{KEY}")),
            "ssh_keys[0].key",
            "one line",
        ),
        (
            "user",
            "/ssh_keys/0/key",
            json!(OTHER_KEY),
            "ssh_keys[0].fingerprint",
            "does not match the key",
        ),
        ("user", "/ssh_keys/0/user_id", json!(ID), "ssh_keys", "another user"),
        ("user", "/ssh_keys", json!([key, key]), "ssh_keys[1]", "twice"),
        ("user", "/ssh_keys", json!([key, renamed]), "ssh_keys[1]", "twice"),
        ("user", "/ssh_keys", json!([key, other]), "ssh_keys[1]", "twice"),
        (
            "user",
            "/ssh_keys",
            json!(vec![key.clone(); 1001]),
            "ssh_keys",
            "at most 1000",
        ),
        (
            "team",
            "/user_ids",
            json!([ID, ID.to_uppercase()]),
            "user_ids[1]",
            "twice",
        ),
    ]);
}

#[test]
fn registries_are_refused_for_these_reasons() {
    table(
        r#"
        registry | /provider | "hunter" | provider | one of amazon_ec2_registry, google_registry, azure
        registry | /serveraddress | "user:hunter2@quay.io" | serveraddress | without user
        registry | /serveraddress | "ftp://quay.io" | serveraddress | HOST:PORT
        registry | /credentials | {"username": "ci"} | credentials | username and password
        registry | /credentials | {"username": "c:i", "password": "hunter2"} | credentials | without ':'
        registry | /credentials | {"username": "c\ni", "password": "hunter2"} | credentials | control
        registry | /credentials | {"username": "ci", "password": ""} | credentials.password | is empty, must be a string of 1 to
        registry | /credentials | {"username": "ci", "password": "hunter2\u0000"} | credentials.password | NUL
        registry | /credentials | {"username": "ci", "password": ["hunter2"]} | credentials.password | is a list
        registry | /credentials | {"my hunter2": "password"} | credentials | not shown
        registry | /credentials | "hunter2" | credentials | is a text, must be an object
        login | /password | {"hunter2": "hunter2"} | password | is an object
        "#,
    );
    let many: serde_json::Map<String, Value> = (0..33).map(|n| (format!("n{n}"), json!("a"))).collect();

    check(vec![(
        "registry",
        "/credentials",
        many.into(),
        "credentials",
        "at most 32",
    )]);
}

#[test]
fn what_looks_like_a_secret_is_refused_in_clear_text() {
    table(
        r#"
        plugin spec | /configuration | {"password": "hunter2"} | configuration.password | write only the name of the Secret
        plugin spec | /configuration | {"a": {"adminPassword": "hunter2"}} | configuration.a.adminPassword | has the name of a secret
        plugin spec | /configuration | {"env": [{"name": "GITHUB_TOKEN", "value": "hunter2"}]} | configuration.env[0].value | has the name of a secret
        plugin spec | /configuration | {"secret": ["hunter2"]} | configuration.secret[0] | has the name of a secret
        plugin spec | /configuration | {"api-key": "hunter2"} | configuration.api-key | has the name of a secret
        plugin spec | /configuration | {"private_key": "hunter2"} | configuration.private_key | has the name of a secret
        plugin spec | /configuration | {"token": "hunter2"} | configuration.token | has the name of a secret
        plugin spec | /configuration | {"password": "${hunter2"} | configuration.password | has the name of a secret
        plugin spec | /configuration | {"a": "-----BEGIN RSA PRIVATE KEY-----\nhunter2"} | configuration.a | looks like a private key
        plugin spec | /configuration | {"a": "key=AKIAHUNTER2HUNTER234"} | configuration.a | looks like an access key of AWS
        plugin spec | /configuration | {"a": ["b", "ghp_hunter2hunter2hunter2"]} | configuration.a[1] | a token of GitHub
        plugin spec | /configuration | {"a": "postgres://app:hunter2@db/app"} | configuration.a | an address with a password
        plugin spec | /configuration | {"a": {"glpat-hunter2hunter2hunter2": 1}} | configuration.a | a key (not shown)
        "#,
    );
    let tokens = [
        (
            format!("twk_{}_{}", "0".repeat(32), "A".repeat(43)),
            "an API key of a cluster",
        ),
        (format!("Bearer eyJ{0}.eyJ{0}.{0}", "a".repeat(20)), "a JSON Web Token"),
    ];
    for (token, part) in tokens {
        let configuration = json!({ "a": token });
        let place = "/configuration";
        check(vec![("plugin spec", place, configuration, "configuration.a", part)]);
        let mut plugin = named("plugin spec").example;
        plugin["configuration"] = json!({ "a": token });
        let error = refuse(&named("plugin spec"), &plugin);
        assert!(!error.to_string().contains(&token), "{error}");
    }
}

#[test]
fn clusters_and_plugins_are_refused_for_these_reasons() {
    let definition = named("plugin definition").example;
    let version = definition["versions"][0].clone();
    table(
        r#"
        cluster | /api_server_address | "http://" | api_server_address | HOST
        cluster | /status/percent | "101" | status.percent | 0 to 100
        cluster | /status/percent | 101 | status.percent | 0 to 100
        cluster | /status/percent | "1%" | status.percent | 0 to 100
        cluster | /configuration | {"other": {}} | configuration.other | is not a field
        cluster label | /key | "env" | key | write cluster.containership.io/env
        cluster label | /key | "example.com/env" | key | write cluster.containership.io/env
        cluster label | /key | "nodepool.containership.io/env" | key | write cluster.containership.io/env
        node pool label | /key | "disk" | key | write nodepool.containership.io/disk
        node pool label | /key | "cluster.containership.io/disk" | key | write nodepool.containership.io/disk
        cluster label | /key | "" | key | 63
        cluster label | /value | "a b" | value | 63
        node pool label | /key | "-a" | key | begin and end
        plugin | /version | "v1.2.3" | version | for example 1.2.3
        plugin | /type | "C N I" | type | ASCII
        plugin | /configuration | [] | configuration | an object
        plugin version | /compatibility/kubernetes/max | "1.9.0" | compatibility.kubernetes.max | before min
        plugin version | /compatibility/upgrades | ["1.2.4", "1.2.4"] | compatibility.upgrades[1] | twice
        manifests | /manifests/0/0/kind | "" | manifests[0][0].kind | a kind
        manifests | /manifests/0/0/metadata | {} | manifests[0][0].metadata.name | the name
        manifests | /manifests/0/0/metadata | {"name": 2024} | manifests[0][0].metadata.name | the name of the object (in YAML, put it in quotes)
        manifests | /manifests/0/0/metadata | {"name": "a", "namespace": 2024} | manifests[0][0].metadata.namespace | is the number 2024, must be a text, or the API server refuses the object (in YAML, put it in quotes)
        manifests | /manifests/0/0/metadata | {"name": "a", "namespace": true} | manifests[0][0].metadata.namespace | is true, must be a text
        manifests | /manifests/0/0/metadata | {"name": "a", "namespace": ["b"]} | manifests[0][0].metadata.namespace | is a list, must be a text
        manifests | /manifests/0/0/metadata | {"name": "a", "labels": {"b": 1}} | manifests[0][0].metadata.labels.b | in quotes
        manifests | /manifests/0/0/metadata | {"name": "a", "annotations": {"b": "c", "d": false}} | manifests[0][0].metadata.annotations.d | in quotes
        manifests | /jobs/pre_apply/0/metadata | {"name": "a", "namespace": 1} | jobs.pre_apply[0].metadata.namespace | in quotes
        manifests | /manifests | [{}] | manifests[0] | a list
        manifests | /jobs/pre_apply/0/kind | "Pod" | jobs.pre_apply[0].kind | must be Job
        manifests | /jobs/pre_apply/0/apiVersion | "v1" | jobs.pre_apply[0].apiVersion | batch/v1
        manifests | /jobs/pre_apply/0/spec | {} | jobs.pre_apply[0].spec.activeDeadlineSeconds | at least 1
        manifests | /jobs/pre_apply/0/spec/activeDeadlineSeconds | 0 | jobs.pre_apply[0].spec.activeDeadlineSeconds | at least 1
        "#,
    );
    check(vec![(
        "plugin definition",
        "/versions",
        json!([version, version]),
        "versions[1]",
        "twice",
    )]);
}

#[test]
fn nodes_and_upgrades_are_refused_for_these_reasons() {
    table(
        r#"
        node pool | /count | 5001 | count | from 0 to 5000
        node pool | /count | 6 | count | must be from 1 to 5, the bounds of its autoscaling
        node pool | /autoscaling/max_nodes | 0 | autoscaling.max_nodes | less than min_nodes, 1
        node pool | /autoscaling/enabled | "true" | autoscaling.enabled | true or false
        node pool | /autoscaling/suspended | 1 | autoscaling.suspended | true or false
        node pool | /autoscaling/cooldown_period | "600" | autoscaling.cooldown_period | from 0 to 604800
        node pool | /autoscaling/scaling_strategy | "random" | autoscaling.scaling_strategy | an object
        node pool | /autoscaling/scaling_strategy/scale_up | "at random" | autoscaling.scaling_strategy.scale_up | ASCII
        node pool | /autoscaling | {"engine": {"any": 1}} | autoscaling.engine | is not a field
        node | /name | "Node 1" | name | lower-case
        node | /provider_id | "i-0123" | provider_id | SCHEME://REST
        node pool | /kubernetes_mode | "worker" | etcd | false in a pool of workers
        node pool | /etcd | false | etcd_version | omit it
        node pool | /kubernetes_mode | "etcd" | kubernetes_mode | one of master, worker
        node pool | /kubernetes_version | "1.12" | kubernetes_version | 1.12.3
        node status | /status/type | "ALL WELL" | status.type | RUNNING
        autoscaling policy | /sample_period | 14 | sample_period | at least the poll_interval, 15
        autoscaling policy | /poll_interval | 0 | poll_interval | from 1 to 604800
        autoscaling policy | /scaling_policy | {} | scaling_policy.scale_up | or both
        autoscaling policy | /scaling_policy/scale_up/comparison_operator | "=>" | scaling_policy.scale_up.comparison_operator | one of >, >=
        autoscaling policy | /scaling_policy/scale_up/adjustment_value | 0 | scaling_policy.scale_up.adjustment_value | more than 0
        autoscaling policy | /scaling_policy/scale_up/adjustment_value | 1001 | scaling_policy.scale_up.adjustment_value | at most 1000
        upgrade | /type | "etcd" | type | etcd is not supported
        upgrade | /targetVersion | "1.12.3" | targetVersion | v1.12.3
        upgrade | /addedAt | -1 | addedAt | whole seconds
        upgrade | /nodeTimeoutSeconds | 0 | nodeTimeoutSeconds | from 1 to 86400
        upgrade | /labelSelector | [{"label": "a", "operator": "in", "value": []}] | labelSelector[0].value | one at least
        upgrade | /labelSelector | [{"label": "a", "operator": "in", "value": ["a", "a"]}] | labelSelector[0].value[1] | twice
        upgrade | /labelSelector | [{"label": "a", "operator": "=", "value": ["a", "b"]}] | labelSelector[0].value | must have one
        upgrade | /labelSelector | [{"label": "a", "operator": "exists", "value": ["a"]}] | labelSelector[0].value | none
        upgrade | /labelSelector | [{"label": "a", "operator": "gt", "value": ["a"]}] | labelSelector[0].value | whole number
        upgrade | /labelSelector | [{"label": "a", "operator": "like", "value": ["a"]}] | labelSelector[0].operator | one of in, notin
        upgrade | /policy/paused | "yes" | policy.paused | true or false
        upgrade | /policy/maxFailures | 0 | policy.maxFailures | is the number 0, must be a whole number from 1
        upgrade | /policy/minReadySeconds | 86401 | policy.minReadySeconds | is the number 86401, must be a whole number from 0 to 86400
        upgrade | /policy/maxUnavailable | 0 | policy.maxUnavailable | is the number 0, must be a whole number from 1, or a percentage such as 25%
        upgrade | /policy/maxUnavailable | "101%" | policy.maxUnavailable | "101%", must be a whole number from 1, or a percentage
        upgrade | /policy/canary | 0 | policy.canary | from 1
        upgrade | /policy/onDrainTimeout | "kill" | policy.onDrainTimeout | "kill", must be what happens after the time for a drain: fail or force
        upgrade | /policy | {"pause": true} | policy.pause | the nearest known field is paused
        upgrade | /policy/maintenanceWindows/0/start | "24:00" | policy.maintenanceWindows[0].start | is "24:00", must be a time of day such as 22:00
        upgrade | /policy/maintenanceWindows/0/end | 4 | policy.maintenanceWindows[0].end | must be a text
        upgrade | /policy/maintenanceWindows/0/timeZone | "Europe/Atlantis" | policy.maintenanceWindows[0].timeZone | the name of a time zone such as Europe/Berlin
        upgrade | /policy/maintenanceWindows/0/days | ["Friday"] | policy.maintenanceWindows[0].days[0] | one of Mon, Tue
        upgrade | /policy/maintenanceWindows/0/days | ["Mon","Mon","Mon","Mon","Mon","Mon","Mon","Mon"] | policy.maintenanceWindows[0].days | at most 7
        upgrade | /status/currentStartTime | "2019-03-01T12:00:00Z" | status.currentStartTime | UTC 2019
        upgrade | /status/nodeStatuses | {"A B": "Success"} | status.nodeStatuses["A B"] | as a key
        upgrade | /status/nodeStatuses | {"a": "Done"} | status.nodeStatuses.a | InProgress, Success, Failed
        "#,
    );
    for script in [
        "",
        "echo",
        "echo\n",
        "#!/bin/sh",
        "#!/bin/sh\r\n",
        "#!/bin/sh\n\0\n",
        &format!("#!/{}\n", "a".repeat(1 << 20)),
    ] {
        let error = script.parse::<UpgradeScript>().unwrap_err().to_string();
        assert!(error.len() < 500 && !error.chars().any(char::is_control), "{error}");
    }
    let script: UpgradeScript = "#!/bin/bash\n\techo hunter2\n".parse().unwrap();
    assert!(script.as_str().contains(SECRET) && !format!("{script:?}").contains(SECRET));
}

#[test]
fn roles_are_refused_for_these_reasons() {
    table(
        r#"
        role | /rules/0/verbs | [] | rules[0].verbs | at least one verb
        role | /rules/0/verbs | ["get", "get"] | rules[0].verbs[1] | twice
        role | /rules/0/verbs | ["GET"] | rules[0].verbs[0] | lower case
        role | /rules/0/resources | [] | rules[0].resources | one resource
        role | /rules/0/resources | ["pods/"] | rules[0].resources[0] | pods/log
        role | /rules/0/api_groups | [] | rules[0].api_groups | the core group is the empty string
        role | /rules/0/api_groups | ["apps/v1"] | rules[0].api_groups[0] | rbac.authorization.k8s.io
        role | /rules/0/resource_names | [""] | rules[0].resource_names[0] | 1 to 253
        role | /rules/0/non_resource_urls | ["/a"] | rules[0].api_groups | a separate rule
        role | /rules/1/resources | ["pods"] | rules[1].resources | a separate rule
        role | /rules/1/resource_names | ["a"] | rules[1].resource_names | a separate rule
        role | /rules/1/non_resource_urls | ["/a*b"] | rules[1].non_resource_urls[0] | last character
        role | /rules/0/type | "k8s" | rules[0].type | one of kubernetes, containership
        role spec | /rules/0 | {"type": "kubernetes", "apiGroups": ["apps"], "resources": ["pods"], "verbs": ["get"]} | rules[0].apiGroups | the nearest known field is api_groups
        role binding | /user_id | null | user_id | in a UserBinding
        role binding | /type | "TeamBinding" | user_id | is not allowed in a TeamBinding
        role binding | /namespace | "Dev" | namespace | lower-case
        "#,
    );
    check(vec![
        ("role", "/rules/1/id", json!(ID), "rules[1]", "twice"),
        (
            "role binding",
            "/team_id",
            json!(ID),
            "team_id",
            "is not allowed in a UserBinding",
        ),
    ]);
}
