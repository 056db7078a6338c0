//! The schemas of types from other crates, and of fields whose schema differs from that of their type.
#![expect(dead_code, reason = "stand for their schemas alone")]

use utoipa::ToSchema;

/// A time in whole seconds of UTC, RFC 3339.
#[derive(ToSchema)]
#[schema(
    pattern = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
    examples("2099-12-31T18:00:00Z")
)]
pub(in crate::models) struct EndTime(String);

/// The key of a label: `name` or `prefix/name`.
#[derive(ToSchema)]
#[schema(
    max_length = 317,
    examples("example.com/zone"),
    pattern = r"^([a-z0-9]([a-z0-9\-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?$"
)]
pub(in crate::models) struct LabelKey(String);

/// The key of a cluster label.
#[derive(ToSchema)]
#[schema(
    pattern = r"^cluster\.containership\.io/[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?$",
    examples("cluster.containership.io/environment")
)]
pub(in crate::models) struct ClusterLabelKey(String);

/// The key of a node pool label.
#[derive(ToSchema)]
#[schema(
    pattern = r"^nodepool\.containership\.io/[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?$",
    examples("nodepool.containership.io/disk")
)]
pub(in crate::models) struct NodePoolLabelKey(String);

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

/// The `spec.providerID` of a Node.
#[derive(ToSchema)]
#[schema(
    max_length = 512,
    pattern = r"^[a-z0-9\-]+://[!-~]+$",
    examples("aws:///us-east-1a/i-0123456789abcdef0")
)]
pub(in crate::models) struct NodeProviderId(String);

/// An identifier, or the empty text if it is not known.
#[derive(ToSchema)]
#[schema(
    max_length = 63,
    pattern = r"^([A-Za-z0-9][A-Za-z0-9_.\-]*)?$",
    examples("digital_ocean")
)]
pub(in crate::models) struct SlugOrEmpty(String);

/// A name, or the empty text if it is not known.
#[derive(ToSchema)]
#[schema(
    max_length = 128,
    pattern = r"^([^\s\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]([^\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]*[^\s\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff])?)?$",
    examples("ubuntu_18_04")
)]
pub(in crate::models) struct DisplayNameOrEmpty(String);

/// A version with a numbering of its own, or the empty text if it is not known.
#[derive(ToSchema)]
#[schema(max_length = 63, pattern = r"^(v?[0-9][A-Za-z0-9.+\-~_]*)?$", examples("17.03.2-ce"))]
pub(in crate::models) struct VersionTextOrEmpty(String);

/// A version by Semantic Versioning 2.0.0, or the empty text for no limit.
#[derive(ToSchema)]
#[schema(
    max_length = 63,
    pattern = r"^((0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*))*)?(\+[0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*)?)?$",
    examples("1.2.3")
)]
pub(in crate::models) struct VersionOrEmpty(String);
