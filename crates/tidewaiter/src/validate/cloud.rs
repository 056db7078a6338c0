//! The cluster's cloud, determined when it is first needed: only the Cluster may name the cloud and the region, and the
//! state store may be unavailable for a while.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use tidewaiter_api::values::quoted;
use tidewaiter_identity::{CloudGroup, CloudGroups, GroupsUnavailable};
use tidewaiter_kit::{Chain, Kit};
use tidewaiter_kops::{self as kops, ControllerConfig, Definitions};
use tokio::sync::OnceCell;

use crate::controller::Given;
use crate::controller::cloud::Cloud;
use crate::controller::label_source::LabelSource;
use crate::controller::settings::ControllerSettings;

/// The instance groups of the cloud that the Cluster names.
pub(super) struct CloudOfCluster {
    given: Given,
    /// True if `given` names the cloud; otherwise the Cluster does.
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
        Ok(Cloud::of(&given, &self.kit).await?.groups)
    }

    /// The given location, completed by the Cluster.
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
        let project = project.or(config.project.as_deref()).or(cluster.project.as_deref());
        let project = project.map(str::to_owned);
        let own = cluster.aws_region().filter(|_| cloud == kops::Cloud::Aws);
        let config = config.clone();
        if let Some(own) = &own {
            for (from, named) in [
                ("the setting region (TIDEWAITER_REGION)", &settings.region),
                ("server.provider.aws.Region in the file of --conf", &config.region),
            ] {
                if let Some(named) = named.as_ref().filter(|named| *named != own) {
                    bail!(
                        "{from} is {}, but the subnets of the Cluster are in {own}: correct or remove it",
                        quoted(named)
                    );
                }
            }
        }
        Ok(Given {
            config: ControllerConfig {
                cloud,
                region: own.or(config.region),
                ..config
            },
            settings: ControllerSettings {
                project,
                // No label is read here.
                label_source: LabelSource::Store,
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

    fn location(&self) -> Option<String> {
        self.found.get()?.location()
    }
}
