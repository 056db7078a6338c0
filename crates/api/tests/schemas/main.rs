//! The schemas of the custom resources refuse what the Rust types refuse.
//!
//! Otherwise one edit by an administrator makes an object that no version of Tidewaiter can read.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod containership;
mod golden;
mod takeover;

use std::sync::LazyLock;

use jsonschema::Validator;
use kube::Resource;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::{
    CloudSync, ClusterHealth, Condition, InstanceGroupName, LabelKey, LabelValue, NodeIdentity, NodeReport, NodeUid,
    NodeUpgrade, PluginInventory, crds,
};
use tidewaiter_testkit::{ControlPlane, Identity};

/// A complete record, as version 0.1.0 wrote it.
fn node_identity() -> Value {
    let time = "2026-01-12T09:21:08Z";
    json!({
        "apiVersion": "tidewaiter.dev/v1alpha1",
        "kind": "NodeIdentity",
        "metadata": {"name": "i-0123456789abcdef0"},
        "spec": {"nodeUID": "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "providerID": "aws:///us-test-1a/i-0123456789abcdef0"},
        "status": {
            "instance": "i-0123456789abcdef0", "instanceGroup": "nodes-us-test-1a", "zone": "us-test-1a",
            "lifecycle": "on-demand", "firstVerified": time,
            "labels": [
                {"key": "kops.k8s.io/instancegroup", "value": "nodes-us-test-1a", "source": "GroupNodeLabels",
                    "file": "instancegroup/nodes-us-test-1a"},
                {"key": "node-role.kubernetes.io/node", "value": "", "source": "Role"},
            ],
            "conditions": [
                {"type": "Verified", "status": "True", "reason": "Proven", "message": "", "lastTransitionTime": time},
            ],
        },
    })
}

/// A complete object, as version 0.1.0 wrote it.
fn cluster_health() -> Value {
    let time = "2026-01-12T09:21:08Z";
    json!({
        "apiVersion": "tidewaiter.dev/v1alpha1",
        "kind": "ClusterHealth",
        "metadata": {"name": "cluster.example.com"},
        "spec": {},
        "status": {
            "observedAt": time, "failures": 0, "counts": {"nodesReady": 3, "podsPending": 0},
            "conditions": [
                {"type": "Healthy", "status": "True", "reason": "ClusterReady", "message": "", "lastTransitionTime": time},
            ],
        },
    })
}

/// A complete object.
fn cloud_sync() -> Value {
    let time = "2026-01-12T09:21:08Z";
    json!({
        "apiVersion": "tidewaiter.dev/v1alpha1",
        "kind": "CloudSync",
        "metadata": {"name": "cloud"},
        "spec": {},
        "status": {
            "kinds": [{
                "kind": "User", "lastSuccess": time, "revision": "41-a", "objects": 12,
                "held": {"revision": "42-b", "since": time, "objects": 11, "additions": 2, "names": ["a"], "reason": "11 of 12 would be deleted"},
                "refusedObjects": 1, "refused": [{"id": "b", "reason": "ssh_keys[0].key is not an SSH public key"}],
            }],
            "conditions": [
                {"type": "Synced", "status": "True", "reason": "Synced", "message": "", "observedGeneration": 1,
                    "lastTransitionTime": time},
                {"type": "Held", "status": "True", "reason": "TooManyDeletions", "message": "User: 11 of 12", "observedGeneration": 1,
                    "lastTransitionTime": time},
            ],
        },
    })
}

/// A complete object.
fn plugin_inventory() -> Value {
    let plugin = json!({"id": "p", "added_at": "", "description": "", "type": "logs", "version": "1.0.0", "implementation": "fluentd"});
    json!({
        "apiVersion": "tidewaiter.dev/v1alpha1",
        "kind": "PluginInventory",
        "metadata": {"name": "p", "namespace": "containership-core"},
        "spec": {
            "type": "logs", "implementation": "fluentd", "dependsOn": ["metrics/prometheus"], "signedAt": 1_790_000_000,
            "applied": plugin, "revision": "ab", "approved": "cd", "history": [plugin], "completedJobs": ["migrate-01234567"],
            "releases": [{"version": "1.0.0", "revision": "ab", "type": "logs", "implementation": "fluentd", "at": "2026-01-12T09:21:08Z",
                "tooLarge": true}],
            "kinds": [{"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "n",
                "objects": [{"name": "d", "digest": "ab", "fields": "cd"}]}],
        },
    })
}

/// A complete order.
fn node_upgrade() -> Value {
    json!({
        "apiVersion": "tidewaiter.dev/v1alpha1",
        "kind": "NodeUpgrade",
        "metadata": {"name": "node-a", "namespace": "containership-core"},
        "spec": {
            "upgrade": {"name": "u", "uid": "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "generation": 7}, "id": "u",
            "targetVersion": "v1.36.3", "nodeTimeoutSeconds": 900, "since": "2026-01-12T09:21:08Z",
        },
    })
}

/// `id` and `targetVersion` become parts of the names of files on the node.
fn node_upgrade_cases() -> Vec<Case> {
    vec![
        harmful(
            "/spec/id",
            values(&["a", "A-b._0"]),
            values(&["", "a/b", "a\n", &"a".repeat(254)]),
        ),
        harmful(
            "/spec/targetVersion",
            values(&["v1.2.3", "v1.2.3-rc.1+b"]),
            values(&["", "1.2.3", "v1.2", "v1.2.3/../x", "v01.2.3"]),
        ),
        Case {
            harmful: vec![json!(0), json!(-1), json!(86_401)],
            ..case(
                "/spec/nodeTimeoutSeconds",
                vec![json!(1), json!(86_400)],
                vec![json!("1"), json!(0.5)],
            )
        },
        timestamps("/spec/since"),
        case(
            "/spec/upgrade/generation",
            vec![json!(1)],
            vec![json!("1"), Value::Null],
        ),
        case("/spec/upgrade/uid", values(&["a"]), vec![json!(1), Value::Null]),
    ]
}

/// A complete report.
fn node_report() -> Value {
    let time = "2026-01-12T09:21:08Z";
    json!({
        "apiVersion": "tidewaiter.dev/v1alpha1",
        "kind": "NodeReport",
        "metadata": {"name": "node-a"},
        "spec": {},
        "status": {
            "agentVersion": "0.1.0", "host": {"kernel": "6.12.0", "architecture": "x86_64", "bootId": "b"}, "keys": 1,
            "users": [{"id": "u", "fingerprints": ["SHA256:a"], "since": time}],
            "refusedKeys": 1, "refused": [{"user": "u", "key": "laptop", "reason": "the key must be of another type"}],
            "foreignLines": 1, "foreignKeys": [{"fingerprint": "SHA256:b", "comment": "admin"}], "foreignLinesUntil": time,
            "breakGlassKeys": ["SHA256:c"], "breakGlassUse": {"at": time, "fingerprint": "SHA256:c"}, "restores": 1,
            "tampering": [{"at": time, "what": "authorized_keys has the mode 0666"}],
            "conditions": [
                {"type": "Applied", "status": "True", "reason": "Applied", "message": "", "lastTransitionTime": time},
            ],
        },
    })
}

fn node_report_cases() -> Vec<Case> {
    vec![
        case("/status/agentVersion", values(&["", "2"]), vec![json!(1)]),
        case("/status/host/bootId", values(&["", "a"]), vec![json!(1)]),
        counts("/status/keys"),
        counts("/status/restores"),
        counts("/status/foreignLines"),
        timestamps("/status/foreignLinesUntil"),
        timestamps("/status/breakGlassUse/at"),
        timestamps("/status/users/0/since"),
        case("/status/users/0/fingerprints/0", values(&["", "a"]), vec![json!(1)]),
        case("/status/refused/0/reason", values(&["", "a"]), vec![json!(1)]),
        timestamps("/status/tampering/0/at"),
        case("/status/conditions/0/status", values(&["False"]), values(&["", "true"])),
    ]
}

/// A Plugin with the status that the plugin controller writes.
fn plugin() -> Value {
    let time = "2026-01-12T09:21:08Z";
    json!({
        "apiVersion": "containership.io/v3",
        "kind": "Plugin",
        "metadata": {"name": "with-status", "namespace": "containership-core"},
        "spec": {"id": "with-status"},
        "status": {
            "appliedVersion": "1.0.0", "revision": "ab", "objects": 3, "unhealthy": 1, "drifted": 0,
            "pending": {"version": "1.1.0", "revision": "cd", "digest": "ef", "creates": 1, "changes": 2, "deletes": 3, "jobs": 4},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Applied", "message": "", "observedGeneration": 1, "lastTransitionTime": time},
            ],
        },
    })
}

/// Values at `pointer` of a complete object: those that both the API server and the type accept, those that both
/// refuse, and those that only the API server refuses, because they would do harm.
struct Case {
    pointer: &'static str,
    accepted: Vec<Value>,
    refused: Vec<Value>,
    harmful: Vec<Value>,
}

fn case(pointer: &'static str, accepted: Vec<Value>, refused: Vec<Value>) -> Case {
    Case {
        pointer,
        accepted,
        refused,
        harmful: Vec::new(),
    }
}

/// The type reads the harmful values, so that an object that has one can still be seen and put right.
fn harmful(pointer: &'static str, accepted: Vec<Value>, harmful: Vec<Value>) -> Case {
    Case {
        harmful,
        ..case(pointer, accepted, vec![json!({"an": "object"})])
    }
}

fn values(texts: &[&str]) -> Vec<Value> {
    texts.iter().map(|text| json!(text)).collect()
}

fn subdomains(pointer: &'static str) -> Case {
    let longest = "a".repeat(253);
    let too_long = "a".repeat(254);
    let accepted = ["a", "0", "a-b.c", "a.b-c.9", &longest];
    let refused = [
        "", "A", "a b", "a_b", "a/b", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a\n", "é", &too_long,
    ];
    case(pointer, values(&accepted), values(&refused))
}

fn timestamps(pointer: &'static str) -> Case {
    let accepted = [
        "1970-01-01T00:00:00Z",
        "2026-02-28T23:59:59Z",
        "2024-02-29T00:00:00.123456789Z",
    ];
    let refused = [
        "",
        "now",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:00",
        "2026-01-01",
        "9999-12-31T00:00:00Z",
        "2026-01-01T00:00:00+99:99",
        "2026-01-01T00:00:00.1234567891Z",
    ];
    let mut refused = values(&refused);
    refused.push(json!(1_768_209_668));
    case(pointer, values(&accepted), refused)
}

fn counts(pointer: &'static str) -> Case {
    let accepted = vec![json!(0), json!(u32::MAX)];
    let refused = vec![json!(-1), json!(u64::from(u32::MAX) + 1), json!(0.5), json!("1")];
    case(pointer, accepted, refused)
}

fn node_identity_cases() -> Vec<Case> {
    let (name, uid) = ("a".repeat(63), "u".repeat(128));
    let prefixed = format!("{}/{name}", "p".repeat(253));
    let (long_name, long_uid) = ("a".repeat(64), "u".repeat(129));
    let (long_prefix, long_suffix) = (format!("{}/a", "p".repeat(254)), format!("a/{long_name}"));
    let keys = ["a", "A.b_c-9", "example.com/A_b", "0/0", &name, &prefixed];
    let bad_keys = [
        "",
        "/",
        "a/",
        "/a",
        "a/b/c",
        "Example.com/a",
        "a b",
        "-a",
        "a-",
        "a\n",
        "ä",
        "a/ä",
        "a:b",
        &long_name,
        &long_prefix,
        &long_suffix,
    ];
    let label_values = ["", "a", "m5.large", "A_b-9", &name];
    let bad_label_values = ["-", ".a", "a.", "a b", "a/b", "a,b", "ä", "a\n", &long_name];
    let uids = ["u", "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "!~", &uid];
    let lifecycles = ["on-demand", "spot", "scheduled"];
    let mut unknown_types = values(&["", "Other"]);
    unknown_types.push(json!(1));
    vec![
        case(
            "/spec/nodeUID",
            values(&uids),
            values(&["", " ", "a b", "a\n", "ä", &long_uid]),
        ),
        case("/spec/providerID", values(&["", "junk", "ä \u{1b}"]), vec![json!(1)]),
        case("/status/instance", values(&["", "i-1"]), vec![json!(1)]),
        subdomains("/status/instanceGroup"),
        case("/status/zone", values(&["", "us-test-1a"]), vec![json!(1)]),
        case(
            "/status/lifecycle",
            values(&lifecycles),
            values(&["", "Spot", "reserved"]),
        ),
        timestamps("/status/firstVerified"),
        case("/status/labels/0/key", values(&keys), values(&bad_keys)),
        case(
            "/status/labels/0/value",
            values(&label_values),
            values(&bad_label_values),
        ),
        case(
            "/status/labels/0/source",
            values(&["Role", "InstanceTag"]),
            unknown_types.clone(),
        ),
        case("/status/labels/0/file", values(&["", "a file"]), vec![json!(1)]),
        case(
            "/status/conditions/0/status",
            values(&["False", "Unknown"]),
            unknown_types,
        ),
        case("/status/conditions/0/message", values(&["", "ä\n"]), vec![json!(1)]),
        timestamps("/status/conditions/0/lastTransitionTime"),
    ]
}

fn cluster_health_cases() -> Vec<Case> {
    vec![
        timestamps("/status/observedAt"),
        counts("/status/failures"),
        counts("/status/counts/nodesReady"),
        counts("/status/counts/podsPending"),
        case("/status/conditions/0/status", values(&["False"]), values(&["", "true"])),
        timestamps("/status/conditions/0/lastTransitionTime"),
    ]
}

fn cloud_sync_cases() -> Vec<Case> {
    vec![
        timestamps("/status/kinds/0/lastSuccess"),
        counts("/status/kinds/0/objects"),
        case("/status/kinds/0/revision", values(&["", "W/x"]), vec![json!(1)]),
        timestamps("/status/kinds/0/held/since"),
        counts("/status/kinds/0/held/objects"),
        counts("/status/kinds/0/refusedObjects"),
        case("/status/conditions/0/status", values(&["False"]), values(&["", "true"])),
    ]
}

fn plugin_inventory_cases() -> Vec<Case> {
    vec![
        case("/spec/applied/version", values(&["", "2"]), vec![json!(1)]),
        case("/spec/dependsOn/0", values(&["a"]), vec![json!(1)]),
        case("/spec/signedAt", vec![json!(0)], vec![json!("1"), json!(1.5)]),
        case("/spec/approved", values(&["", "2"]), vec![json!(1)]),
        case("/spec/releases/0/revision", values(&["2"]), vec![json!(1)]),
        case("/spec/releases/0/tooLarge", vec![json!(false)], vec![json!("yes")]),
        timestamps("/spec/releases/0/at"),
        case("/spec/completedJobs/0", values(&["a"]), vec![json!(1), json!({})]),
        case("/spec/kinds/0/kind", values(&["Job"]), vec![json!(1)]),
        case("/spec/kinds/0/objects/0/digest", values(&["", "a"]), vec![json!(1)]),
    ]
}

fn plugin_status_cases() -> Vec<Case> {
    vec![
        counts("/status/objects"),
        counts("/status/unhealthy"),
        counts("/status/drifted"),
        counts("/status/pending/creates"),
        counts("/status/pending/jobs"),
        case("/status/pending/digest", values(&["", "a"]), vec![json!(1)]),
        case("/status/conditions/0/status", values(&["False"]), values(&["", "true"])),
        case(
            "/status/conditions",
            vec![json!([]), Value::Null],
            vec![json!("a"), json!({})],
        ),
        timestamps("/status/conditions/0/lastTransitionTime"),
    ]
}

/// A request that the API server should accept, without storing the object.
#[derive(Clone, Copy)]
enum Ask {
    /// The creation of the object.
    Create,
    /// The status of an object that exists, for kinds with the subresource: a creation ignores the status.
    Status,
}

impl Ask {
    async fn ask(self, api: &Api<DynamicObject>, object: &Value) -> kube::Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        match self {
            Self::Create => {
                let dry_run = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                api.create(&dry_run, &object).await
            }
            Self::Status => {
                let dry_run = PatchParams {
                    dry_run: true,
                    ..PatchParams::default()
                };
                let name = object.metadata.name.clone().unwrap();
                api.patch_status(&name, &dry_run, &Patch::Merge(&object)).await
            }
        }
    }
}

fn api_of<K: Resource<DynamicType = ()>>(client: kube::Client, object: &Value) -> Api<DynamicObject> {
    let resource = ApiResource::erase::<K>(&());
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// Compares the API server with the type `K`, for the whole table.
async fn compare<K>(client: kube::Client, ask: Ask, complete: Value, cases: Vec<Case>)
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let api = api_of::<K>(client, &complete);
    let check = async |object: Value, (by_type, by_server): (bool, bool), what: String| {
        let decoded = serde_json::from_value::<K>(object.clone());
        assert_eq!(decoded.is_ok(), by_type, "the type: {what}: {:?}", decoded.err());
        match ask.ask(&api, &object).await {
            Ok(accepted) => {
                assert!(by_server, "the API server accepts {what}");
                // It drops `null` where the schema does not allow it.
                let accepted = serde_json::to_value(accepted).unwrap();
                assert!(serde_json::from_value::<K>(accepted).is_ok(), "as stored: {what}");
            }
            Err(kube::Error::Api(status)) if status.code == 422 => {
                assert!(!by_server, "the API server refuses {what}: {}", status.message);
            }
            Err(error) => panic!("{what}: {error}"),
        }
    };
    check(complete.clone(), (true, true), "a complete object".to_owned()).await;
    for case in cases {
        let pointer = case.pointer;
        for (values, expected) in [
            (case.accepted, (true, true)),
            (case.refused, (false, false)),
            (case.harmful, (true, false)),
        ] {
            for value in values {
                let mut object = complete.clone();
                let what = format!("{value} at {pointer}");
                // The Go coordinator did not write every field.
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                let parent = object.pointer_mut(parent);
                match parent.unwrap_or_else(|| panic!("no {pointer}")) {
                    Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
                    parent => parent[key] = value,
                }
                check(object, expected, what).await;
            }
        }
    }
}

/// A control plane with all definitions.
async fn control_plane() -> &'static ControlPlane {
    let control_plane = ControlPlane::shared().await;
    for crd in crds() {
        control_plane.apply(&serde_json::to_string(&crd).unwrap()).await;
    }
    control_plane.apply(NAMESPACE).await;
    control_plane
}

