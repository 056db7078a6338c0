//! The cloud that kOps' configuration names: who says what an instance is and which groups there are, and how the state store is
//! reached.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use aws_config::{BehaviorVersion, SdkConfig};
use tidewaiter_controller::node_controller::LabelsFrom;
use tidewaiter_identity::{ClientSettings, CloudGroups, GroupsUnavailable, Identifier, aws, gce, hetzner};
use tidewaiter_kit::Kit;
use tidewaiter_kops::{self as kops, StoreOptions};
use url::Url;

use super::Given;
use super::state_store::store_options;

/// What depends on the cloud.
pub(crate) struct Cloud {
    pub(crate) identifier: Arc<dyn Identifier>,
    pub(crate) store: StoreOptions,
    /// Who says which groups of instances there are; or why nobody does.
    pub(crate) groups: Result<Arc<dyn CloudGroups>, GroupsUnavailable>,
}

const NO_GROUPS: &str = "Hetzner Cloud has no groups of instances, so their sizes are not known";

/// Whether this version supports the cloud.
pub(super) fn check(cloud: kops::Cloud) -> Result<()> {
    if !cloud.is_supported() {
        bail!("cloud is {cloud}: {}", kops::Cloud::SUPPORTED);
    }
    Ok(())
}

impl Cloud {
    /// Finds out where we are, as far as nobody said it, and prepares the clients.
    pub(crate) async fn of(given: &Given, kit: &Kit) -> Result<Self> {
        check(given.config.cloud)?;
        let store = store_options(given, kit)?;
        match given.config.cloud {
            kops::Cloud::Gce => Self::google(given, kit, store).await,
            kops::Cloud::Hetzner => Ok(Self {
                identifier: Arc::new(hetzner_cloud(given, kit)?),
                store,
                groups: Err(GroupsUnavailable(NO_GROUPS.to_owned())),
            }),
            _ => Self::aws(given, kit, store).await,
        }
    }

    /// Both ask with one client, which asks for one token.
    async fn google(given: &Given, kit: &Kit, store: StoreOptions) -> Result<Self> {
        let (client, project) = compute_engine(given).await?;
        let cluster = &given.config.cluster_name;
        let calls = || kit.metrics.cloud_calls();
        let groups = gce::InstanceGroupManagers::new(client.clone(), project.clone(), cluster.clone(), calls());
        let gce = gce::Gce::new(client, project, cluster.clone(), kit.clock.clone(), calls());
        Ok(Self {
            identifier: Arc::new(gce),
            store,
            groups: Ok(Arc::new(groups)),
        })
    }

    /// On AWS the state store is reached with what EC2 and Auto Scaling are reached with, unless it has keys of its own.
    async fn aws(given: &Given, kit: &Kit, store: StoreOptions) -> Result<Self> {
        let config = aws_config(given).await?;
        let store = StoreOptions {
            likely_region: config.region().map(ToString::to_string),
            aws_credentials: store.aws_credentials.or_else(|| config.credentials_provider()),
            ..store
        };
        let client = aws::client(&config, &client_settings(given.settings.ec2_endpoint.as_ref()));
        let groups = aws::groups_client(&config, &client_settings(given.settings.autoscaling_endpoint.as_ref()));
        let (cluster, calls) = (given.config.cluster_name.clone(), kit.metrics.cloud_calls());
        Ok(Self {
            identifier: Arc::new(ec2(given, client.clone(), kit)),
            store,
            groups: Ok(Arc::new(aws::AutoScaling::new(groups, client, cluster, calls))),
        })
    }
}

/// Region, credentials and HTTP client, once for every call to AWS.
async fn aws_config(given: &Given) -> Result<SdkConfig> {
    let set = given.settings.region.as_deref();
    let region = set
        .or_else(|| given.variable("AWS_REGION"))
        .or(given.config.region.as_deref());
    let region = aws::region(region, None).await?;
    Ok(aws_config::defaults(BehaviorVersion::latest())
        .http_client(aws::http_client())
        .region(region)
        .load()
        .await)
}

fn client_settings(endpoint: Option<&Url>) -> ClientSettings {
    ClientSettings {
        endpoint: endpoint.cloned(),
        ..ClientSettings::default()
    }
}

fn ec2(given: &Given, client: aws::Client, kit: &Kit) -> aws::Ec2 {
    let cluster = given.config.cluster_name.clone();
    let ec2 = aws::Ec2::new(client, cluster, kit.clock.clone(), kit.metrics.cloud_calls());
    match given.settings.label_source {
        LabelsFrom::Store => ec2,
        LabelsFrom::Tags | LabelsFrom::StoreThenTags => ec2.with_tag_labels(),
    }
}

async fn compute_engine(given: &Given) -> Result<(gce::Client, gce::ProjectId)> {
    let set = given
        .settings
        .project
        .as_deref()
        .or_else(|| given.variable("GCP_PROJECT"))
        .or(given.config.project.as_deref());
    let metadata = given
        .variable("GCE_METADATA_HOST")
        .map(|host| format!("http://{host}").parse::<Url>());
    let metadata = metadata.transpose().context("GCE_METADATA_HOST is no address")?;
    let project = gce::project(set, metadata.as_ref()).await?;
    let settings = gce::ClientSettings {
        endpoint: given.settings.gce_endpoint.clone(),
        ..gce::ClientSettings::default()
    };
    Ok((gce::client(&settings).await?, project))
}

fn hetzner_cloud(given: &Given, kit: &Kit) -> Result<hetzner::Hetzner> {
    let token = given
        .variable("HCLOUD_TOKEN")
        .context("there is no API token of Hetzner Cloud: set HCLOUD_TOKEN")?;
    let token: hetzner::ApiToken = token.parse().context("HCLOUD_TOKEN")?;
    let client = hetzner::client(token, &client_settings(given.settings.hetzner_endpoint.as_ref()))?;
    let cluster = given.config.cluster_name.clone();
    let calls = kit.metrics.cloud_calls();
    Ok(hetzner::Hetzner::new(client, cluster, kit.clock.clone(), calls))
}
