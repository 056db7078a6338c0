//! The engine of each plugin.

use std::collections::BTreeMap;

use kube::Client;

use super::account::PluginAccount;
use super::by_plugin::{ByPlugin, Identity};
use super::cluster::Cluster;
use super::engine::Engine;
use super::problem::Problem;

/// The engine of each service account, and that of the coordinator itself.
pub(super) struct Engines {
    own: Engine,
    accounts: ByPlugin<PluginAccount>,
    by_account: BTreeMap<PluginAccount, Engine>,
}

impl Engines {
    /// `client` must be a fenced one.
    pub(super) fn new(client: &Client, accounts: ByPlugin<PluginAccount>) -> Self {
        let engine = |account: Option<&PluginAccount>| Engine {
            cluster: Cluster::new(client, account.cloned()),
        };
        let rows = accounts.rows();
        Self {
            own: engine(None),
            by_account: rows
                .map(|(_, account)| (account.clone(), engine(Some(account))))
                .collect(),
            accounts,
        }
    }

    /// That of the plugin. As soon as one plugin has a service account, none is applied with all rights by mistake.
    pub(super) fn of(&self, plugin: &Identity) -> Result<&Engine, Problem> {
        if self.accounts.is_empty() {
            return Ok(&self.own);
        }
        let account = self.accounts.of(plugin);
        let engine = account.and_then(|account| self.by_account.get(account));
        engine.ok_or_else(|| Problem::no_account(plugin))
    }
}
