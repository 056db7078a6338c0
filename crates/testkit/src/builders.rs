//! Objects as real clusters hold them: a Node as a kubelet registers it, and the files that kOps writes.
//!
//! A builder begins with what is valid and usual; its methods change what a test is about, also to what is not valid.

mod go_definitions;
mod kops;
mod node;

pub use go_definitions::{GO_DEFINITIONS, GoDefinition};
pub use kops::{ClusterBuilder, ConfigBuilder, InstanceGroupBuilder, cluster, controller_config, instance_group};
pub(crate) use node::conditions;
pub use node::{NodeBuilder, node};
