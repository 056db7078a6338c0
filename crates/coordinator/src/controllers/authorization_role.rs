//! Authorization role controller: makes a `ClusterRole` of each `AuthorizationRole`, named by its id, with its rules for the cluster.
//!
//! - What counts is what the cloud lists: what was made of a role stays when somebody deletes the `AuthorizationRole` or its definition,
//!   and an `AuthorizationRole` that the cloud does not list takes no effect.
//! - Rules that amount to full control, or that are beyond the ceiling, are refused one by one (`plan`), reported on the
//!   `AuthorizationRole`, and counted.
//! - A `ClusterRole` cannot have an owner in a namespace: the garbage collector would delete it. So a finalizer keeps an
//!   `AuthorizationRole` that the cloud does not list any more until its `ClusterRole` is gone, and a `ClusterRole` that is left without is
//!   deleted.
//! - A `ClusterRole` that another coordinator wrote, and that permits what ours would not, is held as it is, reported, and changed when a
//!   person releases it (`HeldRoles`). Only what the cloud does not list any more is taken from it meanwhile.
//! - A `ClusterRole` that is not managed by Tidewaiter is reported and left alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use prometheus::IntGaugeVec;
use serde_json::json;
use tidewaiter_api::cloud_sync::CLUSTER_ROLE;
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding};
use tidewaiter_api::names::AUTHORIZATION_ROLE_FINALIZER;
use tidewaiter_kit::client::{Clients, MANY_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{
    Change, Children, ChildrenError, Controller, ControllerContext, Finalizer, Key, Metrics, Next, Notice, Pass, Queue,
    ReconcileError, Reconciler, Retry, Tasks, Trigger, WriteError, Writer,
};

mod plan;

use super::listed::key_of;
use super::rbac::{CATCH_UP, OURS, Rbac, is_ours, keep};
use crate::mirror::is_id;
use plan::{Ceiling, Refused, Why};

pub(crate) use plan::{Limits, lost as lost_rules, plan as plan_rules};

const FINALIZER: Finalizer = Finalizer(AUTHORIZATION_ROLE_FINALIZER);

struct AuthorizationRoleController {
    rbac: Rbac,
    children: Children<ClusterRole>,
    writer: Writer,
    refusals: Refusals,
}

/// Starts it.
pub(super) fn start(
    rbac: &Rbac,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<(), MetricsError> {
    let (queue, kit) = (Queue::new(), &context.kit);
    rbac.roles.cache().notify(queue.same_name());
    rbac.roles.copies().notify(queue.same_name());
    rbac.cluster_roles.notify(named_by(&queue));
    rbac.bindings.cache().notify(role_of(&queue));
    rbac.everywhere.notify(bound_by(&queue));
    rbac.in_namespaces.notify(bound_in_system_by(&queue, rbac));
    if let Some(ceiling) = &rbac.ceiling {
        ceiling.notify(queue.all_keys(rbac.roles.cache()));
    }
    let released = queue.clone();
    rbac.held.notify(move |role| released.push(key_of(role)));
    let (relisted, roles, made) = (queue.clone(), rbac.roles.copies().clone(), rbac.cluster_roles.clone());
    rbac.notify_lists(move || {
        let made = made.keys().into_iter().map(|key| key_of(key.name()));
        roles.keys().into_iter().chain(made).for_each(|key| relisted.push(key));
    });
    let client = clients.for_controller(AuthorizationRoleController::NAME, MANY_IN_FLIGHT);
    let reconciler = AuthorizationRoleController {
        rbac: rbac.clone(),
        children: Children::new(rbac.cluster_roles.clone(), OURS, |role| {
            Some(key_of(role.metadata.name.as_deref()?))
        }),
        writer: Writer::new(client, AuthorizationRoleController::NAME, Arc::clone(&kit.clock)),
        refusals: Refusals::new(&kit.metrics)?,
    };
    let mut controller = Controller::new(reconciler, queue)
        .reads(rbac.roles.cache())
        .reads(rbac.bindings.cache())
        .reads(&rbac.cluster_roles)
        .reads(&rbac.everywhere)
        .reads(&rbac.in_namespaces);
    if let Some(ceiling) = &rbac.ceiling {
        controller = controller.reads(ceiling);
    }
    controller.start(context.clone(), tasks);
    Ok(())
}

/// Reconciles the `AuthorizationRole` of a `ClusterRole`.
fn named_by(queue: &Queue) -> Trigger<ClusterRole> {
    let queue = queue.clone();
    Trigger::calls(move |change: &Change<'_, ClusterRole>| {
        if let Some(name) = &change.object().metadata.name {
            queue.push(key_of(name));
        }
    })
}

/// Reconciles the roles of a binding, before and after: where a role is bound limits its rules.
fn role_of(queue: &Queue) -> Trigger<AuthorizationRoleBinding> {
    let queue = queue.clone();
    let trigger = Trigger::calls(move |change: &Change<'_, AuthorizationRoleBinding>| {
        for binding in change.versions() {
            queue.push(key_of(&binding.spec.authorization_role_id));
        }
    });
    // Its finalizer is of no concern.
    trigger.unless(|before, after| before.spec == after.spec && is_deleted(before) == is_deleted(after))
}

