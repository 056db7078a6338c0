//! The meaning of a failed request to the cloud for the operator: the error, and the setting to check.
//!
//! The text does not contain the request, so that several requests that fail in the same way are reported once.

use std::time::Duration;

use tidewaiter_cloud::client::{Client, ClientError};
use tidewaiter_kit::chain::Untrusted;

/// The cloud has not answered for this time, and the remedy.
pub(crate) fn silent(time: Duration, client: &Client) -> String {
    let url = client.base_url();
    format!(
        "no answer within {time:?}; check that the cloud at {url} runs, and that the network permits the connection"
    )
}

/// The error and its remedy.
pub(crate) fn explained(error: &ClientError, client: &Client) -> String {
    format!("{}; {}", error.reason(), remedy(error, client))
}

fn remedy(error: &ClientError, client: &Client) -> String {
    let url = client.base_url();
    match error {
        ClientError::Refused { status: 401, .. } => format!(
            "the cloud at {url} does not accept the API key: correct the file cloud.apiKeyFile, which is read again before each request, or \
             CONTAINERSHIP_CLOUD_CLUSTER_API_KEY, and check cloud.apiBaseUrl"
        ),
        ClientError::Refused { .. } | ClientError::NotOurs { .. } => format!(
            "check cloud.organizationId and cloud.clusterId, and that cloud.apiKeyFile contains the API key of this cluster at {url}"
        ),
        error if error.untrusted() == Some(Untrusted::Time) => format!(
            "the certificate of the cloud at {url} has expired or is not valid yet: renew it, or correct the clock of this node"
        ),
        error if error.untrusted() == Some(Untrusted::Authority) => format!(
            "the certificate of the cloud at {url} is that of a certificate authority (CA:TRUE): let the authority issue one with CA:FALSE for \
             the cloud"
        ),
        error if error.untrusted() == Some(Untrusted::Issuer) => format!(
            "cloud.apiBaseUrl is {url}: set cloud.caFile to the certificate authority that issued the certificate of the cloud, or correct the \
             name in cloud.apiBaseUrl"
        ),
        ClientError::Unavailable { source: Some(_), .. } => {
            format!("check cloud.apiBaseUrl ({url}), its DNS name, and that the network permits the connection")
        }
        ClientError::Unavailable { .. } | ClientError::Rejected { .. } => {
            format!("check that the cloud at {url} runs, and read its log")
        }
        ClientError::Invalid { .. } => format!("check that cloud.apiBaseUrl ({url}) is the URL of a cloud"),
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_cloud::client::ClientSettings;
    use tidewaiter_kit::SystemClock;

    use super::*;

    #[test]
    fn each_error_names_what_to_correct_and_not_the_request() {
        let settings = ClientSettings::new("https://cloud.example.com".parse().unwrap());
        let client = Client::new(&settings, SystemClock::shared()).unwrap();
        let request = || "GET /v3/organizations".to_owned();
        let refused = |status| ClientError::Refused {
            request: request(),
            status,
            message: "no".to_owned(),
        };
        for (error, expected) in [
            (
                refused(401),
                "refused with 401: no; the cloud at https://cloud.example.com does not accept the API key: correct the file cloud.apiKeyFile",
            ),
            (
                refused(403),
                "refused with 403: no; check cloud.organizationId and cloud.clusterId, and that cloud.apiKeyFile",
            ),
            (
                ClientError::NotOurs {
                    request: request(),
                    message: "no such cluster".to_owned(),
                },
                "no such cluster; check cloud.organizationId and cloud.clusterId, and that cloud.apiKeyFile",
            ),
            (
                ClientError::Unavailable {
                    request: request(),
                    reason: "502".to_owned(),
                    retry_after: None,
                    source: None,
                },
                "502; check that the cloud at https://cloud.example.com runs",
            ),
            (
                ClientError::Invalid {
                    request: request(),
                    reason: "HTML".to_owned(),
                    source: None,
                },
                "invalid response: HTML; check that cloud.apiBaseUrl (https://cloud.example.com)",
            ),
        ] {
            let text = explained(&error, &client);
            assert!(text.starts_with(expected) && !text.contains("/v3/"), "{text}");
        }
    }
}
