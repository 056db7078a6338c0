//! The cluster's cloud, found when it is first asked: which one it is and where may stand only in the Cluster, and the state
//! store that has it may be away for a while.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use tidewaiter_identity::{CloudGroup, CloudGroups, GroupsUnavailable};
use tidewaiter_kit::{Chain, Kit};
use tidewaiter_kops::{ControllerConfig, Definitions};
use tokio::sync::OnceCell;

use crate::controller::Given;
use crate::controller::cloud::Cloud;
use crate::controller::settings::ControllerSettings;

/// Whoever says what groups there are, once the Cluster has said who that is.
pub(super) struct CloudOfCluster {
    given: Given,
    /// Whether `given` names the cloud; else the Cluster does.
    named: bool,
    definitions: Definitions,
    kit: Kit,
    found: OnceCell<Arc<dyn CloudGroups>>,
}

impl CloudOfCluster {
    pub(super) fn new(given: Given, named: bool, definitions: Definitions, kit: Kit) -> Self {
        Self {
            given,
            named,
            definitions,
            kit,
            found: OnceCell::new(),
        }
    }

    async fn find(&self) -> Result<Arc<dyn CloudGroups>> {
        let given = self
            .where_it_is()
            .await
            .context("the region or project of the cluster is not known")?;
        Ok(Cloud::of(&given, &self.kit).await?.groups?)
    }

    /// What was given, and what the Cluster adds where nothing was.
    async fn where_it_is(&self) -> Result<Given> {
        let cluster = self.definitions.cluster_summary().await?;
        let Given {
            config,
            settings,
            environment,
            ..
        } = &self.given;
        let cloud = if self.named {
            config.cloud
        } else {
            cluster.cloud.context("the Cluster has no spec.cloudProvider")?
        };
        let project = settings
            .project
            .as_deref()
            .or_else(|| self.given.variable("GCP_PROJECT"));
        let project = project.or(cluster.project.as_deref()).map(str::to_owned);
        let region = config.region.clone().or_else(|| cluster.aws_region());
        let config = config.clone();
        Ok(Given {
            config: ControllerConfig {
                cloud,
                region,
                ..config
            },
            settings: ControllerSettings {
                project,
                ..settings.clone()
            },
            environment: environment.clone(),
            warnings: Vec::new(),
        })
    }
}

#[async_trait]
impl CloudGroups for CloudOfCluster {
    async fn groups(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
        let found = self.found.get_or_try_init(|| Box::pin(self.find())).await;
        let found = found.map_err(|error| GroupsUnavailable(Chain(error.as_ref()).to_string()))?;
        found.groups().await
    }
}
