//! A managed instance group as a test describes it, and as `listManagedInstances` writes its rows.

use serde_json::{Value, json};

use super::{FakeInstance, FakeTemplate, link};

/// A managed instance group of the fake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeGroup {
    zone: Option<String>,
    region: Option<String>,
    pub(super) name: String,
    pub(super) paginated: bool,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    id: Option<u64>,
    instance: String,
    template: Option<String>,
    action: &'static str,
}

/// An empty group whose instances are in one zone.
#[must_use]
pub fn zonal_group(zone: &str, name: &str) -> FakeGroup {
    FakeGroup {
        zone: Some(zone.to_owned()),
        region: None,
        name: name.to_owned(),
        paginated: false,
        rows: Vec::new(),
    }
}

/// An empty group whose instances are spread over the zones of a region.
#[must_use]
pub fn regional_group(region: &str, name: &str) -> FakeGroup {
    FakeGroup {
        zone: None,
        region: Some(region.to_owned()),
        ..zonal_group("", name)
    }
}

impl FakeGroup {
    /// Lists the instance, made from this template.
    #[must_use]
    pub fn lists(self, instance: &FakeInstance, template: &FakeTemplate) -> Self {
        let url = template.url();
        self.lists_from(instance, &url)
    }

    /// Lists the instance, with any text for the URL of its template; empty: left out.
    #[must_use]
    pub fn lists_from(mut self, instance: &FakeInstance, template: &str) -> Self {
        self.rows.push(Row {
            id: (instance.id != 0).then_some(instance.id),
            instance: link(&format!("zones/{}/instances/{}", instance.zone, instance.name)),
            template: (!template.is_empty()).then(|| template.to_owned()),
            action: "NONE",
        });
        self
    }

    /// Lists one that it is about to make: it has no id yet.
    #[must_use]
    pub fn creates(mut self, zone: &str, name: &str, template: &FakeTemplate) -> Self {
        self.rows.push(Row {
            id: None,
            instance: link(&format!("zones/{zone}/instances/{name}")),
            template: Some(template.url()),
            action: "CREATING",
        });
        self
    }

    /// Heeds pages (`listManagedInstancesResults: PAGINATED`). Without this it answers all rows at once.
    #[must_use]
    pub fn paginated(self) -> Self {
        Self {
            paginated: true,
            ..self
        }
    }

    /// `zones/Z/instanceGroupManagers/NAME`, or with its region.
    #[must_use]
    pub fn path(&self) -> String {
        let kind = if self.zone.is_some() { "zones" } else { "regions" };
        format!("{kind}/{}/instanceGroupManagers/{}", self.place(), self.name)
    }

    /// Its zone or region.
    pub(super) fn place(&self) -> &str {
        self.zone.as_deref().or(self.region.as_deref()).unwrap_or_default()
    }
}

impl Row {
    pub(super) fn json(&self) -> Value {
        let mut json = json!({
            "instance": self.instance,
            "name": self.instance.rsplit('/').next(),
            "instanceStatus": if self.id.is_some() { "RUNNING" } else { "" },
            "currentAction": self.action,
        });
        if self.id.is_none() {
            json.as_object_mut().expect("an object").remove("instanceStatus");
        }
        if let Some(id) = self.id {
            json["id"] = id.to_string().into();
        }
        if let Some(template) = &self.template {
            json["version"] = json!({"name": "0-2026-01-01", "instanceTemplate": template});
        }
        json
    }
}
