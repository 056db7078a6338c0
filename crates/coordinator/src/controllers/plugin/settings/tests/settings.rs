use super::super::*;

#[test]
fn the_type_is_compared_without_regard_to_case_as_in_the_catalogue() {
    for (plugin_type, applied) in [
        ("cluster_management", false),
        ("Cluster_Management", false),
        ("CLUSTER_MANAGEMENT", false),
        ("metrics", true),
        ("cluster_management_too", true),
    ] {
        assert_eq!(
            PluginSync::ExceptClusterManagement.includes(plugin_type),
            applied,
            "{plugin_type}"
        );
        assert!(PluginSync::All.includes(plugin_type) && !PluginSync::None.includes(plugin_type));
    }
}
