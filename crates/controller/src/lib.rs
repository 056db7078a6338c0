//! The `controller` role: the controllers of kops-controller, each one module under its own name, and the verdict that
//! two of them show. [`controllers`] is the table of all of them.

#[cfg(test)]
mod agreement;
pub mod cluster_health;
pub mod controllers;
pub mod explain;
pub mod metrics_server;
pub mod node_controller;
pub mod objects;
pub mod verdicts;

pub use metrics_server::MetricsServer;
pub use node_controller::NodeController;
