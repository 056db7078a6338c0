//! Authorization role controller: makes a `ClusterRole` of each `AuthorizationRole`, named by its id, with its rules
//! for the cluster.
//!
//! - What counts is what the cloud lists: what was made of a role stays when somebody deletes the `AuthorizationRole`
//!   or its definition, and an `AuthorizationRole` that the cloud does not list takes no effect.
//! - Rules that amount to full control, or that are beyond the ceiling, are refused one by one (`plan`), reported on
//!   the `AuthorizationRole`, and counted.
//! - A `ClusterRole` cannot have an owner in a namespace: the garbage collector would delete it. So a finalizer keeps
//!   an `AuthorizationRole` that the cloud does not list any more until its `ClusterRole` is gone, and a `ClusterRole`
//!   that is left without is deleted.
//! - A `ClusterRole` that another coordinator wrote, and that permits what ours would not, is held as it is, reported,
//!   and changed when a person releases it (`Held`). Only what the cloud does not list any more is taken from it
//!   meanwhile.
//! - A `ClusterRole` that is not managed by Tidewaiter is reported and left alone. Its deletion starts a pass.
//! - Rules are judged for the widest scope in which a binding exists or is being written (`Scopes`).

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding};
use kube::Resource as _;
use serde_json::json;
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding};
use tidewaiter_api::names::{AUTHORIZATION_ROLE_FINALIZER, MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_kit::client::MANY_IN_FLIGHT;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Controller, Finalizer, ForeignObjects, Key, Next, Pass, Reconciler, WriteError, Writer};

mod plan;
mod status;

use super::listed::key_of;
use super::rbac::{CATCH_UP, OURS, Rbac, is_made, is_ours, keep, of_resource, unlabelled};
use crate::meta;
use crate::mirror::is_id;
use status::{Refusals, RoleError};

pub use plan::{Ceiling, Limits, Refused, Why, lost as lost_rules, plan as plan_rules};

const FINALIZER: Finalizer = Finalizer(AUTHORIZATION_ROLE_FINALIZER);

struct AuthorizationRoleController {
    rbac: Rbac,
    foreign: ForeignObjects<ClusterRole>,
    writer: Writer,
    refusals: Refusals,
}

/// Starts it.
pub(super) fn start(rbac: &Rbac, role: &mut Role<'_>) -> Result<(), MetricsError> {
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let (queue, kit) = (rbac.role_queue.clone(), &context.kit);
    rbac.roles.cache().notify(queue.same_name());
    rbac.roles.copies().notify(queue.same_name());
    rbac.cluster_roles
        .notify(of_resource(&queue, |role: &ClusterRole| role.metadata.name.as_deref()));
    // Where a role is bound limits its rules. The finalizer of a binding is of no concern.
    let bindings = of_resource(&queue, |binding: &AuthorizationRoleBinding| {
        Some(binding.spec.authorization_role_id.as_str())
    });
    let bindings =
        bindings.unless(|before, after| before.spec == after.spec && is_deleted(before) == is_deleted(after));
    rbac.bindings.cache().notify(bindings);
    let everywhere = of_resource(&queue, |binding: &ClusterRoleBinding| {
        Some(binding.role_ref.name.as_str())
    });
    rbac.everywhere.notify(everywhere);
    let system = rbac.settings.system_namespaces.clone();
    let in_system = of_resource(&queue, move |binding: &RoleBinding| {
        let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
        system.contains(namespace).then_some(binding.role_ref.name.as_str())
    });
    rbac.in_namespaces.notify(in_system);
    if let Some(ceiling) = &rbac.ceiling {
        ceiling.notify(queue.all_keys(rbac.roles.cache()).changes_only());
    }
    let released = queue.clone();
    rbac.held.notify(move |role| released.push(key_of(role)));
    let (relisted, roles, made) = (queue.clone(), rbac.roles.copies().clone(), rbac.cluster_roles.clone());
    rbac.notify_lists(move || {
        let made = made.keys().into_iter().map(|key| key_of(key.name()));
        roles.keys().into_iter().chain(made).for_each(|key| relisted.push(key));
    });
    let client = clients.for_controller(AuthorizationRoleController::NAME, MANY_IN_FLIGHT);
    let writer = Writer::new(client, AuthorizationRoleController::NAME, Arc::clone(&kit.clock));
    writer.follow(&rbac.cluster_roles);
    let reconciler = AuthorizationRoleController {
        rbac: rbac.clone(),
        foreign: ForeignObjects::start(
            AuthorizationRoleController::NAME,
            rbac.reader.clone(),
            queue.clone(),
            tasks,
        ),
        writer,
        refusals: Refusals::new(&kit.metrics)?,
    };
    Controller::new(reconciler, queue).start(context.clone(), tasks);
    Ok(())
}

