//! The address of the client behind proxies that the operator trusts (RFC 7239).
//!
//! Any client can send any `Forwarded` header, so it counts only when a trusted proxy connects. Each proxy appends the
//! address that connected to it: the last address that is not a trusted proxy's is the client's, and everything before
//! it may be invented.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::FORWARDED;
use ipnet::IpNet;

/// The networks of the trusted proxies.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(pub Vec<IpNet>);

impl TrustedProxies {
    /// The address of the client who sent a request with `headers` over a connection from `peer`.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let fields = headers.get_all(FORWARDED);
        let mut elements = fields.iter().rev().flat_map(|field| {
            let field = field.to_str().unwrap_or_default();
            field.rsplit(',').collect::<Vec<_>>()
        });
        while self.trusts(client)
            && let Some(forwarded) = elements.next().and_then(forwarded_for)
        {
            client = forwarded;
        }
        client
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// The address of the parameter `for`: `192.0.2.1`, `"192.0.2.1:80"`, `"[2001:db8::1]"` or `"[2001:db8::1]:80"`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let parameters = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let mut nodes = parameters.filter(|(name, _)| name.eq_ignore_ascii_case("for"));
    let (_, node) = nodes.next()?;
    let node = node.trim_matches('"');
    let address = node.parse::<SocketAddr>().map(|address| address.ip());
    let address = address.or_else(|_| node.trim_start_matches('[').trim_end_matches(']').parse());
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_trusted_proxies_name_the_client() {
        let proxies = TrustedProxies(vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        for (peer, fields, client) in [
            ("192.0.2.1", &["for=198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("::ffff:10.0.0.1", &["for=198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["for=198.51.100.7"], "198.51.100.7"),
            (
                "10.0.0.1",
                &["proto=https; For=\"198.51.100.7:4711\";by=10.0.0.1"],
                "198.51.100.7",
            ),
            ("10.0.0.1", &["for=\"[2001:db8:1:2:3::4]:4711\""], "2001:db8:1:2:3::4"),
            ("fd00::1", &["for=\"[2001:db8:1:2:3::4]\""], "2001:db8:1:2:3::4"),
            // What the client sent itself comes first.
            ("10.0.0.1", &["for=203.0.113.9, for=198.51.100.7"], "198.51.100.7"),
            (
                "10.0.0.1",
                &["for=203.0.113.9", "for=198.51.100.7, for=10.0.0.2"],
                "198.51.100.7",
            ),
            ("10.0.0.1", &["for=\"203.0.113.9, for=198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["for=10.0.0.3, for=10.0.0.2"], "10.0.0.3"),
            // A proxy that names no address vouches for nobody.
            ("10.0.0.1", &["for=203.0.113.9, for=unknown"], "10.0.0.1"),
            ("10.0.0.1", &["for=203.0.113.9, for=_hidden"], "10.0.0.1"),
            ("10.0.0.1", &["for=203.0.113.9, proto=https"], "10.0.0.1"),
        ] {
            let headers = fields.iter().map(|field| (FORWARDED, HeaderValue::from_static(field)));
            let headers = headers.collect();
            let found = proxies.client(peer.parse().unwrap(), &headers);
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {fields:?}");
        }
    }
}
