//! `tidewaiter plugin`: shows and approves what a version of a plugin would change, and goes back to earlier versions.
//!
//! An approval is an annotation of the Plugin with the digest of exactly what was shown. The digest is computed here,
//! from what is shown, so anyone who changes the stored diff gets nothing approved.

mod choose;
mod shown;

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::containership::plugin::STALLED;
use tidewaiter_api::names::{APPROVE_ANNOTATION, CONTAINERSHIP_NAMESPACE, ROLLBACK_ANNOTATION, plugin_diff_secret};
use tidewaiter_api::values::printable;
use tidewaiter_api::{ConditionStatus, PluginInventory};
use tidewaiter_coordinator::controllers::{DIFF_KEY, PluginDiff};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Kit, Leadership, SharedClock, SystemClock, client};

use crate::Failure;
use crate::cli::{
    ClusterFlags, DiffFormat, PluginApproveArgs, PluginCommand, PluginDiffArgs, PluginHistoryArgs, PluginPlace,
    PluginRollbackArgs,
};
use crate::cloud::{confirm, is_table, print, rows, run};
use crate::place::api_server;
use choose::{named, target, title};
use shown::{shown, shown_as_json};

/// The deadline of the coordinator for one step.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// The interval at which the plugin is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the command.
pub(crate) fn main(command: &PluginCommand) -> Result<(), Failure> {
    run(async {
        match command {
            PluginCommand::Diff(args) => diff(args).await,
            PluginCommand::Approve(args) => approve(args).await,
            PluginCommand::History(args) => history(args).await,
            PluginCommand::Rollback(args) if args.undo => undo(args).await,
            PluginCommand::Rollback(args) => rollback(args).await,
        }
    })
    .map_err(Failure::Running)
}

async fn diff(args: &PluginDiffArgs) -> Result<()> {
    let cluster = Cluster::reach(&args.place.cluster).await?;
    let plugin = cluster.plugin(&args.place.name).await?;
    let diff = cluster.diff(&plugin).await?;
    match args.output {
        DiffFormat::Text => print(&shown(&plugin, &diff, args.show_secrets)?),
        DiffFormat::Json => print(&shown_as_json(&diff, args.show_secrets)?),
    }
}

async fn approve(args: &PluginApproveArgs) -> Result<()> {
    let PluginPlace { name, cluster } = &args.place;
    let cluster = Cluster::reach(cluster).await?;
    let plugin = cluster.plugin(name).await?;
    let diff = cluster.diff(&plugin).await?;
    print(&shown(&plugin, &diff, false)?)?;
    let digest = diff.digest();
    match &args.digest {
        Some(wanted) if *wanted != digest => {
            bail!(
                "nothing is approved: the digest of the diff is {digest}, not {}",
                printable(wanted)
            )
        }
        None if diff.digest_of_all.is_some() => {
            bail!(
                "nothing is approved: the diff is too large to be shown whole. To approve it all the same, add --digest {digest}"
            )
        }
        _ => {}
    }
    if !args.yes {
        confirm("Approve exactly this?")?;
    }
    cluster.annotate(&plugin, APPROVE_ANNOTATION, Some(&digest)).await?;
    cluster.approved(&plugin, &diff).await?;
    print(&format!(
        "approved version {} of {}\n",
        printable(&diff.version),
        title(&plugin)
    ))
}

async fn history(args: &PluginHistoryArgs) -> Result<()> {
    let cluster = Cluster::reach(&args.place.cluster).await?;
    let plugin = cluster.plugin(&args.place.name).await?;
    let inventory = cluster.inventory(&plugin).await?;
    if inventory.spec.releases.is_empty() {
        bail!("no version of {} was accepted yet", title(&plugin));
    }
    let format = &args.printed.output;
    let releases = inventory.spec.releases.iter().map(|release| {
        let is = |revision: &str| release.revision == revision;
        let state = match (is(&inventory.spec.revision), is(&inventory.spec.approved)) {
            (true, _) => "applied",
            (false, true) => "being applied",
            (false, false) => "",
        };
        let rollback = match (is(&inventory.spec.revision), release.too_large) {
            (true, _) => "",
            (false, true) => "no, too large",
            (false, false) => "yes",
        };
        let digits = release.revision.get(..16).unwrap_or(&release.revision);
        json!({"id": release.revision, "version": release.version, "revision": digits, "accepted": release.at.to_string(), "state": state, "rollback": rollback})
    });
    let releases: Vec<Value> = releases.collect();
    let columns = ["version", "revision", "accepted", "state", "rollback", "id"];
    rows(format, "Release", &columns, &releases)?;
    if let Some(asked) = annotation(&plugin, ROLLBACK_ANNOTATION).filter(|_| is_table(format)) {
        let asked = printable(asked);
        print(&format!("rollback in force: {asked}\n"))?;
    }
    Ok(())
}

