//! Checks whether the API's DNS name still has the placeholder address that kOps creates before a control plane runs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::findings::{Findings, Place};
use crate::observation::Dns;
use crate::verdict::{Failure, FailureKind};

/// The placeholder of kOps: a documentation address (RFC 5737), which is never assigned.
const PLACEHOLDER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 123));
/// `fd00:dead:add::`, the same for IPv6.
const PLACEHOLDER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0xdead, 0x0add, 0, 0, 0, 0, 0));

pub(super) fn placeholder(dns: &Dns, findings: &mut Findings<'_>) {
    let Dns::Addresses(addresses) = dns else { return };
    let placeholder = [PLACEHOLDER, PLACEHOLDER_V6]
        .into_iter()
        .find(|placeholder| addresses.iter().any(|address| address.to_canonical() == *placeholder));
    let Some(placeholder) = placeholder else { return };
    findings.add(FailureKind::Dns, Place::Cluster, || Failure {
        kind: FailureKind::Dns,
        name: "apiserver".to_owned(),
        message: format!(
            "The API DNS IP address is the placeholder address that kops creates: {placeholder}. It changes once a \
             control-plane node runs and dns-controller or external-dns has updated it"
        ),
        instance_group: None,
    });
}
