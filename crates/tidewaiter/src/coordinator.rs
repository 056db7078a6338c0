//! `tidewaiter coordinator`: the controllers that act on the cluster as a whole.
//!
//! The input of the operator is read and checked before anything starts.

mod environment;
mod settings;

use anyhow::Result;
use tidewaiter_cloud::client::{Client, CloudEnvironment};
use tidewaiter_coordinator::Cloud;
use tidewaiter_coordinator::endpoints::Port;
use tidewaiter_kit::role::{self, Role, RoleSpec, WithRole};
use tidewaiter_kit::serve::{self, Certificate};
use tidewaiter_kit::settings::{Settings, environment, load_with};

use crate::Failure;
use crate::cli::SettingsArgs;
use crate::settings::print;
use environment::ALIASES;
pub(crate) use environment::help;
use settings::CoordinatorSettings;

/// The name of the role in Events and traces, and of its Lease.
const NAME: &str = "tidewaiter-coordinator";

/// Runs the role until a signal or a failure.
pub(crate) fn main(args: &SettingsArgs) -> Result<(), Failure> {
    let environment = environment();
    let Settings {
        values,
        mut warnings,
        origins,
    } = read(args, &environment).map_err(Failure::Configuration)?;
    warnings.extend(environment::warnings(&environment));
    if args.print_config {
        return print(&values, &warnings).map_err(Failure::Running);
    }
    let WithRole { role, own } = values;
    let cloud = own.cloud(&origins, &environment).map_err(Failure::Configuration)?;
    let spec = RoleSpec {
        name: NAME,
        settings: role,
        lease: Some(own.lease.clone().into()),
        environment,
        warnings,
    };
    role::run(spec, async |role| start(cloud, own, role).await)?;
    Ok(())
}

fn read(args: &SettingsArgs, environment: &[(String, String)]) -> Result<Settings<WithRole<CoordinatorSettings>>> {
    let variables = environment.iter().cloned();
    let settings: Settings<WithRole<CoordinatorSettings>> =
        load_with(&ALIASES, args.settings.as_deref(), variables, &args.flags)?;
    settings.values.own.check(&settings.origins)?;
    Ok(settings)
}

/// Starts the controllers of the role: [`tidewaiter_coordinator::start`] is their table.
async fn start(environment: CloudEnvironment, own: CoordinatorSettings, role: Role<'_>) -> Result<()> {
    let CloudEnvironment { settings, cluster } = environment;
    let cloud = Cloud {
        client: Client::new(&settings, role.context.kit.clock.clone())?,
        cluster,
        interval: settings.sync_interval,
    };
    let endpoints = &own.endpoints;
    let certificate = endpoints
        .tls()
        .map(|(certificate, key)| Certificate::load(&certificate, &key));
    let port = Port {
        certificate: certificate.transpose()?,
        listener: serve::bind("endpoints.address", endpoints.address).await?,
    };
    tidewaiter_coordinator::start(&cloud, &own.decisions(), port, role)?;
    Ok(())
}