const NAMESPACE: &str = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "containership-core"}}"#;

#[tokio::test]
async fn the_api_server_refuses_what_the_types_refuse() {
    let client = control_plane().await.client(&Identity::Admin);
    compare::<NodeIdentity>(client.clone(), Ask::Create, node_identity(), node_identity_cases()).await;
    compare::<ClusterHealth>(client.clone(), Ask::Create, cluster_health(), cluster_health_cases()).await;

    compare::<NodeReport>(client.clone(), Ask::Create, node_report(), node_report_cases()).await;

    compare::<NodeUpgrade>(client.clone(), Ask::Create, node_upgrade(), node_upgrade_cases()).await;

    let api = api_of::<CloudSync>(client.clone(), &cloud_sync());
    let create = PostParams::default();
    api.create(&create, &serde_json::from_value(cloud_sync()).unwrap())
        .await
        .unwrap();
    compare::<CloudSync>(client.clone(), Ask::Status, cloud_sync(), cloud_sync_cases()).await;

    compare::<PluginInventory>(
        client.clone(),
        Ask::Create,
        plugin_inventory(),
        plugin_inventory_cases(),
    )
    .await;
    let api = api_of::<Plugin>(client.clone(), &plugin());
    api.create(&create, &serde_json::from_value(plugin()).unwrap())
        .await
        .unwrap();
    compare::<Plugin>(client.clone(), Ask::Status, plugin(), plugin_status_cases()).await;
}

