//! The schemas of types from other crates.
#![expect(dead_code, reason = "stand for their schemas alone")]

use utoipa::ToSchema;

/// The key of a label: `name` or `prefix/name`.
#[derive(ToSchema)]
#[schema(
    max_length = 317,
    examples("example.com/zone"),
    pattern = r"^([a-z0-9]([a-z0-9\-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?$"
)]
pub(in crate::models) struct LabelKey(String);

/// The key of a label without a prefix.
#[derive(ToSchema)]
#[schema(
    pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?$",
    examples("environment")
)]
pub(in crate::models) struct LabelName(String);

/// The value of a label; it may be empty.
#[derive(ToSchema)]
#[schema(
    pattern = r"^([A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?)?$",
    examples("production")
)]
pub(in crate::models) struct LabelValue(String);

/// The name of a node.
#[derive(ToSchema)]
#[schema(
    max_length = 253,
    pattern = r"^[a-z0-9]([a-z0-9\-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]*[a-z0-9])?)*$",
    examples("node-1")
)]
pub(in crate::models) struct NodeName(String);
