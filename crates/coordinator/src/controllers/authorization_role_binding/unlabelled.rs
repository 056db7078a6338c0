//! Bindings of ours whose label somebody took off. No cache shows them, and they give what they gave.

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::json;
use tidewaiter_api::containership::AuthorizationRoleBindingSpec;
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_kit::{Reconciler as _, WriteError};

use super::AuthorizationRoleBindingController;
use super::object::{self, Binding};
use super::plan;
use crate::controllers::rbac::{OURS, is_made, unlabelled};
use crate::meta;

impl AuthorizationRoleBindingController {
    /// Gives a binding of ours whose label somebody took off the label back; `foreign` if it is none. One to another
    /// role gives nothing any more, and goes in the next pass, because the role of a binding cannot be changed.
    pub(super) async fn take_up<B: Binding + DeserializeOwned>(
        &self,
        desired: &B,
        foreign: WriteError,
    ) -> Result<(), WriteError> {
        let Some(found) = unlabelled::<B>(&self.writer, desired.meta(), Self::NAME).await? else {
            return Err(foreign);
        };
        if object::role_of(&found) == object::role_of(desired) {
            return self.writer.apply_over(desired, found.meta()).await.map(drop);
        }
        self.label_emptied(&found).await
    }

    /// Takes back what the revoked binding still gives although somebody took our label off: such a binding gets the
    /// label and loses its subjects, and the caches show it again. Returns whether there was one. It is known by what
    /// it gives, because anyone who takes the label off can also erase who applied it.
    pub(super) async fn take_back(&self, name: &str, spec: &AuthorizationRoleBindingSpec) -> Result<bool, WriteError> {
        let namespace = (!spec.namespace.is_empty()).then_some(&*spec.namespace);
        let mut was_there = false;
        for name in [name.to_owned(), plan::stand_in(name)] {
            let meta = meta::of(namespace, &name);
            was_there |= match namespace {
                None => self.take_back_one::<ClusterRoleBinding>(&meta, spec).await?,
                Some(_) => self.take_back_one::<RoleBinding>(&meta, spec).await?,
            };
        }
        Ok(was_there)
    }

    async fn take_back_one<B: Binding + DeserializeOwned>(
        &self,
        meta: &ObjectMeta,
        spec: &AuthorizationRoleBindingSpec,
    ) -> Result<bool, WriteError> {
        let Some(found) = self.writer.get::<B>(meta).await? else {
            return Ok(false);
        };
        let gives = object::role_of(&found) == Some(&*spec.authorization_role_id);
        if OURS.owns(&found) || !(gives || is_made(found.meta(), Self::NAME)) {
            return Ok(false);
        }
        self.label_emptied(&found).await?;
        Ok(true)
    }

    async fn label_emptied<B: Binding>(&self, found: &B) -> Result<(), WriteError> {
        let emptied = json!({"metadata": {"labels": {MANAGED_LABEL: MANAGED_VALUE}}, "subjects": null});
        self.writer.patch::<B>(found.meta(), emptied).await.map(drop)
    }
}
