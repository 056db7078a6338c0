//! Upgrades of Kubernetes on this node: what the agent and the host say to each other, and both of them.
//!
//! - The agent (`controller`) knows whose turn it is. It fetches the script of its node from the coordinator, and
//!   offers it to the host: the script, the order, and `current`, which names the script.
//! - The host ([`run`]) decides. It trusts neither the agent nor what is in the folder: only the keys and the cluster
//!   that root has pinned ([`trust`]), the version of its kubelet, its clock, and its own record.

pub(crate) mod controller;
pub mod files;
mod former;
pub mod install;
pub mod keys;
pub mod place;
pub(crate) mod relay;
pub(crate) mod report;
pub mod run;
pub mod trust;
pub mod uninstall;

pub use relay::CoordinatorSettings;
