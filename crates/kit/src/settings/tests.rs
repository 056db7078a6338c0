use std::net::SocketAddr;

use serde::Deserialize;

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Role {
    admin_address: SocketAddr,
    mode: Mode,
    poll_seconds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    ports: Vec<u16>,
    lease: Lease,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Enforce,
    Warn,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Lease {
    name: String,
}

impl Default for Role {
    fn default() -> Self {
        let admin_address = SocketAddr::from(([127, 0, 0, 1], 1));
        Self {
            admin_address,
            mode: Mode::Enforce,
            poll_seconds: 30,
            region: None,
            ports: Vec::new(),
            lease: Lease::default(),
        }
    }
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            name: "leader".to_owned(),
        }
    }
}

/// A file with this content.
fn file(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    io::Write::write_all(&mut file, content.as_bytes()).unwrap();
    file
}

fn load_all(
    content: &str,
    variables: &[(&str, &str)],
    flags: &serde_json::Value,
) -> Result<Settings<Role>, SettingsError> {
    let file = file(content);
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    load(Some(file.path()), variables, flags)
}

fn none() -> serde_json::Value {
    serde_json::json!({})
}

#[test]
fn nothing_given_is_the_defaults() {
    let settings: Settings<Role> = load(None, [], &none()).unwrap();
    assert_eq!((settings.values, settings.warnings), (Role::default(), vec![]));
}

#[test]
fn a_later_source_wins() {
    let content = "pollSeconds: 1\nmode: warn\nregion: from-file\nlease: {name: from-file}\n";
    let variables = [
        ("TIDEWAITER_POLL_SECONDS", "2"),
        ("TIDEWAITER_LEASE__NAME", "from-variable"),
        ("OTHER", "x"),
    ];
    let settings = load_all(content, &variables, &serde_json::json!({"pollSeconds": 3})).unwrap();
    let lease = Lease {
        name: "from-variable".to_owned(),
    };
    let expected = Role {
        poll_seconds: 3,
        mode: Mode::Warn,
        region: Some("from-file".to_owned()),
        lease,
        ..Role::default()
    };
    assert_eq!((settings.values, settings.warnings), (expected, vec![]));
    let origin = |key| settings.origins.of(key);
    assert!(origin("mode").starts_with("the settings file "), "{}", origin("mode"));
    assert_eq!(origin("lease.name"), "the variable TIDEWAITER_LEASE__NAME");
    assert_eq!(origin("pollSeconds"), "the flags");
    assert_eq!(origin("adminAddress"), "the defaults");
}

/// A file, variables, and the expected parts of the error.
type Row = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