async fn rollback(args: &PluginRollbackArgs) -> Result<()> {
    let PluginPlace { name, cluster } = &args.place;
    let cluster = Cluster::reach(cluster).await?;
    let plugin = cluster.plugin(name).await?;
    let inventory = cluster.inventory(&plugin).await?;
    let release = target(&inventory.spec, args.to.as_deref())?;
    let applied = inventory
        .spec
        .applied
        .as_ref()
        .map_or("none", |applied| &applied.version);
    print(&format!(
        "{}: from version {} of the cloud (applied: {}) back to version {} of {} (revision {})\n",
        title(&plugin),
        printable(&plugin.spec.version),
        printable(applied),
        printable(&release.version),
        release.at,
        release.revision
    ))?;
    if !args.yes {
        confirm("Go back?")?;
    }
    let asked = format!("{}@{}", release.revision, plugin.spec.version);
    cluster.annotate(&plugin, ROLLBACK_ANNOTATION, Some(&asked)).await?;
    cluster.rolled_back(&plugin, &asked, &release.revision).await?;
    print(&format!(
        "{} goes back to version {}\n",
        title(&plugin),
        printable(&release.version)
    ))
}

async fn undo(args: &PluginRollbackArgs) -> Result<()> {
    let cluster = Cluster::reach(&args.place.cluster).await?;
    let plugin = cluster.plugin(&args.place.name).await?;
    if annotation(&plugin, ROLLBACK_ANNOTATION).is_none() {
        bail!("{} is not rolled back", title(&plugin));
    }
    cluster.annotate(&plugin, ROLLBACK_ANNOTATION, None).await?;
    let version = printable(&plugin.spec.version);
    print(&format!(
        "{} goes on to version {version} of the cloud\n",
        title(&plugin)
    ))
}

/// The plugins of a cluster.
struct Cluster {
    plugins: Api<Plugin>,
    inventories: Api<PluginInventory>,
    secrets: Api<Secret>,
    clock: SharedClock,
}

