//! The `coordinator` role: applies what the cloud says to the cluster as a whole. [`start()`] lists its
//! controllers.

pub mod changes;
mod cloud;
pub mod controllers;
mod decisions;
mod digest;
pub mod endpoints;
mod explained;
mod loops;
mod merge_patch;
mod meta;
pub mod mirror;
mod node;
pub mod node_pools;
mod reports;
mod retries;
mod start;
pub mod terminate;

pub use cloud::Cloud;
pub use start::start;
