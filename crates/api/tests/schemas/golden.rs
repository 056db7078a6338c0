//! Objects as the Go coordinator wrote them: all fields of its types, and `null` for an empty list or map.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidewaiter_api::containership::{
    AuthorizationRole, AuthorizationRoleBinding, AutoscalingGroup, AutoscalingPolicy, ClusterLabel, ClusterUpgrade,
    NodePoolLabel, Plugin, Registry, User,
};

/// The files in the folder beside this one.
const FILES: [&str; 10] = [
    "user",
    "registry",
    "plugin",
    "cluster_label",
    "node_pool_label",
    "cluster_upgrade",
    "authorization_role",
    "authorization_role_binding",
    "autoscaling_group",
    "autoscaling_policy",
];

/// The objects in a file: first a complete one, then one with as little as possible.
pub(crate) fn objects(file: &str) -> Vec<Value> {
    let path = format!("{}/tests/schemas/golden/{file}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All of them.
pub(crate) fn all() -> Vec<Value> {
    FILES.into_iter().flat_map(objects).collect()
}

/// The object, read by our type and written again.
pub(crate) fn written_back(object: &Value) -> Value {
    fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
        let read: K = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
        serde_json::to_value(read).unwrap()
    }
    let through = match object["kind"].as_str().unwrap() {
        "User" => through::<User>,
        "Registry" => through::<Registry>,
        "Plugin" => through::<Plugin>,
        "ClusterLabel" => through::<ClusterLabel>,
        "NodePoolLabel" => through::<NodePoolLabel>,
        "ClusterUpgrade" => through::<ClusterUpgrade>,
        "AuthorizationRole" => through::<AuthorizationRole>,
        "AuthorizationRoleBinding" => through::<AuthorizationRoleBinding>,
        "AutoscalingGroup" => through::<AutoscalingGroup>,
        "AutoscalingPolicy" => through::<AutoscalingPolicy>,
        other => panic!("{other} is no kind of the Go coordinator"),
    };
    through(object)
}

/// Asserts that `written` has every field of `golden` with its value. `null`, an empty list or map, and none are the
/// same.
pub(crate) fn assert_kept(golden: &Value, written: &Value, path: &str) {
    match (golden, written) {
        (Value::Object(golden), Value::Object(written)) => {
            for (field, value) in golden {
                let path = format!("{path}.{field}");
                assert_kept(value, written.get(field).unwrap_or(&Value::Null), &path);
            }
        }
        (Value::Array(golden), Value::Array(written)) => {
            assert_eq!(golden.len(), written.len(), "{path}");
            for (index, (golden, written)) in golden.iter().zip(written).enumerate() {
                assert_kept(golden, written, &format!("{path}[{index}]"));
            }
        }
        (Value::Null, Value::Array(list)) | (Value::Array(list), Value::Null) => {
            assert!(list.is_empty(), "{path}: {list:?}");
        }
        (Value::Null, Value::Object(map)) | (Value::Object(map), Value::Null) => {
            assert!(map.is_empty(), "{path}: {map:?}");
        }
        (golden, written) => assert_eq!(golden, written, "{path}"),
    }
}

#[test]
fn every_object_is_read_and_written_back_without_loss() {
    for golden in all() {
        let (kind, written) = (golden["kind"].to_string(), written_back(&golden));
        assert_kept(&golden, &written, &kind);
        // Nothing is added, either, so that an object that did not change is not a difference.
        assert_kept(&written["spec"], &golden["spec"], &format!("added to {kind}"));
    }
}