impl Cluster {
    async fn reach(flags: &ClusterFlags) -> Result<Self> {
        let kit = Kit::new(SystemClock::shared())?;
        let config = api_server(flags.kubeconfig.as_deref(), flags.context.as_deref()).await?;
        let leadership = Leadership::always(kit.clock.clone());
        let client = client::fenced(&config, &leadership, &kit).await?;
        Ok(Self {
            plugins: Api::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE),
            inventories: Api::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE),
            secrets: Api::namespaced(client, CONTAINERSHIP_NAMESPACE),
            clock: kit.clock,
        })
    }

    async fn plugin(&self, name: &str) -> Result<Plugin> {
        let all = self.plugins.list(&ListParams::default()).await;
        named(
            &all.map_err(|error| explained(error, "list", "plugins.containership.io"))?
                .items,
            name,
        )
    }

    async fn read(&self, plugin: &Plugin) -> Result<Plugin> {
        let read = self.plugins.get(&plugin.spec.id).await;
        read.map_err(|error| explained(error, "get", "plugins.containership.io"))
    }

    async fn inventory(&self, plugin: &Plugin) -> Result<PluginInventory> {
        let read = self.inventories.get_opt(&plugin.spec.id).await;
        let read = read.map_err(|error| explained(error, "get", "plugininventories.tidewaiter.dev"))?;
        read.ok_or_else(|| anyhow!("no version of {} was accepted yet", title(plugin)))
    }

    /// Returns the diff that awaits approval.
    async fn diff(&self, plugin: &Plugin) -> Result<PluginDiff> {
        let status = plugin.status.as_ref();
        if status.is_none_or(|status| status.pending.is_none()) {
            bail!("nothing of {} awaits approval", title(plugin));
        }
        let name = plugin_diff_secret(&plugin.spec.id);
        let read = self.secrets.get_opt(&name).await;
        let secret = read.map_err(|error| explained(error, "get", "secrets"))?;
        let bytes = secret.and_then(|secret| secret.data?.remove(DIFF_KEY));
        let bytes = bytes.with_context(|| format!("the Secret {name} has no diff: try it again in a minute"))?;
        let changed = || format!("the Secret {name} was changed: delete it, and it is made again");
        let diff = PluginDiff::unpack(&bytes.0).with_context(changed)?;
        let pending = self.read(plugin).await?.status.and_then(|status| status.pending);
        // The Secret is written a moment before the status.
        if pending.is_some_and(|pending| pending.digest != diff.digest()) {
            bail!(
                "the Secret {name} does not have the diff that awaits approval: try it again in a minute, and if that does not help, somebody changed it: delete it, and it is made again"
            );
        }
        Ok(diff)
    }

    async fn annotate(&self, plugin: &Plugin, name: &str, value: Option<&str>) -> Result<()> {
        let annotation = json!({"metadata": {"annotations": {name: value}}});
        let (params, merge) = (PatchParams::default(), Patch::Merge(annotation));
        let patched = self.plugins.patch(&plugin.spec.id, &params, &merge).await;
        patched
            .map(drop)
            .map_err(|error| explained(error, "patch", "plugins.containership.io"))
    }

    /// Waits until the coordinator has recorded the approval, or has refused it.
    async fn approved(&self, plugin: &Plugin, diff: &PluginDiff) -> Result<()> {
        let digest = diff.digest();
        let recorded = self.until(async || {
            let now = self.read(plugin).await?;
            if annotation(&now, APPROVE_ANNOTATION) == Some(&*digest) {
                return Ok(None);
            }
            let inventory = self.inventories.get_opt(&plugin.spec.id).await;
            let inventory = inventory.map_err(|error| explained(error, "get", "plugininventories.tidewaiter.dev"))?;
            if inventory.is_some_and(|inventory| inventory.spec.approved == diff.revision) {
                return Ok(Some(None));
            }
            let pending = now.status.and_then(|status| status.pending);
            Ok(pending.filter(|pending| pending.digest != digest).map(Some))
        });
        let recorded = recorded.await.with_context(|| {
            format!("the approval of {digest} is requested, and the coordinator has not recorded it yet: check that it runs, and its log")
        })?;
        match recorded {
            None => Ok(()),
            Some(other) => bail!(
                "the diff has changed: {digest} was not approved, and {} of version {} awaits approval now",
                other.digest,
                printable(&other.version)
            ),
        }
    }

    /// Waits until the coordinator has recorded the rollback, or has refused it.
    async fn rolled_back(&self, plugin: &Plugin, asked: &str, revision: &str) -> Result<()> {
        let refused = self.until(async || {
            let now = self.read(plugin).await?;
            if annotation(&now, ROLLBACK_ANNOTATION) != Some(asked) {
                return Ok(Some(Some("the cloud has another version meanwhile".to_owned())));
            }
            if self.inventory(plugin).await?.spec.approved == revision {
                return Ok(Some(None));
            }
            let conditions = now.status.unwrap_or_default().conditions;
            let refused = conditions.into_iter().find(|condition| {
                let reasons = ["RollbackUnknown", "StoredVersionRefused"];
                condition.type_ == STALLED
                    && condition.status == ConditionStatus::True
                    && reasons.contains(&condition.reason.as_str())
            });
            Ok(refused.map(|condition| Some(condition.message)))
        });
        let refused = refused.await.with_context(|| {
            format!("the rollback to {asked} is requested, and the coordinator has not recorded it yet: check that it runs, and the conditions of the Plugin")
        })?;
        match refused {
            None => Ok(()),
            Some(why) => bail!("the rollback was refused: {}", printable(&why)),
        }
    }

    /// Looks until there is a result.
    async fn until<T>(&self, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        let looking = async {
            loop {
                if let Some(found) = look().await? {
                    return Ok(found);
                }
                self.clock.sleep(POLL_INTERVAL).await;
            }
        };
        timeout(&*self.clock, STEP_TIMEOUT, looking).await?
    }
}

fn annotation<'a>(plugin: &'a Plugin, name: &str) -> Option<&'a str> {
    plugin.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Explains the error in the words of its reader.
fn explained(error: kube::Error, verb: &str, resource: &str) -> anyhow::Error {
    let remedy = match &error {
        kube::Error::Api(status) if status.code == 404 => {
            "it is not in this cluster: the coordinator does not run here, or deploy/crds/coordinator is not applied"
                .to_owned()
        }
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            format!("this needs the permission to {verb} {resource} in the namespace {CONTAINERSHIP_NAMESPACE}")
        }
        _ => "the API server does not answer as it should".to_owned(),
    };
    anyhow!(error).context(remedy)
}