#[test]
fn errors_name_the_setting_the_value_the_source_and_the_remedy() {
    let rows: [Row; 13] = [
        (
            "mode: maybe",
            &[],
            &[
                "the settings file ",
                "mode is \"maybe\"",
                "must be one of enforce, warn",
            ],
        ),
        (
            "mode: [enforce]",
            &[],
            &["mode is [\"enforce\"]", "must be one of enforce, warn"],
        ),
        ("mode: 7", &[], &["mode is 7", "must be one of enforce, warn"]),
        ("pollSeconds: often", &[], &["pollSeconds is \"often\"", "must be u32"]),
        ("pollSeconds: -1", &[], &["pollSeconds is -1", "must be u32"]),
        (
            "ports: [1, here]",
            &[],
            &["the settings file ", "ports.1 is \"here\"", "must be u16"],
        ),
        (
            "adminAddress: here",
            &[],
            &["adminAddress is \"here\"", "invalid socket address"],
        ),
        (
            "adminAdress: 127.0.0.1:1",
            &[],
            &["no setting adminAdress", "the nearest is adminAddress"],
        ),
        (
            "lease: {nam: x}",
            &[],
            &["no setting lease.nam", "the nearest is lease.name"],
        ),
        (
            "",
            &[("TIDEWAITER_MODE", "maybe")],
            &[
                "the variable TIDEWAITER_MODE",
                "mode is \"maybe\"",
                "one of enforce, warn",
            ],
        ),
        (
            "adminAddress: https://u:hunter2@here",
            &[],
            &["adminAddress is \"(not shown: holds '@')\"", "invalid socket address"],
        ),
        ("- a\n- b", &[], &["is not a YAML mapping"]),
        (
            "mode: warn\nmode: enforce",
            &[],
            &[
                "is not a YAML mapping",
                "the key \"mode\" occurs twice in one mapping: remove one",
                "line 2",
            ],
        ),
    ];
    for (content, variables, parts) in rows {
        let error = load_all(content, variables, &none()).unwrap_err().to_string();
        for part in parts {
            assert!(
                error.contains(part),
                "{content:?} {variables:?}: no {part:?} in: {error}"
            );
        }
        assert!(!error.contains('\n') && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_variable_of_a_service_is_no_setting_and_stops_nothing() {
    let settings = load_all("", &[("TIDEWAITER_CONTROLLER_SERVICE_HOST", "10.0.0.1")], &none()).unwrap();
    assert_eq!(settings.values, Role::default());
    assert_eq!(
        settings.warnings,
        ["TIDEWAITER_CONTROLLER_SERVICE_HOST is not a setting and has no effect"]
    );
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let content = "region: from-file\nlease: {name: from-file}\n";
    let empty = [
        "ADMIN_ADDRESS",
        "MODE",
        "POLL_SECONDS",
        "REGION",
        "LEASE__NAME",
        "LEASE",
        "NOBODYS",
    ];
    let variables = empty.map(|name| (format!("{PREFIX}{name}"), String::new()));
    let file = file(content);
    let settings: Settings<Role> = load(Some(file.path()), variables, &none()).unwrap();
    let without = load_all(content, &[], &none()).unwrap();
    assert_eq!(
        (&settings.values, &settings.warnings),
        (&without.values, &without.warnings)
    );
    assert_eq!(settings.values.region.as_deref(), Some("from-file"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = load::<Role>(Some(Path::new("/does/not/exist")), [], &none()).unwrap_err();
    assert!(error.to_string().contains("/does/not/exist"), "{error}");
}

#[test]
fn what_is_shown_can_be_loaded_again() {
    let settings = Role {
        poll_seconds: 7,
        ..Role::default()
    };
    let again = load_all(&to_yaml(&settings).unwrap(), &[], &none()).unwrap();
    assert_eq!(again.values, settings);
}

#[test]
fn a_variable_of_another_program_overrides_the_file_and_not_our_own_variables() {
    let aliases = [
        Alias {
            variable: "OLD_REGION",
            key: "region",
            value: |text| Ok(text.to_owned()),
        },
        Alias {
            variable: "OLD_PORT",
            key: "adminAddress",
            value: |port| {
                let port = port.parse::<u16>().map_err(|_| "must be a port");
                Ok(format!("0.0.0.0:{}", port?))
            },
        },
    ];
    let file = file("region: from-file\nadminAddress: 127.0.0.1:9\n");
    let read = |variables: &[(&str, &str)]| {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        load_with::<Role>(&aliases, Some(file.path()), variables.iter().map(owned), &none())
    };
    let settings = read(&[("OLD_REGION", "1"), ("OLD_PORT", "8000"), ("OLD_OTHER", "x")]).unwrap();
    assert_eq!(settings.values.region.as_deref(), Some("1"), "a text stays one");
    assert_eq!(settings.values.admin_address.to_string(), "0.0.0.0:8000");
    assert_eq!(settings.origins.of("region"), "the variable OLD_REGION");
    assert_eq!(settings.warnings, [""; 0]);
    let settings = read(&[("OLD_REGION", "old"), ("TIDEWAITER_REGION", "new"), ("OLD_PORT", "")]).unwrap();
    assert_eq!(settings.values.region.as_deref(), Some("new"));
    assert_eq!(settings.values.admin_address.to_string(), "127.0.0.1:9");
    let error = read(&[("OLD_PORT", "http")]).unwrap_err().to_string();
    assert_eq!(error, "the variable OLD_PORT is \"http\": must be a port");
}

#[test]
fn a_key_is_shown_unless_it_may_be_a_line_of_another_file() {
    for (key, shown) in [
        ("adminAdress", "adminAdress"),
        (
            "pluginApproval.logs/fluentd.manual",
            "pluginApproval.logs/fluentd.manual",
        ),
        ("c2VjcmV0/IA==", "with a name of 13 characters"),
        ("c2VjcmV0/IA", "with a name of 11 characters"),
        ("lease.c2VjcmV0IA==", "with a name of 18 characters"),
    ] {
        assert_eq!(name_shown(key.to_owned()), shown);
    }
}
