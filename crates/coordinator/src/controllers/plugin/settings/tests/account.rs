use super::super::*;

#[test]
fn a_service_account_is_written_with_its_namespace() {
    let account: PluginAccount = "monitoring/metrics".parse().unwrap();
    assert_eq!(account.to_string(), "monitoring/metrics");
    for wrong in [
        "",
        "metrics",
        "monitoring/",
        "/metrics",
        "a/b/c",
        "A/b",
        "a/b\r\nImpersonate-Group: system:masters",
    ] {
        let error = wrong.parse::<PluginAccount>().unwrap_err();
        assert!(error.contains("NAMESPACE/NAME"), "{error}");
    }
}
