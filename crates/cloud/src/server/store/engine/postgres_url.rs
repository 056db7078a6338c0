//! The URL of a PostgreSQL server, as sqlx must get it.
//!
//! sqlx ignores a fragment and the query parameters that it does not know, so that a misspelled `sslmode` would have no
//! effect; and it resolves the host `[::1]` with its brackets. No error contains the password of the URL.

use std::net::IpAddr;

use tidewaiter_api::values::quoted;
use url::{Host, Url};

use crate::server::store::error::StoreError;

const MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
/// The query parameters that sqlx knows (`options/parse.rs` of sqlx-postgres), besides those with a checked value, and
/// `password`, which logs would show.
const KNOWN: [&str; 12] = [
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "dbname",
    "user",
    "application_name",
    "options",
];

/// The URL for sqlx.
///
/// # Errors
/// If sqlx would ignore or refuse a part of it.
pub(super) fn checked(url: &Url) -> Result<Url, StoreError> {
    if url.fragment().is_some() {
        return Err(StoreError::Setting(
            "database is a URL with #: write it as %23, also in the password".to_owned(),
        ));
    }
    for (name, value) in url.query_pairs() {
        check(&name, &value).map_err(StoreError::Setting)?;
    }
    let mut checked = url.clone();
    // A host in the query overrides the one before it.
    let is_overridden = url.query_pairs().any(|(name, _)| name == "host" || name == "hostaddr");
    if let (Some(Host::Ipv6(host)), false) = (url.host(), is_overridden) {
        checked.query_pairs_mut().append_pair("host", &host.to_string());
    }
    Ok(checked)
}

fn check(name: &str, value: &str) -> Result<(), String> {
    let (is_valid, wanted) = match name {
        "sslmode" | "ssl-mode" => (
            MODES.contains(&&*value.to_ascii_lowercase()),
            format!("one of {}", MODES.join(", ")),
        ),
        "port" => (value.parse::<u16>().is_ok(), "a port".to_owned()),
        "hostaddr" => (value.parse::<IpAddr>().is_ok(), "an IP address".to_owned()),
        "statement-cache-capacity" => (value.parse::<usize>().is_ok(), "a whole number".to_owned()),
        _ if KNOWN.contains(&name) || (name.starts_with("options[") && name.ends_with(']')) => return Ok(()),
        _ => {
            return Err(format!(
                "database has the query parameter {}, which is unknown: the known ones are sslmode, sslrootcert, \
                 sslcert, sslkey, host, port, dbname, user, application_name and options",
                quoted(name)
            ));
        }
    };
    if is_valid {
        return Ok(());
    }
    Err(format!("database has {name}={}, must be {wanted}", quoted(value)))
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgConnectOptions;

    use super::*;

    fn read(text: &str) -> Result<Url, String> {
        checked(&Url::parse(text).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_the_library_would_ignore_or_refuse_is_refused_with_the_remedy() {
        for (end, words) in [
            ("#1", ["with #", "write it as %23"]),
            ("?sslMode=bogus", ["\"sslMode\"", "sslmode, sslrootcert"]),
            ("?sslmod=verify-full", ["\"sslmod\"", "sslmode, sslrootcert"]),
            ("?ssl=require", ["\"ssl\"", "sslmode, sslrootcert"]),
            ("?sslmode=require&foo=1", ["\"foo\"", "unknown"]),
            ("?options[a=1", ["\"options[a\"", "unknown"]),
            ("?password=secret", ["\"password\"", "unknown"]),
            (
                "?sslmode=bogus",
                [
                    "sslmode=\"bogus\"",
                    "disable, allow, prefer, require, verify-ca, verify-full",
                ],
            ),
            ("?ssl-mode=", ["ssl-mode=\"\"", "disable, allow"]),
            ("?port=70000", ["port=\"70000\"", "a port"]),
            ("?hostaddr=db", ["hostaddr=\"db\"", "an IP address"]),
            (
                "?statement-cache-capacity=-1",
                ["statement-cache-capacity=\"-1\"", "a whole number"],
            ),
        ] {
            let message = read(&format!("postgres://user:secret@host/team{end}")).unwrap_err();
            assert!(
                message.starts_with("database ") && !message.contains("secret"),
                "{message}"
            );
            assert!(
                words.iter().all(|word| message.contains(word)),
                "{words:?} in {message}"
            );
        }
    }

    #[test]
    fn what_the_library_knows_is_unchanged() {
        let values = [
            "sslmode=Verify-Full",
            "ssl-mode=allow",
            "port=1",
            "hostaddr=::1",
            "statement-cache-capacity=0",
        ];
        let known = KNOWN.map(|name| format!("{name}=a"));
        let pairs = values.map(str::to_owned).into_iter().chain(known);
        for pair in pairs.chain(["options[a]=b".to_owned()]) {
            let text = format!("postgres://user@host/team?{pair}");
            assert_eq!(read(&text).as_ref().map(Url::as_str), Ok(&*text));
        }
    }

    #[test]
    fn an_address_of_ipv6_is_given_without_brackets() {
        for (text, host) in [
            ("postgres://user@[::1]:1/team", "::1"),
            ("postgresql://user@[2001:db8::7]/team?sslmode=require", "2001:db8::7"),
            ("postgres://user@[::1]/team?host=db", "db"),
            ("postgres://user@[::1]/team?hostaddr=127.0.0.2", "127.0.0.2"),
            ("postgres://user@127.0.0.1/team", "127.0.0.1"),
            ("postgres://user@db.example.com/team", "db.example.com"),
        ] {
            let options: PgConnectOptions = read(text).unwrap().as_str().parse().unwrap();
            assert_eq!((options.get_host(), options.get_username()), (host, "user"), "{text}");
        }
    }
}
