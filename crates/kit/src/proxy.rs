//! The servers that are never reached through a proxy.
//!
//! The variables `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` (or the same in lower case) are read by the
//! libraries of the clouds and the state store themselves, some of them at each request and without an option. They
//! know no exception for this machine and for the metadata service of a cloud, which only this machine reaches and
//! which gives out credentials. A process cannot safely change its own environment, so [`exempt_this_machine`] starts
//! the program again with a `NO_PROXY` that names them.
//!
//! For the API server `is_direct` applies the rules of kubectl, which are those of Go's
//! `golang.org/x/net/http/httpproxy`: they differ from the rules of the libraries (curl's) in ports, in `*.` and in the
//! exception for this machine. Plain HTTP never goes through a proxy, which would see the token.

use std::io;
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use http::Uri;
use ipnet::IpNet;

use crate::settings::environment;

/// This machine, the link (169.254.169.254 and others), the metadata services of AWS over IPv6 and of Google Cloud.
const EXEMPT: [&str; 6] = [
    "localhost",
    "127.0.0.0/8",
    "::1",
    "169.254.0.0/16",
    "fd00:ec2::/32",
    "metadata.google.internal",
];

const PROXIES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// The program could not be started again.
#[derive(Debug, thiserror::Error)]
#[error(
    "a proxy is set, and NO_PROXY cannot be extended: set NO_PROXY to {no_proxy:?}, so that no metadata service is asked through it"
)]
pub struct RestartError {
    /// The value that it should have.
    pub no_proxy: String,
    /// The error of the operating system.
    #[source]
    pub source: io::Error,
}

/// Returns if no proxy is set, or `NO_PROXY` exempts this machine and the metadata services; otherwise the process
/// becomes the same program with such a `NO_PROXY`. Call it before anything else.
///
/// # Errors
/// If the program cannot be started again.
pub fn exempt_this_machine() -> Result<(), RestartError> {
    let environment = environment();
    let no_proxy = no_proxy(&environment);
    let is_set = PROXIES.iter().any(|name| first(&environment, &[name]).is_some());
    // The libraries take NO_PROXY even if it is empty.
    let is_exempt = environment.contains(&("NO_PROXY".to_owned(), no_proxy.clone()));
    if !is_set || is_exempt {
        return Ok(());
    }
    let source = restart_with(&no_proxy);
    Err(RestartError { no_proxy, source })
}

/// Returns only if it fails.
fn restart_with(no_proxy: &str) -> io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        // The name selects the role.
        command.arg0(name);
    }
    command
        .args(arguments)
        .env("NO_PROXY", no_proxy)
        .env("no_proxy", no_proxy)
        .exec()
}

/// True if the variables of `environment` never lead to `server` through a proxy.
pub(crate) fn is_direct(server: &Uri, environment: &[(String, String)]) -> bool {
    let Some(host) = server.host() else { return true };
    let port = server.port_u16().unwrap_or(443).to_string();
    server.scheme_str() != Some("https") || names(&no_proxy(environment), host, &port)
}

/// The configured exceptions, then those of [`EXEMPT`] that they lack.
fn no_proxy(environment: &[(String, String)]) -> String {
    let configured = first(environment, &["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let known: Vec<&str> = configured.split(',').map(str::trim).collect();
    let missing = EXEMPT.into_iter().filter(|entry| !known.contains(entry));
    let entries = known.iter().copied().filter(|entry| !entry.is_empty());
    entries.chain(missing).collect::<Vec<_>>().join(",")
}

/// The value of the first of these variables that is not empty.
fn first<'a>(environment: &'a [(String, String)], names: &[&str]) -> Option<&'a str> {
    let value = |name: &&str| environment.iter().find(|(key, value)| key == name && !value.is_empty());
    let found = names.iter().find_map(value);
    found.map(|(_, value)| value.as_str())
}

/// True if an entry of the list names the host: `*`, an address, a network, or a domain with the hosts in it (with a
/// leading `.` or `*.`, only those). Addresses and domains may have a port.
fn names(list: &str, host: &str, port: &str) -> bool {
    let host = without_brackets(host).to_lowercase();
    let address = address(&host);
    let list = list.to_lowercase();
    list.split(',').map(str::trim).any(|entry| {
        if let Ok(network) = entry.parse::<IpNet>() {
            return address.is_some_and(|address| network.contains(&address));
        }
        let (name, its_port) = split_port(entry);
        let is_host = match self::address(name) {
            Some(named) => address == Some(named),
            None => in_domain(&host, name),
        };
        entry == "*" || is_host && (its_port.is_empty() || its_port == port)
    })
}

