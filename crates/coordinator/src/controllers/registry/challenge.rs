//! The challenge of a registry: the header `WWW-Authenticate`. Pure.
//!
//! Sources: RFC 9110 §11.6.1, and the distribution project's "Token Authentication Specification".

use tidewaiter_cloud::client::has_user;
use url::{Host, Url};

/// The longest header that is read.
const LIMIT: usize = 4_096;

/// The challenge of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token, which the realm gives for name and password.
    Bearer { realm: String, service: Option<String> },
}

impl Challenge {
    /// The challenge in these headers that gives most: a token, or else name and password.
    pub(super) fn of<'a>(headers: impl Iterator<Item = &'a str>) -> Option<Self> {
        let challenges = headers.filter(|header| header.len() <= LIMIT).filter_map(Self::parse);
        challenges.max_by_key(|challenge| matches!(challenge, Self::Bearer { .. }))
    }

    fn parse(header: &str) -> Option<Self> {
        let header = header.trim();
        let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut rest) = (None, None, rest);
        while let Some((name, value, after)) = parameter(rest) {
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                _ => {}
            }
            rest = after;
        }
        Some(Self::Bearer { realm: realm?, service })
    }
}

/// The first `name="value"` or `name=value`, and what follows its comma.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = text.trim_start_matches([' ', ',', '\t']).split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let (value, after) = rest.split_once(',').unwrap_or((rest, ""));
        return Some((name.trim(), value.trim().to_owned(), after));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name.trim(), value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

/// Returns true if a password of the registry at `host` may be sent to this realm: it has TLS, and is the registry
/// itself or of the same site.
///
/// The registry names the realm, and anybody who can make it name another one would get the password. A site is what
/// two names have in common at their end: two labels, and three where the second last is a part of a country's domain
/// (`co.uk`). Sources of realms that differ from their registry: Docker Hub (`auth.docker.io`), GitLab (`gitlab.com`
/// for `registry.gitlab.com`).
pub(super) fn is_trusted(realm: &Url, registry: &Url) -> bool {
    if realm.scheme() != registry.scheme() || has_user(realm) {
        return false;
    }
    match (realm.host(), registry.host()) {
        (Some(Host::Domain(realm_host)), Some(Host::Domain(host))) if realm_host != host => {
            is_standard_port(realm) && same_site(realm_host, host)
        }
        (Some(realm_host), Some(host)) => {
            realm_host == host && (is_standard_port(realm) || realm.port() == registry.port())
        }
        _ => false,
    }
}

fn is_standard_port(url: &Url) -> bool {
    url.scheme() == "https" && url.port().is_none()
}

fn same_site(one: &str, other: &str) -> bool {
    let labels = |host: &str| {
        host.to_ascii_lowercase()
            .split('.')
            .rev()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (one, other) = (labels(one), labels(other));
    let common = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let is_country = one[0].len() == 2 && one.get(1).is_some_and(|label| label.len() <= 3);
    common >= if is_country { 3 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Challenge {
        Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
        }
    }

    #[test]
    fn what_registries_ask_for() {
        for (headers, challenge) in [
            (
                &["Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\""][..],
                Some(bearer("https://auth.docker.io/token", Some("registry.docker.io"))),
            ),
            (
                &["bearer service=ghcr.io, realm=\"https://ghcr.io/token\" , scope=\"a,b=c\""],
                Some(bearer("https://ghcr.io/token", Some("ghcr.io"))),
            ),
            (&["Basic realm=\"x\"", "Bearer realm=\"r\""], Some(bearer("r", None))),
            (&["Basic realm=\"x\""], Some(Challenge::Basic)),
            (&["basic"], Some(Challenge::Basic)),
            (&["Bearer realm=\"a\\\"b\""], Some(bearer("a\"b", None))),
            (&["Bearer realm=\"open"], None),
            (&["Bearer service=\"s\""], None),
            (&["Negotiate"], None),
            (&[""], None),
            (&[], None),
        ] {
            assert_eq!(Challenge::of(headers.iter().copied()), challenge, "{headers:?}");
        }
        let long = format!("Bearer realm=\"{}\"", "x".repeat(LIMIT));
        assert_eq!(Challenge::of([long.as_str()].into_iter()), None);
    }

    #[test]
    fn a_password_goes_to_the_registry_and_its_site_only() {
        let url = |text: &str| Url::parse(text).unwrap();
        for (realm, registry) in [
            ("https://auth.docker.io/token", "https://registry-1.docker.io/v2/"),
            ("https://gitlab.com/jwt/auth", "https://registry.gitlab.com/v2/"),
            ("https://quay.io/v2/auth", "https://quay.io/v2/"),
            (
                "https://harbor.example.com:8443/service/token",
                "https://harbor.example.com:8443/v2/",
            ),
            ("https://git.example.co.uk/jwt", "https://registry.example.co.uk/v2/"),
            ("https://10.0.0.7:5000/token", "https://10.0.0.7:5000/v2/"),
        ] {
            assert!(is_trusted(&url(realm), &url(registry)), "{realm}");
        }
        for (realm, registry) in [
            ("http://auth.docker.io/token", "https://registry-1.docker.io/v2/"),
            ("https://evil.example.net/token", "https://registry.example.com/v2/"),
            ("https://evil.co.uk/token", "https://registry.co.uk/v2/"),
            ("https://example.com.evil.net/token", "https://registry.example.com/v2/"),
            ("https://169.254.169.254/token", "https://registry.example.com/v2/"),
            ("https://10.0.0.8/token", "https://10.0.0.7/v2/"),
            ("https://a:b@example.com/token", "https://registry.example.com/v2/"),
            (
                "https://auth.example.com:8080/token",
                "https://registry.example.com/v2/",
            ),
            ("https://com/token", "https://registry.example.com/v2/"),
            ("ftp://registry.example.com/token", "https://registry.example.com/v2/"),
        ] {
            assert!(!is_trusted(&url(realm), &url(registry)), "{realm}");
        }
    }
}
