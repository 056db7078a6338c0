//! What the client of any cloud is made with.

use std::time::Duration;

use url::Url;

/// How a cloud is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The API's address where it is not the public one.
    pub endpoint: Option<Url>,
    /// The longest that a connection may take to come up.
    pub connect: Duration,
    /// The longest that a call may take, connecting included. A thousand instances take EC2 a second or two.
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
