//! What kOps keeps in files, read the way kOps means it: kops-controller's own configuration, the Cluster and the
//! InstanceGroups of the state store, and the labels of a node that follow from them.
//!
//! Nothing here writes to the state store, and nothing here decides which group a node belongs to: that is the cloud's to
//! say (`tidewaiter_identity`). A file that is broken or away never takes the place of the last good one.

pub mod cluster;
pub mod cluster_summary;
pub mod config;
pub mod definition;
pub mod definitions;
mod document;
pub mod group_summary;
pub mod instance_group;
pub mod labels;
mod spec;
pub mod store;

pub use cluster::Cluster;
pub use cluster_summary::ClusterSummary;
pub use config::{Cloud, ConfigError, ControllerConfig, Loaded};
pub use definition::Definition;
pub use definitions::{Changed, DefinitionError, Definitions, DefinitionsSettings, OwnedKeys, Problem, Stale};
pub use document::{InvalidFile, LabelText, NodeLabelField};
pub use group_summary::GroupSummary;
pub use instance_group::{InstanceGroup, Role};
pub use labels::{NodeLabels, RejectedLabel, WantedLabel, node_labels, tag_labels};
pub use store::{StateStore, StateUrl, StoreError, StoreOptions};
