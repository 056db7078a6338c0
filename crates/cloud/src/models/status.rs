//! The status of a cluster, a node pool or a node.

use serde::Serialize;
use utoipa::ToSchema;

use super::fields::model;
use super::values::{Description, Percent, StatusType};

/// The status of a cluster, a node pool or a node. Its type is `UNKNOWN` until one is reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Status {
    /// For example `RUNNING`.
    #[serde(rename = "type")]
    pub status: StatusType,
    /// A message for users.
    #[schema(value_type = Option<Description>)]
    pub message: Description,
    /// The percentage.
    #[schema(value_type = Option<Percent>)]
    pub percent: Percent,
}

model! { Status, "a status" => required { status = "type" } or_default { message, percent } }
