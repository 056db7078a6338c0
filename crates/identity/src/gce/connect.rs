//! Connects to Compute Engine: the project, and a client whose calls have timeouts.

use std::error::Error;
use std::time::Duration;

use futures::try_join;
use google_cloud_auth::credentials::Credentials;
use google_cloud_compute_v1::client::{
    InstanceGroupManagers, InstanceTemplates, Instances, RegionInstanceGroupManagers, RegionInstanceTemplates,
};
use google_cloud_gax::client_builder::{self, ClientBuilder};
use google_cloud_gax::retry_policy::NeverRetry;
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::clock::SystemClock;
use url::Url;

use super::credentials::{CredentialsSource, RenewableCredentials};
use super::names::{InvalidProject, ProjectId};

const METADATA: &str = "http://metadata.google.internal";
const PROJECT_PATH: &str = "/computeMetadata/v1/project/project-id";
const FLAVOR: &str = "Metadata-Flavor";
const FLAVOR_VALUE: &str = "Google";

/// The timeout of the metadata server, which is on the same machine.
const METADATA_DEADLINE: Duration = Duration::from_secs(5);

/// Endpoint, credentials and timeouts of Compute Engine.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The endpoint, if it is not the public one.
    pub endpoint: Option<Url>,
    /// The source of the credentials.
    pub credentials: CredentialsSource,
    /// The clock that limits how often the credentials are renewed.
    pub clock: SharedClock,
    /// The timeout for obtaining credentials.
    pub credentials_deadline: Duration,
    /// The timeout of a call, including the connection but not the credentials.
    pub call: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            credentials: CredentialsSource::default(),
            clock: SystemClock::shared(),
            credentials_deadline: Duration::from_secs(5),
            call: Duration::from_secs(10),
        }
    }
}

/// The services of Compute Engine that [`Gce`](super::Gce) calls. Create it with [`client`].
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) instances: Instances,
    pub(super) zonal_groups: InstanceGroupManagers,
    pub(super) regional_groups: RegionInstanceGroupManagers,
    pub(super) global_templates: InstanceTemplates,
    pub(super) regional_templates: RegionInstanceTemplates,
    pub(super) credentials: RenewableCredentials,
    /// The timeout of a call, including credentials.
    pub(super) deadline: Duration,
}

/// The client could not be created: the file of the credentials cannot be read, or they are for another universe.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the Compute Engine client: check GOOGLE_APPLICATION_CREDENTIALS and the endpoint")]
pub struct ClientError(#[source] client_builder::Error);

/// The project is not known.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The text is not a valid project id and must not become part of a URL.
    #[error(transparent)]
    Invalid(#[from] InvalidProject),
    /// The metadata server does not return a project.
    #[error("the project is not set, and the metadata server does not provide it: set GCP_PROJECT")]
    NoMetadata(#[source] Box<dyn Error + Send + Sync>),
}

/// The configured project, or else the one that the metadata server returns. `metadata` overrides the address of that
/// server.
///
/// # Errors
/// If there is no project, or an invalid one.
pub async fn project(set: Option<&str>, metadata: Option<&Url>) -> Result<ProjectId, ProjectError> {
    let project = match set {
        Some(project) => project.to_owned(),
        None => from_metadata(metadata).await.map_err(ProjectError::NoMetadata)?,
    };
    Ok(project.parse()?)
}

async fn from_metadata(server: Option<&Url>) -> Result<String, Box<dyn Error + Send + Sync>> {
    // The metadata server is never behind a proxy.
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(METADATA_DEADLINE)
        .build()?;
    let base = server.map_or(METADATA, Url::as_str).trim_end_matches('/').to_owned();
    let answer = client
        .get(base + PROJECT_PATH)
        .header(FLAVOR, FLAVOR_VALUE)
        .send()
        .await?
        .error_for_status()?;
    // Anything else at this address, for example a captive portal, does not set this header.
    if answer.headers().get(FLAVOR).is_none_or(|flavor| flavor != FLAVOR_VALUE) {
        return Err("the response does not come from the metadata server".into());
    }
    Ok(answer.text().await?.trim().to_owned())
}

/// A client for [`Gce`](super::Gce). It does not retry: the caller does.
///
/// # Errors
/// If the credentials are misconfigured. Missing credentials, or a source of them that does not respond, are detected
/// by the first call.
pub async fn client(settings: &ClientSettings) -> Result<Client, ClientError> {
    build(settings).await.map_err(ClientError)
}

async fn build(settings: &ClientSettings) -> client_builder::Result<Client> {
    let (source, clock) = (settings.credentials.clone(), settings.clock.clone());
    let renewable = RenewableCredentials::new(source, clock, settings.credentials_deadline);
    let renewable = renewable.map_err(client_builder::Error::cred)?;
    let with = Common {
        settings,
        credentials: renewable.clone().into(),
    };
    // Concurrently, because each asks the source of the credentials for its universe.
    let (instances, zonal_groups, regional_groups, global_templates, regional_templates) = try_join!(
        with.settings(Instances::builder()).build(),
        with.settings(InstanceGroupManagers::builder()).build(),
        with.settings(RegionInstanceGroupManagers::builder()).build(),
        with.settings(InstanceTemplates::builder()).build(),
        with.settings(RegionInstanceTemplates::builder()).build(),
    )?;
    Ok(Client {
        instances,
        zonal_groups,
        regional_groups,
        global_templates,
        regional_templates,
        credentials: renewable,
        deadline: settings.credentials_deadline + settings.call,
    })
}

/// The common settings of the clients of all services.
struct Common<'a> {
    settings: &'a ClientSettings,
    credentials: Credentials,
}

impl Common<'_> {
    fn settings<F>(&self, builder: ClientBuilder<F, Credentials>) -> ClientBuilder<F, Credentials> {
        let builder = builder
            .with_credentials(self.credentials.clone())
            .with_retry_policy(NeverRetry)
            .with_attempt_timeout(self.settings.call);
        match &self.settings.endpoint {
            Some(endpoint) => builder.with_endpoint(endpoint.as_str()),
            None => builder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_project_that_is_set_asks_nobody_and_is_checked() {
        let nobody: Url = "http://127.0.0.1:1".parse().unwrap();
        let set = project(Some("my-project"), Some(&nobody)).await.unwrap();
        assert_eq!(set.as_str(), "my-project");
        for bad in ["", "my-project/../other", "My-Project", "my project", "p"] {
            let error = project(Some(bad), Some(&nobody)).await.unwrap_err();
            assert!(matches!(error, ProjectError::Invalid(_)), "{error}");
        }
    }
}
