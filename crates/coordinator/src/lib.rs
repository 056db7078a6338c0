//! The `coordinator` role: applies what the cloud says to the cluster as a whole. [`controllers`] is the table of its controllers.

pub mod access;
pub mod changes;
pub mod controllers;
mod digest;
pub mod endpoints;
mod explained;
pub mod mirror;
mod node;
pub mod node_pools;
mod reports;
mod retries;
pub mod terminate;
