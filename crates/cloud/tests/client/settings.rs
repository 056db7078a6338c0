//! The settings of the client, and the values that it refuses.

use std::time::Duration;

use tidewaiter_cloud::client::{AccessToken, BaseUrl, Client, ClientSettings, CloudEnvironment, SettingsError};
use tidewaiter_kit::{Chain, ManualClock};

use crate::world::{TOKEN, cluster, settings};

const PREFIX: &str = "CONTAINERSHIP_CLOUD_";

fn read(changes: &[(&str, &str)]) -> Result<CloudEnvironment, String> {
    let mut variables: Vec<(String, String)> = [
        ("API_BASE_URL", "https://api.example.com"),
        ("ORGANIZATION_ID", "11111111-1111-4111-8111-111111111111"),
        ("CLUSTER_ID", "22222222-2222-4222-8222-222222222222"),
        ("CLUSTER_API_KEY", TOKEN),
    ]
    .map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()))
    .to_vec();
    for (name, value) in changes {
        variables.retain(|(known, _)| known.strip_prefix(PREFIX) != Some(name));
        variables.push((format!("{PREFIX}{name}"), (*value).to_owned()));
    }
    ClientSettings::from_environment(variables).map_err(|error| Chain(&error).to_string())
}

#[test]
fn the_environment_of_a_cluster_says_everything() {
    let found = read(&[]).unwrap();
    assert_eq!(found.cluster, cluster());
    assert_eq!(found.settings.auth.as_str(), "https://api.example.com/");
    assert_eq!(found.settings.sync_interval, Duration::from_secs(30));
    let found = read(&[
        ("PROVISION_BASE_URL", "https://provision.example.com"),
        ("AUTH_BASE_URL", "https://auth.example.com:8443/"),
        ("SYNC_INTERVAL_SEC", "1m30s"),
        ("ENVIRONMENT", "production"),
    ])
    .unwrap();
    assert_eq!(found.settings.provision.as_str(), "https://provision.example.com/");
    assert_eq!(found.settings.auth.as_str(), "https://auth.example.com:8443/");
    assert_eq!(found.settings.sync_interval, Duration::from_secs(90));
    let shown = format!("{found:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn capital_letters_in_an_id_are_the_same_id() {
    let found = read(&[("CLUSTER_ID", "ABCDEF22-2222-4222-8222-22222222222F")]).unwrap();
    let path = found.cluster.labels().to_string();
    assert!(
        path.contains("/clusters/abcdef22-2222-4222-8222-22222222222f/"),
        "{path}"
    );
}

#[test]
fn what_is_wrong_in_it_is_named_with_its_value_and_what_helps() {
    for (name, value, words) in [
        ("API_BASE_URL", "", &["is not set", "https://cloud.example.com"][..]),
        (
            "API_BASE_URL",
            "cloud.example.com",
            &["\"cloud.example.com\"", "must be a URL"],
        ),
        ("AUTH_BASE_URL", "ftp://a", &["\"ftp://a\"", "must be a URL"]),
        (
            "PROVISION_BASE_URL",
            "https://a/v3",
            &["\"https://a/v3\"", "more than a host", "a host of its own"],
        ),
        ("API_BASE_URL", "https://a?b", &["more than a host"]),
        (
            "API_BASE_URL",
            "https://me:hunter2@a",
            &["not shown", "must not contain a user"],
        ),
        ("API_BASE_URL", "https://a\n", &["must be a URL"]),
        ("API_BASE_URL", "https://a\tb", &["must be a URL"]),
        ("ORGANIZATION_ID", "acme", &["\"acme\"", "UUID"]),
        ("CLUSTER_ID", "", &["is not set", "the id of the cluster"]),
        (
            "CLUSTER_API_KEY",
            "",
            &["is not set", "the API key that the cloud returned"],
        ),
        ("CLUSTER_API_KEY", "hunter2 \u{e4}", &["(not shown)", "visible ASCII"]),
        ("CLUSTER_API_KEY", "hunter2\n", &["(not shown)"]),
        ("SYNC_INTERVAL_SEC", "30", &["\"30\"", "30s"]),
        ("SYNC_INTERVAL_SEC", "0s", &["\"0s\"", "from 1s"]),
        ("SYNC_INTERVAL_SEC", "-5s", &["\"-5s\"", "from 1s"]),
        (
            "CA_FILE",
            "/nowhere/ca.pem",
            &["/nowhere/ca.pem", "cannot be read", "No such file"],
        ),
    ] {
        let error = read(&[(name, value)]).expect_err(value);
        assert!(
            error.starts_with(PREFIX) && error.contains(name) && !error.contains("hunter2"),
            "{error}"
        );
        for word in words {
            assert!(error.contains(word), "{word} in {error}");
        }
    }
}

#[test]
fn a_token_goes_in_plain_text_to_this_machine_alone() {
    let clock = ManualClock::default().shared();
    for base in [
        "http://127.0.0.1:8080",
        "http://[::1]",
        "http://localhost:1",
        "https://cloud.example.com",
    ] {
        Client::new(&settings(base), clock.clone()).unwrap();
    }
    for base in [
        "http://cloud.example.com",
        "http://10.0.0.1",
        "http://127.0.0.1.example.com",
    ] {
        let error = Client::new(&settings(base), clock.clone()).unwrap_err();
        assert!(matches!(error, SettingsError::Plain(_)), "{error}");
        assert!(
            error.to_string().contains(base) && error.to_string().contains("use https://"),
            "{error}"
        );
        let mut allowed = settings(base);
        allowed.allow_plain_http = true;
        Client::new(&allowed, clock.clone()).unwrap();
    }
    // Each of the three is looked at.
    let mut mixed = settings("https://a");
    mixed.auth = "http://b".parse().unwrap();
    Client::new(&mixed, clock).unwrap_err();
}

#[test]
fn nothing_shows_a_token_or_the_password_of_a_proxy() {
    let mut settings = settings("https://a");
    settings.proxy = Some("http://me:hunter2@proxy:3128".parse().unwrap());
    let client = Client::new(&settings, ManualClock::default().shared()).unwrap();
    let token: AccessToken = TOKEN.parse().unwrap();
    let shown = format!("{settings:?} {client:?} {token:?}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn certificates_that_are_none_are_refused() {
    for pem in [
        "",
        "hello",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let mut settings = settings("https://a");
        settings.ca = Some(pem.as_bytes().to_vec());
        let error = Client::new(&settings, ManualClock::default().shared()).unwrap_err();
        assert!(Chain(&error).to_string().contains("certificates"), "{error}");
    }
}

#[test]
fn a_base_url_is_written_without_its_slash() {
    assert_eq!(
        "https://a:8443/".parse::<BaseUrl>().unwrap().to_string(),
        "https://a:8443"
    );
}
