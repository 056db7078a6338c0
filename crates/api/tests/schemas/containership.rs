//! The kinds of the Go coordinator: what their schemas refuse, and what their types can read.

use kube::Resource;
use kube::api::{Patch, PatchParams, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidewaiter_api::containership::{
    AuthorizationRole, AuthorizationRoleBinding, AutoscalingGroup, AutoscalingPolicy, ClusterLabel, ClusterUpgrade,
    NodePoolLabel, Plugin, Registry, User,
};
use tidewaiter_testkit::Identity;

use super::{Ask, Case, api_of, case, compare, control_plane, golden, harmful, values};

/// The name of the object and its id must be the same.
fn id() -> Case {
    harmful("/spec/id", vec![], values(&["", "other", "../x"]))
}

/// An end that no type can parse is one that has passed.
fn end(pointer: &'static str) -> Case {
    let hostile = [
        "never",
        "2027-01-31",
        "2027-13-01T00:00:00Z",
        "2027-01-31T18:00:00",
        "2027-01-31T18:00:00.5Z",
        "2027-01-31T19:00:00+01:00",
        "2027-01-31T18:00:00Z\n",
    ];
    harmful(pointer, values(&["", "2027-01-31T18:00:00Z"]), values(&hostile))
}

fn user_cases() -> Vec<Case> {
    let rsa = "ssh-rsa AAAAB3NzaC1yc2E= alice@example.com";
    let security_key = "sk-ssh-ed25519@openssh.com AAAAGnNr";
    let spaced = " ssh-ed25519\t AAAA  Ju\u{308}rgen\tat \u{fc}\r\n";
    let hostile = [
        "",
        "ssh-ed25519",
        "AAAA",
        "ssh-ed25519 AAAA\nssh-ed25519 BBBB",
        "ssh-ed25519 AAAA a\u{1b}[31m",
        "command=\"sh\" ssh-ed25519 AAAA",
        "ssh-ed25519\nAAAA",
        "ssh-ed25519 AA\u{e4}A",
    ];
    vec![
        id(),
        harmful(
            "/spec/ssh_keys/0/key",
            values(&[rsa, security_key, spaced, "ecdsa-sha2-nistp256 AAAA=="]),
            values(&hostile),
        ),
        case(
            "/spec/ssh_keys",
            vec![json!([]), Value::Null],
            vec![json!("a"), json!([1])],
        ),
        case("/spec/avatar_url", values(&["", "junk"]), vec![json!(1), json!([])]),
        end("/spec/expires_at"),
        end("/spec/ssh_keys/0/expires_at"),
    ]
}

fn registry_cases() -> Vec<Case> {
    vec![
        id(),
        harmful(
            "/spec/serveraddress",
            values(&["", "https://index.docker.io/v1/", "registry.example.com:5000/team"]),
            values(&["a b", "a\nb", "a\r", "b\u{e4}r"]),
        ),
        case("/spec/provider", values(&["", "quay", "other"]), vec![json!(1)]),
        case(
            "/spec/credentials",
            vec![json!({}), Value::Null, json!({"a": ""})],
            vec![json!("a"), json!([]), json!({"a": 1}), json!({"a": {}})],
        ),
        case("/spec/authToken/token", values(&["", "x"]), vec![json!(1), json!({})]),
        case("/spec/authToken", vec![json!({})], vec![json!("a"), json!(1)]),
    ]
}

fn plugin_cases() -> Vec<Case> {
    vec![id(), case("/spec/type", values(&["", "CNI"]), vec![json!(1)])]
}

fn label_cases(prefix: &str, other: &str) -> Vec<Case> {
    let longest = format!("{prefix}/{}", "a".repeat(63));
    let too_long = format!("{prefix}/{}", "a".repeat(64));
    let (key, bad) = (format!("{prefix}/A_b.c"), format!("{prefix}/a b"));
    let mut outside = values(&["environment", "node-role.kubernetes.io/control-plane"]);
    outside.extend(
        [
            format!("{other}/a"),
            format!("{prefix}.example.com/a"),
            format!("x{prefix}/a"),
        ]
        .map(Value::from),
    );
    vec![
        id(),
        Case {
            harmful: outside,
            ..case(
                "/spec/key",
                values(&[&key, &longest]),
                values(&["", "a b", "/a", &bad, &too_long, &format!("{prefix}/")]),
            )
        },
        case("/spec/value", values(&["", "a"]), values(&["a b", "-", "a\n"])),
    ]
}

fn upgrade_cases() -> Vec<Case> {
    let statuses = ["", "InProgress", "Success", "Failed"];
    vec![
        harmful(
            "/spec/id",
            values(&["", "other", "A.b_c-9"]),
            values(&["../x", "a/b", "a b", "a\n"]),
        ),
        case(
            "/spec/type",
            values(&["kubernetes", "etcd"]),
            values(&["", "Kubernetes", "x"]),
        ),
        harmful(
            "/spec/targetVersion",
            values(&["v1.12.3", "v1.36.0-rc.1", "v1.12.3+build.5"]),
            values(&["", "1.12.3", "v1.12", "v1.12.3/../..", "v1.12.3\n", "latest", "v01.2.3"]),
        ),
        harmful(
            "/spec/nodeTimeoutSeconds",
            vec![json!(0), json!(86_400)],
            vec![json!(-1)],
        ),
        case("/spec/nodeTimeoutSeconds", vec![], vec![json!("900"), json!(0.5)]),
        case("/spec/labelSelector", vec![json!([]), Value::Null], vec![json!("a=b")]),
        case(
            "/spec/labelSelector/0/operator",
            values(&["=", "==", "!=", "in", "notin", "exists", "!", "gt", "lt"]),
            values(&["", "In", "=~"]),
        ),
        case(
            "/spec/labelSelector/0/label",
            values(&["a", "example.com/a"]),
            values(&["", "a b"]),
        ),
        case("/spec/labelSelector/0/value/0", values(&["", "a"]), values(&["a b"])),
        case(
            "/spec/status/clusterStatus",
            values(&statuses),
            values(&["Done", "inprogress"]),
        ),
        case(
            "/spec/status/nodeStatuses",
            vec![json!({}), Value::Null],
            vec![json!([])],
        ),
        case("/spec/status/nodeStatuses/node-1", values(&statuses), values(&["Done"])),
        harmful(
            "/spec/status/currentNode",
            values(&["", "ip-10-0-0-1.ec2.internal"]),
            values(&["a/b", "A", "a\n"]),
        ),
        case("/spec/addedAt", values(&["", "1553547600"]), vec![json!(1_553_547_600)]),
    ]
}

fn role_cases() -> Vec<Case> {
    let list = || vec![json!([]), Value::Null, json!([""])];
    let no_list = || vec![json!("a"), json!([1]), json!({})];
    vec![
        id(),
        case("/spec/rules", vec![json!([]), Value::Null], vec![json!("a"), json!({})]),
        case(
            "/spec/rules/0/type",
            values(&["kubernetes", "containership"]),
            values(&["", "Kubernetes"]),
        ),
        case("/spec/rules/0/api_groups", list(), no_list()),
        case("/spec/rules/0/resources", list(), no_list()),
        case("/spec/rules/0/resource_names", list(), no_list()),
        case("/spec/rules/0/verbs", list(), no_list()),
        case("/spec/rules/0/non_resource_urls", list(), no_list()),
    ]
}

fn binding_cases() -> Vec<Case> {
    vec![
        id(),
        // The complete object names a user and no team.
        Case {
            harmful: values(&["TeamBinding"]),
            ..case("/spec/type", vec![], values(&["", "User", "x"]))
        },
        harmful("/spec/user_id", values(&["a"]), values(&[""])),
        harmful("/spec/authorization_role_id", values(&["a"]), values(&[""])),
        harmful(
            "/spec/namespace",
            values(&["", "team-a"]),
            values(&["../x", "A", "a.b", "a\n", &"a".repeat(64)]),
        ),
        end("/spec/expires_at"),
    ]
}

fn group_cases() -> Vec<Case> {
    vec![
        harmful("/spec/minNodes", vec![json!(0), json!(3)], vec![json!(4), json!(-1)]),
        harmful("/spec/maxNodes", vec![json!(1), json!(5000)], vec![json!(0)]),
        case("/spec/cooldownPeriod", vec![json!(0)], vec![json!("600"), json!(1.5)]),
        case("/spec/policies", vec![json!([]), Value::Null], vec![json!("a")]),
        case(
            "/spec/nodeSelector",
            vec![json!({}), Value::Null],
            vec![json!([]), json!({"a": 1})],
        ),
        case(
            "/spec/scalingStrategy",
            vec![json!({}), Value::Null],
            vec![json!("random")],
        ),
        case("/spec/suspended", vec![json!(false)], vec![json!("false")]),
    ]
}

fn policy_cases() -> Vec<Case> {
    vec![
        case(
            "/spec/scalingPolicy/scaleUp/comparisonOperator",
            values(&[">", "<", ">=", "<=", "==", "!="]),
            values(&["", "=>"]),
        ),
        case(
            "/spec/scalingPolicy/scaleUp/adjustmentType",
            values(&["absolute", "percent"]),
            values(&["", "nodes"]),
        ),
        case(
            "/spec/scalingPolicy/scaleUp/threshold",
            vec![json!(-1), json!(0.25)],
            vec![json!("1")],
        ),
        harmful(
            "/spec/scalingPolicy/scaleUp/adjustmentValue",
            vec![json!(0), json!(2.5)],
            vec![json!(-1)],
        ),
        case(
            "/spec/scalingPolicy/scaleUp",
            vec![Value::Null],
            vec![json!({}), json!(1)],
        ),
        harmful("/spec/pollInterval", vec![json!(0)], vec![json!(-1)]),
        harmful("/spec/samplePeriod", vec![json!(0)], vec![json!(-1)]),
        case(
            "/spec/metricConfiguration",
            vec![json!({}), Value::Null],
            vec![json!([])],
        ),
    ]
}

/// The table, and for each field of the spec: whether it may be missing, and that `null` can be read where the API
/// server takes it.
async fn check<K>(client: &kube::Client, file: &str, required: &[&str], cases: Vec<Case>)
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let complete = golden::objects(file).swap_remove(0);
    compare::<K>(client.clone(), Ask::Create, complete.clone(), cases).await;
    let api = api_of::<K>(client.clone(), &complete);
    for field in complete["spec"].as_object().unwrap().keys() {
        let mut object = complete.clone();
        object["spec"].as_object_mut().unwrap().remove(field);
        let expected = !required.contains(&field.as_str());
        let by_type = serde_json::from_value::<K>(object.clone());
        assert_eq!(by_type.is_ok(), expected, "{file} without {field}: {:?}", by_type.err());
        let by_server = Ask::Create.ask(&api, &object).await;
        // Without its user a binding to a user is harmful.
        let expected = expected && (file, field.as_str()) != ("authorization_role_binding", "user_id");
        assert_eq!(
            by_server.is_ok(),
            expected,
            "{file} without {field}: {:?}",
            by_server.err()
        );

        object["spec"][field] = Value::Null;
        if let Ok(accepted) = Ask::Create.ask(&api, &object).await {
            let accepted = serde_json::to_value(accepted).unwrap();
            let read = serde_json::from_value::<K>(accepted);
            assert!(read.is_ok(), "{file} with null as {field}: {:?}", read.err());
        }
    }
}