fn is_deleted(binding: &AuthorizationRoleBinding) -> bool {
    binding.metadata.deletion_timestamp.is_some()
}

/// Reconciles the role of a `ClusterRoleBinding`, before and after.
fn bound_by(queue: &Queue) -> Trigger<ClusterRoleBinding> {
    let queue = queue.clone();
    Trigger::calls(move |change: &Change<'_, ClusterRoleBinding>| {
        for binding in change.versions() {
            queue.push(key_of(&binding.role_ref.name));
        }
    })
}

/// Reconciles the role of a `RoleBinding` in a system namespace, before and after.
fn bound_in_system_by(queue: &Queue, rbac: &Rbac) -> Trigger<RoleBinding> {
    let (queue, system) = (queue.clone(), rbac.settings.system_namespaces.clone());
    Trigger::calls(move |change: &Change<'_, RoleBinding>| {
        for binding in change.versions() {
            let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
            if system.contains(namespace) {
                queue.push(key_of(&binding.role_ref.name));
            }
        }
    })
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
        self.refusals.set(&key, &refused);
        self.hold(&key, &rules, &refused).await?;
        self.rbac.held.clear(key.name());
        let desired = cluster_role(key.name(), rules);
        let next = self.children.ensure(&self.writer, &key, vec![desired]).await?;
        self.drop_aggregation(key.name()).await?;
        if refused.is_empty() {
            Ok(next)
        } else {
            Err(RoleError::Refused(refused))
        }
    }
}

