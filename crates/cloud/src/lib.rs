//! The cloud: the API, version 3, that says which users, SSH keys, registries, plugins, labels, roles, node pools and
//! upgrades each cluster has.
//!
//! [`models`] are its objects as they stand on the wire, [`server`] is who answers for them, [`client`] asks for them. Nothing
//! here reads a clock.

pub mod client;
pub mod models;
pub mod server;
