//! The variables of the Go coordinator. Each one is a setting here, or produces a warning.

use std::num::NonZeroU16;

use tidewaiter_kit::settings::Alias;

use crate::controller::environment::variable;

/// The API key of the cluster. It is no setting, so that nothing prints it.
pub(super) const API_KEY: &str = "CONTAINERSHIP_CLOUD_CLUSTER_API_KEY";

/// The variables that begin with it are those of the coordinator alone.
const CLOUD_PREFIX: &str = "CONTAINERSHIP_CLOUD_";

/// The variables that are settings.
pub(super) const ALIASES: [Alias; 10] = [
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
        value: |port| {
            let port = port.parse::<NonZeroU16>();
            port.map(|port| format!("0.0.0.0:{port}"))
                .map_err(|_| "must be a port, a number from 1 to 65535; endpoints.address is for another address")
        },
    },
    Alias {
        variable: "DISABLE_CLUSTER_MANAGEMENT_PLUGIN_SYNC",
        key: "pluginSync",
        value: |disable| {
            // As Go reads a truth value; whatever else is set was set to disable.
            let all = ["0", "f", "false"].contains(&disable.to_ascii_lowercase().as_str());
            Ok(if all { "all" } else { "exceptClusterManagement" }.to_owned())
        },
    },
    Alias {
        variable: "ENABLE_CLUSTER_UPGRADE",
        key: "upgrades",
        value: |enable| {
            let enabled = ["1", "t", "true"].contains(&enable.to_ascii_lowercase().as_str());
            Ok(if enabled { "enabled" } else { "disabled" }.to_owned())
        },
    },
];

const fn text(variable: &'static str, key: &'static str) -> Alias {
    Alias {
        variable,
        key,
        value: |text| Ok(text.to_owned()),
    }
}

/// Returns the part of `--help` about the variables.
pub(crate) fn help() -> String {
    let settings = ALIASES.iter().map(|alias| (alias.variable, alias.key));
    let lines = settings.chain([(API_KEY, "the API key itself, instead of cloud.apiKeyFile")]);
    let lines: Vec<String> = lines.map(|(name, means)| format!("  {name:<40} {means}")).collect();
    format!(
        "Variables of the Go coordinator, which override the settings file, and the setting that each is:\n{}\n\n\
         docs/reference/settings.md describes all settings.",
        lines.join("\n")
    )
}

/// Variables without an effect. `KUBECONFIG` has its usual one.
const WITHOUT_EFFECT: [(&str, &str); 5] = [
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
];

/// One line for each variable that is set without an effect.
pub(super) fn warnings(environment: &[(String, String)]) -> Vec<String> {
    let set = WITHOUT_EFFECT
        .iter()
        .filter(|(name, _)| variable(environment, name).is_some());
    let known = |name: &str| {
        let aliases = ALIASES.iter().map(|alias| alias.variable);
        let mut names = aliases
            .chain(WITHOUT_EFFECT.iter().map(|(name, _)| *name))
            .chain([API_KEY]);
        names.any(|known| known == name)
    };
    let unknown = environment
        .iter()
        .filter(|(name, value)| name.starts_with(CLOUD_PREFIX) && !value.is_empty() && !known(name));
    set.map(|(name, why)| format!("{name} has no effect: {why}"))
        .chain(unknown.map(|(name, _)| format!("{name} has no effect: there is no such variable")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_every_variable_that_has_an_effect() {
        let help = help();
        for name in ALIASES.iter().map(|alias| alias.variable).chain([API_KEY]) {
            assert!(help.contains(&format!("  {name} ")), "{name} in {help}");
        }
    }

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
        let misspelt = [("CONTAINERSHIP_CLOUD_CLUSTERID".to_owned(), "hunter2".to_owned())];
        assert_eq!(
            warnings(&misspelt),
            ["CONTAINERSHIP_CLOUD_CLUSTERID has no effect: there is no such variable"]
        );
        let empty: Vec<_> = all.into_iter().map(|(name, _)| (name, String::new())).collect();
        assert_eq!(warnings(&empty), [""; 0], "an empty variable is unset");
    }
}
