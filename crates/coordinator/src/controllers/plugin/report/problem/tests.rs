use kube::core::Status;
use serde_json::{Value, json};

use super::*;

fn id(kind: &str) -> ObjectId {
    ObjectId {
        kind: kind.to_owned(),
        namespace: "n".to_owned(),
        name: "a".to_owned(),
        ..ObjectId::default()
    }
}

fn refusal(code: u16, message: &str) -> Error {
    Error::Api(Box::new(Status::failure(message, "Reason").with_code(code)))
}

/// The code, what the API server said, the reason, and whether it goes on by itself.
#[test]
fn a_failed_write_names_the_object_what_was_said_and_what_helps() {
    let immutable = "data: Forbidden: field is immutable when `immutable` is set";
    let webhook = "failed calling webhook \"check.example.com\": connection refused";
    for (code, said, reason, passes, remedy) in [
        (403, "forbidden", "Denied", false, "deploy/coordinator/plugins"),
        (
            403,
            "unable to create new content in namespace n because it is being terminated",
            "ApplyFailed",
            true,
            "The namespace n is being deleted",
        ),
        (
            403,
            "admission webhook \"check.example.com\" denied the request: not now",
            "ApplyFailed",
            true,
            "An admission webhook or policy refuses it",
        ),
        (
            403,
            "widgets \"w\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: not now",
            "ApplyFailed",
            true,
            "An admission webhook or policy refuses it",
        ),
        (422, immutable, "ImmutableField", false, "on-immutable: replace"),
        (
            422,
            "spec.ports: Required value",
            "ApplyFailed",
            false,
            "Change the manifests",
        ),
        (
            400,
            "strict decoding error",
            "ApplyFailed",
            false,
            "Change the manifests",
        ),
        (409, "the object has been modified", "ApplyFailed", true, "tried again"),
        (429, "too many requests", "ApplyFailed", true, "tried again"),
        (500, webhook, "ApplyFailed", true, "tried again"),
        (503, "unavailable", "ApplyFailed", true, "tried again"),
        (
            500,
            "failed to create typed patch object (n/a; apps/v1, Kind=Deployment): duplicate entries for key [name=\"A\"]",
            "ApplyFailed",
            false,
            "two items of the same key",
        ),
        (
            500,
            "failed to create typed patch object (n/a; /v1, Kind=ConfigMap): .data.port: expected string, got &value.valueUnstructured{Value:8080}",
            "ApplyFailed",
            false,
            "correct the field that the message names. It may be unknown, have a value of another type (numbers and true/false that are meant as texts need quotes in YAML)",
        ),
        (
            500,
            "failed to convert new object (n/a; /v1, Kind=ConfigMap) to proper version: illegal base64 data at input byte 3",
            "ApplyFailed",
            false,
            "Change the manifests",
        ),
    ] {
        let problem = Problem::failed("apply", &id("ConfigMap"), &refusal(code, said), None);
        assert_eq!(
            (problem.reason, problem.is_transient),
            (reason, passes),
            "{code} {said}"
        );
        let note = &problem.note;
        assert!(note.starts_with("cannot apply ConfigMap n/a: "), "{note}");
        assert!(note.contains(said) && note.contains(remedy), "{note}");
    }
    let long = Problem::failed("apply", &id("ConfigMap"), &refusal(422, &"é".repeat(10_000)), None);
    assert!(long.note.len() < SAID + 300, "{}", long.note.len());
}

#[test]
fn what_the_api_server_says_of_a_secret_is_not_repeated() {
    let said = refusal(422, "data.password: Invalid value: \"hunter2\"");
    let problem = Problem::failed("apply", &id("Secret"), &said, None);
    let note = &problem.note;
    assert!(note.contains("Secret n/a") && !note.contains("hunter2"), "{note}");
    let error = PluginError::Problems(vec![problem]);
    let shown = format!("{error} {:?} {:?}", error.problem(), error.notice());
    assert!(!shown.contains("hunter2"), "{shown}");
}

/// Of a Secret, it is shown where something is wrong, and no value.
#[test]
fn an_error_about_a_secret_shows_no_value_of_it() {
    let status = |code: u16, message: &str, causes: Value| {
        let details = json!({"name": "a", "kind": "secrets", "causes": causes});
        let status =
            json!({"code": code, "message": message, "reason": "Invalid", "status": "Failure", "details": details});
        Error::Api(Box::new(serde_json::from_value(status).unwrap()))
    };
    let missing = json!([{"reason": "FieldValueRequired", "message": "Required value", "field": "data[tls.key]"}]);
    let invalid = json!([{"reason": "FieldValueInvalid", "message": "Invalid value: \"s3cret\"", "field": "data[k]"}]);
    for (error, shown) in [
        (
            status(422, "data[tls.key]: Required value", missing),
            "data[tls.key]: FieldValueRequired. Change",
        ),
        (
            status(422, "data[k]: Invalid value: \"s3cret\"", invalid),
            "data[k]: FieldValueInvalid. Change",
        ),
        (
            status(404, "namespaces \"n\" not found", json!([])),
            "namespaces \"n\" not found. Change",
        ),
        (
            status(500, "failed to create typed patch object: s3cret", json!([])),
            "what the API server said is not shown. Change the manifests in the cloud: correct the field that kubectl apply",
        ),
        (
            status(400, "cannot unmarshal s3cret", json!([])),
            "what the API server said is not shown. Change",
        ),
    ] {
        let problem = Problem::failed("apply", &id("Secret"), &error, None);
        assert!(
            problem.note.starts_with(&format!("cannot apply Secret n/a: {shown}")),
            "{}",
            problem.note
        );
        assert!(!problem.note.contains("s3cret"), "{}", problem.note);
    }
}
