//! The address of the client behind proxies that the operator trusts: `Forwarded` (RFC 7239) or `X-Forwarded-For`.
//!
//! Any client can send any header, so both count only when a trusted proxy connects. Each proxy appends the address that
//! connected to it: the last address that is not a trusted proxy's is the client's, and everything before it may be
//! invented. A proxy usually sets one of the two headers and passes on what the client sent as the other. So if both
//! exist and name different clients, neither is believed.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, Method};
use ipnet::IpNet;
use tidewaiter_kit::serve::{Peer, ProxiedBy, is_in};

use crate::server::refusal::Refusal;

const FORWARDED: &str = "forwarded";
const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The networks of the trusted proxies.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(pub Vec<IpNet>);

impl TrustedProxies {
    /// The address of the client who sent a request with `headers` over a connection from `peer`.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        let standard = self.walk(peer, headers, FORWARDED, forwarded_for);
        let usual = self.walk(peer, headers, FORWARDED_FOR, address);
        match (standard, usual) {
            (Some(standard), Some(usual)) if standard != usual => peer,
            (Some(client), _) | (None, Some(client)) => client,
            (None, None) => peer,
        }
    }

    /// The client that the header `name` names, from the last element on; `None` without such a header.
    fn walk(
        &self,
        peer: IpAddr,
        headers: &HeaderMap,
        name: &str,
        read: impl Fn(&str) -> Option<IpAddr>,
    ) -> Option<IpAddr> {
        let mut client = peer;
        let mut elements = elements(headers, name).peekable();
        elements.peek()?;
        while self.trusts(client)
            && let Some(forwarded) = elements.next().and_then(&read)
        {
            client = forwarded;
        }
        Some(client)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        is_in(&self.0, address)
    }

    /// Refuses what must not travel in plain HTTP. On a port without TLS that others reach (`is_open`), only trusted
    /// proxies may connect; and no credentials may come from a client who reached a proxy in plain HTTP.
    pub(crate) fn check_transport(&self, is_open: bool, request: &Request) -> Result<(), Refusal> {
        if !self.sent(request) && is_open {
            let message = "this port serves plain HTTP to trusted proxies alone: use the server's public URL, or add \
                           the address of the proxy to trustedProxies";
            return Err(Refusal::forbidden(message));
        }
        if self.is_plain(request) && has_credentials(request) {
            let message = "the credentials were sent to the proxy in plain HTTP, where others can read them: use \
                           https://, and replace them";
            return Err(Refusal::forbidden(message));
        }
        Ok(())
    }

    /// Returns true if the client reached a trusted proxy in plain HTTP.
    pub(crate) fn is_plain(&self, request: &Request) -> bool {
        self.sent(request) && is_plain(request.headers())
    }

    /// Returns true if a trusted proxy sent the request.
    fn sent(&self, request: &Request) -> bool {
        let extensions = request.extensions();
        extensions.get::<ProxiedBy>().is_some()
            || extensions
                .get::<Peer>()
                .is_some_and(|Peer(peer)| self.trusts(peer.ip()))
    }
}

/// The elements of a list, the last one first.
fn elements<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).into_iter().rev().flat_map(|field| {
        let field = field.to_str().unwrap_or_default();
        field.rsplit(',')
    })
}

/// Returns true if a proxy was reached in plain HTTP.
fn is_plain(headers: &HeaderMap) -> bool {
    let is_http = |scheme: &str| scheme.trim().trim_matches('"').eq_ignore_ascii_case("http");
    let forwarded = |element: &str| parameter(element, "proto").is_some_and(is_http);
    elements(headers, FORWARDED).any(forwarded) || elements(headers, FORWARDED_PROTO).any(is_http)
}

/// Returns true if the request has a token, a cookie, the secret of an invitation or the code of a sign-in, or may have
/// a password in its body.
fn has_credentials(request: &Request) -> bool {
    let headers = request.headers();
    let query = request.uri().query().unwrap_or_default();
    url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "secret" || name == "code")
        || headers.contains_key(AUTHORIZATION)
        || headers.contains_key(COOKIE)
        || !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The first parameter `name` of an element of `Forwarded`.
fn parameter<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let parameters = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let mut found = parameters.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    found.next().map(|(_, value)| value)
}

/// The address of the parameter `for`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    address(parameter(element, "for")?.trim_matches('"'))
}

