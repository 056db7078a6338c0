//! The protocol of an upgrade: which node is upgraded next, and when a node runs its script.
//!
//! Everything here is pure: no I/O, no clock, nothing remembered between two calls. [`step()`] decides for the
//! coordinator and [`agent::decide`] for the agent of a node. The model in `tests/model` calls the same two functions,
//! so it cannot differ from what runs.
//!
//! - All state is in the `ClusterUpgrade`. Every write of it is conditional on the version that was observed. What the
//!   agent of a node reads is derived from it ([`node_upgrade`]).
//! - An upgrade claims the cluster in one write and starts its first node in a later one, so that two coordinators
//!   cannot start two upgrades.
//! - A control-plane node is upgraded alone, and no worker before the control plane is done.
//! - A script runs only with a signature for this cluster, node, upgrade and version ([`signed`]).
//! - A node is done when its host reports success, it is at the version, and has been Ready for a minimum time
//!   (`settle`).
//! - A node runs the script of an upgrade once, before its deadline, and never to go down to an older version.

pub mod agent;
mod canary;
mod concurrency_limit;
mod cordon;
pub mod drain;
pub mod form;
pub mod node_upgrade;
pub mod observation;
pub mod orders;
pub mod outlook;
pub mod plan;
pub mod refusal;
pub mod rules;
mod selector;
mod settle;
pub mod signed;
mod step;
#[cfg(test)]
mod testing;
mod version;
mod window;

pub use observation::{
    CanaryPolicy, DrainPolicy, Health, HostReport, Node, NodeState, Observation, Policy, PoolLimit, Progress, Spec,
    Upgrade,
};
pub use orders::{Effect, Ending, NodeFailure, Order, Step, Unhealthy, Wait};
pub use outlook::{NodeOutlook, Outlook, misfit_warning, outlook, preflight_warning};
pub use plan::{Counts, Planned, PlannedAction, plan};
pub use refusal::Refusal;
pub use selector::Selector;
pub use step::step;
pub use version::{InvalidVersion, Version};
pub use window::Windows;