fn is_deleted(binding: &AuthorizationRoleBinding) -> bool {
    binding.metadata.deletion_timestamp.is_some()
}

impl Reconciler for AuthorizationRoleController {
    const NAME: &'static str = "authorization-role";
    type Error = RoleError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, RoleError> {
        let key = pass.key().clone();
        let found = self.rbac.roles.copies().get(&key);
        if let Some(role) = &found {
            pass.about(role.object_ref(&()));
        }
        let Some(role) = self.rbac.roles.get(key.name()) else {
            self.refusals.set(&key, &[]);
            self.rbac.held.clear(key.name());
            self.foreign.set(&key, None);
            return self.without_effect(&key, found.as_deref()).await;
        };
        keep::<AuthorizationRole>(FINALIZER, &self.writer, &role.metadata).await?;
        let ceiling = self.rbac.ceiling();
        let limits = Limits {
            allow_privileged: self.rbac.settings.allow_privileged,
            ceiling: self.rbac.settings.ceiling.as_deref().map(|name| Ceiling {
                name,
                rules: ceiling.as_ref().map(|role| role.rules.as_deref().unwrap_or_default()),
            }),
            scope: self.rbac.scope(key.name()),
        };
        let (rules, refused) = plan::plan(&role.spec.rules, limits);
        let held = self.hold(&key, &rules, &refused).await;
        // What is held is in force.
        let is_held = matches!(held, Err(RoleError::Held(_)));
        self.refusals.set(&key, if is_held { &[] } else { &refused });
        held?;
        self.rbac.held.clear(key.name());
        let others_apply = !rules.is_empty();
        let written = self.ensure(&key, cluster_role(key.name(), rules)).await;
        let is_foreign = |error: &&WriteError| error.is_foreign();
        let foreign = written.as_ref().err().filter(is_foreign);
        self.foreign.set(&key, foreign.map(|error| error.key().clone()));
        let next = written?;
        self.drop_aggregation(key.name()).await?;
        if refused.is_empty() {
            Ok(next)
        } else {
            Err(RoleError::Refused { refused, others_apply })
        }
    }
}

impl AuthorizationRoleController {
    /// Holds the `ClusterRole` if another coordinator wrote it and it permits something of the refused rules. It keeps
    /// what the cloud lists, and loses the rest.
    async fn hold(&self, role: &Key, applied: &[PolicyRule], refused: &[Refused]) -> Result<(), RoleError> {
        let made = self.rbac.cluster_roles.get(&Key::new(role.name()));
        let Some(made) = made.filter(|made| !is_ours(&made.metadata)) else {
            return Ok(());
        };
        let rules = made.rules.as_deref().unwrap_or_default();
        let lost = plan::lost(refused, applied, rules);
        let words: Vec<String> = lost.iter().map(ToString::to_string).collect();
        if words.is_empty() {
            return Ok(());
        }
        if let Some(listed) = self.rbac.roles.get(role.name()) {
            self.rbac.held.call(role.name(), &listed.spec.name);
        }
        if !self.rbac.held.hold(role.name(), &words) {
            return Ok(());
        }
        let kept = plan::kept(rules, applied, &lost);
        let key = Key::of_meta(&made.metadata);
        if kept != rules && !self.writer.awaits::<ClusterRole>(&key, Some(&made.metadata)) {
            let patch = json!({ "rules": kept, "aggregationRule": null });
            self.writer.patch::<ClusterRole>(&made.metadata, patch).await?;
        }
        Err(RoleError::Held(words))
    }

