//! Authorization role binding controller: makes a `ClusterRoleBinding` of each `AuthorizationRoleBinding`, or a
//! `RoleBinding` in its namespace, to the `ClusterRole` of its role.
//!
//! - What counts is what the cloud lists: what was bound stays when somebody deletes the `AuthorizationRoleBinding`,
//!   the role or a definition, and an `AuthorizationRoleBinding` that the cloud does not list takes no effect.
//! - It binds only a `ClusterRole` that the authorization role controller made of an `AuthorizationRole`: a binding to
//!   another one of that name would give what nobody decided.
//! - A binding waits, and says so, while its role or its namespace does not exist. One to a role of which the cloud
//!   lists no rule for clusters gives nothing, and waits for nothing: the list that has the role starts another pass.
//! - The role of a binding cannot be changed. A stand-in with the new role exists while the binding is replaced
//!   (`plan`), so a right that both roles give is never missing.
//! - From its end on, a binding gives nothing (`ends`).
//! - Ownership cannot cross namespaces, so a finalizer keeps an `AuthorizationRoleBinding` that the cloud does not list
//!   any more until its binding is gone, and a binding that is left without is deleted.
//! - A binding that a finalizer of others keeps is emptied, and reported.
//! - A binding of others is reported and left alone. Its deletion starts a pass. One of ours stays ours without our
//!   label.
//! - A binding for the whole cluster or in a system namespace is written only when no rule that amounts to full control
//!   there can be in force (`Scopes`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, PolicyRule, RoleBinding};
use kube::Resource as _;
use serde::de::DeserializeOwned;
use serde_json::json;
use tidewaiter_api::access::{self, Subject};
use tidewaiter_api::containership::{AuthorizationRoleBinding, AuthorizationRoleBindingSpec};
use tidewaiter_api::names::AUTHORIZATION_ROLE_BINDING_FINALIZER;
use tidewaiter_kit::client::MANY_IN_FLIGHT;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{
    Cache, Controller, Events, Finalizer, ForeignObjects, Index, Key, Metadata, Next, Pass, Queue, Reconciler,
    WriteError, Writer,
};

mod ends;
mod object;
mod plan;
mod status;
mod triggers;
mod unlabelled;
mod wide;

use super::rbac::{CATCH_UP, OURS, Rbac, is_made, is_ours, keep};
use crate::meta;
use crate::mirror::is_id;
use ends::Ends;
use object::Binding;
use plan::{Existing, Step, Target};
use status::{BindingError, Waiting};
use triggers::{all_bindings, bindings_of, made_of, of_namespace};

pub(crate) use plan::STAND_IN;
pub use status::Wait;

const FINALIZER: Finalizer = Finalizer(AUTHORIZATION_ROLE_BINDING_FINALIZER);

struct AuthorizationRoleBindingController {
    rbac: Rbac,
    /// The `RoleBinding`s, by the name of their `AuthorizationRoleBinding`.
    by_name: Index<String>,
    foreign: (ForeignObjects<ClusterRoleBinding>, ForeignObjects<RoleBinding>),
    writer: Writer,
    waiting: Waiting,
    ends: Ends,
    events: Events,
}

/// Starts it.
pub(super) fn start(rbac: &Rbac, role: &mut Role<'_>) -> Result<(), MetricsError> {
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let (queue, kit) = (Queue::new(), &context.kit);
    let by_name = rbac
        .in_namespaces
        .index(|binding| Some(plan::id_of(binding.metadata.name.as_deref()?).to_owned()));
    rbac.bindings.cache().notify(queue.same_name());
    rbac.bindings.copies().notify(queue.same_name());
    rbac.roles.cache().notify(bindings_of(&queue, rbac));
    rbac.cluster_roles.notify(bindings_of(&queue, rbac));
    rbac.namespaces.notify(of_namespace(&queue, rbac));
    rbac.everywhere.notify(made_of(&queue));
    rbac.in_namespaces.notify(made_of(&queue));
    rbac.notify_lists(all_bindings(&queue, rbac, &by_name));
    let (name, reader) = (AuthorizationRoleBindingController::NAME, &rbac.reader);
    let client = clients.for_controller(name, MANY_IN_FLIGHT);
    let writer = Writer::new(client, name, Arc::clone(&kit.clock));
    writer.follow(&rbac.everywhere);
    writer.follow(&rbac.in_namespaces);
    let reconciler = AuthorizationRoleBindingController {
        rbac: rbac.clone(),
        by_name,
        foreign: (
            ForeignObjects::start(name, reader.clone(), queue.clone(), tasks),
            ForeignObjects::start(name, reader.clone(), queue.clone(), tasks),
        ),
        writer,
        waiting: Waiting::new(&kit.metrics, Arc::clone(&kit.clock))?,
        ends: Ends::start(&queue, &kit.clock, tasks),
        events: context.events.of(name),
    };
    Controller::new(reconciler, queue).start(context.clone(), tasks);
    Ok(())
}

