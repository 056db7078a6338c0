//! The clients of a control plane: one for each identity and runtime, so that tests that look every few milliseconds do
//! not shake hands each time.

use std::collections::HashMap;
use std::fmt;

use kube::Client;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};

use super::Identity;

#[derive(Default)]
pub(super) struct Clients(Mutex<HashMap<(Id, Identity), Client>>);

impl Clients {
    /// The client of this identity in the current runtime, made on first use.
    pub(super) fn get(&self, identity: &Identity, make: impl FnOnce() -> Client) -> Client {
        let key = (Handle::current().id(), identity.clone());
        self.0.lock().entry(key).or_insert_with(make).clone()
    }

    /// Makes new ones from now on: the server that these are connected to goes.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}
