//! Values and settings that the chart refuses.

use std::process::Command;

use serde_json::{Value, json};
use tidewaiter_testkit::Scratch;

use crate::{chart, run, template, write};

/// Each refusal names the value and the remedy.
#[test]
fn values_that_cannot_be_meant_are_refused_by_name() {
    let image = json!({"repository": "registry.example.com/tidewaiter"});
    let cloud =
        json!({"enabled": true, "settings": {"publicUrl": "https://c.example.com", "database": "postgres://a@b/c"}});
    let with = |pointer: &str, value: Value| {
        let mut cloud = cloud.clone();
        *cloud.pointer_mut(pointer).unwrap() = value;
        json!({"image": image, "cloud": cloud})
    };
    for (values, wanted) in [
        (
            json!({"image": image}),
            &[
                "controller.enabled",
                "coordinator.enabled",
                "agent.enabled",
                "cloud.enabled",
            ][..],
        ),
        (
            json!({"controller": {"enabled": true}}),
            &["image.repository is not set", "docs/install.md"],
        ),
        (
            json!({"image": image, "controller": {"enabled": true, "settings": {"healthAddress": "0.0.0.0:1"}}}),
            &["controller.settings.healthAddress", "remove it"],
        ),
        (
            json!({"image": image, "coordinator": {"enabled": true}}),
            &[
                "coordinator.settings.cloud.apiBaseUrl is not set",
                "docs/coordinator.md",
            ],
        ),
        (
            json!({"image": image, "coordinator": {"settings": {"lease": {"namespace": "default", "name": "a"}}}}),
            &["/coordinator/settings/lease/namespace", "containership-core"],
        ),
        (
            json!({"image": image, "cloud": {"enabled": true, "settings": {"publicUrl": "https://c.example.com", "database": "postgres://a@b/c", "acme": {}}}}),
            &["cloud.settings.acme is set", "cert-manager"],
        ),
        (
            with("/settings/publicUrl", json!("")),
            &["cloud.settings.publicUrl is not set"],
        ),
        (
            with("/settings/database", json!("sqlite:///data/cloud.db")),
            &["/cloud/settings/database", "postgres"],
        ),
        (
            json!({"image": image, "cloud": cloud, "controller": {"enabled": true, "env": {"HCLOUD_TOKEN": "a"}}}),
            &["controller.env.HCLOUD_TOKEN", "controller.hetznerToken"],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"onStop": "delete"}}}),
            &["/agent/settings/onStop", "'keep', 'clear'"],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"ownerUid": -1}}}),
            &["/agent/settings/ownerUid"],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"pinnedFolder": "/etc/containership/trust"}}}),
            &[
                "agent.settings.pinnedFolder is /etc/containership/trust, and agent.settings.folder is /etc/containership",
                "each needs a folder of its own",
            ],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"stateFolder": "/tidewaiter", "pinnedFolder": "/tidewaiter"}}}),
            &[
                "agent.settings.pinnedFolder is /tidewaiter",
                "agent.settings.stateFolder",
            ],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"stateFolder": "/etc/containership"}}}),
            &[
                "agent.settings.stateFolder is /etc/containership",
                "agent.settings.folder",
            ],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"folderr": "/etc/containership"}}}),
            &["/agent/settings", "'folderr'"],
        ),
    ] {
        let refusal = template(&values, &[]).refusal();
        for wanted in wanted {
            assert!(refusal.contains(wanted), "no {wanted} in {refusal}");
        }
    }
    let class = json!({"cloud": {"priorityClass": {"name": "system-cloud"}}});
    let mut values = with("/enabled", json!(true));
    values["cloud"]["priorityClass"] = class["cloud"]["priorityClass"].clone();
    let refusal = template(&values, &[]).refusal();
    assert!(
        refusal.contains("cloud.priorityClass.name is system-cloud"),
        "{refusal}"
    );
}

