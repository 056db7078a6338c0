//! The cloud API, version 3, which manages the users, SSH keys, registries, plugins, labels, roles, node pools and
//! upgrades of clusters.
//!
//! [`models`] has its objects as they are sent on the wire, [`server`] serves them, [`client`] requests them, and
//! [`reports`] summarizes the reports of clusters. No code here reads a clock.

pub mod client;
pub mod models;
pub mod reports;
pub mod server;
mod signature;
pub mod signed;