impl AuthorizationRoleController {
    /// Holds the `ClusterRole` if another coordinator wrote it and it permits something of the refused rules. It keeps what the cloud
    /// lists, and loses the rest.
    async fn hold(&self, role: &Key, applied: &[PolicyRule], refused: &[Refused]) -> Result<(), RoleError> {
        let made = self.rbac.cluster_roles.get(&Key::new(role.name()));
        let Some(made) = made.filter(|made| !is_ours(&made.metadata)) else {
            return Ok(());
        };
        let rules = made.rules.as_deref().unwrap_or_default();
        let lost = plan::lost(refused, applied, rules);
        let words: Vec<String> = lost.iter().map(ToString::to_string).collect();
        if words.is_empty() || !self.rbac.held.hold(role.name(), &words) {
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

    /// A role that takes no effect: deletes its `ClusterRole`, and then lets the `AuthorizationRole` go. If the cloud lists the role, the
    /// `ClusterRole` stays: the `AuthorizationRole` was deleted in the cluster only, and the mirror restores it.
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
        let next = self.children.ensure(&self.writer, key, Vec::new()).await?;
        let Some(role) = leaving.filter(|_| next == Next::UntilChanged) else {
            return Ok(next);
        };
        let made = cluster_role(key.name(), Vec::new()).metadata;
        let gone = self
            .writer
            .confirm_gone::<ClusterRole>(&made, |meta| OURS.marks(meta))
            .await?;
        let Some(gone) = gone else {
            return Ok(Next::Pending(CATCH_UP));
        };
        FINALIZER
            .release::<AuthorizationRole>(&self.writer, &role.metadata, &[gone])
            .await?;
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
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        rules: Some(rules),
        ..ClusterRole::default()
    }
}

/// Why the `ClusterRole` is not what the `AuthorizationRole` says.
#[derive(Debug, thiserror::Error)]
enum RoleError {
    /// These rules are refused; the others apply.
    #[error("{} of the rules are refused, the first: {}", .0.len(), .0[0])]
    Refused(Vec<Refused>),
    /// The `ClusterRole` of another coordinator has these rules, which ours would not have.
    #[error("the ClusterRole is held as another coordinator left it; it would lose {} rules, the first: {}", .0.len(), .0[0])]
    Held(Vec<String>),
    #[error(transparent)]
    Children(#[from] ChildrenError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Refused rules that an Event names.
const NAMED: usize = 5;

impl ReconcileError for RoleError {
    fn retry(&self) -> Retry {
        match self {
            Self::Refused(_) | Self::Held(_) => Retry::Slow,
            Self::Children(error) => error.retry(),
            Self::Write(error) => error.retry(),
        }
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Refused(_) => "rules",
            Self::Held(_) => "held",
            Self::Children(error) => error.class(),
            Self::Write(error) => error.class(),
        }
    }

    fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Held(_) => true,
            Self::Children(error) => error.is_refusal(),
            Self::Write(error) => error.is_refusal(),
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Refused(refused) => {
                let note = format!(
                    "Not applied: {}. The other rules of the role apply. Change the role in the cloud, or the settings of the coordinator.",
                    named(refused)
                );
                Some(Notice::warning("RulesRefused", "Apply", note))
            }
            Self::Held(lost) => {
                let note = format!(
                    "Held as another coordinator left it: these rules are still permitted: {}. To keep them, set allowPrivileged: true; to let \
                     them go: tidewaiter release {CLUSTER_ROLE}.",
                    named(lost)
                );
                Some(Notice::warning("RoleHeld", "Apply", note))
            }
            Self::Children(error) => error.notice(),
            Self::Write(error) => error.notice(),
        }
    }
}

/// The first of the rules, and the number of the others.
fn named<T: ToString>(rules: &[T]) -> String {
    let mut named: Vec<String> = rules.iter().take(NAMED).map(T::to_string).collect();
    let more = rules.len().saturating_sub(NAMED);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join("; ")
}

/// The refused rules of each role, as a gauge.
struct Refusals {
    all: Mutex<BTreeMap<Key, Vec<&'static str>>>,
    gauge: IntGaugeVec,
}

impl Refusals {
    fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let gauge = metrics.gauge_vec(
            "tidewaiter_role_rules_refused",
            "Rules of roles of the cloud that are not applied: privileged (amounts to full control), ceiling (beyond rbacCeiling), invalid.",
            &["reason"],
        )?;
        for reason in Why::WORDS {
            gauge.with_label_values(&[reason]).set(0);
        }
        Ok(Self {
            all: Mutex::default(),
            gauge,
        })
    }

    fn set(&self, key: &Key, refused: &[Refused]) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.is_empty() {
            all.remove(key);
        } else {
            all.insert(key.clone(), refused.iter().map(|refused| refused.why.word()).collect());
        }
        for reason in Why::WORDS {
            let count = all.values().flatten().filter(|word| **word == reason).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.gauge.with_label_values(&[reason]).set(count);
        }
    }
}