#[tokio::test]
async fn the_api_server_refuses_what_the_types_refuse_and_what_would_do_harm() {
    let client = control_plane().await.client(&Identity::Admin);
    let (cluster, pool) = ("cluster.containership.io", "nodepool.containership.io");
    check::<User>(&client, "user", &["id"], user_cases()).await;
    check::<Registry>(&client, "registry", &["id"], registry_cases()).await;
    check::<Plugin>(&client, "plugin", &["id"], plugin_cases()).await;
    check::<ClusterLabel>(&client, "cluster_label", &["id", "key"], label_cases(cluster, pool)).await;
    let required = ["id", "key", "node_pool_id"];
    check::<NodePoolLabel>(&client, "node_pool_label", &required, label_cases(pool, cluster)).await;
    check::<ClusterUpgrade>(&client, "cluster_upgrade", &["type", "targetVersion"], upgrade_cases()).await;
    check::<AuthorizationRole>(&client, "authorization_role", &["id"], role_cases()).await;
    let required = ["id", "type", "authorization_role_id"];
    check::<AuthorizationRoleBinding>(&client, "authorization_role_binding", &required, binding_cases()).await;
    let required = ["engine", "cooldownPeriod", "minNodes", "maxNodes"];
    check::<AutoscalingGroup>(&client, "autoscaling_group", &required, group_cases()).await;
    let required = [
        "metricsBackend",
        "metric",
        "pollInterval",
        "samplePeriod",
        "scalingPolicy",
    ];
    check::<AutoscalingPolicy>(&client, "autoscaling_policy", &required, policy_cases()).await;
}

