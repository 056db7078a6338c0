//! The status of a cluster, a node pool or a node.

use super::fields::model;
use super::values::{Description, Percent, StatusType};

model! {
    /// The status of a cluster, a node pool or a node. Its type is `UNKNOWN` until one is reported.
    #[derive(Default)]
    Status, "a status" =>
    /// For example `RUNNING`.
    required status = "type": StatusType,
    /// A message for users.
    or_default message: Description,
    /// The percentage.
    or_default percent: Percent,
}