fn is_terminating(namespace: &Metadata<Namespace>) -> bool {
    namespace.metadata.deletion_timestamp.is_some()
}

impl Reconciler for AuthorizationRoleBindingController {
    const NAME: &'static str = "authorization-role-binding";
    type Error = BindingError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, BindingError> {
        let next = self.bring(pass).await;
        let is_namespaced = |key: &&Key| key.namespace().is_some();
        let foreign = next.as_ref().err().and_then(BindingError::foreign);
        let (everywhere, within) = &self.foreign;
        everywhere.set(pass.key(), foreign.filter(|key| !is_namespaced(key)).cloned());
        within.set(pass.key(), foreign.filter(is_namespaced).cloned());
        next
    }
}

impl AuthorizationRoleBindingController {
    async fn bring(&self, pass: &mut Pass) -> Result<Next, BindingError> {
        let key = pass.key().clone();
        let found = self.rbac.bindings.copies().get(&key);
        if let Some(binding) = &found {
            pass.about(binding.object_ref(&()));
        }
        if let Some(ended) = self.ended(&key) {
            return self.end(&key, &ended, found.as_deref()).await;
        }
        let Some(binding) = self.rbac.bindings.get(key.name()) else {
            self.waiting.set(&key, None);
            return self.without_effect(key.name(), found.as_deref()).await;
        };
        keep::<AuthorizationRoleBinding>(FINALIZER, &self.writer, &binding.metadata).await?;
        let decided = self.target(key.name(), &binding.spec);
        if let Ok(Some(target)) = &decided
            && !self.may_bind(key.name(), target, &binding.spec).await?
        {
            self.waiting.set(&key, Some(&Wait::ClusterRole(target.role.clone())));
            return Ok(Next::Pending(CATCH_UP));
        }
        self.waiting.set(&key, decided.as_ref().err());
        match decided {
            Ok(target) => self.ensure(key.name(), target.as_ref()).await,
            Err(wait @ Wait::Held(_)) if self.is_of_another(key.name(), &binding.spec) => {
                self.ensure(key.name(), None).await?;
                Err(BindingError::Waits(wait))
            }
            Err(wait) if wait.keeps() && self.waiting.has_just_begun(&key) => Ok(Next::Pending(CATCH_UP)),
            Err(wait) if wait.keeps() => Err(BindingError::Waits(wait)),
            Err(wait) => {
                self.ensure(key.name(), None).await?;
                Err(BindingError::Waits(wait))
            }
        }
    }

