use super::super::*;

#[test]
fn the_closest_row_counts() {
    let plugin = Identity {
        id: "cccccccc-0000-4000-8000-000000000001".to_owned(),
        type_: "metrics".to_owned(),
        implementation: "prometheus".to_owned(),
    };
    let id = plugin.id.as_str();
    for (rows, found) in [
        (
            vec![(id, 1), ("metrics/prometheus", 2), ("metrics", 3), ("*", 4)],
            Some(1),
        ),
        (vec![("metrics/prometheus", 2), ("metrics", 3), ("*", 4)], Some(2)),
        (vec![("METRICS", 3), ("*", 4)], Some(3)),
        (vec![("metrics/other", 2), ("*", 4)], Some(4)),
        (vec![("metrics/other", 2), ("logs", 3), ("prometheus", 5)], None),
    ] {
        let rows = ByPlugin(rows.into_iter().map(|(key, row)| (key.to_owned(), row)).collect());
        assert_eq!(rows.of(&plugin).copied(), found, "{rows:?}");
    }
}

#[test]
fn a_key_that_names_no_plugin_is_refused() {
    for key in ["", "a/", "/a", "a/b/c", "a b", "**"] {
        let error = serde_json::from_value::<ByPlugin<u8>>(serde_json::json!({ key: 1 })).unwrap_err();
        assert!(error.to_string().contains("TYPE/IMPLEMENTATION"), "{key}: {error}");
    }
    serde_json::from_str::<ByPlugin<u8>>(r#"{"CNI": 1, "CNI/calico": 2, "*": 3}"#).unwrap();
}
