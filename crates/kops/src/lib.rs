//! Reads the files of kOps: kops-controller's configuration, and the Cluster and InstanceGroups in the state store, and
//! derives the labels of a node from them.
//!
//! This crate never writes to the state store, and never decides which group a node belongs to: the cloud does
//! (`tidewaiter_identity`). An invalid or unreachable file never replaces the last valid version.

pub mod cloud;
pub mod cluster;
pub mod cluster_summary;
pub mod config;
pub mod definitions;
mod document;
pub mod group_summary;
pub mod instance_group;
pub mod labels;
mod spec;
pub mod store;
pub mod version;

pub use cloud::Cloud;
pub use cluster::Cluster;
pub use cluster_summary::ClusterSummary;
pub use config::{ConfigError, ControllerConfig, Loaded};
pub use definitions::{Changed, DefinitionError, Definitions, DefinitionsSettings, OwnedKeys, Problem, Stale};
pub use document::{InvalidFile, LabelText, NodeLabelField};
pub use group_summary::GroupSummary;
pub use instance_group::{Definition, InstanceGroup};
pub use labels::{NodeLabels, RejectedLabel, WantedLabel, is_control_plane_label, node_labels, tag_labels};
pub use store::{StateStore, StateUrl, StoreError, StoreOptions};
pub use tidewaiter_api::values::Role;
pub use version::{KopsVersion, VersionError};