    /// The binding to make, unless something is missing. None if the cloud lists no such role for this cluster: a role
    /// without a rule for clusters is not in its list, and gives nothing here.
    fn target(&self, name: &str, spec: &AuthorizationRoleBindingSpec) -> Result<Option<Target>, Wait> {
        let id = &spec.authorization_role_id;
        let namespace = (!spec.namespace.is_empty()).then(|| spec.namespace.clone());
        if self.rbac.roles.get(id).is_none() {
            return if self.rbac.roles.retains(id) {
                Err(Wait::Missing(id.clone()))
            } else if self.rbac.roles.has_complete_list() {
                Ok(None)
            } else {
                Err(Wait::Role(id.clone()))
            };
        }
        let Some(made) = self.rbac.cluster_roles.get(&Key::new(id)) else {
            return Err(Wait::ClusterRole(id.clone()));
        };
        let scope = self.rbac.scope_of(spec);
        let amounts = |rule: &PolicyRule| access::full_control(rule, scope).is_some();
        let is_privileged = !self.rbac.settings.allow_privileged && made.rules.iter().flatten().any(amounts);
        let is_held = self.rbac.held.contains(id);
        let waits = if self.is_bound(name, namespace.as_deref(), spec) {
            is_privileged && !is_held
        } else {
            is_privileged || !is_ours(&made.metadata)
        };
        if waits && is_held {
            return Err(Wait::Held(id.clone()));
        }
        if waits {
            // The authorization role controller removes that rule when it sees this binding, or takes the ClusterRole
            // over or holds it.
            return Err(Wait::ClusterRole(id.clone()));
        }
        if let Some(namespace) = &namespace {
            let found = self.rbac.namespaces.get(&Key::new(namespace));
            if found.is_none_or(|found| is_terminating(&found)) {
                return Err(Wait::Namespace(namespace.clone()));
            }
        }
        Ok(Some(Target {
            namespace,
            role: id.clone(),
            subject: Subject::from(spec),
        }))
    }

    /// Returns true if the binding of this name gives the subject the role in the namespace already.
    fn is_bound(&self, name: &str, namespace: Option<&str>, spec: &AuthorizationRoleBindingSpec) -> bool {
        let gives = |role: &str, subjects: Option<&Vec<_>>| {
            role == spec.authorization_role_id
                && subjects.is_some_and(|them| them.contains(&Subject::from(spec).of_rbac()))
        };
        match namespace {
            None => {
                let found = self.rbac.everywhere.get(&Key::new(name));
                found.is_some_and(|it| gives(&it.role_ref.name, it.subjects.as_ref()))
            }
            Some(namespace) => {
                let found = self.rbac.in_namespaces.get(&Key::namespaced(namespace, name));
                found.is_some_and(|it| gives(&it.role_ref.name, it.subjects.as_ref()))
            }
        }
    }

    /// Returns true if a binding of this name exists and gives the subject nothing: it is that of a former subject.
    fn is_of_another(&self, name: &str, spec: &AuthorizationRoleBindingSpec) -> bool {
        let everywhere = self.rbac.everywhere.get(&Key::new(name));
        let within = self.by_name.keys(&name.to_owned()).into_iter();
        let within = within.filter_map(|key| Some(self.rbac.in_namespaces.get(&key)?.subjects.clone()));
        let mut all = everywhere.map(|it| it.subjects.clone()).into_iter().chain(within);
        let subject = Subject::from(spec).of_rbac();
        all.any(|subjects| !subjects.unwrap_or_default().contains(&subject))
    }

    /// A binding that takes no effect: deletes what was made, and then lets the `AuthorizationRoleBinding` go. If the
    /// cloud lists the binding, what was made stays: the `AuthorizationRoleBinding` was deleted in the cluster only,
    /// and the mirror restores it.
    async fn without_effect(&self, name: &str, found: Option<&AuthorizationRoleBinding>) -> Result<Next, BindingError> {
        let leaving = found.filter(|it| it.metadata.deletion_timestamp.is_some() && FINALIZER.is_on(&it.metadata));
        if self.rbac.bindings.retains(name) {
            if let Some(binding) = leaving {
                keep::<AuthorizationRoleBinding>(FINALIZER, &self.writer, &binding.metadata).await?;
            }
            return Ok(Next::UntilChanged);
        }
        if found.is_none() && !is_id(name) && self.rbac.scopes.places(name).is_empty() {
            // Not one of ours: people give other names.
            return Ok(Next::UntilChanged);
        }
        if let Some(binding) = leaving
            && self.take_back(name, &binding.spec).await?
        {
            return Ok(Next::Pending(CATCH_UP));
        }
        let next = self.ensure(name, None).await?;
        let Some(binding) = leaving.filter(|_| next == Next::UntilChanged) else {
            return Ok(next);
        };
        let namespace = (!binding.spec.namespace.is_empty()).then_some(&*binding.spec.namespace);
        let meta = meta::of(namespace, name);
        let ours = |meta: &_| OURS.marks(meta) || is_made(meta, Self::NAME);
        let gone = match namespace {
            None => self.writer.is_gone::<ClusterRoleBinding>(&meta, ours).await?,
            Some(_) => self.writer.is_gone::<RoleBinding>(&meta, ours).await?,
        };
        if !gone {
            return Ok(Next::Pending(CATCH_UP));
        }
        FINALIZER
            .release::<AuthorizationRoleBinding>(&self.writer, &binding.metadata)
            .await?;
        Ok(Next::UntilChanged)
    }

