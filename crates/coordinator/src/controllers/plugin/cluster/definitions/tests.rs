use super::*;

#[test]
fn what_cannot_be_deleted_keeps_no_namespace() {
    let keeps = |kind: &str, operations: &[&str]| {
        let resource = ApiResource {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            api_version: "example.com/v1".to_owned(),
            kind: kind.to_owned(),
            plural: kind.to_lowercase(),
        };
        let capabilities = ApiCapabilities {
            scope: Scope::Namespaced,
            subresources: Vec::new(),
            operations: operations.iter().map(ToString::to_string).collect(),
        };
        keeps_namespace(&resource, &capabilities)
    };
    assert!(keeps("Widget", &["get", "list", "delete"]));
    for (kind, operations) in [
        ("PodMetrics", &["get", "list"][..]),
        ("PackageManifest", &["get", "list"]),
        ("Review", &["create"]),
        ("Lease", &["get", "list", "delete"]),
    ] {
        assert!(!keeps(kind, operations), "{kind}");
    }
}
