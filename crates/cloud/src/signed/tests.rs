use minisign::KeyPair;
use serde_json::json;

use super::*;

const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";
const TIME: i64 = 1_790_000_000;

fn statement(digest: &str) -> Statement<'_> {
    Statement {
        cluster: CLUSTER,
        plugin: PLUGIN,
        plugin_type: "metrics",
        implementation: "prometheus",
        version: "1.2.3",
        digest,
    }
}

fn pair() -> (SigningKey, TrustedKey) {
    let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().unwrap();
    let text = sk.to_box(None).unwrap().into_string();
    let key = SigningKey::read::<SignatureError>(&text, || unreachable!("it has no password"));
    (key.unwrap(), pk.to_base64().parse().unwrap())
}

fn manifests() -> Value {
    json!({"manifests": [[{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}]],
        "jobs": {"pre_apply": [{"kind": "Job"}], "post_apply": []}})
}

#[test]
fn a_signature_counts_for_what_it_was_made_for_and_says_when() {
    let ((key, trusted), (_, other)) = (pair(), pair());
    let digest = manifests_digest(&manifests());
    let signature = sign(&key, &statement(&digest), TIME).unwrap();
    assert_eq!(verify(&[other, trusted], &statement(&digest), &signature), Ok(TIME));
}

#[test]
fn a_signature_counts_for_nothing_else() {
    let (key, trusted) = pair();
    let digest = manifests_digest(&manifests());
    let whole = statement(&digest);
    let signature = sign(&key, &whole, TIME).unwrap();
    let mut changed = manifests();
    changed["manifests"][0][0]["metadata"]["name"] = json!("b");
    let changed = manifests_digest(&changed);
    for field in 0..6 {
        let mut statement = whole;
        let Statement {
            cluster,
            plugin,
            plugin_type,
            implementation,
            version,
            digest,
        } = &mut statement;
        let fields = [cluster, plugin, plugin_type, implementation, version, digest];
        *fields.into_iter().nth(field).unwrap() = &changed;
        let found = verify(std::slice::from_ref(&trusted), &statement, &signature);
        assert_eq!(found, Err(SignatureError::Mismatch), "{statement:?}");
    }
}

#[test]
fn no_part_of_a_statement_can_be_mistaken_for_another() {
    let digest = manifests_digest(&manifests());
    for value in ["", "a b", "a\nversion 9", "\u{e4}"] {
        let hostile = Statement {
            implementation: value,
            ..statement(&digest)
        };
        let error = hostile.text().unwrap_err();
        assert_eq!(error, SignatureError::Unprintable("implementation"), "{value:?}");
    }
    let lines = format!(
        "tidewaiter plugin manifests 1\ncluster {CLUSTER}\nplugin {PLUGIN}\ntype metrics\nimplementation prometheus\nversion 1.2.3\nsha256 {digest}\n"
    );
    assert_eq!(statement(&digest).text().unwrap(), lines);
}

#[test]
fn the_digest_is_over_what_is_applied_and_not_over_how_it_is_written() {
    let digest = manifests_digest(&manifests());
    // As docs/design/plugins.md says it, so that others can compute it.
    assert_eq!(
        digest,
        "17c8c07a2e4cdf6b66928fc797fd61e4d7686841b6fdca1fafc6de3ca9f84b1e"
    );
    let same = r#"{ "id": "x", "version": "9", "jobs": {"post_apply": null, "pre_apply": [{"kind":"Job"}]}, "depends_on": null,
        "manifests": [[{"metadata":{"name":"\u0061"}, "apiVersion": "v1", "kind": "ConfigMap"}]]}"#;
    assert_eq!(manifests_digest(&serde_json::from_str(same).unwrap()), digest);
    let base = manifests();
    for (pointer, value) in [
        ("/manifests/0/0/metadata/name", json!("b")),
        ("/manifests/0", json!([])),
        ("/jobs/pre_apply", json!([])),
        ("/jobs/post_apply", json!([{"kind": "Job"}])),
    ] {
        let mut other = base.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        assert_ne!(manifests_digest(&other), digest, "{pointer}");
    }
    let mut other = base.clone();
    other["depends_on"] = json!(["a"]);
    assert_ne!(manifests_digest(&other), digest);
    // A job before is not a job after.
    let mut moved = base.clone();
    moved["jobs"] = json!({"post_apply": [{"kind": "Job"}], "pre_apply": []});
    assert_ne!(manifests_digest(&moved), digest);
}
