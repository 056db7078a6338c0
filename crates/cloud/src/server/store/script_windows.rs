//! The windows in which nodes of control planes may run scripts that the server has signed, by cluster.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::Row as _;

use super::error::StoreError;
use super::source::{Source as _, query};
use super::transaction::Transaction;
use crate::server::Error;

/// The window of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptWindow {
    pub node: String,
    pub upgrade: String,
    pub begin: Timestamp,
    pub end: Timestamp,
}

fn name(cluster: &str) -> String {
    format!("script-windows/{cluster}")
}

impl Transaction {
    /// The windows of the cluster that were given last.
    pub async fn script_windows(&mut self, cluster: &str) -> Result<Vec<ScriptWindow>, Error> {
        let statement = "SELECT value FROM meta WHERE name = $1";
        let found = self.fetch(statement, &[&name(cluster)]).await?;
        let text = found.first().map(|row| row.try_get(0)).transpose();
        let text: Option<String> = text.map_err(StoreError::from)?;
        let windows = text.map(|text| serde_json::from_str(&text)).transpose();
        Ok(windows.map_err(Error::internal)?.unwrap_or_default())
    }

    /// Replaces them.
    pub async fn set_script_windows(&mut self, cluster: &str, windows: &[ScriptWindow]) -> Result<(), Error> {
        let text = serde_json::to_string(windows).map_err(Error::internal)?;
        let statement =
            "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        self.run_silently(query(statement, &[&name(cluster), &text])).await?;
        Ok(())
    }
}