/// The address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn address(node: &str) -> Option<IpAddr> {
    let node = node.trim();
    let address = node.parse::<SocketAddr>().map(|address| address.ip());
    let address = address.or_else(|_| node.trim_start_matches('[').trim_end_matches(']').parse());
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn proxies() -> TrustedProxies {
        TrustedProxies(vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()])
    }

    #[test]
    fn only_trusted_proxies_name_the_client() {
        let proxies = proxies();
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
            let found = proxies.client(peer.parse().unwrap(), &headers(FORWARDED, fields));
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {fields:?}");
        }
    }

    fn headers(name: &'static str, fields: &[&'static str]) -> HeaderMap {
        let field = |&field: &&'static str| (HeaderName::from_static(name), HeaderValue::from_static(field));
        fields.iter().map(field).collect()
    }

    #[test]
    fn the_usual_header_has_the_same_rule() {
        let proxies = proxies();
        for (peer, fields, client) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.7,10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["2001:db8:1:2:3::4"], "2001:db8:1:2:3::4"),
            ("10.0.0.1", &["[2001:db8:1:2:3::4]:4711"], "2001:db8:1:2:3::4"),
            ("10.0.0.1", &["203.0.113.9, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9, "], "10.0.0.1"),
        ] {
            let found = proxies.client(peer.parse().unwrap(), &headers(FORWARDED_FOR, fields));
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {fields:?}");
        }
    }

    #[test]
    fn a_client_cannot_choose_its_address_by_the_header_that_the_proxy_does_not_set() {
        for (forwarded, usual, client) in [
            ("for=198.51.100.7", "198.51.100.7", "198.51.100.7"),
            ("for=203.0.113.9", "198.51.100.7", "10.0.0.1"),
            ("for=unknown", "198.51.100.7", "10.0.0.1"),
        ] {
            let mut both = headers(FORWARDED_FOR, &[usual]);
            both.extend(headers(FORWARDED, &[forwarded]));
            let found = proxies().client("10.0.0.1".parse().unwrap(), &both);
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{forwarded} {usual}");
        }
    }

    #[test]
    fn a_secret_in_the_query_is_a_credential() {
        for (path, is_accepted) in [
            ("/invitation?secret=x", false),
            ("/sign-in/callback?state=x&code=y", false),
            ("/device?user_code=x", true),
            ("/sign-in?return_to=%2F", true),
        ] {
            let request = http::Request::get(path).header(FORWARDED_PROTO, "http");
            let mut request = request.body(Body::empty()).unwrap();
            request.extensions_mut().insert(Peer(([10, 0, 0, 1], 4711).into()));
            let checked = proxies().check_transport(true, &request);
            assert_eq!(checked.is_ok(), is_accepted, "{path}: {checked:?}");
        }
    }

    #[test]
    fn plain_http_is_for_trusted_proxies_and_without_credentials() {
        let token = ("authorization", "JWT x");
        let (plain, tls) = ((FORWARDED_PROTO, "http"), (FORWARDED_PROTO, "https"));
        for (is_open, peer, method, fields, is_accepted) in [
            (true, "10.0.0.1", Method::GET, &[token, tls][..], true),
            (true, "10.0.0.1", Method::GET, &[token], true),
            (true, "::ffff:10.0.0.1", Method::GET, &[token], true),
            (true, "192.0.2.1", Method::GET, &[], false),
            (true, "192.0.2.1", Method::GET, &[tls], false),
            (false, "192.0.2.1", Method::GET, &[token, plain], true),
            (true, "10.0.0.1", Method::GET, &[plain], true),
            (true, "10.0.0.1", Method::GET, &[token, plain], false),
            (false, "10.0.0.1", Method::GET, &[token, plain], false),
            (false, "10.0.0.1", Method::GET, &[("cookie", "a=b"), plain], false),
            (true, "10.0.0.1", Method::POST, &[plain], false),
            (true, "10.0.0.1", Method::POST, &[tls], true),
            (
                true,
                "10.0.0.1",
                Method::POST,
                &[(FORWARDED_PROTO, "http, https")],
                false,
            ),
            (
                true,
                "10.0.0.1",
                Method::POST,
                &[(FORWARDED, "for=192.0.2.1;proto=\"HTTP\"")],
                false,
            ),
        ] {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = method.clone();
            for &(name, value) in fields {
                request.headers_mut().append(name, HeaderValue::from_static(value));
            }
            request
                .extensions_mut()
                .insert(Peer((peer.parse::<IpAddr>().unwrap(), 4711).into()));
            let checked = proxies().check_transport(is_open, &request);
            assert_eq!(
                checked.is_ok(),
                is_accepted,
                "{is_open} {peer} {method} {fields:?}: {checked:?}"
            );
        }
        // The address that a proxy named by the PROXY protocol is not its own.
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(Peer(([192, 0, 2, 1], 4711).into()));
        request.extensions_mut().insert(ProxiedBy(([10, 0, 0, 1], 80).into()));
        proxies().check_transport(true, &request).unwrap();
    }
}
