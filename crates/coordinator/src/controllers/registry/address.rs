//! The address of a registry: parsed once, before anything is sent to it or written about it.
//!
//! The key in a pull secret is one under which the kubelet looks for the images of the registry
//! (`pkg/credentialprovider/keyring.go`): host and port as in the name of the image, in lower case, and a path with
//! which the name begins. `/v1/` and `/v2/` are no part of that path, but `/v1` and `/v2` are. Nothing in a path is a
//! pattern or a tag. The images of Docker Hub are at `docker.io` for it, or have the key `index.docker.io`.
//!
//! A registry has a DNS name with a dot, or an IP address that is not of this machine or its link: neither a name that
//! the resolver of the cluster completes (`kube-system`) nor a metadata service is one.

use std::fmt;
use std::net::IpAddr;

use tidewaiter_api::values::quoted;
use url::{Host, Url};

/// Docker Hub: its address in pull secrets, and where its API is.
pub(super) const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// The names under which people write it. The last one is a website, whose paths are pages.
const DOCKER_HUB_HOSTS: [&str; 5] = [
    "docker.io",
    "index.docker.io",
    "registry-1.docker.io",
    "registry.hub.docker.com",
    DOCKER_HUB_SITE,
];
const DOCKER_HUB_SITE: &str = "hub.docker.com";
const DOCKER_HUB_API: &str = "registry-1.docker.io";

/// The most characters of an address.
const LIMIT: usize = 512;

/// The address of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    text: String,
    key: String,
    host: Host<String>,
    port: Option<u16>,
    plain_http: bool,
}

/// A text that is not the address of a registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("serveraddress is {shown}: {rule}. Write HOST, HOST:PORT, or https://HOST[:PORT]/PATH")]
pub(super) struct InvalidAddress {
    shown: String,
    rule: String,
}

impl InvalidAddress {
    fn new(text: &str, rule: &str) -> Self {
        // What stands before an @ may be a password.
        let shown = if text.contains('@') {
            "not shown".to_owned()
        } else {
            quoted(text)
        };
        Self {
            shown,
            rule: rule.to_owned(),
        }
    }
}

impl ServerAddress {
    /// Parses what the cloud says.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let invalid = |rule: &str| InvalidAddress::new(text, rule);
        if text.is_empty() || text.len() > LIMIT {
            return Err(invalid("must have 1 to 512 characters"));
        }
        if text.contains("@sha256:") {
            return Err(invalid(
                "must not be that of an image: leave out the @sha256: and what follows it",
            ));
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
        check_path(text, place, path).map_err(|rule| invalid(&rule))?;
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
        if matches!(host, Host::Ipv6(_)) && place.ends_with(']') {
            return Err(invalid(
                "an IPv6 address must have a port, without which no node finds the credential",
            ));
        }
        if !is_registry(&host) {
            return Err(invalid(
                "the host must be a DNS name with a dot, or an address outside this machine and its link",
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            key: key(text, place, &rest[place.len()..]),
            host,
            port,
            plain_http,
        })
    }

    /// The key under which the kubelet finds the credential.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The DNS name, in lower case.
    pub(super) fn domain(&self) -> Option<&str> {
        match &self.host {
            Host::Domain(name) => Some(name),
            Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    /// `HOST` or `HOST:PORT`, in lower case.
    pub(super) fn place(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.to_string(),
        }
    }

    /// True for a host of Docker that has no images, because it is none of Docker Hub's registry.
    pub(super) fn is_beside_docker_hub(&self) -> bool {
        self.domain().is_some_and(|name| {
            let is_in = |domain: &str| name == domain || name.ends_with(&format!(".{domain}"));
            (is_in("docker.com") || is_in("docker.io")) && !DOCKER_HUB_HOSTS.contains(&name)
        })
    }

    /// Returns true if it says that the registry has no TLS.
    pub(super) fn is_plain_http(&self) -> bool {
        self.plain_http
    }

    /// The address of the registry's API: `https://HOST[:PORT]/v2/`.
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

/// Refuses a path with which no name of an image begins. Source: `reference` of github.com/distribution.
fn check_path(text: &str, place: &str, path: &str) -> Result<(), String> {
    if path.split('/').any(|part| part == ".." || part == ".") {
        return Err("must not have . or .. in its path".to_owned());
    }
    // The paths of the website are no part of the key.
    if place.eq_ignore_ascii_case(DOCKER_HUB_SITE) {
        return Ok(());
    }
    if let Some(tag) = path.find(':') {
        let untagged = &text[..text.len() - path.len() + tag];
        return Err(format!(
            "must not have the tag of an image, with which no node finds the credential: leave it out, for example {}",
            quoted(untagged)
        ));
    }
    let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"/._-".contains(&byte);
    if !path.bytes().all(is_of_name) {
        return Err(
            "its path must be the beginning of names of images, of small letters, digits and any of . _ - /, without \
             patterns such as *: leave the rest out, and it is for all images that begin so"
                .to_owned(),
        );
    }
    Ok(())
}

/// The key of an address with this host and port, and this path. What the kubelet finds stays as it is.
fn key(text: &str, place: &str, path: &str) -> String {
    let scheme = text.find("://").map_or("", |at| &text[..at + 3]);
    let place = place.to_ascii_lowercase();
    let mut path = path.to_owned();
    while path.contains("//") {
        path = path.replace("//", "/");
    }
    if path == "/v1" || path == "/v2" {
        path.push('/');
    }
    let host = place.strip_suffix(":443").unwrap_or(&place);
    if !DOCKER_HUB_HOSTS.contains(&host) {
        return format!("{scheme}{place}{path}");
    }
    let below = path.strip_prefix("/v1/").or_else(|| path.strip_prefix("/v2/"));
    // The API of the index, which lists the images of all.
    if below.is_some_and(|below| below.split('/').next() == Some("repositories")) {
        return DOCKER_HUB.to_owned();
    }
    match (host, below.unwrap_or(&path).trim_matches('/')) {
        ("docker.io", _) | ("index.docker.io", "") => format!("{scheme}{host}{path}"),
        (DOCKER_HUB_SITE, _) | (_, "") => DOCKER_HUB.to_owned(),
        (_, below) => format!("docker.io/{below}"),
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

/// Returns true if a registry may be there: not this machine, not its link with the metadata services, not many
/// machines.
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
    mod keyring;

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
                (
                    address.to_string().as_str(),
                    address.place().as_str(),
                    address.api().as_str()
                ),
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
            "[fd00:ec2::254]:5000",
            "[2001:db8::7]",
            "https://[2001:db8::7]/team",
            "0.0.0.0",
            "\u{202e}quay.io",
            "docker.io/acme/app:1.0",
            "https://docker.io/acme/app:1.0",
            "registry.example.com:5000/image:tag",
            "registry.example.com/image@sha256:0123",
            "registry.example.com/image:tag@sha256:0123",
            "registry.example.com/*",
            "registry.example.com/team/*",
            "registry.example.com/Team",
            "*.example.com",
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

    #[test]
    fn the_address_of_an_image_is_refused_with_the_remedy() {
        for (text, remedy) in [
            ("docker.io/acme/app:1.0", "for example \"docker.io/acme/app\""),
            (
                "https://reg.example.com:5000/image:tag",
                "for example \"https://reg.example.com:5000/image\"",
            ),
            ("reg.example.com/image@sha256:0123", "leave out the @sha256:"),
            ("reg.example.com/*", "without patterns"),
        ] {
            let error = ServerAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains(remedy), "{error}");
        }
    }
}
