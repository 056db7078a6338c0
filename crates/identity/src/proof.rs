//! Proves that a Node is the instance that it claims to be. Pure: the cloud's answer is an argument.
//!
//! Only [`prove`] constructs a [`Proven`], so that a value of this type is a proof. Data that the kubelet writes can
//! refute a claim, but never prove it.
//!
//! | | `enforce` | `warn` |
//! | --- | --- | --- |
//! | the Node's name is not one of the instance's names | `NameMismatch` | a [`NameWarning`] |
//! | it is one, and of the other scheme than `instance-id` or `private-dns` says | `NameScheme` | |
//! | the Node lists internal addresses, and none belongs to the instance | `AddressMismatch` | `AddressMismatch` |
//! | another Node claims the instance and has one of its names | `Duplicate` | `Duplicate` |
//! | another Node claims the instance and has any other name | no effect: the other Node is refused | `Duplicate` |
//!
//! The first row that applies decides. While the instance is starting, what would be a forgery is
//! [`Refusal::Starting`]. docs/design/node-identity.md has the matrix of all checks, including those of the providers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidewaiter_api::NodeName;

use crate::identifier::{Claim, Identity};
use crate::refusal::{Mark, Refusal};

/// The rule for the name of a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeNames {
    /// It must be one of the names that the cloud gives its instance, on EC2 of the kind in kOps' file, if it says one.
    /// This is the proof, because the Node's client certificate binds its name.
    #[default]
    Enforce,
    /// On EC2, the same, and it must be the id of the instance.
    InstanceId,
    /// On EC2, the same, and it must be the private DNS name of the instance. The name is that of the address, which an
    /// earlier instance may have had, and its certificate.
    PrivateDns,
    /// Any name, for clusters with custom node names. Then the only protection is uniqueness: if two Nodes claim one
    /// instance, both are refused.
    Warn,
}

/// A Node that was accepted only because of [`NodeNames::Warn`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node} has none of the names of instance {instance}; accepted because nodeNames is warn")]
pub struct NameWarning {
    /// The Node.
    pub node: NodeName,
    /// The instance that it claims to be.
    pub instance: String,
}

/// The identity of a Node that has been proven to be this instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    identity: Arc<Identity>,
    warning: Option<NameWarning>,
    mark: Mark,
}

impl NodeNames {
    /// Returns true if a Node of this name can be the instance.
    fn accept(self, name: &NodeName, identity: &Identity) -> bool {
        let is_id = name.as_str() == identity.instance;
        identity.has_name(name.as_str())
            && match self {
                Self::Enforce | Self::Warn => true,
                Self::InstanceId => is_id,
                Self::PrivateDns => !is_id,
            }
    }

    /// Returns the scheme of the names of Nodes, if there is one of two.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Self::InstanceId => "the ids of their instances",
            Self::PrivateDns => "the private DNS names of their instances",
            Self::Enforce | Self::Warn => "a name of their instances",
        }
    }
}

impl Proven {
    /// The identity of the instance.
    #[must_use]
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// A warning, if the proof is weaker than usual.
    #[must_use]
    pub fn warning(&self) -> Option<&NameWarning> {
        self.warning.as_ref()
    }

    /// Returns the place in which the cloud records the group of the instance, which decides the strength of the proof.
    #[must_use]
    pub fn mark(&self) -> Mark {
        self.mark
    }
}

/// Decides whether the Node of `claim` is the instance that the cloud described.
///
/// # Errors
/// [`Refusal::NameMismatch`], [`Refusal::NameScheme`], [`Refusal::AddressMismatch`] or [`Refusal::Duplicate`],
/// according to the table above; [`Refusal::Starting`] in place of a forgery while the instance is starting.
pub fn prove(claim: &Claim, identity: Arc<Identity>, names: NodeNames) -> Result<Proven, Refusal> {
    let checked = check_name(claim, &identity, names).and_then(|warning| {
        check_addresses(claim, &identity)?;
        Ok(warning)
    });
    let warning = match checked {
        // The cloud may soon know the name or the address.
        Err(refusal) if refusal.is_forgery() && identity.starting => {
            let instance = identity.instance.clone();
            return Err(Refusal::Starting { instance });
        }
        checked => checked?,
    };
    check_rivals(claim, &identity, names)?;
    Ok(Proven {
        identity,
        warning,
        mark: Mark::of(&claim.provider_id),
    })
}

fn check_name(claim: &Claim, identity: &Identity, names: NodeNames) -> Result<Option<NameWarning>, Refusal> {
    let (instance, node) = (identity.instance.clone(), claim.node.clone());
    match names {
        _ if names.accept(&claim.node, identity) => Ok(None),
        NodeNames::Warn => Ok(Some(NameWarning { node, instance })),
        _ if identity.has_name(claim.node.as_str()) => Err(Refusal::NameScheme { instance, node, names }),
        _ => Err(Refusal::NameMismatch {
            instance,
            node,
            names: identity.names.clone(),
        }),
    }
}

