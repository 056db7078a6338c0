//! The settings of the coordinator: a file, the variables of the Go coordinator, our own; and what is refused.

use std::process::Command;

use tidewaiter_testkit::{Scratch, free_port, leaks};

use crate::{deploy, write};

pub const ORGANIZATION: &str = "11111111-1111-4111-8111-111111111111";
pub const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
/// No output may contain it.
pub const KEY: &str = "twk_hunter2hunter2";

/// The variables of a cloud that is away.
pub fn away() -> Vec<(&'static str, String)> {
    let url = format!("http://127.0.0.1:{}", free_port());
    vec![
        ("CONTAINERSHIP_CLOUD_API_BASE_URL", url),
        ("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", ORGANIZATION.to_owned()),
        ("CONTAINERSHIP_CLOUD_CLUSTER_ID", CLUSTER.to_owned()),
        ("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", leaks::secret(KEY)),
    ]
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
    command
        .arg("coordinator")
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied());
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    assert!(
        !format!("{}{}", ran.out, ran.err).contains("hunter2"),
        "{}{}",
        ran.out,
        ran.err
    );
    ran
}

fn printed(arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let ran = run(&[&["--print-config"], arguments].concat(), variables);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    ran
}

#[test]
fn its_settings_can_be_printed_and_a_wrong_one_is_named() {
    let text = printed(&[], &[("TIDEWAITER_LEASE__NAME", "other")]).out;
    assert!(
        text.contains("namespace: containership-core") && text.contains("name: other"),
        "{text}"
    );
    let wrong = run(&[], &[("TIDEWAITER_LEASE__NAME", "not a name")]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("lease.name is \"not a name\""), "{}", wrong.err);
}

