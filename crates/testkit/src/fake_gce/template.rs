//! An instance template as a test describes it, and as the API writes it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::instance::metadata_json;
use super::link;

/// An instance template of the fake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeTemplate {
    pub(super) region: Option<String>,
    pub(super) name: String,
    metadata: BTreeMap<String, String>,
    model: Option<String>,
    preemptible: bool,
}

/// A global template without metadata.
#[must_use]
pub fn template(name: &str) -> FakeTemplate {
    FakeTemplate {
        region: None,
        name: name.to_owned(),
        metadata: BTreeMap::new(),
        model: None,
        preemptible: false,
    }
}

/// A template of a region, without metadata.
#[must_use]
pub fn regional_template(region: &str, name: &str) -> FakeTemplate {
    FakeTemplate {
        region: Some(region.to_owned()),
        ..template(name)
    }
}

impl FakeTemplate {
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

    /// The entries that kOps gives a template of this cluster and group.
    #[must_use]
    pub fn kops(self, cluster: &str, group: &str) -> Self {
        self.metadata("startup-script", &"# nodeup\n".repeat(100))
            .metadata("cluster-name", cluster)
            .metadata("kops-k8s-io-instance-group-name", group)
    }

    /// The provisioning model: `STANDARD`, `SPOT`, …
    #[must_use]
    pub fn model(self, model: &str) -> Self {
        Self {
            model: Some(model.to_owned()),
            ..self
        }
    }

    /// Preemptible, as spot instances were called.
    #[must_use]
    pub fn preemptible(self) -> Self {
        Self {
            preemptible: true,
            ..self
        }
    }

    /// Its URL, as listings name it.
    #[must_use]
    pub fn url(&self) -> String {
        link(&self.path())
    }

    /// `global` or its region.
    pub(super) fn place(&self) -> &str {
        self.region.as_deref().unwrap_or("global")
    }

    fn path(&self) -> String {
        match &self.region {
            None => format!("global/instanceTemplates/{}", self.name),
            Some(region) => format!("regions/{region}/instanceTemplates/{}", self.name),
        }
    }

    /// The template as the API writes it.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut scheduling = json!({"automaticRestart": !self.preemptible, "preemptible": self.preemptible});
        if let Some(model) = &self.model {
            scheduling["provisioningModel"] = model.as_str().into();
        }
        json!({
            "kind": "compute#instanceTemplate",
            "id": "7001",
            "creationTimestamp": "2026-01-01T00:00:00.000-08:00",
            "name": self.name,
            "description": "",
            "properties": {
                "machineType": "e2-standard-2",
                "canIpForward": true,
                "metadata": metadata_json(&self.metadata),
                "scheduling": scheduling,
            },
            "selfLink": self.url(),
        })
    }
}
