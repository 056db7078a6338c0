//! A binding of the cluster: in a namespace or for all of it.

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use tidewaiter_api::access::{RBAC_GROUP, Subject};
use tidewaiter_kit::Cacheable;

const CLUSTER_ROLE: &str = "ClusterRole";

/// `ClusterRoleBinding` or `RoleBinding`.
pub(super) trait Binding: Cacheable + Serialize {
    fn new(metadata: ObjectMeta, role: &str, subject: &Subject) -> Self;
    fn role_ref(&self) -> &RoleRef;
    /// Returns true if it gives nobody anything.
    fn is_empty(&self) -> bool;
}

impl Binding for ClusterRoleBinding {
    fn new(metadata: ObjectMeta, role: &str, subject: &Subject) -> Self {
        Self {
            metadata,
            role_ref: role_ref(role),
            subjects: Some(vec![subject.of_rbac()]),
        }
    }

    fn role_ref(&self) -> &RoleRef {
        &self.role_ref
    }

    fn is_empty(&self) -> bool {
        self.subjects.as_ref().is_none_or(Vec::is_empty)
    }
}

impl Binding for RoleBinding {
    fn new(metadata: ObjectMeta, role: &str, subject: &Subject) -> Self {
        Self {
            metadata,
            role_ref: role_ref(role),
            subjects: Some(vec![subject.of_rbac()]),
        }
    }

    fn role_ref(&self) -> &RoleRef {
        &self.role_ref
    }

    fn is_empty(&self) -> bool {
        self.subjects.as_ref().is_none_or(Vec::is_empty)
    }
}

fn role_ref(role: &str) -> RoleRef {
    RoleRef {
        api_group: Some(RBAC_GROUP.to_owned()),
        kind: CLUSTER_ROLE.to_owned(),
        name: role.to_owned(),
    }
}

/// The name of the role that it binds; None if it binds something else than a `ClusterRole`.
pub(super) fn role_of(binding: &impl Binding) -> Option<&str> {
    let role = binding.role_ref();
    (role.kind == CLUSTER_ROLE).then_some(role.name.as_str())
}
