//! Whatever is accepted is written and read back equal, whatever is refused is refused safely, and no secret is shown.

use proptest::prelude::*;
use serde_json::{Value, json};
use tidewaiter_cloud::models::{Plugin, PluginSpec, Unknown, parse, parse_list, parse_open};

use crate::kinds::{SECRET, Step, all, at, named, paths, shown};

/// Values that are nearly right more often than not.
fn values() -> impl Strategy<Value = Value> {
    let texts = prop_oneof![
        any::<String>(),
        "[a-zA-Z0-9._:/@*-]{0,70}",
        "[a-z]{1,5}(/[a-z*]{1,5})?",
        "v?[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}(-[a-z0-9.]{1,5})?",
        "(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-][01][0-9]:[0-5][0-9])",
        "https?://[a-zA-Z0-9.-]{1,20}(:[0-9]{1,5})?(/[a-zA-Z0-9%./?#-]{0,20})?",
        "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        "[0-9]{1,13}(\\.[0-9]{1,17})?",
    ];
    let leaves = prop_oneof![
        8 => texts.prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        2 => any::<i16>().prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    leaves.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,12}|.{0,5}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn is_secret(path: &[Step]) -> bool {
    matches!(shown(path).as_str(), "credentials" | "password") || shown(path).starts_with("credentials.")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_document_with_changed_fields(
        kind in 0..all().len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), values()), 1..3),
    ) {
        let kind = all().remove(kind);
        let mut document = kind.example.clone();
        for (index, value) in changes {
            let paths = paths(&document);
            if let Some(path) = paths.get(index.index(paths.len().max(1))) {
                // What is put in the place of a secret is one.
                *at(&mut document, path) = match value {
                    Value::String(text) if is_secret(path) => format!("{SECRET}{text}").into(),
                    value => value,
                };
            }
        }
        match (kind.accept)(document.to_string().as_bytes()) {
            Ok(outcome) => prop_assert!(!outcome.shown.contains(SECRET), "{}", outcome.shown),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(!text.contains(SECRET), "{text}");
                prop_assert!(!text.chars().any(char::is_control), "{text:?}");
                prop_assert!(text.len() < 4_000, "{}", text.len());
            }
        }
    }

    #[test]
    fn a_text_with_changed_bytes(kind in 0..all().len(), place in any::<prop::sample::Index>(), bytes in any::<[u8; 2]>()) {
        let kind = all().remove(kind);
        let mut text = kind.example.to_string().into_bytes();
        let place = place.index(text.len() - 1);
        text[place..place + 2].copy_from_slice(&bytes);
        if let Err(error) = (kind.accept)(&text) {
            prop_assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
        }
    }
}

/// An object with this number of levels of objects and lists.
fn nested(levels: usize, lists: &[bool]) -> Value {
    (1..levels).fold(json!({}), |inner, level| {
        if level + 1 < levels && lists[level % lists.len()] {
            json!([inner])
        } else {
            json!({ "a": inner })
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A server stores what it accepts, and puts it into lists and into the audit log.
    #[test]
    fn a_client_reads_what_a_server_stores(
        levels in 1..200_usize,
        lists in prop::collection::vec(any::<bool>(), 1..9),
    ) {
        let plugin = json!({"type": "metrics", "implementation": "prometheus", "version": "1.0.0",
            "configuration": nested(levels, &lists)});
        let accepted = parse::<PluginSpec>(plugin.to_string().as_bytes(), Unknown::Refuse);
        prop_assert_eq!(accepted.is_ok(), levels <= 32, "{:?}", accepted);
        if accepted.is_ok() {
            let mut stored = plugin.clone();
            for field in ["id", "organization_id", "cluster_id", "owner_id"] {
                stored[field] = json!("11111111-1111-4111-8111-111111111111");
            }
            stored["created_at"] = json!("1551441600000");
            stored["updated_at"] = json!("1551441600000");
            let list = json!([stored]).to_string();
            let read = parse_list::<Plugin>(list.as_bytes(), Unknown::Ignore);
            prop_assert!(read.is_ok(), "{:?}", read);
            let audit = json!({"rows": [{"after": plugin}]}).to_string();
            prop_assert!(parse_open(audit.as_bytes()).is_ok());
        }
    }
}

#[test]
fn what_has_a_secret_shows_none() {
    for name in ["registry", "login"] {
        let kind = named(name);
        let text = kind.example.to_string();
        assert!(text.contains(SECRET));
        let outcome = (kind.accept)(text.as_bytes()).unwrap();
        assert!(!outcome.shown.contains(SECRET), "{}", outcome.shown);
        assert!(
            outcome.written.to_string().contains(SECRET),
            "a client that may have it gets it"
        );
    }
}