/// An honest Node may list addresses unknown to the cloud (a tunnel, a bridge), so one common address is sufficient.
fn check_addresses(claim: &Claim, identity: &Identity) -> Result<(), Refusal> {
    let refuted = !claim.addresses.is_empty() && !claim.addresses.iter().any(|&address| identity.has_address(address));
    if refuted {
        return Err(Refusal::AddressMismatch {
            instance: identity.instance.clone(),
            node: claim.node.clone(),
            actual: identity.addresses.clone(),
        });
    }
    Ok(())
}

fn check_rivals(claim: &Claim, identity: &Identity, names: NodeNames) -> Result<(), Refusal> {
    let mut rivals: Vec<NodeName> = claim
        .rivals
        .iter()
        .filter(|rival| **rival != claim.node)
        .filter(|rival| names == NodeNames::Warn || names.accept(rival, identity))
        .cloned()
        .collect();
    if rivals.is_empty() {
        return Ok(());
    }
    // Sorted, so that the refusal does not depend on the order of the rivals.
    rivals.sort();
    Err(Refusal::Duplicate {
        instance: identity.instance.clone(),
        rivals,
    })
}

#[cfg(test)]
mod tests {
    use tidewaiter_api::Lifecycle;

    use super::*;

    const OWN: &str = "ip-10-0-0-1.ec2.internal";
    const ID: &str = "i-0123456789abcdef0";

    fn instance() -> Arc<Identity> {
        Arc::new(Identity {
            instance: ID.to_owned(),
            group: "nodes".parse().unwrap(),
            starting: false,
            zone: "us-east-1a".to_owned(),
            lifecycle: Lifecycle::OnDemand,
            names: vec![ID.to_owned(), OWN.to_owned()],
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            tag_labels: Vec::new(),
        })
    }

    fn claim(node: &str, addresses: &[&str], rivals: &[&str]) -> Claim {
        Claim {
            node: node.parse().unwrap(),
            uid: "uid".parse().unwrap(),
            provider_id: "aws:///us-east-1a/i-0123456789abcdef0".parse().unwrap(),
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            rivals: rivals.iter().map(|r| r.parse().unwrap()).collect(),
        }
    }

    /// `ok`, `warning`, or the reason of the refusal, with `, forged` when it is evidence of that.
    fn outcome(claim: &Claim, names: NodeNames) -> String {
        match prove(claim, instance(), names) {
            Ok(proven) if proven.warning().is_some() => "warning".to_owned(),
            Ok(_) => "ok".to_owned(),
            Err(refusal) if refusal.is_forgery() => format!("{}, forged", refusal.reason()),
            Err(refusal) => refusal.reason().to_owned(),
        }
    }

    /// Name, addresses, rivals, then what is found under enforce and under warn.
    type Row = (
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
        &'static str,
        &'static str,
    );

    fn check(rows: &[Row]) {
        for (node, addresses, rivals, enforce, warn) in rows {
            let claim = claim(node, addresses, rivals);
            assert_eq!(outcome(&claim, NodeNames::Enforce), *enforce, "enforce {claim:?}");
            assert_eq!(outcome(&claim, NodeNames::Warn), *warn, "warn {claim:?}");
        }
    }

    // One test for each row of the matrix in docs/design/node-identity.md: what passes, and its forgery.

    #[test]
    fn the_name_proves() {
        const REFUSED: &str = "NameMismatch, forged";
        check(&[
            (OWN, &[], &[], "ok", "ok"),
            (ID, &[], &[], "ok", "ok"),
            ("other", &[], &[], REFUSED, "warning"),
            ("other", &["10.0.0.1"], &[], REFUSED, "warning"),
            // Part of a name does not match.
            ("ip-10-0-0-1", &[], &[], REFUSED, "warning"),
            ("ip-10-0-0-1.ec2.internal.example.com", &[], &[], REFUSED, "warning"),
        ]);
    }

