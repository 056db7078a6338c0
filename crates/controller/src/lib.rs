//! The `controller` role: the controllers of kops-controller, each one module under its own name.

pub mod node_controller;

pub use node_controller::NodeController;