#[tokio::test]
async fn there_is_one_cloud_sync() {
    let client = control_plane().await.client(&Identity::Admin);
    let api = api_of::<CloudSync>(client, &cloud_sync());
    let mut other = cloud_sync();
    other["metadata"]["name"] = json!("other");
    let error = Ask::Create.ask(&api, &other).await.unwrap_err();
    assert!(
        error.to_string().contains("the only CloudSync is named cloud"),
        "{error}"
    );
}

/// The API server warns of every format that it does not know, on each `kubectl apply`.
#[test]
fn every_format_is_known_to_the_api_server() {
    let text = serde_json::to_string(&crds()).unwrap();
    let formats: Vec<&str> = text
        .split(r#""format":""#)
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(!formats.is_empty());
    assert!(
        formats
            .iter()
            .all(|format| ["date-time", "int32", "int64"].contains(format)),
        "{formats:?}"
    );
}

/// The schema of the property at `path` of `kind`, as the generated definition has it.
fn schema(kind: &str, path: &str) -> Validator {
    let crd = crds().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0].schema.as_ref().unwrap();
    let schema = serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap();
    let schema = schema
        .pointer(path)
        .unwrap_or_else(|| panic!("no {path} in {schema:#}"));
    jsonschema::draft4::options()
        .should_validate_formats(true)
        .build(schema)
        .unwrap()
}

