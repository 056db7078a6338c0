//! A managed instance group as a test describes it, as listings write it, and as `listManagedInstances` writes its
//! rows.

use serde_json::{Value, json};

use super::{FakeInstance, FakeTemplate, link};

/// A managed instance group of the fake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeGroup {
    zone: Option<String>,
    region: Option<String>,
    pub(super) name: String,
    pub(super) paginated: bool,
    target_size: Option<usize>,
    versions: Vec<String>,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    id: Option<u64>,
    instance: String,
    template: Option<String>,
    action: String,
}

/// An empty group whose instances are in one zone.
#[must_use]
pub fn zonal_group(zone: &str, name: &str) -> FakeGroup {
    FakeGroup {
        zone: Some(zone.to_owned()),
        region: None,
        name: name.to_owned(),
        paginated: false,
        target_size: None,
        versions: Vec::new(),
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
            action: "NONE".to_owned(),
        });
        self
    }

    /// Lists one that it is about to make, or that somebody has deleted: it has no id and no status.
    #[must_use]
    pub fn creates(mut self, zone: &str, name: &str, template: &FakeTemplate) -> Self {
        self.rows.push(Row {
            id: None,
            instance: link(&format!("zones/{zone}/instances/{name}")),
            template: Some(template.url()),
            action: "CREATING".to_owned(),
        });
        self
    }

    /// Sets its action on the instance that was listed last: `DELETING`, `RECREATING`, …
    #[must_use]
    pub fn doing(mut self, action: &str) -> Self {
        action.clone_into(&mut self.rows.last_mut().expect("an instance that is listed").action);
        self
    }

    /// Sets the number of instances that it should have; without this as many as it lists.
    #[must_use]
    pub fn target_size(self, size: usize) -> Self {
        Self {
            target_size: Some(size),
            ..self
        }
    }

    /// One more version, which is made from this template. Without any its only template is that of the first instance
    /// that it lists.
    #[must_use]
    pub fn version(mut self, template: &FakeTemplate) -> Self {
        self.versions.push(template.url());
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
        format!("{}/instanceGroupManagers/{}", self.scope(), self.name)
    }

    /// `zones/Z`, or its region.
    pub(super) fn scope(&self) -> String {
        let kind = if self.zone.is_some() { "zones" } else { "regions" };
        format!("{kind}/{}", self.place())
    }

    /// The group as the API writes it.
    #[must_use]
    pub fn json(&self) -> Value {
        let listed = self.rows.first().and_then(|row| row.template.clone());
        let versions: Vec<Value> = self
            .versions
            .iter()
            .cloned()
            .chain(listed.clone().filter(|_| self.versions.is_empty()))
            .map(|template| json!({"name": "0-2026-01-01", "instanceTemplate": template}))
            .collect();
        json!({
            "kind": "compute#instanceGroupManager",
            "id": "6001",
            "name": self.name,
            "baseInstanceName": self.name,
            "instanceTemplate": self.versions.first().cloned().or(listed),
            "versions": versions,
            "targetSize": self.target_size.unwrap_or(self.rows.len()),
            "selfLink": link(&self.path()),
        })
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