#[tokio::test]
async fn the_policy_of_an_upgrade_is_checked() {
    let client = control_plane().await.client(&Identity::Admin);
    let mut upgrade = golden::objects("cluster_upgrade").swap_remove(0);
    let window = json!({"days": ["Mon", "Sun"], "start": "22:00", "end": "04:00", "timeZone": "Europe/Berlin"});
    upgrade["spec"]["policy"] = json!({"paused": true, "aborted": false, "maxFailures": 3, "minReadySeconds": 5, "requireHealthy": true, "canary": 1, "soakSeconds": 60,
        "drain": true, "drainTimeoutSeconds": 600, "onDrainTimeout": "fail",
        "maintenanceWindows": [window]});
    upgrade["spec"]["status"]["cordons"] = json!({"node-1": {"since": "2026-11-22T06:00:00Z", "before": true}});
    for times in ["verifying", "fallenBack", "postponed"] {
        upgrade["spec"]["status"][times] = json!({"node-1": {"since": "2026-11-22T06:00:00Z"}});
    }
    upgrade["spec"]["status"]["soakingSince"] = json!("2026-11-22T06:00:00Z");
    let cases = vec![
        case("/spec/policy", vec![json!({}), Value::Null], vec![json!(true)]),
        case("/spec/policy/paused", vec![json!(false)], vec![json!("true")]),
        harmful("/spec/policy/maxFailures", vec![json!(1), Value::Null], vec![json!(0)]),
        case("/spec/policy/maxFailures", vec![], vec![json!(-1), json!("1")]),
        case(
            "/spec/policy/minReadySeconds",
            vec![json!(0), json!(86_400), Value::Null],
            vec![json!(-1), json!("30")],
        ),
        harmful("/spec/policy/canary", vec![json!(1), Value::Null], vec![json!(0)]),
        harmful("/spec/policy/soakSeconds", vec![json!(1), Value::Null], vec![json!(0)]),
        case("/spec/policy/drain", vec![json!(true)], vec![json!("true")]),
        harmful(
            "/spec/policy/drainTimeoutSeconds",
            vec![json!(1), Value::Null],
            vec![json!(0)],
        ),
        case(
            "/spec/policy/onDrainTimeout",
            values(&["fail", "force"]),
            values(&["", "wait"]),
        ),
        case(
            "/spec/status/cordons",
            vec![
                Value::Null,
                json!({}),
                json!({"node-1": {"since": "2026-11-22T06:00:00Z"}}),
            ],
            vec![json!({"node-1": {"since": "yesterday"}}), json!({"node-1": {}})],
        ),
        case(
            "/spec/status/verifying",
            vec![Value::Null, json!({"node-1": {"since": "2026-11-22T06:00:00Z"}})],
            vec![json!({"node-1": {"since": "yesterday"}}), json!({"node-1": {}})],
        ),
        case(
            "/spec/status/fallenBack",
            vec![Value::Null, json!({"node-1": {"since": "2026-11-22T06:00:00Z"}})],
            vec![json!({"node-1": {"since": "yesterday"}}), json!({"node-1": {}})],
        ),
        case(
            "/spec/status/postponed",
            vec![Value::Null, json!({"node-1": {"since": "2026-11-22T06:00:00Z"}})],
            vec![json!({"node-1": {"since": "yesterday"}}), json!({"node-1": {}})],
        ),
        case("/spec/status/soakingSince", vec![Value::Null], vec![json!("yesterday")]),
        case("/spec/policy/requireHealthy", vec![json!(false)], vec![json!("true")]),
        case(
            "/spec/policy/maintenanceWindows",
            vec![json!([]), Value::Null],
            vec![json!("22:00-04:00")],
        ),
        case(
            "/spec/policy/maintenanceWindows/0/days",
            vec![json!([]), Value::Null, json!(["Sat"])],
            vec![json!(["Saturday"]), json!("Sat")],
        ),
        harmful(
            "/spec/policy/maintenanceWindows/0/start",
            values(&["00:00", "23:59"]),
            values(&["24:00", "7:00", "22:00:00", "22:00\n"]),
        ),
        harmful(
            "/spec/policy/maintenanceWindows/0/timeZone",
            vec![json!("UTC"), Value::Null],
            vec![json!("x".repeat(65))],
        ),
    ];
    compare::<ClusterUpgrade>(client, Ask::Create, upgrade, cases).await;
}

/// Otherwise half of the nodes would get one version and the other half another one.
#[tokio::test]
async fn an_upgrade_that_has_begun_keeps_its_target() {
    let client = control_plane().await.client(&Identity::Admin);
    let mut upgrade = golden::objects("cluster_upgrade").swap_remove(1);
    upgrade["metadata"]["name"] = json!("keeps-its-target");
    let api = api_of::<ClusterUpgrade>(client, &upgrade);
    api.create(&PostParams::default(), &serde_json::from_value(upgrade).unwrap())
        .await
        .unwrap();
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        api.patch("keeps-its-target", &PatchParams::default(), &patch).await
    };
    patch(json!({"targetVersion": "v1.13.1"}))
        .await
        .expect("it has not begun");
    patch(json!({"status": {"clusterStatus": "InProgress"}}))
        .await
        .expect("it begins");
    let error = patch(json!({"targetVersion": "v1.14.0"})).await.unwrap_err();
    assert!(error.to_string().contains("an upgrade that has begun"), "{error}");
    let progress =
        json!({"nodeTimeoutSeconds": 60, "status": {"clusterStatus": "Success", "nodeStatuses": {"a": "Success"}}});
    patch(progress).await.expect("it goes on");
}
