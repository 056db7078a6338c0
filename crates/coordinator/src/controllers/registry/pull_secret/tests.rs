use tidewaiter_kit::Packer;

use super::*;
use crate::controllers::registry::address::ServerAddress;

const SECRET: &str = "hunter2";

fn login(old_form: bool) -> Login {
    Login {
        address: ServerAddress::parse("https://quay.io/v1/").unwrap(),
        username: "u".to_owned().into(),
        password: SECRET.to_owned().into(),
        email: "a@example.com".to_owned(),
        old_form,
    }
}

fn token() -> PullSecret {
    let life = TokenLife {
        expires: "2026-01-01T12:00:00Z".parse().unwrap(),
        renews: "2026-01-01T06:00:00Z".parse().unwrap(),
        source: "digest".to_owned(),
    };
    PullSecret::of_token(
        "r",
        &["https://1.dkr.ecr.us-east-1.amazonaws.com"],
        ("AWS", SECRET),
        "",
        life,
    )
}

/// As the API server returns it.
fn written(secret: &PullSecret) -> Value {
    let mut written = json!(secret.body("n").unwrap());
    written["metadata"]["uid"] = json!("u");
    written["metadata"]["resourceVersion"] = json!("1");
    written
}

fn copy(object: &Value) -> SecretCopy {
    serde_json::from_value(object.clone()).unwrap()
}

#[test]
fn the_forms_that_container_runtimes_read() {
    let content = |secret: &PullSecret| -> Value { serde_json::from_slice(&secret.config.0).unwrap() };
    let entry = json!({"username": "u", "password": SECRET, "auth": "dTpodW50ZXIy", "email": "a@example.com"});
    let new = PullSecret::of_login("r", &login(false));
    assert_eq!(content(&new), json!({"auths": {"https://quay.io/v1/": entry}}));
    assert_eq!(written(&new)["type"], "kubernetes.io/dockerconfigjson");
    assert_eq!(
        written(&new)["metadata"]["labels"],
        json!({"containership.io/managed": "true", "controller": "r"})
    );
    assert!(written(&new)["metadata"].get("annotations").is_none());
    let old = PullSecret::of_login("r", &login(true));
    assert_eq!(content(&old), json!({"https://quay.io/v1/": entry}));
    assert!(written(&old)["data"].get(".dockercfg").is_some());
    assert_eq!(
        written(&token())["metadata"]["annotations"]["tidewaiter.dev/token-expires"],
        "2026-01-01T12:00:00Z"
    );
}

#[test]
fn a_copy_differs_when_a_field_of_ours_does_and_only_then() {
    for secret in [
        PullSecret::of_login("r", &login(false)),
        PullSecret::of_login("r", &login(true)),
        token(),
    ] {
        let good = written(&secret);
        assert_eq!(secret.difference(&copy(&good)), Difference::None);
        let mut more = good.clone();
        more["data"]["other"] = json!("eA==");
        more["metadata"]["labels"]["team"] = json!("a");
        assert_eq!(secret.difference(&copy(&more)), Difference::None, "what others add");
        for (path, value) in [
            (format!("/data/{}", secret.key), json!("eA==")),
            ("/metadata/labels/controller".to_owned(), json!("other")),
        ] {
            let mut edited = good.clone();
            *edited.pointer_mut(&path).unwrap() = value;
            assert_eq!(
                secret.difference(&copy(&edited)),
                Difference::Patch(secret.patch()),
                "{path}"
            );
        }
        let mut fixed = good.clone();
        fixed["data"][secret.key] = json!("eA==");
        fixed["immutable"] = json!(true);
        assert_eq!(secret.difference(&copy(&fixed)), Difference::Replace);
    }
    let new = PullSecret::of_login("r", &login(false));
    let old = PullSecret::of_login("r", &login(true));
    assert_eq!(
        new.difference(&copy(&written(&old))),
        Difference::Replace,
        "a type cannot be changed"
    );
    let patch = new.patch();
    assert_eq!(
        new.difference(&copy(&written(&token()))),
        Difference::Patch(patch.clone())
    );
    assert!(patch["metadata"]["annotations"]["tidewaiter.dev/token-expires"].is_null());
}

/// A user who edits a copy cannot make it look as desired: a Secret does not have the fields of the cache.
#[test]
fn a_copy_is_small_and_holds_no_content() {
    let secret = PullSecret::of_login("r", &login(false));
    let whole = copy(&written(&secret));
    let packer = Packer::new();
    let first = packer.pack(&whole);
    assert_eq!(secret.difference(&packer.unpack(&first)), Difference::None);
    let text = json!(whole).to_string();
    assert!(!text.contains(SECRET) && !text.contains("dTpodW50ZXIy"), "{text}");
    for shown in [format!("{secret:?}"), format!("{whole:?}")] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
}

#[test]
fn what_was_written_is_read_back() {
    for secret in [
        PullSecret::of_login("r", &login(false)),
        PullSecret::of_login("r", &login(true)),
        token(),
    ] {
        let stored: StoredSecret = serde_json::from_value(written(&secret)).unwrap();
        assert_eq!(stored.pull_secret_of(), Some("r"));
        let read = PullSecret::of_stored("r", &stored).unwrap();
        assert_eq!(read.digest(), secret.digest());
        assert_eq!(read.token(), secret.token());
    }
}

#[test]
fn a_managed_secret_that_we_did_not_write_is_not_ours() {
    let secret = PullSecret::of_login("r", &login(false));
    let owned = |labels: Value, manager: &str| {
        let entries = json!([{"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}}]);
        let meta: ObjectMeta = serde_json::from_value(json!({"labels": labels, "managedFields": entries})).unwrap();
        secret.owns(&meta)
    };
    let managed = || json!({MANAGED_LABEL: MANAGED_VALUE});
    assert!(owned(managed(), MANAGER));
    assert!(!owned(managed(), "tidewaiter/mirror"), "the credentials of a registry");
    assert!(owned(json!({}), MANAGER), "somebody took the labels off");
    assert!(!owned(json!({}), "kubectl"), "somebody else's");
}

#[test]
fn only_pull_secrets_of_registries_are_of_concern() {
    let good = written(&PullSecret::of_login("r", &login(false)));
    assert!(copy(&good).is_pull_secret() && copy(&good).is_named_as_pull_secret());
    let with = |path: &str, value: &str| {
        let mut other = good.clone();
        *other.pointer_mut(path).unwrap() = json!(value);
        copy(&other)
    };
    assert!(!with("/metadata/name", "other").is_named_as_pull_secret());
    // In its place, and nowhere else: one of no registry is not deleted.
    let forged = with("/type", "Opaque");
    assert!(forged.is_named_as_pull_secret() && !forged.is_pull_secret());
    for old_form in [false, true] {
        let desired = PullSecret::of_login("r", &login(old_form));
        assert_eq!(desired.difference(&forged), Difference::Replace);
    }
}
