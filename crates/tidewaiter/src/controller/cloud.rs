//! The cloud that kOps' configuration names: who says what an instance is and which groups there are, and how the state
//! store is reached.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use aws_config::{BehaviorVersion, SdkConfig};
use tidewaiter_api::values::quoted;
use tidewaiter_controller::node_controller::LabelsFrom;
use tidewaiter_identity::{ClientSettings, CloudGroups, Identifier, NodeNames, aws, gce, hetzner};
use tidewaiter_kit::Kit;
use tidewaiter_kit::settings::Origins;
use tidewaiter_kops::{self as kops, StateStore, StoreOptions};
use url::Url;

use super::Given;
use super::environment::AWS_REGION;
use super::label_source::{LabelDecision, decide};
use super::state_store::{open_store, store_options};

/// The parts that depend on the cloud.
pub(crate) struct Cloud {
    pub(crate) identifier: Arc<dyn Identifier>,
    pub(crate) store: Arc<StateStore>,
    /// The source of the groups of instances.
    pub(crate) groups: Arc<dyn CloudGroups>,
    pub(crate) labels: LabelDecision,
}

/// Names the project for every program that calls Google Cloud.
const GCP_PROJECT: &str = "GCP_PROJECT";

/// Checks that this version supports the cloud.
pub(super) fn check(cloud: kops::Cloud) -> Result<()> {
    if !cloud.is_supported() {
        bail!("cloud is {cloud}: {}", kops::Cloud::SUPPORTED);
    }
    Ok(())
}

impl Cloud {
    /// Detects the parts of the environment that are not set, decides the source of labels, and prepares the clients.
    pub(crate) async fn of(given: &Given, kit: &Kit) -> Result<Self> {
        check(given.config.cloud)?;
        let store = store_options(given, kit)?;
        match given.config.cloud {
            kops::Cloud::Gce => Self::google(given, kit, store).await,
            kops::Cloud::Hetzner => {
                let hetzner = Arc::new(hetzner_cloud(given, kit)?);
                let store = open_store(given, store)?;
                Ok(Self {
                    identifier: Arc::clone(&hetzner) as Arc<dyn Identifier>,
                    groups: hetzner,
                    labels: labels(given, &store, kit).await,
                    store,
                })
            }
            _ => Self::aws(given, kit, store).await,
        }
    }

    /// Both use one client, which gets one token.
    async fn google(given: &Given, kit: &Kit, store: StoreOptions) -> Result<Self> {
        let (client, project) = compute_engine(given).await?;
        let cluster = &given.config.cluster_name;
        let calls = || kit.metrics.cloud_calls();
        let groups = gce::InstanceGroupManagers::new(client.clone(), project.clone(), cluster.clone(), calls());
        let gce = gce::Gce::new(client, project, cluster.clone(), kit.clock.clone(), calls());
        let store = open_store(given, store)?;
        Ok(Self {
            identifier: Arc::new(gce),
            groups: Arc::new(groups),
            labels: labels(given, &store, kit).await,
            store,
        })
    }

    /// On AWS the state store is reached with what EC2 and Auto Scaling are reached with, unless it has keys of its
    /// own.
    async fn aws(given: &Given, kit: &Kit, store: StoreOptions) -> Result<Self> {
        let config = aws_config(given).await?;
        let store = StoreOptions {
            likely_region: config.region().map(ToString::to_string),
            aws_credentials: store.aws_credentials.or_else(|| config.credentials_provider()),
            ..store
        };
        let store = open_store(given, store)?;
        let labels = labels(given, &store, kit).await;
        let client = aws::client(&config, &client_settings(given.settings.ec2_endpoint.as_ref()));
        let groups = aws::groups_client(&config, &client_settings(given.settings.autoscaling_endpoint.as_ref()));
        let (cluster, calls) = (given.config.cluster_name.clone(), kit.metrics.cloud_calls());
        Ok(Self {
            identifier: Arc::new(ec2(given, client.clone(), labels.from, kit)),
            groups: Arc::new(aws::AutoScaling::new(groups, client, cluster, calls)),
            labels,
            store,
        })
    }
}

async fn labels(given: &Given, store: &StateStore, kit: &Kit) -> LabelDecision {
    decide(&given.settings, given.config.cloud, store, &*kit.clock).await
}

/// The region of the cluster, as far as anybody says it. `AWS_REGION` comes last: a shell has it for the person's own
/// account, and kOps copies it from there into its container.
pub(super) fn region(given: &Given) -> Option<&str> {
    let set = given.settings.region.as_deref();
    set.or(given.config.region.as_deref())
        .or_else(|| given.variable(AWS_REGION))
}

