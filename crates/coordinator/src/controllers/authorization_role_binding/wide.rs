//! Bindings for the whole cluster and in system namespaces, where more rules amount to full control: when they may be
//! written, and when their role is judged without them again.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use tidewaiter_api::access::Scope;
use tidewaiter_api::containership::AuthorizationRoleBindingSpec;
use tidewaiter_kit::WriteError;

use super::AuthorizationRoleBindingController;
use super::plan::{self, Existing, Target};
use crate::controllers::listed::key_of;
use crate::controllers::rbac::{OURS, Place};
use crate::meta;

impl AuthorizationRoleBindingController {
    /// Returns true if no rule of the role that can be in force amounts to full control where the target gives it. What
    /// is bound already, the authorization role controller judges its rules by.
    pub(super) async fn may_bind(
        &self,
        name: &str,
        target: &Target,
        spec: &AuthorizationRoleBindingSpec,
    ) -> Result<bool, WriteError> {
        let scope = self.rbac.scope_of(spec);
        if scope == Scope::Namespace || self.rbac.settings.allow_privileged {
            return Ok(true);
        }
        let scopes = &self.rbac.scopes;
        let place = Place {
            role: target.role.clone(),
            namespace: target.namespace.clone(),
            scope,
        };
        scopes.enter(name, &place);
        if self.is_bound(name, target.namespace.as_deref(), spec) {
            return Ok(true);
        }
        if let Some(known) = scopes.permits(&target.role, scope) {
            return Ok(known);
        }
        let made = self.writer.get::<ClusterRole>(&meta::of(None, &target.role)).await?;
        let is_safe = |made: ClusterRole| self.rbac.safe_scope(&made.rules.unwrap_or_default()) >= scope;
        Ok(made.filter(|made| OURS.owns(made)).is_some_and(is_safe))
    }

    /// Removes the binding from the record where the target does not give its role and nothing gives it any more, past
    /// every cache. Returns whether that is so of all that it does not give.
    pub(super) async fn leave(
        &self,
        name: &str,
        target: Option<&Target>,
        existing: &[Existing],
    ) -> Result<bool, WriteError> {
        let mut all_left = true;
        for place in self.rbac.scopes.places(name) {
            let is_target = |it: &Target| it.role == place.role && it.namespace == place.namespace;
            // The end of one that exists starts another pass.
            if target.is_some_and(is_target)
                || existing
                    .iter()
                    .any(|it| it.gives(&place.role, place.namespace.as_deref()))
            {
                continue;
            }
            if !self.gives(name, &place).await? && self.rbac.scopes.remove(name, &place) {
                self.rbac.role_queue.push(key_of(&place.role));
            } else {
                all_left = false;
            }
        }
        Ok(all_left)
    }

    /// Returns true if a binding of this name gives the role in the place, as the API server knows it.
    async fn gives(&self, name: &str, place: &Place) -> Result<bool, WriteError> {
        let namespace = place.namespace.as_deref();
        for name in [name.to_owned(), plan::stand_in(name)] {
            let meta = meta::of(namespace, &name);
            let found = match namespace {
                None => self
                    .writer
                    .get::<ClusterRoleBinding>(&meta)
                    .await?
                    .map(|it| Existing::of(&it)),
                Some(_) => self.writer.get::<RoleBinding>(&meta).await?.map(|it| Existing::of(&it)),
            };
            if found.is_some_and(|it| it.gives(&place.role, namespace)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
