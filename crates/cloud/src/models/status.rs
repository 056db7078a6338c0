//! The status of a cluster, a node pool or a node.

use serde::Serialize;
use utoipa::ToSchema;

use super::document::InvalidField;
use super::fields::{Fields, Model};
use super::values::{Description, Percent, StatusType};

/// The status of a cluster, a node pool or a node.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Status {
    /// For example `RUNNING`.
    #[serde(rename = "type")]
    pub status: StatusType,
    /// A message for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Description>,
    /// The percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<Percent>,
}

impl Model for Status {
    const KIND: &'static str = "a status";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            status: fields.required("type")?,
            message: fields.optional("message")?,
            percent: fields.optional("percent")?,
        })
    }
}