/// Returns the origin of the region, for errors.
fn region_origin(given: &Given) -> &'static str {
    match (&given.settings.region, &given.config.region) {
        (Some(_), _) => "the setting region (TIDEWAITER_REGION)",
        (None, Some(_)) => "server.provider.aws.Region in kOps' file",
        (None, None) => AWS_REGION,
    }
}

/// Checks the region of the setting against the one of kOps' file, and warns of an `AWS_REGION` without an effect.
///
/// # Errors
/// If setting and file name different regions.
pub(super) fn check_region(given: &Given, file: &Path, origins: &Origins) -> Result<Option<String>> {
    let (kops::Cloud::Aws, Some(own)) = (given.config.cloud, given.config.region.as_deref()) else {
        return Ok(None);
    };
    let file = file.display();
    if let Some(set) = given.settings.region.as_deref().filter(|set| *set != own) {
        let origin = origins.of("region");
        bail!(
            "{origin}: region is {}, but the cluster is in {own} (server.provider.aws.Region in {file}): remove the setting, or correct the file",
            quoted(set)
        );
    }
    let other = given.variable(AWS_REGION).filter(|other| *other != own);
    Ok(other.map(|other| {
        format!(
            "AWS_REGION is {} and has no effect: the cluster is in {own} (server.provider.aws.Region in {file})",
            quoted(other)
        )
    }))
}

/// The rule for the names of Nodes: on AWS with the scheme of kOps' file, where the setting names none.
pub(crate) fn node_names(given: &Given) -> NodeNames {
    match (given.settings.node_names, given.config.address_based_names) {
        (NodeNames::Enforce, Some(true)) if given.config.cloud == kops::Cloud::Aws => NodeNames::PrivateDns,
        (NodeNames::Enforce, Some(false)) if given.config.cloud == kops::Cloud::Aws => NodeNames::InstanceId,
        (set, _) => set,
    }
}

/// Checks the scheme of the setting against the one of kOps' file, and warns if neither names one.
///
/// # Errors
/// If the setting names a scheme on another cloud, or setting and file name different ones.
pub(super) fn check_node_names(given: &Given, file: &Path, origins: &Origins) -> Result<Option<String>> {
    let (cloud, origin, file) = (given.config.cloud, origins.of("nodeNames"), file.display());
    let (word, by_address) = match given.settings.node_names {
        NodeNames::Warn => return Ok(None),
        NodeNames::Enforce => {
            let both = cloud == kops::Cloud::Aws && given.config.address_based_names.is_none();
            return Ok(both.then(|| {
                format!(
                    "nodeNames names no scheme, nor does {file}: a Node may have the id or the private DNS name of its instance; set \
                     nodeNames to the one that this cluster uses, instance-id or private-dns"
                )
            }));
        }
        NodeNames::InstanceId => ("instance-id", false),
        NodeNames::PrivateDns => ("private-dns", true),
    };
    if cloud != kops::Cloud::Aws {
        bail!(
            "{origin}: nodeNames is {word}, and cloud is {cloud}: only instances on aws have two names; set nodeNames to enforce"
        );
    }
    if given.config.address_based_names == Some(!by_address) {
        bail!(
            "{origin}: nodeNames is {word}, but {file} names the nodes of the cluster otherwise: remove the setting, or correct the file"
        );
    }
    Ok(None)
}

