//! The schemas of types from other crates, and of fields whose schema differs from that of their type.
#![expect(dead_code, reason = "stand for their schemas alone")]

use utoipa::ToSchema;

/// Texts, each with its maximum length if it has one, its pattern, and an example.
macro_rules! texts {
    ($($(#[$doc:meta])* $type:ident $(most $most:tt)?: $pattern:tt, $example:tt;)+) => {$(
        #[derive(ToSchema)]
        $(#[$doc])*
        #[schema($(max_length = $most,)? pattern = $pattern, examples($example))]
        pub(crate) struct $type(String);
    )+};
}

texts! {
    /// A time in whole seconds of UTC, RFC 3339.
    EndTime: r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$", "2099-12-31T18:00:00Z";
    /// The key of a label: `name` or `prefix/name`.
    LabelKey most 317: r"^([a-z0-9]([a-z0-9\-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]*[a-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?$", "example.com/zone";
    /// The key of a cluster label.
    ClusterLabelKey: r"^cluster\.containership\.io/[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?$", "cluster.containership.io/environment";
    /// The key of a node pool label.
    NodePoolLabelKey: r"^nodepool\.containership\.io/[A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?$", "nodepool.containership.io/disk";
    /// The value of a label; it may be empty.
    LabelValue: r"^([A-Za-z0-9]([A-Za-z0-9_.\-]{0,61}[A-Za-z0-9])?)?$", "production";
    /// The name of a node.
    NodeName most 253: r"^[a-z0-9]([a-z0-9\-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]*[a-z0-9])?)*$", "node-1";
    /// The `spec.providerID` of a Node.
    NodeProviderId most 512: r"^[a-z0-9\-]+://[!-~]+$", "aws:///us-east-1a/i-0123456789abcdef0";
    /// An identifier, or the empty text if it is not known.
    SlugOrEmpty most 63: r"^([A-Za-z0-9][A-Za-z0-9_.\-]*)?$", "digital_ocean";
    /// A name, or the empty text if it is not known.
    DisplayNameOrEmpty most 128: r"^([^\s\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]([^\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]*[^\s\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff])?)?$", "ubuntu_18_04";
    /// A version with a numbering of its own, or the empty text if it is not known.
    VersionTextOrEmpty most 63: r"^(v?[0-9][A-Za-z0-9.+\-~_]*)?$", "17.03.2-ce";
    /// A version by Semantic Versioning 2.0.0, or the empty text for no limit.
    VersionOrEmpty most 63: r"^((0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*)(\.(0|[1-9][0-9]*|[0-9]*[A-Za-z\-][0-9A-Za-z\-]*))*)?(\+[0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*)?)?$", "1.2.3";
}