/// Texts that are often near the border between valid and invalid.
fn texts() -> impl Strategy<Value = String> {
    let short = prop::sample::select(vec![
        "a", "Z", "0", "-", "_", ".", "/", " ", "\n", "é", "~", "a.b", "x-y",
    ]);
    let long = (prop::sample::select(vec!["a", "b.", "B"]), 0..260_usize).prop_map(|(text, count)| text.repeat(count));
    let parts = prop_oneof![8 => short.prop_map(str::to_owned), 1 => long];
    prop::collection::vec(parts, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_schema_and_its_type_agree(text in texts()) {
        const LABEL: &str = "/properties/status/properties/labels/items/properties";
        static SCHEMAS: LazyLock<[Validator; 4]> = LazyLock::new(|| {[
                schema("NodeIdentity", "/properties/spec/properties/nodeUID"),
                schema("NodeIdentity", "/properties/status/properties/instanceGroup"),
                schema("NodeIdentity", &format!("{LABEL}/key")),
                schema("NodeIdentity", &format!("{LABEL}/value")),
            ]});
        let by_type = [
            text.parse::<NodeUid>().is_ok(),
            text.parse::<InstanceGroupName>().is_ok(),
            text.parse::<LabelKey>().is_ok(),
            text.parse::<LabelValue>().is_ok(),
        ];
        let value = json!(text);
        let by_schema = SCHEMAS.each_ref().map(|schema| schema.is_valid(&value));
        prop_assert_eq!(by_schema, by_type);
    }

    /// A type may accept more forms of a time than the schema, but never fewer.
    #[test]
    fn every_time_that_the_schema_accepts_can_be_decoded(
        (year, month, day) in (0..10_000_u16, 0..14_u8, 0..33_u8),
        (hour, minute, second) in (0..26_u8, 0..62_u8, 0..62_u8),
        rest in "(\\.[0-9]{1,11})?(Z|[+-][0-9]{2}:[0-9]{2})?",
    ) {
        static SCHEMA: LazyLock<Validator> =
            LazyLock::new(|| schema("NodeIdentity", "/properties/status/properties/conditions/items"));
        let time = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{rest}");
        let condition = json!({"type": "T", "status": "True", "reason": "R", "message": "", "lastTransitionTime": time});
        prop_assert!(!SCHEMA.is_valid(&condition) || serde_json::from_value::<Condition>(condition).is_ok());
    }
}
