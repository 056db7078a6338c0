//! `tidewaiter agent`: the controllers of one node.

use anyhow::Result;
use tidewaiter_agent::AgentSettings;
use tidewaiter_kit::role::{self, RoleSpec, WithRole};
use tidewaiter_kit::settings::{Alias, Settings, environment, load_with};

use crate::Failure;
use crate::cli::SettingsArgs;
use crate::controller::environment::variable;
use crate::settings::print;

/// The name of the role in Events and traces.
const NAME: &str = "tidewaiter-agent";

/// The variable of the Go agent that is a setting.
const ALIASES: [Alias; 1] = [Alias {
    variable: "NODE_NAME",
    key: "nodeName",
    value: |name| Ok(name.to_owned()),
}];

/// The variables of the Go agent without an effect.
const WITHOUT_EFFECT: [(&str, &str); 3] = [
    (
        "AGENT_INFORMER_SYNC_INTERVAL_SEC",
        "the agent acts on every change at once",
    ),
    (
        "CONTAINERSHIP_CLOUD_CLUSTER_API_KEY",
        "the agent does not call the cloud; remove it from the pod",
    ),
    (
        "ENABLE_CLUSTER_UPGRADE",
        "set upgrades: enabled, after tidewaiter host install on the node",
    ),
];

/// Runs the role until a signal or a failure.
pub(crate) fn main(args: &SettingsArgs) -> Result<(), Failure> {
    let environment = environment();
    let variables = environment.iter().cloned();
    let settings: Settings<WithRole<AgentSettings>> =
        load_with(&ALIASES, args.settings.as_deref(), variables, &args.flags)
            .map_err(|error| Failure::Configuration(error.into()))?;
    let checked = settings.values.own.check();
    checked.map_err(|error| Failure::Configuration(error.into()))?;
    let mut warnings = settings.warnings;
    let set = WITHOUT_EFFECT
        .iter()
        .filter(|(name, _)| variable(&environment, name).is_some());
    warnings.extend(set.map(|(name, why)| format!("{name} has no effect: {why}")));
    if args.print_config {
        return print(&settings.values, &warnings).map_err(Failure::Running);
    }
    let WithRole { role, own } = settings.values;
    let spec = RoleSpec {
        name: NAME,
        settings: role,
        lease: None,
        environment,
        warnings,
    };
    role::run(spec, async |role| tidewaiter_agent::start(own, role))?;
    Ok(())
}