/// Region, credentials and HTTP client, once for every call to AWS.
async fn aws_config(given: &Given) -> Result<SdkConfig> {
    let region = aws::region(region(given), None).await;
    let region = region.with_context(|| region_origin(given))?;
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

fn ec2(given: &Given, client: aws::Client, labels: LabelsFrom, kit: &Kit) -> aws::Ec2 {
    let cluster = given.config.cluster_name.clone();
    let ec2 = aws::Ec2::new(client, cluster, kit.clock.clone(), kit.metrics.cloud_calls());
    match labels {
        LabelsFrom::Store => ec2,
        _ => ec2.with_tag_labels(),
    }
}

async fn compute_engine(given: &Given) -> Result<(gce::Client, gce::ProjectId)> {
    let set = given
        .settings
        .project
        .as_deref()
        .or_else(|| given.variable(GCP_PROJECT))
        .or(given.config.project.as_deref());
    let metadata = given
        .variable("GCE_METADATA_HOST")
        .map(|host| format!("http://{host}").parse::<Url>());
    let metadata = metadata.transpose().context("GCE_METADATA_HOST is no address")?;
    let origin = match (&given.settings.project, given.variable(GCP_PROJECT)) {
        (Some(_), _) => "the setting project (TIDEWAITER_PROJECT)",
        (None, Some(_)) => GCP_PROJECT,
        (None, None) => "server.provider.gce.projectID in kOps' file",
    };
    let project = gce::project(set, metadata.as_ref()).await.context(origin)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::settings::ControllerSettings;

    /// Returns the values from kOps' file, the setting and the shell.
    fn given(file: Option<&str>, set: Option<&str>, shell: Option<&str>) -> Given {
        let owned = |text: &str| text.to_owned();
        Given {
            config: kops::ControllerConfig {
                cluster_name: "c.example.com".parse().unwrap(),
                cloud: kops::Cloud::Aws,
                config_base: "s3://state/c.example.com".parse().unwrap(),
                region: file.map(owned),
                project: None,
                address_based_names: None,
            },
            settings: ControllerSettings {
                region: set.map(owned),
                ..ControllerSettings::default()
            },
            environment: shell
                .map(|value| (owned(AWS_REGION), owned(value)))
                .into_iter()
                .collect(),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn the_region_of_the_cluster_overrides_the_one_of_the_shell() {
        for (file, set, shell, expected) in [
            (Some("us-east-1"), None, Some("eu-west-1"), Some("us-east-1")),
            (None, Some("us-east-1"), Some("eu-west-1"), Some("us-east-1")),
            (None, None, Some("eu-west-1"), Some("eu-west-1")),
            (None, None, None, None),
        ] {
            assert_eq!(region(&given(file, set, shell)), expected, "{file:?} {set:?} {shell:?}");
        }
    }

    #[test]
    fn a_region_without_an_effect_is_reported_and_a_contradiction_refused() {
        let origins = |given: &Given| {
            let flags = serde_json::json!({"region": given.settings.region});
            tidewaiter_kit::settings::load::<ControllerSettings>(None, [], &flags)
                .unwrap()
                .origins
        };
        let check = |given: Given| check_region(&given, Path::new("conf.yaml"), &origins(&given));
        let warning = check(given(Some("us-east-1"), None, Some("eu-west-1")))
            .unwrap()
            .unwrap();
        assert_eq!(
            warning,
            "AWS_REGION is \"eu-west-1\" and has no effect: the cluster is in us-east-1 (server.provider.aws.Region in conf.yaml)"
        );
        for fine in [
            given(Some("us-east-1"), Some("us-east-1"), Some("us-east-1")),
            given(None, Some("us-east-1"), Some("eu-west-1")),
        ] {
            assert_eq!(check(fine).unwrap(), None);
        }
        let error = check(given(Some("us-east-1"), Some("eu-west-1"), None))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "the flags: region is \"eu-west-1\", but the cluster is in us-east-1 (server.provider.aws.Region in conf.yaml): \
             remove the setting, or correct the file"
        );
    }

    #[test]
    fn there_is_one_scheme_of_names_for_a_cluster_on_aws() {
        use NodeNames::{Enforce, InstanceId, PrivateDns, Warn};
        let check = |names: NodeNames, file: Option<bool>, cloud: kops::Cloud| {
            let mut given = given(None, None, None);
            given.settings.node_names = names;
            (given.config.address_based_names, given.config.cloud) = (file, cloud);
            let flags = serde_json::json!({"nodeNames": names});
            let origins = tidewaiter_kit::settings::load::<ControllerSettings>(None, [], &flags)
                .unwrap()
                .origins;
            let checked = check_node_names(&given, Path::new("conf.yaml"), &origins);
            let said = checked.map_or_else(|error| format!("error: {error}"), Option::unwrap_or_default);
            (node_names(&given), said)
        };
        let aws = kops::Cloud::Aws;
        for (names, file, cloud, effective, said) in [
            (Enforce, None, aws, Enforce, "instance-id or private-dns"),
            (Enforce, Some(true), aws, PrivateDns, ""),
            (Enforce, Some(false), aws, InstanceId, ""),
            (InstanceId, None, aws, InstanceId, ""),
            (PrivateDns, Some(true), aws, PrivateDns, ""),
            (
                PrivateDns,
                Some(false),
                aws,
                PrivateDns,
                "error: the flags: nodeNames is private-dns, but conf.yaml",
            ),
            (Warn, Some(false), aws, Warn, ""),
            (Enforce, Some(true), kops::Cloud::Gce, Enforce, ""),
            (
                InstanceId,
                None,
                kops::Cloud::Gce,
                InstanceId,
                "error: the flags: nodeNames is instance-id, and cloud is gce",
            ),
        ] {
            let (found, words) = check(names, file, cloud);
            assert_eq!(found, effective, "{names:?} {file:?}");
            assert!(
                words.contains(said) && said.is_empty() == words.is_empty(),
                "{names:?} {file:?}: {words}"
            );
        }
    }
}