/// Each refusal names the setting, its value and the remedy. A role would refuse most of them when it starts; some
/// would harm the host.
#[test]
fn settings_that_cannot_be_meant_are_refused_by_name_and_value() {
    let image = json!({"repository": "registry.example.com/tidewaiter"});
    let agent = |settings: Value| json!({"image": image, "agent": {"enabled": true, "settings": settings}});
    let id = "11111111-1111-4111-8111-111111111111";
    let coordinator = |field: &str, value: Value| {
        let mut settings =
            json!({"cloud": {"apiBaseUrl": "https://c.example.com", "organizationId": id, "clusterId": id}});
        match field.split_once('.') {
            Some((outer, inner)) => settings[outer][inner] = value,
            None => settings[field] = value,
        }
        json!({"image": image, "coordinator": {"enabled": true, "settings": settings}})
    };
    for (values, wanted) in [
        (
            agent(json!({"upgrades": true})),
            "agent.settings.upgrades is \"true\": must be enabled or disabled",
        ),
        (agent(json!({"upgrades": "on"})), "agent.settings.upgrades is \"on\""),
        (
            agent(json!({"foreignLinesGrace": "7"})),
            "agent.settings.foreignLinesGrace is \"7\": must be a duration with units",
        ),
        (
            agent(json!({"foreignLinesGrace": ""})),
            "agent.settings.foreignLinesGrace is \"\"",
        ),
        (
            agent(json!({"keysExpireAfter": 72})),
            "agent.settings.keysExpireAfter is \"72\"",
        ),
        (
            coordinator("upgrades", json!("on")),
            "coordinator.settings.upgrades is \"on\": must be enabled or disabled",
        ),
        (
            coordinator("cloud.clusterId", json!("prod")),
            "coordinator.settings.cloud.clusterId is \"prod\": must be an id of the cloud",
        ),
        (
            coordinator("cloud.organizationId", json!("1111")),
            "coordinator.settings.cloud.organizationId is \"1111\": must be an id of the cloud, such as 11111111-1111-4111-8111-111111111111; \
             `tidewaiter cloud whoami` shows them",
        ),
        (
            coordinator("cloud.syncInterval", json!("30")),
            "coordinator.settings.cloud.syncInterval is \"30\": must be a duration with units",
        ),
        (
            coordinator("cloud.syncInterval", json!("an hour")),
            "coordinator.settings.cloud.syncInterval is \"an hour\"",
        ),
        (
            coordinator("nodePool", json!("cloud")),
            "at '/coordinator/settings': additional properties 'nodePool' not allowed",
        ),
    ] {
        let refusal = template(&values, &[]).refusal();
        assert!(refusal.contains(wanted), "no {wanted} in {refusal}");
    }
    for (values, wanted) in [
        (
            agent(json!({"coordinator": {"url": "ftp://x"}})),
            "agent.settings.coordinator.url is \"ftp://x\": must be http://HOST or https://HOST",
        ),
        (
            agent(json!({"coordinator": {"url": "https://me:hunter2@x"}})),
            "agent.settings.coordinator.url is a URL with a user: must be",
        ),
        (
            coordinator("cloud.authBaseUrl", json!(5)),
            "coordinator.settings.cloud.authBaseUrl is \"5\": must be",
        ),
    ] {
        let refusal = template(&values, &[]).refusal();
        assert!(
            refusal.contains(wanted) && !refusal.contains("hunter2"),
            "no {wanted} in {refusal}"
        );
    }
    let mut without_a_token = agent(json!({}));
    without_a_token["agent"]["env"] = json!({"TIDEWAITER_UPGRADES": "enabled"});
    let refusal = template(&without_a_token, &[]).refusal();
    assert!(
        refusal.contains("agent.env.TIDEWAITER_UPGRADES is set") && refusal.contains("agent.settings.upgrades"),
        "{refusal}"
    );
    for settings in [
        json!({"foreignLinesGrace": "1h30m", "keysExpireAfter": "3d"}),
        json!({"foreignLinesGrace": "1.5h", "keysExpireAfter": "90000s"}),
    ] {
        template(&agent(settings), &[]).output();
    }
    template(&coordinator("cloud.syncInterval", json!("1m30s")), &[]).output();
}

#[test]
fn variables_that_cannot_be_meant_are_refused_by_name_and_value() {
    let id = "11111111-1111-4111-8111-111111111111";
    let cloud = json!({"apiBaseUrl": "https://c.example.com", "organizationId": id, "clusterId": id});
    let with = |role: &str, env: &Value| {
        let settings = if role == "agent" {
            json!({})
        } else {
            json!({"cloud": cloud})
        };
        let image = json!({"repository": "registry.example.com/tidewaiter"});
        json!({"image": image, role: {"enabled": true, "settings": settings, "env": env}})
    };
    for (role, env, wanted) in [
        (
            "agent",
            json!({"TIDEWAITER_FOLDER": "/a"}),
            "agent.env.TIDEWAITER_FOLDER is set: the chart decides it, from agent.settings.folder; remove it",
        ),
        (
            "agent",
            json!({"NODE_NAME": "n"}),
            "agent.env.NODE_NAME is set: the chart decides it; remove it",
        ),
        (
            "agent",
            json!({"A": 5}),
            "agent.env.A is 5: must be a text; set it with --set-string",
        ),
        ("agent", json!({"A": true}), "agent.env.A is true: must be a text"),
        (
            "agent",
            json!({"A": {"secret": "a"}}),
            "at '/agent/env/A': missing property 'key'",
        ),
        (
            "coordinator",
            json!({"ENABLE_CLUSTER_UPGRADE": "true"}),
            "coordinator.env.ENABLE_CLUSTER_UPGRADE is true, and the coordinator has no permissions for upgrades",
        ),
        (
            "coordinator",
            json!({"TIDEWAITER_UPGRADES": "enabled"}),
            "set coordinator.settings.upgrades to enabled",
        ),
    ] {
        let refusal = template(&with(role, &env), &[]).refusal();
        assert!(refusal.contains(wanted), "no {wanted} in {refusal}");
    }
    let mut permitted = with("coordinator", &json!({"ENABLE_CLUSTER_UPGRADE": "true"}));
    permitted["coordinator"]["upgrades"] = json!({"permissions": true});
    template(&permitted, &[]).output();
}

