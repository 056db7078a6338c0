//! Ids: UUIDs of 36 characters, with a type for each kind, so that they cannot be confused.

use std::str::FromStr;

use tidewaiter_api::InvalidValue;
use uuid::Uuid;

use super::{invalid, read_as_text, written_as_shown};

const RULE: &str = "must be a UUID of 36 characters, for example 9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";

/// Only the hyphenated form, which all clients wrote, and which becomes the name of an object in the cluster. Upper
/// case is accepted (RFC 9562) and written as lower case.
fn uuid(kind: &'static str, text: &str) -> Result<Uuid, InvalidValue> {
    let id = (text.len() == 36).then(|| Uuid::try_parse(text).ok()).flatten();
    id.ok_or_else(|| invalid(kind, text, RULE))
}

macro_rules! ids {
    ($($type:ident, $kind:literal;)+) => { $(
        #[doc = concat!("The id of ", $kind, ".")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
        #[schema(value_type = String, format = "uuid", description = concat!("The id of ", $kind, "."),
            examples("9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e"))]
        pub struct $type(pub Uuid);

        impl FromStr for $type {
            type Err = InvalidValue;

            fn from_str(text: &str) -> Result<Self, InvalidValue> {
                uuid(concat!("id of ", $kind), text).map(Self)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        written_as_shown!($type);
        read_as_text!($type, concat!("the id of ", $kind, ": a UUID of 36 characters"));
    )+ };
}

ids! {
    OrganizationId, "an organization";
    UserId, "a user";
    SshKeyId, "an SSH key";
    IdentityId, "an identity";
    TeamId, "a team";
    ServiceAccountId, "a service account";
    RegistryId, "a registry";
    ProviderId, "a provider";
    ClusterId, "a cluster";
    PluginId, "a plugin";
    ClusterLabelId, "a cluster label";
    NodePoolId, "a node pool";
    NodePoolLabelId, "a node pool label";
    NodeId, "a node";
    AutoscalingPolicyId, "an autoscaling policy";
    RoleId, "a role";
    RuleId, "a rule";
    RoleBindingId, "a role binding";
    UpgradeId, "an upgrade";
    DecisionId, "a decision";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_values;

    #[test]
    fn only_the_form_of_36_characters() {
        let id: UserId = "9F3D1C9E-6a0b-4c57-8d7e-1f2a3b4c5d6e".parse().unwrap();
        assert_eq!(id.to_string(), "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e");
        assert_values! { UserId:
            []
            not [
                "", "9f3d1c9e6a0b4c578d7e1f2a3b4c5d6e", "{9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e}",
                "urn:uuid:9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6g",
                "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e\n", "9f3d1c9e-6a0b-4c57-8d7e1-f2a3b4c5d6e"
            ]
        }
    }
}
