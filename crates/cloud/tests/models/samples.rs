//! The texts that the reference of the API itself gives, byte for byte, and every field's name and form.

use serde_json::{Value, json};
use tidewaiter_cloud::models::values::KubernetesVersion;
use tidewaiter_cloud::models::{
    Failure, Model, NodeStatusReport, PluginManifests, Role, Unknown, User, parse, parse_list,
};

use crate::kinds::{all, named};

fn same_bytes<T: Model + serde::Serialize>(text: &str) {
    let model: T = parse(text.as_bytes(), Unknown::Refuse).unwrap();
    assert_eq!(serde_json::to_string(&model).unwrap(), text);
}

#[test]
fn the_samples_of_the_reference_are_written_byte_for_byte() {
    same_bytes::<NodeStatusReport>(r#"{"status":{"type":"RUNNING","message":"","percent":1}}"#);
    same_bytes::<Failure>(r#"{"code":404,"message":"not found"}"#);
    same_bytes::<PluginManifests>(concat!(
        r#"{"manifests":[[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}],"#,
        r#"[{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"b"}}]],"#,
        r#""jobs":{"pre_apply":[{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"c"},"#,
        r#""spec":{"activeDeadlineSeconds":60}}],"post_apply":[]}}"#
    ));
}

#[test]
fn every_kind_is_written_with_the_fields_that_it_was_read_with() {
    for kind in all() {
        let outcome =
            (kind.accept)(kind.example.to_string().as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        assert_eq!(outcome.written, kind.example, "{}", kind.name);
    }
}

/// The names that stand in the reference, for the kinds that clients read.
#[test]
fn no_field_of_the_reference_is_missing() {
    for (name, fields) in [
        (
            "account",
            "id created_at updated_at name enabled email phone avatar_url",
        ),
        ("organization", "id name owner_id created_at updated_at locked"),
        (
            "service account",
            "id created_at updated_at organization_id owner_id name description role expires_at",
        ),
        ("user", "id name email avatar_url added_at ssh_keys expires_at"),
        (
            "registry",
            "id created_at updated_at added_at description organization_id email provider serveraddress credentials owner",
        ),
        (
            "provider",
            "id created_at updated_at organization_id provider description",
        ),
        (
            "cluster",
            "id created_at updated_at organization_id name owner_id api_server_address worker_nodes_address environment \
             version provider_name provider_id engine configuration status provision_service_version",
        ),
        (
            "plugin",
            "id created_at updated_at added_at description type implementation version organization_id cluster_id configuration",
        ),
        ("cluster label", "id created_at updated_at key value"),
        ("plugin definition", "type implementation versions"),
        ("plugin version", "version disabled configuration_schema compatibility"),
        (
            "node pool",
            "id status os name count docker_version kubernetes_mode kubernetes_version etcd etcd_version is_schedulable autoscaling",
        ),
        (
            "node",
            "id status addresses created_at updated_at name provider_id node_pool_id",
        ),
        ("node pool label", "id created_at updated_at key value node_pool_id"),
        (
            "autoscaling policy",
            "id name metrics_backend metric metric_configuration poll_interval sample_period scaling_policy",
        ),
        (
            "role",
            "id created_at updated_at organization_id name description owner_id rules",
        ),
        (
            "role binding",
            "id created_at updated_at organization_id owner_id type authorization_role_id user_id team_id cluster_id namespace expires_at",
        ),
        (
            "upgrade",
            "id type addedAt description targetVersion labelSelector nodeTimeoutSeconds policy status",
        ),
    ] {
        let kind = named(name);
        let written = (kind.accept)(kind.example.to_string().as_bytes()).unwrap().written;
        let mut found: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
        let mut wanted: Vec<&str> = fields.split_whitespace().collect();
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn a_client_that_writes_empty_texts_means_nothing_by_them() {
    let mut binding = named("role binding").example;
    for field in ["team_id", "owner_id", "cluster_id", "namespace"] {
        binding[field] = json!("");
    }
    let written = (named("role binding").accept)(binding.to_string().as_bytes())
        .unwrap()
        .written;
    assert_eq!(
        (&written["namespace"], &written["team_id"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn what_a_newer_server_adds_is_passed_over_only_where_that_was_asked_for() {
    let mut user = named("user").example;
    user["ssh_keys"][0]["last_used"] = json!({"at": 1});
    let text = user.to_string();
    assert!(parse::<User>(text.as_bytes(), Unknown::Ignore).is_ok());
    let error = parse::<User>(text.as_bytes(), Unknown::Refuse).unwrap_err();
    assert_eq!(error.field, "ssh_keys[0].last_used");
}

#[test]
fn only_an_array_is_a_list() {
    let user = named("user").example;
    let list = json!([user, user]).to_string();
    assert_eq!(parse_list::<User>(list.as_bytes(), Unknown::Ignore).unwrap().len(), 2);
    assert!(parse_list::<User>(b"[]", Unknown::Ignore).unwrap().is_empty());
    for text in [
        "",
        " ",
        "null",
        "{}",
        "false",
        "\"\"",
        "<html></html>",
        &list[..list.len() - 1],
        &user.to_string(),
    ] {
        assert!(parse_list::<User>(text.as_bytes(), Unknown::Ignore).is_err(), "{text}");
    }
    let error = parse_list::<User>(br#"[{"id":7}]"#, Unknown::Ignore).unwrap_err();
    assert_eq!(error.field, "[0].id");
}

#[test]
fn a_role_without_its_rules_is_not_a_role_that_allows_nothing() {
    let mut role = named("role").example;
    role.as_object_mut().unwrap().remove("rules");
    let role: Role = parse(role.to_string().as_bytes(), Unknown::Refuse).unwrap();
    assert_eq!(role.rules, None);
    assert!(serde_json::to_value(&role).unwrap().get("rules").is_none());
}

#[test]
fn times_and_versions_are_written_in_one_form() {
    for (text, written) in [
        ("1551441600000", "1551441600000"),
        ("2019-03-01T12:00:00Z", "1551441600000"),
        ("2019-03-01T12:00:00.120Z", "1551441600120"),
        ("2019-03-01T13:00:00+01:00", "1551441600000"),
    ] {
        let mut node = named("node").example;
        node["created_at"] = text.into();
        assert_eq!(
            (named("node").accept)(node.to_string().as_bytes()).unwrap().written["created_at"],
            written
        );
    }
    assert_eq!("v1.12.3".parse::<KubernetesVersion>().unwrap().to_string(), "1.12.3");
}

#[test]
fn a_message_says_where_what_and_what_may_be() {
    for (name, field, value, message) in [
        (
            "user",
            "email",
            json!("alice"),
            r#"email: "alice": must be an e-mail address of at most 254 ASCII characters, for example alice@example.com"#,
        ),
        (
            "user",
            "id",
            json!(7),
            "id: is the number 7, must be the id of a user: a UUID of 36 characters",
        ),
        ("user", "name", Value::Null, "name: is missing: must be a text (name)"),
        (
            "login",
            "password",
            json!(1234),
            "password: is a number, must be a string of 1 to 16384 bytes without NUL (in YAML, put it in quotes)",
        ),
        (
            "user",
            "name",
            json!(2024),
            "name: is the number 2024, must be a text (name) (in YAML, put it in quotes)",
        ),
        (
            "cluster label",
            "value",
            json!(true),
            "value: is true, must be a label value (in YAML, put it in quotes)",
        ),
        (
            "node pool",
            "kubernetes_mode",
            json!("both"),
            r#"kubernetes_mode: is "both", must be the mode of a node pool: one of master, worker"#,
        ),
        (
            "node pool",
            "counts",
            json!(3),
            "counts: is not a field of a node pool; the nearest known field is count",
        ),
    ] {
        let mut document = named(name).example;
        document[field] = value;
        let error = (named(name).accept)(document.to_string().as_bytes()).err().unwrap();
        assert_eq!(error.to_string(), message);
    }
}
