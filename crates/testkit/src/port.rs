//! Ports for servers that cannot choose one themselves.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Below what Linux gives to outgoing connections (32768 and up), so that nobody's client sits on a port between two
/// starts.
const PORTS: Range<u16> = 20_000..32_000;

/// A port on 127.0.0.1 that was free a moment ago, and that no other test gets while this process lives: the file that
/// names it is locked.
///
/// A process that is no test may take it before its user binds it.
#[must_use]
pub fn free_port() -> u16 {
    free_port_on(Ipv4Addr::LOCALHOST)
}

/// The same on another address of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "tests that run at once must choose different ports"
)]
pub(crate) fn free_port_on(address: Ipv4Addr) -> u16 {
    let locks = std::env::temp_dir().join("tidewaiter-ports");
    std::fs::create_dir_all(&locks).expect("a folder for the locks of ports");
    let is_ours = |port: &u16| {
        let Ok(lock) = File::create(locks.join(port.to_string())) else {
            return false;
        };
        let is_free = lock.try_lock().is_ok() && TcpListener::bind((address, *port)).is_ok();
        if is_free {
            // Held until the process ends.
            std::mem::forget(lock);
        }
        is_free
    };
    std::iter::repeat_with(|| fastrand::u16(PORTS))
        .take(1_000)
        .find(is_ours)
        .expect("one of 1,000 random ports is free")
}
