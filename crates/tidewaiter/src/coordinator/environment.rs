//! The variables of the Go coordinator. Each one is a setting here, or produces a warning.

use tidewaiter_kit::settings::Alias;

use crate::controller::environment::variable;

/// The API key of the cluster. It is no setting, so that nothing prints it.
pub(super) const API_KEY: &str = "CONTAINERSHIP_CLOUD_CLUSTER_API_KEY";

/// The variables that are settings.
pub(super) const ALIASES: [Alias; 8] = [
    text("CONTAINERSHIP_CLOUD_API_BASE_URL", "cloud.apiBaseUrl"),
    text("CONTAINERSHIP_CLOUD_PROVISION_BASE_URL", "cloud.provisionBaseUrl"),
    text("CONTAINERSHIP_CLOUD_AUTH_BASE_URL", "cloud.authBaseUrl"),
    text("CONTAINERSHIP_CLOUD_ORGANIZATION_ID", "cloud.organizationId"),
    text("CONTAINERSHIP_CLOUD_CLUSTER_ID", "cloud.clusterId"),
    text("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "cloud.syncInterval"),
    text("CONTAINERSHIP_CLOUD_CA_FILE", "cloud.caFile"),
    Alias {
        variable: "CONTAINERSHIP_CLOUD_SERVER_PORT",
        key: "endpoints.address",
        value: |port| format!("0.0.0.0:{port}"),
    },
];

const fn text(variable: &'static str, key: &'static str) -> Alias {
    Alias {
        variable,
        key,
        value: str::to_owned,
    }
}

/// Variables without an effect. `KUBECONFIG` has its usual one.
const WITHOUT_EFFECT: [(&str, &str); 7] = [
    (
        "CONTAINERSHIP_CLOUD_ENVIRONMENT",
        "Tidewaiter does the same in every environment; log.filter says what is logged",
    ),
    ("AGENT_INFORMER_SYNC_INTERVAL_SEC", "only an agent reads it"),
    (
        "COORDINATOR_INFORMER_SYNC_INTERVAL_SEC",
        "the controllers act on every change at once, and repeat no pass without a change",
    ),
    ("NODE_NAME", "only an agent reads it"),
    ("KUBECTL_PATH", "Tidewaiter does not run kubectl"),
    ("ENABLE_CLUSTER_UPGRADE", "this version does not upgrade nodes"),
    (
        "DISABLE_CLUSTER_MANAGEMENT_PLUGIN_SYNC",
        "this version does not apply plugins",
    ),
];

/// One line for each variable that is set without an effect.
pub(super) fn warnings(environment: &[(String, String)]) -> Vec<String> {
    let set = WITHOUT_EFFECT
        .iter()
        .filter(|(name, _)| variable(environment, name).is_some());
    set.map(|(name, why)| format!("{name} has no effect: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_named_and_nothing_else_is() {
        let all: Vec<(String, String)> = WITHOUT_EFFECT
            .iter()
            .map(|(name, _)| *name)
            .chain(ALIASES.iter().map(|alias| alias.variable))
            .chain([API_KEY, "KUBECONFIG"])
            .map(|name| (name.to_owned(), "hunter2".to_owned()))
            .collect();
        let warned = warnings(&all);
        assert_eq!(warned.len(), WITHOUT_EFFECT.len(), "{warned:?}");
        for (line, (name, _)) in warned.iter().zip(WITHOUT_EFFECT) {
            assert!(
                line.starts_with(&format!("{name} has no effect: ")) && !line.contains("hunter2"),
                "{line}"
            );
        }
        let empty: Vec<_> = all.into_iter().map(|(name, _)| (name, String::new())).collect();
        assert_eq!(warnings(&empty), [""; 0], "an empty variable is unset");
    }
}