    /// Makes the bindings of this name as the target, one write after the other.
    async fn ensure(&self, name: &str, target: Option<&Target>) -> Result<Next, BindingError> {
        let Some(existing) = self.existing(name, target) else {
            return Ok(Next::Pending(CATCH_UP));
        };
        let mut failed = None;
        for step in plan::plan(name, target, &existing) {
            if failed.is_some() && !step.removes() {
                continue;
            }
            let done = match step.namespace() {
                None => self.perform(&step, target, &self.rbac.everywhere).await,
                Some(_) => self.perform(&step, target, &self.rbac.in_namespaces).await,
            };
            if done.as_ref().is_err_and(WriteError::is_in_doubt) {
                self.rbac.scopes.doubt(name);
            }
            match done {
                // One that cannot be removed keeps no other one.
                Err(error) if step.removes() => failed = failed.or(Some(error)),
                done => done?,
            }
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        let all_left = self.leave(name, target, &existing).await?;
        let kept = plan::kept(&existing);
        if !kept.is_empty() {
            Err(BindingError::Kept(kept))
        } else if all_left {
            Ok(Next::UntilChanged)
        } else {
            Ok(Next::Pending(CATCH_UP))
        }
    }

    /// The existing objects with this name; None while a cache does not show our last write.
    fn existing(&self, name: &str, target: Option<&Target>) -> Option<Vec<Existing>> {
        let names = [name.to_owned(), plan::stand_in(name)];
        let mut existing = Vec::new();
        for name in &names {
            let key = Key::new(name);
            let found = self.rbac.everywhere.get(&key);
            let seen = found.as_ref().map(|it| &it.metadata);
            if self.writer.awaits::<ClusterRoleBinding>(&key, seen) {
                return None;
            }
            existing.extend(found.map(|it| Existing::of(&*it)));
        }
        let mut keys = self.by_name.keys(&name.to_owned());
        let namespace = target.and_then(|target| target.namespace.as_deref());
        keys.extend(
            namespace
                .iter()
                .flat_map(|namespace| names.iter().map(|name| Key::namespaced(namespace, name))),
        );
        keys.sort();
        keys.dedup();
        for key in keys {
            let found = self.rbac.in_namespaces.get(&key);
            let seen = found.as_ref().map(|it| &it.metadata);
            if self.writer.awaits::<RoleBinding>(&key, seen) {
                return None;
            }
            existing.extend(found.map(|it| Existing::of(&*it)));
        }
        Some(existing)
    }

    async fn perform<B: Binding + DeserializeOwned>(
        &self,
        step: &Step,
        target: Option<&Target>,
        cache: &Cache<B>,
    ) -> Result<(), WriteError> {
        let meta = meta::of(step.namespace(), step.name());
        let cached = cache.get(&Key::of_meta(&meta));
        match (step, target) {
            (Step::Delete { .. }, _) | (Step::Put { .. }, None) => match cached {
                Some(cached) => self.writer.delete::<B>(cached.meta()).await.map(|_| ()),
                None => Ok(()),
            },
            (Step::Empty { .. }, _) => match cached {
                Some(cached) => {
                    let patched = self.writer.patch::<B>(cached.meta(), json!({ "subjects": null })).await;
                    patched.map(drop)
                }
                None => Ok(()),
            },
            (Step::Put { fresh, .. }, Some(target)) => {
                let mut desired = B::new(meta, &target.role, &target.subject);
                OURS.mark(&mut desired);
                match cached.filter(|_| !fresh) {
                    Some(cached) => self.writer.apply(&desired, Some(&cached)).await.map(drop),
                    None => match self.writer.apply_new(&desired, |meta| OURS.marks(meta)).await {
                        Err(error) if error.is_foreign() => self.take_up(&desired, error).await,
                        written => written.map(drop),
                    },
                }
            }
        }
    }
}
