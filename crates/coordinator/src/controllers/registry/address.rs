//! Where a registry is: parsed once, before anything is sent to it or written about it.
//!
//! A registry has a DNS name with a dot, or an IP address that is not of this machine or its link: neither a name that
//! the resolver of the cluster completes (`kube-system`) nor a metadata service is one.

use std::fmt;
use std::net::IpAddr;

use tidewaiter_api::values::quoted;
use url::{Host, Url};

/// Docker Hub: its address in pull secrets, and where its API is.
pub(super) const DOCKER_HUB: &str = "https://index.docker.io/v1/";
const DOCKER_HUB_HOSTS: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
const DOCKER_HUB_API: &str = "registry-1.docker.io";

/// The most characters of an address.
const LIMIT: usize = 512;

/// The address of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    text: String,
    host: Host<String>,
    port: Option<u16>,
    plain_http: bool,
}

/// A text that is not the address of a registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("serveraddress is {shown}: {rule}. Write HOST, HOST:PORT, or https://HOST[:PORT]/PATH")]
pub(super) struct InvalidAddress {
    shown: String,
    rule: &'static str,
}

impl ServerAddress {
    /// Parses what the cloud says.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |rule| InvalidAddress {
            // What stands before an @ may be a password.
            shown: if text.contains('@') {
                "not shown".to_owned()
            } else {
                quoted(text)
            },
            rule,
        };
        if text.is_empty() || text.len() > LIMIT {
            return Err(invalid("must have 1 to 512 characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains(['@', '\\', '%', '?', '#', '"', ',']) {
            return Err(invalid(
                "must not contain spaces, control characters, a user, a query or any of \\ % \" ,",
            ));
        }
        let (plain_http, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("https", rest)) => (false, rest),
            Some(("http", rest)) => (true, rest),
            Some(_) => return Err(invalid("must begin with https:// or with the host")),
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.split('/').any(|part| part == ".." || part == ".") {
            return Err(invalid("must not have . or .. in its path"));
        }
        let url = Url::parse(&format!("https://{place}/")).ok();
        let host = url.as_ref().and_then(Url::host).map(|host| host.to_owned());
        let (Some(url), Some(host)) = (url, host) else {
            return Err(invalid("has no valid host"));
        };
        // The parser completes and corrects: what it made must be what is there.
        let (given, port) = match url.port() {
            Some(port) => (place.strip_suffix(&format!(":{port}")), Some(port)),
            None => (Some(place.strip_suffix(":443").unwrap_or(place)), None),
        };
        if given.is_none_or(|given| !given.eq_ignore_ascii_case(&host.to_string())) {
            return Err(invalid("has no valid host"));
        }
        if !is_registry(&host) {
            return Err(invalid(
                "the host must be a DNS name with a dot, or an address outside this machine and its link",
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            host,
            port,
            plain_http,
        })
    }

    /// As it was given: the key under which a container runtime finds the credential.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// `HOST` or `HOST:PORT`, in lower case.
    pub(super) fn place(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.to_string(),
        }
    }

    /// Whether it says that the registry has no TLS.
    pub(super) fn is_plain_http(&self) -> bool {
        self.plain_http
    }

    /// Where the API of the registry is: `https://HOST[:PORT]/v2/`.
    pub(super) fn api(&self) -> String {
        let place = self.place();
        let place = if DOCKER_HUB_HOSTS.contains(&place.as_str()) {
            DOCKER_HUB_API
        } else {
            &place
        };
        format!("https://{place}/v2/")
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn is_registry(host: &Host<String>) -> bool {
    match host {
        Host::Domain(name) => is_dns_name(name),
        Host::Ipv4(address) => is_reachable((*address).into()),
        Host::Ipv6(address) => is_reachable((*address).into()),
    }
}

/// RFC 1123, with a dot.
fn is_dns_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.contains('.') && name.split('.').all(is_label) && !name.ends_with(".localhost")
}

/// Whether a registry may be there: not this machine, not its link with the metadata services, not many machines.
pub(super) fn is_reachable(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !(address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.is_multicast())
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unicast_link_local()
                || address.is_unspecified()
                || address.is_multicast()
                // The metadata service of AWS.
                || address.segments()[..2] == [0xfd00, 0x0ec2])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_registries_are_called() {
        for (text, place, api) in [
            ("quay.io", "quay.io", "https://quay.io/v2/"),
            ("ghcr.io", "ghcr.io", "https://ghcr.io/v2/"),
            (DOCKER_HUB, "index.docker.io", "https://registry-1.docker.io/v2/"),
            ("docker.io", "docker.io", "https://registry-1.docker.io/v2/"),
            ("https://gcr.io", "gcr.io", "https://gcr.io/v2/"),
            (
                "harbor.example.com:8443/team",
                "harbor.example.com:8443",
                "https://harbor.example.com:8443/v2/",
            ),
            (
                "registry.example.com:443",
                "registry.example.com",
                "https://registry.example.com/v2/",
            ),
            ("10.0.0.7:5000", "10.0.0.7:5000", "https://10.0.0.7:5000/v2/"),
            (
                "[2001:db8::7]:5000",
                "[2001:db8::7]:5000",
                "https://[2001:db8::7]:5000/v2/",
            ),
            (
                "Registry.Example.com",
                "registry.example.com",
                "https://registry.example.com/v2/",
            ),
        ] {
            let address = ServerAddress::parse(text).unwrap();
            assert_eq!(
                (address.text(), address.place().as_str(), address.api().as_str()),
                (text, place, api)
            );
        }
        assert!(
            ServerAddress::parse("http://registry.example.com")
                .unwrap()
                .is_plain_http()
        );
    }

    #[test]
    fn hostile_addresses_are_refused_and_shown_safely() {
        for text in [
            "",
            "kube-system",
            "localhost",
            "localhost:5000",
            "a.localhost",
            "../",
            "../../etc/passwd",
            "quay.io/../x",
            "quay.io\nevil.example.com",
            "quay.io\r\nX: y",
            "quay.io evil",
            "user:hunter2@quay.io",
            "https://quay.io@evil.example.com",
            "ftp://quay.io",
            "https://",
            "quay.io:99999",
            "quay.io:",
            "quay.io?x=y",
            "quay.io#x",
            "quay.io\\@evil.example.com",
            "-quay.io",
            "quay..io",
            "127.0.0.1:5000",
            "0x7f.1",
            "2130706433",
            "127.1",
            "169.254.169.254",
            "[::1]:5000",
            "[::ffff:127.0.0.1]",
            "[::ffff:169.254.169.254]",
            "[fd00:ec2::254]",
            "0.0.0.0",
            "\u{202e}quay.io",
            &"x.".repeat(300),
        ] {
            let error = ServerAddress::parse(text).unwrap_err().to_string();
            assert!(
                error.contains("Write HOST") && !error.contains('\n'),
                "{text:?}: {error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
