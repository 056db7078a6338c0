//! An instance as a test describes it, and as the API writes it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{FakeGroup, PROJECT, PROJECT_NUMBER, REGION, link};

/// An instance of the fake. What is `None` or empty is left out of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeInstance {
    pub(super) zone: String,
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) status: Option<String>,
    pub(super) said_zone: Option<String>,
    pub(super) interfaces: Vec<Interface>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) metadata: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    ip: String,
    v6: Option<String>,
    external_v6: Option<String>,
    aliases: Vec<String>,
}

/// A running instance with the address 10.0.0.1 and the id 4001, without labels and metadata.
#[must_use]
pub fn instance(zone: &str, name: &str) -> FakeInstance {
    FakeInstance {
        zone: zone.to_owned(),
        name: name.to_owned(),
        id: 4001,
        status: Some("RUNNING".to_owned()),
        said_zone: Some(zone.to_owned()),
        interfaces: vec![Interface::new("10.0.0.1")],
        labels: BTreeMap::new(),
        metadata: BTreeMap::new(),
    }
}

impl FakeInstance {
    /// The `number`th of a fleet: name, id, zone (three in turn) and address follow from it.
    #[must_use]
    pub fn numbered(number: u32) -> Self {
        let zone = ['a', 'b', 'c'][number as usize % 3];
        let [_, b, c, d] = number.to_be_bytes();
        instance(&format!("{REGION}-{zone}"), &format!("nodes-{number:04}"))
            .id(5_000_000_000_000_000_000 + u64::from(number))
            .ip(&Ipv4Addr::new(10, b, c, d).to_string())
    }

    /// The numeric id; 0: left out.
    #[must_use]
    pub fn id(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// The status: `PROVISIONING`, `STAGING`, `RUNNING`, … Empty: left out.
    #[must_use]
    pub fn status(self, status: &str) -> Self {
        let status = (!status.is_empty()).then(|| status.to_owned());
        Self { status, ..self }
    }

    /// The zone that the answer says, where it is not the one in which it is found. Empty: left out.
    #[must_use]
    pub fn says_zone(self, zone: &str) -> Self {
        let said_zone = (!zone.is_empty()).then(|| zone.to_owned());
        Self { said_zone, ..self }
    }

    /// The private address of its first interface.
    #[must_use]
    pub fn ip(self, address: &str) -> Self {
        Self {
            interfaces: vec![Interface::new(address)],
            ..self
        }
    }

    /// The private IPv6 address of its first interface.
    #[must_use]
    pub fn ipv6(mut self, address: &str) -> Self {
        if let Some(interface) = self.interfaces.first_mut() {
            interface.v6 = Some(address.to_owned());
        }
        self
    }

    /// The external IPv6 address of its first interface, which has no internal address then.
    #[must_use]
    pub fn external_ipv6(mut self, address: &str) -> Self {
        if let Some(interface) = self.interfaces.first_mut() {
            interface.external_v6 = Some(address.to_owned());
        }
        self
    }

    /// An alias range of the first interface, as pods have.
    #[must_use]
    pub fn alias(mut self, range: &str) -> Self {
        if let Some(interface) = self.interfaces.first_mut() {
            interface.aliases.push(range.to_owned());
        }
        self
    }

    /// One more interface.
    #[must_use]
    pub fn interface(mut self, address: &str) -> Self {
        self.interfaces.push(Interface::new(address));
        self
    }

    /// One more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Without labels.
    #[must_use]
    pub fn without_labels(mut self) -> Self {
        self.labels.clear();
        self
    }

    /// One more metadata entry.
    #[must_use]
    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Without this metadata entry.
    #[must_use]
    pub fn without_metadata(mut self, key: &str) -> Self {
        self.metadata.remove(key);
        self
    }

    /// Sets the metadata that kOps and this group give an instance of the cluster: the label, and the entry
    /// `created-by`.
    #[must_use]
    pub fn kops(self, cluster: &str, group: &FakeGroup) -> Self {
        let creator = format!("projects/{PROJECT_NUMBER}/{}", group.path());
        self.label("k8s-io-cluster-name", &cluster.replace('.', "-"))
            .metadata("cluster-name", cluster)
            .metadata("created-by", &creator)
    }

    /// Its zone and name, as a refusal names it.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.zone, self.name)
    }

