//! What the cloud says of an instance, as far as anything here depends on it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tidewaiter_api::{InstanceGroupName, Lifecycle};

/// One running instance of this cluster, as its cloud describes it.
///
/// Thousands are kept, packed as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The instance as its cloud names it: `i-0123456789abcdef0` on EC2, `us-central1-a/nodes-x7k2` on GCE, where a name is
    /// unique in its zone only, `42` on Hetzner Cloud.
    pub instance: String,
    /// The `InstanceGroup`, from what a node cannot change: on EC2 a tag, on GCE the
    /// instance template by which its managed instance group lists it, on Hetzner Cloud a label of the server.
    pub group: InstanceGroupName,
    /// The zone in which it runs; on Hetzner Cloud its location.
    pub zone: String,
    /// How the cloud bills it.
    pub lifecycle: Lifecycle,
    /// Every name that a Node of this instance may have: on EC2 the private DNS names of its interfaces and its id, on GCE
    /// and Hetzner Cloud its name. In lower case.
    pub names: Vec<String>,
    /// Every private address of its interfaces; on Hetzner Cloud the public ones too.
    pub addresses: Vec<IpAddr>,
    /// The labels that it carries as tags, as key and value, sorted; whatever the tags hold. Empty where nobody asked the
    /// provider for them, because they are most of what would be kept, and on clouds that have no such tags.
    pub tag_labels: Vec<(String, String)>,
}

impl Identity {
    /// Whether a Node of this name can be this instance.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Whether this instance has the address. An IPv4 address and its IPv6-mapped form are the same one.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses
            .iter()
            .any(|own| own.to_canonical() == address.to_canonical())
    }
}
