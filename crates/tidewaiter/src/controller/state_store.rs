//! The access to the state store: by the settings, by kOps' configuration file, and by the variables with which kOps
//! names a store other than Amazon's that speaks S3.
//!
//! kOps uses such a store for `s3://` on every cloud: on Hetzner Cloud, every cluster has one.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use tidewaiter_api::values::quoted_address;
use tidewaiter_cloud::client::has_user;
use tidewaiter_kit::Kit;
use tidewaiter_kops::store::Scheme;
use tidewaiter_kops::{StateStore, StoreOptions};
use url::Url;

use super::Given;
use super::cloud::region;
use super::environment::{S3_ACCESS_KEY_ID, S3_ENDPOINT, S3_REGION, S3_SECRET_ACCESS_KEY, Variables, variable};

/// The region that kOps assumes, as most such stores do not look at the region.
const DEFAULT_REGION: &str = "us-east-1";

/// Returns the options with which the controller, and a person with their own credentials, reach the state store.
///
/// # Errors
/// If the variables of kOps contradict each other.
pub(crate) fn store_options(given: &Given, kit: &Kit) -> Result<StoreOptions> {
    let options = StoreOptions {
        endpoint: given.settings.state_endpoint.clone(),
        google_credentials: google_credentials(&given.environment),
        likely_region: region(given).map(str::to_owned),
        clock: kit.clock.clone(),
        ..StoreOptions::default()
    };
    with_own_s3(options, given.config.config_base.scheme(), &given.environment)
}

/// The state store, without a request so far.
///
/// # Errors
/// If the options contradict each other, or a credentials file is missing or invalid.
pub(crate) fn open_store(given: &Given, options: StoreOptions) -> Result<Arc<StateStore>> {
    Ok(Arc::new(StateStore::open(&given.config.config_base, options)?))
}

/// The file of Google credentials that the operator names, as for every other program that calls Google Cloud.
pub(crate) fn google_credentials(environment: &Variables) -> Option<PathBuf> {
    variable(environment, "GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from)
}

/// These options for the store that `S3_ENDPOINT` names, if it does. An endpoint in `options` overrides that address
/// only.
///
/// # Errors
/// If the address is invalid or its keys are missing.
pub(crate) fn with_own_s3(options: StoreOptions, scheme: Scheme, environment: &Variables) -> Result<StoreOptions> {
    let Some(endpoint) = variable(environment, S3_ENDPOINT).filter(|_| scheme == Scheme::S3) else {
        return Ok(options);
    };
    let key = |name: &str| {
        variable(environment, name).with_context(|| format!("S3_ENDPOINT is set, and {name} is not: set it, too"))
    };
    let keys = Credentials::new(
        key(S3_ACCESS_KEY_ID)?,
        key(S3_SECRET_ACCESS_KEY)?,
        None,
        None,
        S3_ENDPOINT,
    );
    let region = variable(environment, S3_REGION).unwrap_or(DEFAULT_REGION);
    Ok(StoreOptions {
        endpoint: Some(options.endpoint.map_or_else(|| address(endpoint), Ok)?),
        region: Some(region.to_owned()),
        aws_credentials: Some(SharedCredentialsProvider::new(keys)),
        ..options
    })
}

/// As in kOps, an address without a scheme is one of HTTPS.
fn address(text: &str) -> Result<Url> {
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    match full.parse::<Url>() {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() && !has_user(&url) => Ok(url),
        _ => bail!(
            "S3_ENDPOINT is {}: must be HOST, https://HOST or http://HOST, with a port if need be, and without a user or a password",
            quoted_address(text)
        ),
    }
}

#[cfg(test)]
mod tests {
    use aws_credential_types::provider::ProvideCredentials as _;

    use super::*;

    const ALL: [(&str, &str); 4] = [
        (S3_ENDPOINT, "https://s3.example.com:9000"),
        (S3_REGION, "here-1"),
        (S3_ACCESS_KEY_ID, "the-id"),
        (S3_SECRET_ACCESS_KEY, "the-secret"),
    ];

    fn variables(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        variables.iter().map(owned).collect()
    }

    fn options(scheme: Scheme, set: &[(&str, &str)]) -> Result<StoreOptions> {
        with_own_s3(StoreOptions::default(), scheme, &variables(set))
    }

    fn address_of(set: &str) -> Result<String> {
        let set = [&[(S3_ENDPOINT, set)], &ALL[2..]].concat();
        Ok(options(Scheme::S3, &set)?.endpoint.unwrap().to_string())
    }

    #[tokio::test]
    async fn a_store_of_its_own_is_reached_as_kops_reaches_it() {
        let found = options(Scheme::S3, &ALL).unwrap();
        assert_eq!(found.endpoint.unwrap().as_str(), "https://s3.example.com:9000/");
        assert_eq!(found.region.as_deref(), Some("here-1"));
        let keys = found.aws_credentials.unwrap().provide_credentials().await.unwrap();
        assert_eq!(
            (keys.access_key_id(), keys.secret_access_key()),
            ("the-id", "the-secret")
        );

        let set = [ALL[0], (S3_REGION, ""), ALL[2], ALL[3]];
        assert_eq!(options(Scheme::S3, &set).unwrap().region.as_deref(), Some("us-east-1"));
        for (scheme, set) in [(Scheme::Gs, &ALL[..]), (Scheme::File, &ALL), (Scheme::S3, &ALL[1..])] {
            let found = options(scheme, set).unwrap();
            assert!(found.endpoint.is_none() && found.region.is_none() && found.aws_credentials.is_none());
        }
    }

    #[test]
    fn the_setting_overrides_the_address_alone() {
        let set = StoreOptions {
            endpoint: Some("http://127.0.0.1:1".parse().unwrap()),
            ..StoreOptions::default()
        };
        let found = with_own_s3(set, Scheme::S3, &variables(&ALL)).unwrap();
        assert_eq!(found.endpoint.unwrap().as_str(), "http://127.0.0.1:1/");
        assert!(found.aws_credentials.is_some());
    }

    #[test]
    fn an_address_may_lack_its_scheme() {
        assert_eq!(address_of("nyc3.example.com").unwrap(), "https://nyc3.example.com/");
        assert_eq!(address_of("minio:9000").unwrap(), "https://minio:9000/");
        assert_eq!(address_of("http://minio:9000").unwrap(), "http://minio:9000/");
        for secret in ["me:hunter2@minio", "https://hunter2@minio", "ftp://me:hunter2@minio"] {
            let error = address_of(secret).unwrap_err().to_string();
            assert!(
                error.contains("without a user or a password") && !error.contains("hunter2"),
                "{error}"
            );
        }
        for bad in ["ftp://a", "https://", "a b"] {
            let error = address_of(bad).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("S3_ENDPOINT is \"{bad}\": must be HOST")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_key_that_is_missing_is_named() {
        for missing in [S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY] {
            let set: Vec<_> = ALL.into_iter().filter(|(name, _)| *name != missing).collect();
            let error = options(Scheme::S3, &set).unwrap_err().to_string();
            assert_eq!(error, format!("S3_ENDPOINT is set, and {missing} is not: set it, too"));
        }
    }
}
