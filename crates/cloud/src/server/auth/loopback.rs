//! The address to which a browser is sent back when a person has granted a login to a program on the same machine (RFC
//! 8252, 7.3). Nothing but a listener of that machine gets the code.

use std::net::{Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// The address, if it is `http://127.0.0.1:PORT/…` or `http://[::1]:PORT/…` without user, query and fragment, in its
/// one spelling.
pub(crate) fn loopback(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_own_machine = match url.host()? {
        Host::Ipv4(address) => address == Ipv4Addr::LOCALHOST,
        Host::Ipv6(address) => address == Ipv6Addr::LOCALHOST,
        Host::Domain(_) => false,
    };
    let is_plain = url.scheme() == "http"
        && url.port().is_some()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    (is_own_machine && is_plain && url.as_str() == text).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listener_of_the_own_machine_gets_a_code() {
        for text in [
            "http://127.0.0.1:4711/",
            "http://127.0.0.1:1/callback",
            "http://[::1]:65535/",
        ] {
            assert!(loopback(text).is_some(), "{text}");
        }
        for text in [
            "",
            "/",
            "//evil.example/",
            "https://127.0.0.1:4711/",
            "http://127.0.0.1/",
            "http://127.0.0.1:80/",
            "http://localhost:4711/",
            "http://evil.example:4711/",
            "http://127.0.0.1.evil.example:4711/",
            "http://127.0.0.1:4711@evil.example:80/",
            "http://user@127.0.0.1:4711/",
            "http://user:secret@127.0.0.1:4711/",
            "http://127.0.0.1:4711/?code=mine",
            "http://127.0.0.1:4711/#fragment",
            "http://127.0.0.1:4711",
            "http://0x7f.1:4711/",
            "http://127.0.0.2:4711/",
            "http:\\\\127.0.0.1:4711/",
            " http://127.0.0.1:4711/",
            "http://127.0.0.1:47\n11/",
            "javascript:alert(1)",
            "http://[::ffff:127.0.0.1]:4711/",
        ] {
            assert!(loopback(text).is_none(), "{text}");
        }
    }
}
