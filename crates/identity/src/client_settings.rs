//! The settings of a cloud's client.

use std::time::Duration;

use url::Url;

/// Endpoint and timeouts of a cloud's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The endpoint of the API, if it is not the public one.
    pub endpoint: Option<Url>,
    /// The timeout for connecting.
    pub connect: Duration,
    /// The timeout of a call, including the connection. EC2 needs one or two seconds for a thousand instances.
    pub call: Duration,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            connect: Duration::from_secs(3),
            call: Duration::from_secs(10),
        }
    }
}