    /// A role that takes no effect: deletes its `ClusterRole`, and then lets the `AuthorizationRole` go. If the cloud
    /// lists the role, the `ClusterRole` stays: the `AuthorizationRole` was deleted in the cluster only, and the mirror
    /// restores it.
    async fn without_effect(&self, key: &Key, found: Option<&AuthorizationRole>) -> Result<Next, RoleError> {
        let leaving =
            found.filter(|role| role.metadata.deletion_timestamp.is_some() && FINALIZER.is_on(&role.metadata));
        if self.rbac.roles.retains(key.name()) {
            if let Some(role) = leaving {
                keep::<AuthorizationRole>(FINALIZER, &self.writer, &role.metadata).await?;
            }
            return Ok(Next::UntilChanged);
        }
        if found.is_none() && !is_id(key.name()) {
            // Not one of ours: people give other names.
            return Ok(Next::UntilChanged);
        }
        let made = cluster_role(key.name(), Vec::new()).metadata;
        if leaving.is_some()
            && let Some(found) = unlabelled::<ClusterRole>(&self.writer, &made, Self::NAME).await?
        {
            // With its label, the cache shows it, and it goes as any other.
            let labelled = json!({"metadata": {"labels": {MANAGED_LABEL: MANAGED_VALUE}}});
            self.writer.patch::<ClusterRole>(&found.metadata, labelled).await?;
            return Ok(Next::Pending(CATCH_UP));
        }
        let next = self.delete(key.name()).await?;
        let Some(role) = leaving.filter(|_| next == Next::UntilChanged) else {
            return Ok(next);
        };
        let gone = self
            .writer
            .is_gone::<ClusterRole>(&made, |meta| OURS.marks(meta) || is_made(meta, Self::NAME))
            .await?;
        if !gone {
            return Ok(Next::Pending(CATCH_UP));
        }
        FINALIZER
            .release::<AuthorizationRole>(&self.writer, &role.metadata)
            .await?;
        Ok(Next::UntilChanged)
    }

    /// Makes the `ClusterRole` as `desired`, unless a binding for which its rules are not safe is being written: then
    /// it is judged again.
    async fn ensure(&self, role: &Key, mut desired: ClusterRole) -> Result<Next, WriteError> {
        OURS.mark(&mut desired);
        let key = Key::new(role.name());
        let made = self.rbac.cluster_roles.get(&key);
        let seen = made.as_ref().map(|made| &made.metadata);
        if self.writer.awaits::<ClusterRole>(&key, seen) {
            return Ok(Next::Pending(CATCH_UP));
        }
        let is_deleted = seen.is_some_and(|seen| seen.deletion_timestamp.is_some());
        let is_applied = made.as_deref().is_some_and(|made| {
            // The API server stores an empty list as null.
            let mut made = made.clone();
            made.rules.get_or_insert_default();
            self.writer.is_applied(&desired, &made)
        });
        if is_deleted || is_applied {
            // The end of one that is being deleted starts another pass.
            return Ok(Next::UntilChanged);
        }
        let safe = self.rbac.safe_scope(desired.rules.as_deref().unwrap_or_default());
        let Some(writing) = self.rbac.scopes.begin(role.name(), safe) else {
            return Ok(Next::Pending(CATCH_UP));
        };
        let written = match seen {
            None => match self.writer.apply_new(&desired, |meta| OURS.marks(meta)).await {
                Err(foreign) if foreign.is_foreign() => {
                    let found = unlabelled::<ClusterRole>(&self.writer, &desired.metadata, Self::NAME).await;
                    match found {
                        Ok(Some(found)) => self.writer.apply_over(&desired, &found.metadata).await,
                        Ok(None) => Err(foreign),
                        Err(error) => Err(error),
                    }
                }
                written => written,
            },
            Some(seen) => self.writer.apply_over(&desired, seen).await,
        };
        writing.end(&written);
        written.map(|_| Next::UntilChanged)
    }

    async fn delete(&self, role: &str) -> Result<Next, WriteError> {
        let key = Key::new(role);
        let made = self.rbac.cluster_roles.get(&key);
        if self
            .writer
            .awaits::<ClusterRole>(&key, made.as_ref().map(|made| &made.metadata))
        {
            return Ok(Next::Pending(CATCH_UP));
        }
        match made.filter(|made| made.metadata.deletion_timestamp.is_none()) {
            None => self.rbac.scopes.forget(role),
            Some(made) => {
                self.writer.delete::<ClusterRole>(&made.metadata).await?;
            }
        }
        Ok(Next::UntilChanged)
    }

    /// Removes an aggregation rule that somebody added: it would replace the rules.
    async fn drop_aggregation(&self, name: &str) -> Result<(), RoleError> {
        let cached = self.rbac.cluster_roles.get(&Key::new(name));
        if let Some(cached) = cached.filter(|cached| cached.aggregation_rule.is_some()) {
            let patch = json!({ "aggregationRule": null });
            self.writer.patch::<ClusterRole>(&cached.metadata, patch).await?;
        }
        Ok(())
    }
}

fn cluster_role(name: &str, rules: Vec<PolicyRule>) -> ClusterRole {
    ClusterRole {
        metadata: meta::of(None, name),
        rules: Some(rules),
        ..ClusterRole::default()
    }
}
