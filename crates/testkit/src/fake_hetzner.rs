//! A Hetzner Cloud of our own, for scale and for faults: the part of its API (version 1) that says what a server is,
//! over plain HTTP, so that it is reached through the real client.
//!
//! It words its answers as the API does, after the public reference: servers in pages of at most 50 with
//! `meta.pagination`, selectors of labels, errors with a code. It checks that calls bring its token.

mod instance;
mod protocol;

use std::collections::BTreeMap;

pub use instance::{FakeServer, server};

use crate::fake_cloud::FakeCloud;

/// The token that calls have to bring.
pub const TOKEN: &str = "the-token-of-the-project";

/// A Hetzner Cloud. Its calls name a server by its id, or none; no call depends on a zone.
pub type FakeHetzner = FakeCloud<Hetzner>;

/// The contents of the project.
#[derive(Debug, Default)]
pub struct Hetzner {
    servers: BTreeMap<u64, FakeServer>,
}

impl FakeHetzner {
    /// Returns the environment with which a process is let in.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![("HCLOUD_TOKEN", TOKEN.to_owned())]
    }

    /// Lists these from now on, each in place of the one with its id.
    pub fn launch(&self, servers: impl IntoIterator<Item = FakeServer>) {
        let keyed = servers.into_iter().map(|server| (server.id, server));
        self.change_cloud(|hetzner| hetzner.servers.extend(keyed));
    }

    /// Lists the server no more.
    pub fn forget(&self, id: u64) {
        self.change_cloud(|hetzner| {
            hetzner.servers.remove(&id);
        });
    }
}
