//! The kinds that a server serves.

use std::any::TypeId;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;

/// One kind, as a real server learns of it from its own table or from a CRD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    /// Its name in CamelCase.
    pub(super) name: String,
    pub(super) namespaced: bool,
    pub(super) status: bool,
}

impl Kind {
    /// A kind by its names; `group` is empty for the core group. It has no status subresource.
    #[must_use]
    pub fn new(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            name: kind.to_owned(),
            namespaced,
            status: false,
        }
    }

    /// The kind of a type, of `k8s_openapi` or derived with `kube::CustomResource`.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>() -> Self
    where
        K::Scope: 'static,
    {
        let namespaced = TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>();
        Self::new(
            &K::group(&()),
            &K::version(&()),
            &K::plural(&()),
            &K::kind(&()),
            namespaced,
        )
    }

    /// The same with a status subresource: a write of the object leaves the status as it is, and a write of the status
    /// leaves the rest.
    #[must_use]
    pub fn with_status(self) -> Self {
        Self { status: true, ..self }
    }

    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The resource as errors name it: `nodes`, `leases.coordination.k8s.io`.
    pub(super) fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Returns true if a replacement may leave out the resourceVersion: the core kinds allow it, Leases and custom
    /// resources do not.
    pub(super) fn replaced_unconditionally(&self) -> bool {
        self.group.is_empty()
    }
}
