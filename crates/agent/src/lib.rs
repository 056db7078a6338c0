//! The `agent` role: on each node, writes which users may log in with which SSH key, and undoes what others change.
//!
//! The agent runs as root with three folders of the host. It trusts neither what is in them nor what the API server
//! sends: a User can only add well-formed keys of that user, and nothing in the cluster can empty the file by accident.
//! It writes one object, the `NodeReport` of its node.
//!
//! [`upgrade`] is also what the host runs: `tidewaiter host run`.

pub mod authorized_keys;
pub mod break_glass;
pub mod host;
mod identity;
mod login_script;
pub mod logins;
mod node_report;
pub mod settings;
mod start;
pub mod upgrade;
mod user_controller;
mod watcher;

pub use settings::{AgentSettings, ForeignLines, OnStop};
pub use start::start;