fn in_domain(host: &str, name: &str) -> bool {
    let name = if name.starts_with("*.") { &name[1..] } else { name };
    let rest = host.strip_suffix(name).filter(|_| !name.is_empty());
    rest.is_some_and(|rest| name.starts_with('.') || rest.is_empty() || rest.ends_with('.'))
}

/// An IPv6 address has a port only after brackets, and brackets only before a port.
fn split_port(entry: &str) -> (&str, &str) {
    match entry.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (without_brackets(host), port),
        _ => (entry, ""),
    }
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
}

fn address(host: &str) -> Option<IpAddr> {
    host.parse().ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        variables.iter().map(owned).collect()
    }

    /// The expected results are those of `httpproxy.Config.ProxyFunc` of Go.
    #[test]
    fn no_proxy_is_read_as_kubectl_reads_it() {
        for (list, direct, through) in [
            ("*", &["https://api.example.com", "https://10.0.0.1"][..], &[][..]),
            ("*:443,:443,*", &["https://api.example.com:6443"], &[]),
            ("*:443,:443", &[], &["https://api.example.com"]),
            (
                "example.com",
                &["https://example.com", "https://api.Example.com:6443"],
                &["https://notexample.com", "https://example.com.evil.org"],
            ),
            (
                ".example.com",
                &["https://api.example.com", "https://a.b.example.com"],
                &["https://example.com", "https://notexample.com"],
            ),
            (
                "*.example.com",
                &["https://api.example.com"],
                &["https://example.com", "https://notexample.com"],
            ),
            (
                " a.org ,, API.example.com ",
                &["https://api.example.com", "https://a.org"],
                &["https://example.com"],
            ),
            (
                "api.example.com:6443",
                &["https://api.example.com:6443"],
                &["https://api.example.com", "https://api.example.com:443"],
            ),
            ("api.example.com:443", &["https://api.example.com"], &[]),
            (
                "10.0.0.0/8,192.0.2.7",
                &[
                    "https://10.1.2.3:6443",
                    "https://192.0.2.7",
                    "https://[::ffff:10.1.2.3]",
                ],
                &["https://11.0.0.1", "https://192.0.2.8", "https://ten.example.com"],
            ),
            ("192.0.2.7:6443", &["https://192.0.2.7:6443"], &["https://192.0.2.7"]),
            (
                "2001:db8::1,[2001:db8::2],[2001:db8::3]:6443,2001:db8:1::/48",
                &[
                    "https://[2001:db8::1]:6443",
                    "https://[2001:db8::3]:6443",
                    "https://[2001:db8:1::9]",
                ],
                &["https://[2001:db8::2]", "https://[2001:db8::3]"],
            ),
            (
                "",
                &[
                    "https://localhost:6443",
                    "https://127.0.0.1:6443",
                    "https://127.9.9.9",
                    "https://[::1]:6443",
                    "http://api.example.com",
                ],
                &[
                    "https://api.example.com",
                    "https://10.0.0.1",
                    "https://localhost.example.com",
                ],
            ),
        ] {
            for (servers, expected) in [(direct, true), (through, false)] {
                for server in servers {
                    let is_direct = is_direct(&server.parse().unwrap(), &variables(&[("NO_PROXY", list)]));
                    assert_eq!(is_direct, expected, "{server} with NO_PROXY={list}");
                }
            }
        }
    }

    #[test]
    fn lower_case_counts_where_upper_case_is_empty() {
        let server = "https://api.example.com".parse().unwrap();
        for (set, expected) in [
            (&[("no_proxy", "example.com")][..], true),
            (&[("no_proxy", "example.com"), ("NO_PROXY", "")], true),
            (&[("no_proxy", "example.com"), ("NO_PROXY", "a.org")], false),
            (&[], false),
        ] {
            assert_eq!(is_direct(&server, &variables(set)), expected, "{set:?}");
        }
    }

    #[test]
    fn this_machine_and_the_metadata_services_are_added_once() {
        let added = no_proxy(&variables(&[("NO_PROXY", "a.org, ::1,")]));
        assert_eq!(
            added,
            "a.org,::1,localhost,127.0.0.0/8,169.254.0.0/16,fd00:ec2::/32,metadata.google.internal"
        );
        assert_eq!(no_proxy(&variables(&[("NO_PROXY", &added)])), added);
        for host in [
            "169.254.169.254",
            "169.254.170.2",
            "[fd00:ec2::254]",
            "metadata.google.internal",
        ] {
            assert!(names(&added, host, "80"), "{host}");
        }
    }
}
