//! `tidewaiter coordinator`: the controllers that act on the cluster as a whole.

use serde::{Deserialize, Serialize};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_coordinator::controllers::{self, NodePoolSource};
use tidewaiter_coordinator::node_pools::NodePools;
use tidewaiter_kit::role::{self, Role, RoleSpec, WithRole};
use tidewaiter_kit::settings::{environment, load};

use crate::Failure;
use crate::cli::CoordinatorArgs;
use crate::settings::{LeasePlace, print};

/// The name of the role in Events and traces, and of its Lease.
const NAME: &str = "tidewaiter-coordinator";

/// The settings of the coordinator, besides those of every role.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct CoordinatorSettings {
    /// The Lease of the leader.
    lease: LeasePlace,
}

impl Default for CoordinatorSettings {
    fn default() -> Self {
        Self {
            lease: LeasePlace {
                namespace: CONTAINERSHIP_NAMESPACE.to_owned(),
                name: NAME.to_owned(),
            },
        }
    }
}

/// Runs the role until a signal or a failure.
pub(crate) fn main(args: &CoordinatorArgs) -> Result<(), Failure> {
    let environment = environment();
    let variables = environment.iter().cloned();
    let settings = load::<WithRole<CoordinatorSettings>>(args.settings.as_deref(), variables, &args.flags);
    let settings = settings.map_err(|error| Failure::Configuration(error.into()))?;
    if args.print_config {
        return print(&settings.values, &settings.warnings).map_err(Failure::Running);
    }
    let WithRole { role, own } = settings.values;
    let spec = RoleSpec {
        name: NAME,
        settings: role,
        lease: Some(own.lease.into()),
        environment,
        warnings: settings.warnings,
    };
    role::run(spec, async |role| {
        let Role {
            context,
            clients,
            tasks,
        } = role;
        // There is no cloud to ask, so the labels of the Nodes decide.
        let node_pools = NodePoolSource {
            setting: NodePools::Label,
            cloud: None,
        };
        controllers::start(node_pools, &clients, &context, tasks)
    })?;
    Ok(())
}
