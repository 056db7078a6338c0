//! The cloud: the API, version 3, that says which users, SSH keys, registries, plugins, labels, roles, node pools and
//! upgrades each cluster has.
//!
//! [`models`] are its objects as they stand on the wire: no I/O, no clock. [`client`] asks for them.

pub mod client;
pub mod models;
pub mod server;