/// The environment of a Go coordinator.
const OLD: [(&str, &str); 17] = [
    ("CONTAINERSHIP_CLOUD_API_BASE_URL", "https://api.example.com"),
    (
        "CONTAINERSHIP_CLOUD_PROVISION_BASE_URL",
        "https://provision.example.com",
    ),
    ("CONTAINERSHIP_CLOUD_AUTH_BASE_URL", "https://auth.example.com"),
    ("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", ORGANIZATION),
    ("CONTAINERSHIP_CLOUD_CLUSTER_ID", CLUSTER),
    ("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", KEY),
    ("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "45s"),
    ("CONTAINERSHIP_CLOUD_SERVER_PORT", "8123"),
    ("CONTAINERSHIP_CLOUD_ENVIRONMENT", "production"),
    ("AGENT_INFORMER_SYNC_INTERVAL_SEC", "1m"),
    ("COORDINATOR_INFORMER_SYNC_INTERVAL_SEC", "1m"),
    ("NODE_NAME", "node-1"),
    ("KUBECONFIG", "/nowhere/kubeconfig"),
    ("KUBECTL_PATH", "/usr/bin/kubectl"),
    ("ENABLE_CLUSTER_UPGRADE", "true"),
    ("DISABLE_CLUSTER_MANAGEMENT_PLUGIN_SYNC", "true"),
    ("CONTAINERSHIP_CLOUD_CA_FILE", "/nowhere/ca.pem"),
];

#[test]
fn every_variable_of_the_go_coordinator_has_its_meaning_or_is_named_in_a_warning() {
    let ran = printed(&[], &OLD);
    for line in [
        "apiBaseUrl: https://api.example.com",
        "provisionBaseUrl: https://provision.example.com",
        "authBaseUrl: https://auth.example.com",
        &format!("organizationId: {ORGANIZATION}"),
        &format!("clusterId: {CLUSTER}"),
        "syncInterval: 45s",
        "caFile: /nowhere/ca.pem",
        "address: 0.0.0.0:8123",
        "pluginSync: exceptClusterManagement",
        "upgrades: enabled",
    ] {
        assert!(ran.out.contains(line), "{line} in {}", ran.out);
    }
    let warned = |name: &str| {
        ran.err
            .lines()
            .any(|line| line.contains(&format!("{name} has no effect: ")))
    };
    let effective = |name: &str| name.starts_with("CONTAINERSHIP_CLOUD_") && name != "CONTAINERSHIP_CLOUD_ENVIRONMENT";
    for (name, _) in OLD {
        let has_effect = effective(name)
            || [
                "KUBECONFIG",
                "DISABLE_CLUSTER_MANAGEMENT_PLUGIN_SYNC",
                "ENABLE_CLUSTER_UPGRADE",
            ]
            .contains(&name);
        assert_eq!(warned(name), !has_effect, "{name}: {}", ran.err);
    }
}

#[test]
fn the_help_names_the_variables_of_the_go_coordinator() {
    let ran = run(&["--help"], &[]);
    let effective = |name: &str| name.starts_with("CONTAINERSHIP_CLOUD_") && name != "CONTAINERSHIP_CLOUD_ENVIRONMENT";
    for (name, _) in OLD.iter().filter(|(name, _)| effective(name)) {
        assert!(ran.out.contains(name), "{name} in {}", ran.out);
    }
}

#[test]
fn the_settings_of_the_manifest_are_valid() {
    let text = std::fs::read_to_string(deploy().join("deployment.yaml")).unwrap();
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(&text).unwrap();
    let config = documents
        .iter()
        .find(|document| document["kind"] == "ConfigMap")
        .unwrap();
    let settings = config["data"]["settings.yaml"].as_str().unwrap();
    let scratch = Scratch::new("coordinator-manifest");
    let file = scratch.path().join("settings.yaml");
    // With its comments, too.
    for text in [
        settings.to_owned(),
        settings.replace("# ", "").replace("With a", "# With a"),
    ] {
        write(&file, &text);
        let printed = printed(&[&format!("--settings={}", file.display())], &[]);
        assert!(
            printed.out.contains("apiKeyFile: /etc/tidewaiter/cloud/api-key"),
            "{}",
            printed.out
        );
        assert_eq!(
            printed.out.contains("tlsCertificate: /etc"),
            text != settings,
            "{}",
            printed.out
        );
    }
}

#[test]
fn what_is_printed_is_a_settings_file_that_the_variables_override() {
    let scratch = Scratch::new("coordinator-settings");
    let (file, text) = (scratch.path().join("settings.yaml"), printed(&[], &OLD).out);
    write(&file, &text);
    let settings = format!("--settings={}", file.display());
    assert_eq!(printed(&[&settings], &[]).out, text);
    let both = [
        ("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "50s"),
        ("CONTAINERSHIP_CLOUD_CLUSTER_ID", ORGANIZATION),
        ("TIDEWAITER_CLOUD__CLUSTER_ID", CLUSTER),
    ];
    let out = printed(&[&settings], &both).out;
    assert!(out.contains("syncInterval: 50s"), "{out}");
    assert!(
        out.contains(&format!("clusterId: {CLUSTER}")),
        "our own variable counts more: {out}"
    );
}

#[test]
fn a_wrong_value_is_named_with_its_source_and_what_is_allowed() {
    let scratch = Scratch::new("coordinator-wrong");
    let file = scratch.path().join("settings.yaml");
    let settings = format!("--settings={}", file.display());
    for (name, value, words) in [
        ("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", "acme", &["\"acme\"", "UUID"][..]),
        ("CONTAINERSHIP_CLOUD_CLUSTER_ID", "prod", &["\"prod\"", "UUID"]),
        (
            "CONTAINERSHIP_CLOUD_API_BASE_URL",
            "cloud.example.com",
            &["\"cloud.example.com\"", "must be a URL"],
        ),
        (
            "CONTAINERSHIP_CLOUD_AUTH_BASE_URL",
            "https://a/v3",
            &["more than a host"],
        ),
        (
            "CONTAINERSHIP_CLOUD_PROVISION_BASE_URL",
            "https://me:hunter2@a",
            &["not shown"],
        ),
        ("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "30", &["\"30\"", "30s"]),
        (
            "CONTAINERSHIP_CLOUD_SERVER_PORT",
            "http",
            &["is \"http\": must be a port, a number from 1 to 65535"],
        ),
        ("CONTAINERSHIP_CLOUD_SERVER_PORT", "65536", &["is \"65536\""]),
        (
            "CONTAINERSHIP_CLOUD_SERVER_PORT",
            "10.0.0.1:8000",
            &["endpoints.address"],
        ),
    ] {
        for arguments in [&["--print-config"][..], &[]] {
            let ran = run(arguments, &[(name, value)]);
            assert_eq!(ran.code, Some(2), "{name}");
            for word in [&[name], words].concat() {
                assert!(ran.err.contains(word), "{word} in {}", ran.err);
            }
        }
    }
    for wrong in ["30", "25h", "1mo", "-30s"] {
        let ran = run(&["--print-config"], &[("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", wrong)]);
        assert!(
            ran.code == Some(2) && ran.err.contains("for example 30s"),
            "{wrong}: {}",
            ran.err
        );
    }
    write(&file, "cloud: {syncInterval: 30}\n");
    let ran = run(&[&settings], &[]);
    assert!(
        ran.err
            .contains("cloud.syncInterval is 30: must be a duration with a unit"),
        "{}",
        ran.err
    );
    write(&file, "cloud: {organizationId: acme}\n");
    let ran = run(&[&settings], &[]);
    assert!(
        !ran.err.contains("CONTAINERSHIP_CLOUD"),
        "the file is wrong, not a variable: {}",
        ran.err
    );
    let words = ["settings.yaml: cloud.organizationId", "\"acme\"", "UUID"];
    // With the rest missing as well, the value is what is wrong first.
    assert!(
        ran.code == Some(2) && words.iter().all(|word| ran.err.contains(word)),
        "{}",
        ran.err
    );
    write(&file, "cloud: {apiKey: hunter2}\n");
    let ran = run(&[&settings], &[]);
    assert!(
        ran.err
            .contains("there is no setting cloud.apiKey; the nearest is cloud.apiKeyFile"),
        "{}",
        ran.err
    );
    write(&file, "endpoints: {tlsCertificate: /a}\n");
    let ran = run(&[&settings], &[]);
    assert!(ran.err.contains("belong together"), "{}", ran.err);
}

const TRUSTED: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

#[test]
fn what_limits_plugins_is_read_from_the_file_and_the_environment() {
    let scratch = Scratch::new("coordinator-plugins");
    let file = scratch.path().join("settings.yaml");
    let settings = format!("--settings={}", file.display());
    write(
        &file,
        &format!(
            "pluginTrust: [{TRUSTED}]\npluginServiceAccounts: {{'*': containership-core/plugins}}\npluginApproval: {{metrics/prometheus: manual}}\n"
        ),
    );
    let variables = [
        ("TIDEWAITER_PLUGIN_SERVICE_ACCOUNTS__LOGS", "containership-core/logs"),
        ("TIDEWAITER_PLUGIN_APPROVAL__LOGS", "automatic"),
    ];
    let text = printed(&[&settings], &variables).out;
    assert!(text.contains(TRUSTED), "{text}");
    assert!(text.contains("logs: containership-core/logs"), "{text}");
    assert!(text.contains("containership-core/plugins"), "{text}");
    assert!(
        text.contains("metrics/prometheus: manual") && text.contains("logs: automatic"),
        "{text}"
    );
    write(&file, "pluginApproval: manual\n");
    assert!(printed(&[&settings], &[]).out.contains("pluginApproval: manual"));
    for (line, words) in [
        ("pluginTrust: [RWQ]", "pluginTrust.0 is \"RWQ\""),
        (
            "rbacCeiling: ''",
            "rbacCeiling is \"\", must be the name of a ClusterRole",
        ),
        (
            "systemNamespaces: ['*']",
            "systemNamespaces has \"*\", must be names of namespaces",
        ),
        ("pluginServiceAccounts: {a/b/c: d/e}", "TYPE/IMPLEMENTATION"),
        ("pluginDeny: [Secret.v1]", "must be kinds, for example"),
        ("pluginServiceAccounts: {a: default}", "write NAMESPACE/NAME"),
        ("pluginApproval: auto", "manual"),
        ("pluginApproval: {a/b/c: manual}", "TYPE/IMPLEMENTATION"),
        ("pluginApproval: {a: never}", "manual"),
    ] {
        write(&file, line);
        let ran = run(&["--print-config", &settings], &[]);
        assert_eq!(ran.code, Some(2), "{line}");
        let setting = line.split(':').next().unwrap();
        assert!(
            ran.err.contains(words) && ran.err.contains(setting),
            "{line}: {}",
            ran.err
        );
    }
}

#[test]
fn without_a_cloud_it_names_every_setting_that_is_missing() {
    let ran = run(&[], &[]);
    assert_eq!(ran.code, Some(2));
    for name in [
        "cloud.apiBaseUrl (CONTAINERSHIP_CLOUD_API_BASE_URL)",
        "cloud.organizationId (CONTAINERSHIP_CLOUD_ORGANIZATION_ID)",
        "cloud.clusterId (CONTAINERSHIP_CLOUD_CLUSTER_ID)",
        "cloud.apiKeyFile (or the key itself in CONTAINERSHIP_CLOUD_CLUSTER_API_KEY)",
    ] {
        assert!(ran.err.contains(name), "{name} in {}", ran.err);
    }
    let cloud = away();
    let all: Vec<_> = cloud.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for missing in &all {
        let others: Vec<_> = all.iter().copied().filter(|other| other != missing).collect();
        let ran = run(&[], &others);
        assert!(ran.code == Some(2) && ran.err.contains(missing.0), "{}", ran.err);
        assert!(others.iter().all(|(name, _)| !ran.err.contains(name)), "{}", ran.err);
    }
}

#[test]
fn a_host_or_an_account_that_would_have_no_effect_is_refused() {
    let scratch = Scratch::new("coordinator-registries");
    let file = scratch.path().join("settings.yaml");
    let settings = format!("--settings={}", file.display());
    for (text, words) in [
        (
            "unverifiedHosts: ['https://quay.io']",
            &["registries.unverifiedHosts", "\"https://quay.io\"", "HOST:PORT"][..],
        ),
        (
            "unverifiedHosts: [quay.io/team]",
            &["\"quay.io/team\"", "without a path"],
        ),
        ("unverifiedHosts: ['quay.io:443']", &["443 is omitted"]),
        (
            "pullSecretServiceAccounts: [default, Default]",
            &["registries.pullSecretServiceAccounts", "\"Default\"", "lower-case"],
        ),
        ("pullSecretServiceAccounts: ['a b']", &["\"a b\""]),
    ] {
        write(&file, &format!("registries: {{{text}}}\n"));
        let ran = run(&["--print-config", &settings], &[]);
        assert_eq!(ran.code, Some(2), "{text}");
        assert!(
            words.iter().all(|word| ran.err.contains(word)),
            "{words:?} in {}",
            ran.err
        );
    }
    write(
        &file,
        "registries: {unverifiedHosts: [quay.io, 'Registry.example.com:5000', 10.1.2.3], pullSecretServiceAccounts: [default]}\n",
    );
    assert_eq!(run(&["--print-config", &settings], &[]).code, Some(0));
}

#[test]
fn what_the_client_refuses_is_named_with_its_setting() {
    let scratch = Scratch::new("coordinator-client");
    let (file, ca) = (scratch.path().join("settings.yaml"), scratch.path().join("ca.pem"));
    let settings = format!("--settings={}", file.display());
    let key = ("CONTAINERSHIP_CLOUD_CLUSTER_API_KEY", KEY);
    let ids = format!("organizationId: {ORGANIZATION}, clusterId: {CLUSTER}");
    write(&ca, "hunter2 is no certificate");
    for (more, words) in [
        (
            "apiBaseUrl: 'http://cloud.example.com'".to_owned(),
            [
                "settings.yaml: cloud.apiBaseUrl is \"http://cloud.example.com\"",
                "use https://",
            ],
        ),
        (
            "apiBaseUrl: 'https://a.example.com', authBaseUrl: 'http://b.example.com'".to_owned(),
            ["cloud.authBaseUrl is \"http://b.example.com\"", "use https://"],
        ),
        (
            format!("apiBaseUrl: 'https://a.example.com', caFile: {}", ca.display()),
            ["settings.yaml: cloud.caFile is \"", "must be PEM"],
        ),
    ] {
        write(&file, &format!("cloud: {{{ids}, {more}}}\n"));
        let ran = run(&[&settings], &[key]);
        assert_eq!(ran.code, Some(2), "{more}: {}", ran.err);
        assert!(
            words.iter().all(|word| ran.err.contains(word)),
            "{words:?} in {}",
            ran.err
        );
    }
}

#[test]
fn the_key_is_read_from_its_file_and_only_when_the_role_starts() {
    let scratch = Scratch::new("coordinator-key");
    let (file, away) = (scratch.path().join("key"), away());
    let shown = file.display().to_string();
    let key_file = ("TIDEWAITER_CLOUD__API_KEY_FILE", shown.as_str());
    let others = away.iter().map(|(name, value)| (*name, value.as_str()));
    let others = others.filter(|(name, _)| !name.ends_with("KEY"));
    // The last problem that the role would meet: the key was good.
    let nowhere = ("TIDEWAITER_KUBECONFIG", "/nowhere/kubeconfig");
    let all: Vec<_> = others
        .chain([key_file, nowhere, ("TIDEWAITER_HEALTH_ADDRESS", "127.0.0.1:0")])
        .collect();
    let out = printed(&[], &all).out;
    assert!(out.contains(&format!("apiKeyFile: {shown}")), "{out}");
    for (content, words) in [
        (None, "cannot be read"),
        (Some("\n"), "contains no key"),
        (Some("hunter2 hunter2"), "(not shown)"),
        (Some("twk_hunter2\n"), "/nowhere/kubeconfig"),
        (Some("\u{feff}twk_hunter2\r\n"), "/nowhere/kubeconfig"),
    ] {
        if let Some(content) = content {
            write(&file, content);
        }
        let ran = run(&[], &all);
        assert!(
            ran.code == Some(2) && ran.err.contains(words),
            "{content:?}: {}",
            ran.err
        );
        assert!(ran.err.contains(&shown) || words.starts_with('/'), "{}", ran.err);
    }
}