    /// Its name, which is that of its Node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.name
    }

    /// Its zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// The address of its first interface.
    #[must_use]
    pub fn address(&self) -> &str {
        self.interfaces.first().map_or("", |interface| interface.ip.as_str())
    }

    /// The providerID of its Node.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("gce://{PROJECT}/{}/{}", self.zone, self.name)
    }

    /// The instance as the API writes it, with the bulk that its answers have.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut json = json!({
            "kind": "compute#instance",
            "creationTimestamp": "2026-01-01T00:00:00.000-08:00",
            "name": self.name,
            "tags": {"items": ["nodes"], "fingerprint": "abcdefghijk="},
            "machineType": link(&format!("zones/{}/machineTypes/e2-standard-2", self.zone)),
            "networkInterfaces": self.interfaces.iter().map(Interface::json).collect::<Vec<_>>(),
            "disks": [{
                "kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "deviceName": "persistent-disk-0",
                "index": 0, "boot": true, "autoDelete": true, "interface": "SCSI", "diskSizeGb": "64",
            }],
            "metadata": metadata_json(&self.metadata),
            "serviceAccounts": [{"email": "nodes@our-project.iam.gserviceaccount.com", "scopes": ["https://www.googleapis.com/auth/compute"]}],
            "selfLink": link(&format!("zones/{}/instances/{}", self.zone, self.name)),
            "scheduling": {"onHostMaintenance": "MIGRATE", "automaticRestart": true, "preemptible": false},
            "cpuPlatform": "Intel Broadwell",
            "labels": self.labels,
            "labelFingerprint": "abcdefghijk=",
            "lastStartTimestamp": "2026-01-01T00:00:05.000-08:00",
        });
        if self.id != 0 {
            json["id"] = self.id.to_string().into();
        }
        if let Some(status) = &self.status {
            json["status"] = status.as_str().into();
        }
        if let Some(zone) = &self.said_zone {
            json["zone"] = link(&format!("zones/{zone}")).into();
        }
        json
    }

    pub(super) fn has_label(&self, key: &str, value: &str) -> bool {
        self.labels.get(key).is_some_and(|its| its == value)
    }
}

impl Interface {
    fn new(ip: &str) -> Self {
        Self {
            ip: ip.to_owned(),
            v6: None,
            external_v6: None,
            aliases: Vec::new(),
        }
    }

    fn json(&self) -> Value {
        let aliases: Vec<Value> = self
            .aliases
            .iter()
            .map(|range| json!({"ipCidrRange": range, "subnetworkRangeName": "pods"}))
            .collect();
        let mut json = json!({
            "kind": "compute#networkInterface",
            "network": link("global/networks/default"),
            "subnetwork": link(&format!("regions/{REGION}/subnetworks/nodes")),
            "networkIP": self.ip,
            "name": "nic0",
            "accessConfigs": [{"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "natIP": "203.0.113.7"}],
            "aliasIpRanges": aliases,
            "stackType": "IPV4_ONLY",
            "fingerprint": "abcdefghijk=",
        });
        if let Some(v6) = &self.v6 {
            json["ipv6Address"] = v6.as_str().into();
            json["stackType"] = "IPV4_IPV6".into();
        }
        if let Some(v6) = &self.external_v6 {
            json.as_object_mut().expect("an object").remove("networkIP");
            json["ipv6AccessConfigs"] = json!([{
                "kind": "compute#accessConfig", "type": "DIRECT_IPV6", "externalIpv6": v6, "externalIpv6PrefixLength": 96,
            }]);
            json["stackType"] = "IPV6_ONLY".into();
        }
        json
    }
}

pub(super) fn metadata_json(entries: &BTreeMap<String, String>) -> Value {
    let items: Vec<Value> = entries
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    json!({"kind": "compute#metadata", "fingerprint": "abcdefghijk=", "items": items})
}
