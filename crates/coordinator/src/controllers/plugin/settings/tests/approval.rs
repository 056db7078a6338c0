use serde_json::{Value, json};

use super::super::*;

#[test]
fn a_plugin_without_a_row_needs_approval() {
    let plugin = Identity {
        id: "cccccccc-0000-4000-8000-000000000001".to_owned(),
        type_: "metrics".to_owned(),
        implementation: "prometheus".to_owned(),
    };
    let read = |value: &Value| serde_json::from_value::<PluginApproval>(value.clone());
    for (value, expected) in [
        (json!("automatic"), Approval::Automatic),
        (json!("manual"), Approval::Manual),
        (json!({"metrics": "automatic"}), Approval::Automatic),
        (json!({"metrics": "manual", "*": "automatic"}), Approval::Manual),
        (json!({"logs": "automatic"}), Approval::Manual),
        (json!({}), Approval::Manual),
    ] {
        let setting = read(&value).unwrap();
        assert_eq!(setting.of(&plugin), expected, "{value}");
        assert_eq!(serde_json::to_value(&setting).unwrap(), value);
    }
    assert_eq!(PluginApproval::default().of(&plugin), Approval::Automatic);
    for (value, words) in [
        (json!("auto"), "`manual`"),
        (json!(true), "a map from plugins"),
        (json!({"a/b/c": "manual"}), "TYPE/IMPLEMENTATION"),
        (json!({"a": "never"}), "`manual`"),
    ] {
        let error = read(&value).unwrap_err().to_string();
        assert!(error.contains(words), "{value}: {error}");
    }
}
