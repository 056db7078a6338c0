//! Object names: DNS-1123 subdomains. A name can never be a path, a command-line option or more than one line.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::string_value;

/// [`dns_subdomain`] as a pattern; the length (at most [`SUBDOMAIN_LENGTH`]) is not part of it.
const SUBDOMAIN_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

const SUBDOMAIN_LENGTH: usize = 253;

const SUBDOMAIN: &str = "must be 1 to 253 characters: lower-case letters, digits, '-' and '.', each part beginning and \
                         ending with a letter or digit";

/// The rule of Kubernetes' `IsDNS1123Subdomain` (RFC 1123).
pub(super) fn dns_subdomain(text: &str) -> Result<(), &'static str> {
    let ok = text.len() <= SUBDOMAIN_LENGTH && text.split('.').all(dns_label_chars);
    if ok { Ok(()) } else { Err(SUBDOMAIN) }
}

/// One part of a subdomain. `IsDNS1123Subdomain` does not limit the length of a part.
fn dns_label_chars(part: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = part.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

/// The name of a Node. The kubelet's client certificate binds it: `system:node:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);
string_value!(NodeName, "node name", dns_subdomain);

/// The name of a kOps cluster, for example `cluster.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterName(Arc<str>);
string_value!(ClusterName, "cluster name", dns_subdomain);

/// The name of a kOps `InstanceGroup`. It becomes part of a path in the state store, so it must not contain `/`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("maxLength" = SUBDOMAIN_LENGTH, "pattern" = SUBDOMAIN_PATTERN))]
pub struct InstanceGroupName(Arc<str>);
string_value!(InstanceGroupName, "instance group name", dns_subdomain);

/// The name of a service account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceAccountName(Arc<str>);
string_value!(ServiceAccountName, "service account name", dns_subdomain);

/// The `metadata.uid` of a Node. A Node that is deleted and created again under the same name gets a new uid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("maxLength" = 128, "pattern" = "^[!-~]+$"))]
pub struct NodeUid(Arc<str>);
string_value!(NodeUid, "uid", uid);

/// Kubernetes specifies an opaque string, and every API server generates a UUID. This rule only makes it safe to print.
fn uid(text: &str) -> Result<(), &'static str> {
    let ok = (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if ok {
        Ok(())
    } else {
        Err("must be 1 to 128 printable ASCII characters")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_kubernetes_takes() {
        for name in [
            "a",
            "nodes-us-east-1a",
            "ip-10-0-0-1.ec2.internal",
            "0.example.com",
            &"a".repeat(253),
        ] {
            assert_eq!(name.parse::<NodeName>().unwrap().as_str(), name);
        }
    }

    #[test]
    fn names_that_could_be_something_else_are_refused() {
        for name in [
            "",
            ".",
            "..",
            "../config",
            "a/b",
            "a b",
            "A",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a.",
            "a\nb",
            "ä",
            "a_b",
            "a\0",
            &"a".repeat(254),
        ] {
            let error = name.parse::<InstanceGroupName>().unwrap_err();
            assert_eq!(error.kind, "instance group name", "{name:?}");
        }
    }

    #[test]
    fn an_error_names_the_value_and_the_rule() {
        let error = "A/b".parse::<ClusterName>().unwrap_err().to_string();
        assert!(
            error.starts_with(r#"cluster name "A/b" is not valid: must be 1 to 253 characters"#),
            "{error}"
        );
    }

    #[test]
    fn a_uid_is_printable() {
        assert!("9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e".parse::<NodeUid>().is_ok());
        assert!("".parse::<NodeUid>().is_err());
        assert!("a\tb".parse::<NodeUid>().is_err());
    }
}
