use minisign::KeyPair;

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
    (SigningKey(sk), pk.to_base64().parse().unwrap())
}

fn manifests() -> Value {
    json!({"manifests": [[{"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}]],
        "jobs": {"pre_apply": [{"kind": "Job"}], "post_apply": []}})
}

#[test]
fn a_signature_counts_for_what_it_was_made_for_and_says_when() {
    let ((key, trusted), (_, other)) = (pair(), pair());
    let digest = manifests_digest(&manifests());
    let signature = key.sign(&statement(&digest), TIME).unwrap();
    assert_eq!(verify(&[other, trusted], &statement(&digest), &signature), Ok(TIME));
}

#[test]
fn a_signature_counts_for_nothing_else() {
    let (key, trusted) = pair();
    let digest = manifests_digest(&manifests());
    let whole = statement(&digest);
    let signature = key.sign(&whole, TIME).unwrap();
    let mut changed = manifests();
    changed["manifests"][0][0]["metadata"]["name"] = json!("b");
    let changed = manifests_digest(&changed);
    for statement in [
        Statement {
            cluster: "22222222-2222-4222-8222-222222222223",
            ..whole
        },
        Statement {
            plugin: "cccccccc-0000-4000-8000-000000000002",
            ..whole
        },
        Statement {
            plugin_type: "logs",
            ..whole
        },
        Statement {
            implementation: "other",
            ..whole
        },
        Statement {
            version: "1.2.4",
            ..whole
        },
        Statement {
            digest: &changed,
            ..whole
        },
    ] {
        let found = verify(std::slice::from_ref(&trusted), &statement, &signature);
        assert_eq!(found, Err(SignatureError::Mismatch), "{statement:?}");
    }
}

#[test]
fn hostile_signatures_are_refused_and_harm_nothing() {
    let (key, trusted) = pair();
    let (other, _) = pair();
    let digest = manifests_digest(&manifests());
    let statement = statement(&digest);
    let good = key.sign(&statement, TIME).unwrap();
    let line = |number: usize, text: &str| {
        let mut lines: Vec<&str> = good.lines().collect();
        lines[number] = text;
        lines.join("\n")
    };
    let comment = good.lines().nth(2).unwrap();
    let later = comment.replace(&TIME.to_string(), &(TIME + 1).to_string());
    let legacy = {
        let mut bytes = STANDARD.decode(good.lines().nth(1).unwrap()).unwrap();
        bytes[1] = b'd';
        line(1, &STANDARD.encode(&bytes))
    };
    let timeless = {
        let text = statement.text().unwrap();
        let signed = minisign::sign(None, &key.0, Cursor::new(text), Some("file:a"), None);
        signed.unwrap().into_string()
    };
    let negative = key.sign(&statement, -1).unwrap();
    let unknown = other.sign(&statement, TIME).unwrap();
    for (signature, error) in [
        (String::new(), "malformed"),
        ("\n\n\n\n".to_owned(), "malformed"),
        ("x".repeat(100_000), "malformed"),
        (line(0, ""), "malformed"),
        (line(1, ""), "malformed"),
        (line(1, "AAAA"), "malformed"),
        (line(2, ""), "malformed"),
        (line(2, "trusted comment: "), "not for this"),
        // The time is signed.
        (line(2, &later), "not for this"),
        // The library would panic.
        (line(3, ""), "malformed"),
        (line(3, "AAAA"), "malformed"),
        (line(3, &format!("{}==", "A".repeat(86))), "not for this"),
        (line(3, &format!("{}==", "\u{e4}".repeat(43))), "malformed"),
        (legacy, "malformed"),
        (timeless, "timestamp:SECONDS"),
        (negative, "timestamp:SECONDS"),
        (unknown, "which is not trusted"),
    ] {
        let found = verify(std::slice::from_ref(&trusted), &statement, &signature).unwrap_err();
        assert!(found.to_string().contains(error), "{signature:?}: {found}");
    }
    assert!(verify(&[], &statement, &good).is_err());
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
        "a1096215de43dc0acf1d59601b26660daec01b0d32db7ea2e921e5f5d62ccec9"
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
    for field in ["depends_on", "health_checks"] {
        let mut other = base.clone();
        other[field] = json!(["a"]);
        assert_ne!(manifests_digest(&other), digest, "{field}");
    }
    // A job before is not a job after.
    let mut moved = base.clone();
    moved["jobs"] = json!({"post_apply": [{"kind": "Job"}], "pre_apply": []});
    assert_ne!(manifests_digest(&moved), digest);
}

#[test]
fn a_key_that_is_none_is_refused() {
    let (_, trusted) = pair();
    let text = trusted.to_string();
    assert_eq!(text.parse::<TrustedKey>().unwrap(), trusted);
    for wrong in [
        String::new(),
        "RWQ".to_owned(),
        text.to_lowercase().replace('=', "a"),
        format!("AAAA{}", &text[4..]),
    ] {
        assert!(wrong.parse::<TrustedKey>().is_err(), "{wrong}");
    }
}

#[test]
fn a_password_is_asked_for_only_if_the_key_has_one() {
    let text = pair().0.0.to_box(None).unwrap().into_string();
    let asked = || Err(SignatureError::SecretKey("asked".to_owned()));
    SigningKey::read(&text, asked).unwrap();
    let mut lines = text.lines();
    let comment = lines.next().unwrap();
    let mut bytes = STANDARD.decode(lines.next().unwrap()).unwrap();
    bytes[2..4].copy_from_slice(b"Sc");
    let encrypted = format!("{comment}\n{}\n", STANDARD.encode(&bytes));
    assert!(
        SigningKey::read(&encrypted, asked)
            .unwrap_err()
            .to_string()
            .contains("asked")
    );
    for wrong in ["", "a", "a\nb", "manifests: []\n"] {
        let error = SigningKey::read(wrong, asked).unwrap_err().to_string();
        assert!(!error.contains("asked"), "{wrong}: {error}");
    }
}