/// The agent would not start.
#[test]
fn upgrade_scripts_are_refused_where_their_files_do_not_belong_to_root() {
    let agent = |settings: Value, env: Value| {
        let agent = json!({"enabled": true, "settings": settings, "env": env});
        template(
            &json!({"image": {"repository": "registry.example.com/tidewaiter"}, "agent": agent}),
            &[],
        )
    };
    let none = json!({});
    let both = json!({"ownerUid": 2_000_000, "upgrades": "enabled"});
    for (settings, env) in [
        (both, none.clone()),
        (
            json!({"upgrades": "enabled"}),
            json!({"TIDEWAITER_OWNER_UID": "2000000"}),
        ),
    ] {
        let refusal = agent(settings, env).refusal();
        for wanted in [
            "agent.settings.upgrades is enabled",
            "agent.settings.ownerUid is 2000000",
            "Set ownerUid to 0, or upgrades to disabled",
        ] {
            assert!(refusal.contains(wanted), "no {wanted} in {refusal}");
        }
    }
    for settings in [
        json!({"ownerUid": 2_000_000, "upgrades": "disabled"}),
        json!({"ownerUid": 0, "ownerGid": 2000, "upgrades": "enabled"}),
    ] {
        agent(settings, none.clone()).output();
    }
}

/// The schema of the chart knows the settings of the roles, and no others: it permits what a role has by default, and
/// each role knows what it permits.
#[test]
fn the_schema_has_the_settings_of_each_role() {
    let scratch = Scratch::new("chart-schema");
    let kops = scratch.path().join("kops.yaml");
    write(
        &kops,
        "clusterName: c.example.com\ncloud: aws\nconfigBase: s3://state/c.example.com\n",
    );
    let kops = format!("--conf={}", kops.display());
    let file = scratch.path().join("settings.yaml");
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(chart().join("values.schema.json")).unwrap()).unwrap();
    for (role, command) in [
        ("controller", &["controller", &kops][..]),
        ("coordinator", &["coordinator"]),
        ("agent", &["agent"]),
        ("cloud", &["cloud", "serve"]),
    ] {
        let print = |settings: &Value| {
            write(&file, &settings.to_string());
            let mut program = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
            program
                .env_clear()
                .env("NODE_NAME", "n")
                .args(command)
                .arg("--print-config")
                .arg("--settings")
                .arg(&file);
            run(&mut program, "")
        };
        let known = &schema["properties"][role]["properties"]["settings"];
        let printed: Value = serde_saphyr::from_str(&print(&json!({})).output()).unwrap();
        assert_known(&printed, known, role);
        let mut unknown = Vec::new();
        for (name, field) in known["properties"].as_object().unwrap() {
            let mut tried = vec![json!({name: {}})];
            let inner = field["properties"].as_object().into_iter().flatten();
            tried.extend(inner.map(|(inner, _)| json!({name: {inner: {}}})));
            unknown.extend(
                tried
                    .into_iter()
                    .filter(|settings| print(settings).err.contains("there is no setting")),
            );
        }
        assert!(unknown.is_empty(), "{role}: {unknown:?}");
    }
}

/// Each key of the settings is in the schema.
fn assert_known(settings: &Value, schema: &Value, path: &str) {
    for (name, value) in settings.as_object().into_iter().flatten() {
        let field = &schema["properties"][name];
        assert!(!field.is_null(), "values.schema.json has no {path}.{name}");
        if !field["properties"].is_null() {
            assert_known(value, field, &format!("{path}.{name}"));
        }
    }
}