    /// A certificate outlives its instance, and an address has another one then.
    #[test]
    fn a_name_of_the_other_scheme_proves_nothing() {
        for (names, node, rivals, expected) in [
            (NodeNames::InstanceId, ID, &[OWN][..], "ok"),
            (NodeNames::InstanceId, OWN, &[], "NameScheme"),
            (NodeNames::InstanceId, "other", &[], "NameMismatch, forged"),
            (NodeNames::PrivateDns, OWN, &[ID], "ok"),
            (NodeNames::PrivateDns, ID, &[], "NameScheme"),
            (NodeNames::PrivateDns, "other", &[], "NameMismatch, forged"),
        ] {
            let claim = claim(node, &[], rivals);
            assert_eq!(outcome(&claim, names), expected, "{names:?} {claim:?}");
        }
        let refusal = prove(&claim(OWN, &[], &[]), instance(), NodeNames::InstanceId).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            format!(
                "node {OWN} has a name of instance {ID}, but the Nodes of this cluster have the ids of their instances"
            )
        );
    }

    #[test]
    fn addresses_refute() {
        const REFUSED: &str = "AddressMismatch, forged";
        check(&[
            (OWN, &["10.0.0.1"], &[], "ok", "ok"),
            (OWN, &["fd00::1"], &[], "ok", "ok"),
            (OWN, &["::ffff:10.0.0.1"], &[], "ok", "ok"),
            (OWN, &["192.168.0.1", "10.0.0.1"], &[], "ok", "ok"),
            (OWN, &["10.0.0.2"], &[], REFUSED, REFUSED),
            (OWN, &["10.0.0.2", "fd00::2"], &[], REFUSED, REFUSED),
        ]);
    }

    #[test]
    fn one_instance_is_one_node() {
        check(&[
            (OWN, &[], &[ID], "Duplicate", "Duplicate"),
            (ID, &[], &[OWN], "Duplicate", "Duplicate"),
            (OWN, &[], &["other", ID], "Duplicate", "Duplicate"),
            // A Node is not its own rival, even if a caller lists it.
            (OWN, &[], &[OWN], "ok", "ok"),
        ]);
    }

    #[test]
    fn a_rival_that_is_refused_itself_hurts_nobody_unless_names_prove_nothing() {
        check(&[
            (OWN, &["10.0.0.1"], &["other"], "ok", "Duplicate"),
            (OWN, &["10.0.0.1"], &["other", "another"], "ok", "Duplicate"),
            ("other", &["10.0.0.1"], &[OWN], "NameMismatch, forged", "Duplicate"),
        ]);
    }

    #[test]
    fn the_first_row_that_applies_decides() {
        check(&[
            (
                "other",
                &["10.0.0.2"],
                &[],
                "NameMismatch, forged",
                "AddressMismatch, forged",
            ),
            (
                "other",
                &["10.0.0.2"],
                &[OWN],
                "NameMismatch, forged",
                "AddressMismatch, forged",
            ),
            (
                OWN,
                &["10.0.0.2"],
                &[ID],
                "AddressMismatch, forged",
                "AddressMismatch, forged",
            ),
        ]);
    }

    /// EC2 may list it before it has its name and its addresses.
    #[test]
    fn while_an_instance_is_starting_nothing_is_forged() {
        let starting = Arc::new(Identity {
            starting: true,
            ..Arc::unwrap_or_clone(instance())
        });
        for (node, addresses, rivals, names, expected) in [
            (OWN, &["10.0.0.1"][..], &[][..], NodeNames::Enforce, "ok"),
            ("other", &[], &[], NodeNames::Enforce, "Starting"),
            (OWN, &["10.0.0.2"], &[], NodeNames::Enforce, "Starting"),
            (OWN, &["10.0.0.2"], &[], NodeNames::Warn, "Starting"),
            (OWN, &[], &[], NodeNames::InstanceId, "NameScheme"),
            (OWN, &[], &[ID], NodeNames::Enforce, "Duplicate"),
        ] {
            let outcome = prove(&claim(node, addresses, rivals), Arc::clone(&starting), names);
            let reason = outcome.as_ref().map_or_else(Refusal::reason, |_| "ok");
            assert_eq!(reason, expected, "{node} {addresses:?} {names:?}");
            assert!(!outcome.is_err_and(|refusal| refusal.is_forgery() || refusal.is_transient()));
        }
    }

    #[test]
    fn an_instance_without_addresses_bears_out_none() {
        let mut bare = Arc::unwrap_or_clone(instance());
        bare.addresses.clear();
        let refusal = prove(&claim(OWN, &["10.0.0.1"], &[]), Arc::new(bare), NodeNames::Enforce).unwrap_err();
        assert_eq!(refusal.reason(), "AddressMismatch");
    }

    #[test]
    fn the_same_rivals_read_the_same_in_any_order() {
        let refusal = |rivals: &[&str]| prove(&claim(OWN, &[], rivals), instance(), NodeNames::Warn).unwrap_err();
        assert_eq!(refusal(&["a", "b"]), refusal(&["b", "a"]));
    }

    #[test]
    fn the_setting_reads_as_it_is_written() {
        assert_eq!(serde_json::from_str::<NodeNames>("\"warn\"").unwrap(), NodeNames::Warn);
        assert!(serde_json::from_str::<NodeNames>("\"off\"").is_err());
    }
}
