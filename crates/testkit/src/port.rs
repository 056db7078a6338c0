//! Ports for servers that cannot choose one themselves.

use std::net::TcpListener;
use std::ops::Range;

/// Below what Linux gives to outgoing connections (32768 and up), so that nobody's client sits on a port between two starts.
const PORTS: Range<u16> = 20_000..32_000;

/// A port on 127.0.0.1 that was free a moment ago.
///
/// Another process may take it before its user binds it: whoever starts a server on it must be ready to try another.
#[expect(
    clippy::disallowed_methods,
    reason = "tests that run at once must choose different ports"
)]
#[must_use]
pub fn free_port() -> u16 {
    std::iter::repeat_with(|| fastrand::u16(PORTS))
        .take(1_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of 1,000 random ports is free")
}
