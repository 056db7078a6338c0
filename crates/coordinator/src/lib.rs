//! The `coordinator` role: applies what the cloud says to the cluster as a whole. [`controllers`] is the table of its controllers.

pub mod changes;
pub mod controllers;
pub mod endpoints;
pub mod mirror;
pub mod node_pools;
mod reports;
pub mod terminate;
