//! A server as a test describes it, and as the API writes it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

/// The locations of a fleet.
const LOCATIONS: [&str; 3] = ["fsn1", "nbg1", "hel1"];

/// A server of the fake. What is `None` or empty is left out of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeServer {
    pub(super) id: u64,
    name: String,
    status: String,
    location: String,
    private: Option<String>,
    aliases: Vec<String>,
    public: Option<String>,
    network_v6: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
}

/// A running server in `fsn1` with the private address 10.0.0.1, without labels and a public network.
#[must_use]
pub fn server(id: u64, name: &str) -> FakeServer {
    FakeServer {
        id,
        name: name.to_owned(),
        status: "running".to_owned(),
        location: LOCATIONS[0].to_owned(),
        private: Some("10.0.0.1".to_owned()),
        aliases: Vec::new(),
        public: None,
        network_v6: None,
        labels: BTreeMap::new(),
    }
}

impl FakeServer {
    /// The `number`th of a fleet: name, id, location (three in turn) and address follow from it.
    #[must_use]
    pub fn numbered(number: u32) -> Self {
        let [_, b, c, d] = number.to_be_bytes();
        server(40_000_000 + u64::from(number), &format!("nodes-{number:04x}"))
            .location(LOCATIONS[number as usize % LOCATIONS.len()])
            .ip(&Ipv4Addr::new(10, b, c, d).to_string())
    }

    /// The status: `running`, `initializing`, `starting`, … Empty: left out.
    #[must_use]
    pub fn status(self, status: &str) -> Self {
        let status = status.to_owned();
        Self { status, ..self }
    }

    /// The location. Empty: left out.
    #[must_use]
    pub fn location(self, location: &str) -> Self {
        let location = location.to_owned();
        Self { location, ..self }
    }

    /// The name. Empty: left out.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        let name = name.to_owned();
        Self { name, ..self }
    }

    /// The address in its private network. Empty: it is in none.
    #[must_use]
    pub fn ip(self, address: &str) -> Self {
        let private = (!address.is_empty()).then(|| address.to_owned());
        Self { private, ..self }
    }

    /// One more address in its private network.
    #[must_use]
    pub fn alias(mut self, address: &str) -> Self {
        self.aliases.push(address.to_owned());
        self
    }

    /// The public address.
    #[must_use]
    pub fn public_ip(self, address: &str) -> Self {
        let public = Some(address.to_owned());
        Self { public, ..self }
    }

    /// The public network of IPv6, for example `2001:db8:1::/64`.
    #[must_use]
    pub fn public_v6(self, network: &str) -> Self {
        let network_v6 = Some(network.to_owned());
        Self { network_v6, ..self }
    }

    /// One more label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Without this label.
    #[must_use]
    pub fn without_label(mut self, key: &str) -> Self {
        self.labels.remove(key);
        self
    }

    /// The labels that kOps gives a server of this group of the cluster.
    #[must_use]
    pub fn kops(self, cluster: &str, group: &str) -> Self {
        self.label("kops.k8s.io/cluster", cluster)
            .label("kops.k8s.io/instance-group", group)
            .label("kops.k8s.io/instance-role", "Node")
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its name, which is that of its Node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.name
    }

    /// The address in its private network.
    #[must_use]
    pub fn address(&self) -> &str {
        self.private.as_deref().unwrap_or_default()
    }

    /// Its location, by name.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.location
    }

    /// The providerID of its Node.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("hcloud://{}", self.id)
    }

    /// The server as the API writes it, with the bulk that its answers have.
    #[must_use]
    pub fn json(&self) -> Value {
        let public = self.public.as_ref();
        let v4 = public.map(|ip| json!({"id": 1, "ip": ip, "blocked": false, "dns_ptr": "static.example.com"}));
        let v6 = self.network_v6.as_ref();
        let v6 = v6.map(|net| json!({"id": 2, "ip": net, "blocked": false, "dns_ptr": []}));
        let private = self.private.iter().map(
            |ip| json!({"network": 4711, "ip": ip, "alias_ips": self.aliases, "mac_address": "86:00:ff:2a:7d:e1"}),
        );
        let mut json = json!({
            "id": self.id,
            "created": "2026-01-01T00:00:00+00:00",
            "public_net": {"ipv4": v4, "ipv6": v6, "floating_ips": [], "firewalls": []},
            "private_net": private.collect::<Vec<_>>(),
            "server_type": {
                "id": 1, "name": "cpx22", "description": "CPX 22", "cores": 2, "memory": 4.0, "disk": 80, "architecture": "x86",
                "storage_type": "local", "cpu_type": "shared", "prices": [],
            },
            "image": {"id": 1, "type": "system", "status": "available", "name": "debian-13", "os_flavor": "debian"},
            "iso": null, "rescue_enabled": false, "locked": false, "backup_window": null, "outgoing_traffic": 0,
            "ingoing_traffic": 0, "included_traffic": 0, "protection": {"delete": false, "rebuild": false},
            "labels": self.labels, "volumes": [], "load_balancers": [], "primary_disk_size": 80, "placement_group": null,
        });
        if !self.name.is_empty() {
            json["name"] = self.name.as_str().into();
        }
        if !self.status.is_empty() {
            json["status"] = self.status.as_str().into();
        }
        if !self.location.is_empty() {
            json["location"] = json!({
                "id": 1, "name": self.location, "description": "a park", "country": "DE", "city": "Falkenstein",
                "latitude": 50.47, "longitude": 12.37, "network_zone": "eu-central",
            });
        }
        json
    }
}
