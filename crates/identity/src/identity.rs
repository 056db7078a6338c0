//! The identity of an instance according to the cloud.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tidewaiter_api::{InstanceGroupName, Lifecycle};

/// A running instance of this cluster, as described by the cloud.
///
/// Thousands of them are cached, packed as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name or id of the instance: `i-0123456789abcdef0` on EC2, `us-central1-a/nodes-x7k2` on GCE, where a name is
    /// unique only within its zone, `42` on Hetzner Cloud.
    pub instance: String,
    /// The `InstanceGroup`, from data that a node cannot change: on EC2 a tag, on GCE the instance template with which
    /// its managed instance group lists it, on Hetzner Cloud a label of the server.
    pub group: InstanceGroupName,
    /// True if it is still starting: EC2 may not know its name and its addresses yet.
    pub starting: bool,
    /// The zone of the instance; on Hetzner Cloud its location.
    pub zone: String,
    /// The billing model of the instance.
    pub lifecycle: Lifecycle,
    /// All permitted names of a Node of this instance: on EC2 its private DNS name and its id, on GCE and Hetzner Cloud
    /// its name. In lower case.
    pub names: Vec<String>,
    /// All private addresses of its interfaces; on Hetzner Cloud also the public ones.
    pub addresses: Vec<IpAddr>,
    /// The labels in its tags, as sorted pairs of key and value, not validated. Empty unless the provider was
    /// configured to read them, because they need most of the memory, and on clouds without such tags.
    pub tag_labels: Vec<(String, String)>,
}

impl Identity {
    /// Returns true if a Node of this name can be this instance.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    /// Returns true if this instance has the address. An IPv4 address and its IPv6-mapped form are the same one.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses
            .iter()
            .any(|own| own.to_canonical() == address.to_canonical())
    }
}
