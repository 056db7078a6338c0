//! The invariants at each write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_testkit::sim::{Objects, Observer, Verb, Write};

use crate::cloud::Cloud;
use crate::objects::{KINDS, Kind};
use crate::role::LEASE;
use crate::settled::INTRUDERS;

/// The names of replicas begin so.
pub const REPLICA: &str = "coordinator-";

/// The names of what people create begin so, where it is left alone.
pub const OF_A_PERSON: &str = "by-hand";

#[derive(Clone, Debug)]
pub struct Invariants {
    cloud: Cloud,
    traces: bool,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    violations: Vec<String>,
    /// When each replica started.
    started: BTreeMap<String, Duration>,
}

/// The object of the cloud that a resource is made of.
pub fn origin(resource: &str, name: &str) -> Option<(Kind, usize)> {
    let kind = KINDS
        .into_iter()
        .find(|kind| kind.resources().iter().any(|(plural, _)| *plural == resource))?;
    let number = name.rsplit('-').next()?.parse().ok()?;
    (number < INTRUDERS && Kind::name(resource, number) == name).then_some((kind, number))
}

impl Invariants {
    pub fn new(cloud: Cloud, traces: bool) -> Self {
        Self {
            cloud,
            traces,
            seen: Arc::default(),
        }
    }

    pub fn started(&self, replica: &str, now: Duration) {
        self.seen.lock().unwrap().started.insert(replica.to_owned(), now);
    }

    pub fn violated(&self, what: String) {
        if self.traces {
            println!("VIOLATED: {what}");
        }
        self.seen.lock().unwrap().violations.push(what);
    }

    pub fn violations(&self) -> Vec<String> {
        self.seen.lock().unwrap().violations.clone()
    }

    /// A replica deletes only what the cloud has said since it started, and writes only that, or what another one
    /// before it was told.
    fn mirrored(&self, write: &Write) {
        if write.name.starts_with(OF_A_PERSON) {
            self.violated(format!("of a person: {write}"));
        }
        let Some((kind, number)) = origin(&write.resource, &write.name) else {
            return;
        };
        let started = self.seen.lock().unwrap().started.get(&write.by).copied();
        // What is stored restores and corrects, but for upgrades.
        let restores = write.verb != Verb::Delete && kind != Kind::Upgrade;
        let started = started.filter(|_| !restores).unwrap_or_default();
        let said = self.cloud.lock().truth.since(started, kind, number);
        // A finalizer may keep what is deleted for a moment.
        let after = write.after().filter(|_| write.verb != Verb::Delete);
        let shown = after.map(|after| Kind::shown(&write.resource, after));
        let is_said = said.iter().any(|said| said.map(|value| format!("v{value}")) == shown);
        if !is_said {
            self.violated(format!(
                "the cloud has said {said:?} of {kind:?} {number}, not {shown:?}: {write}"
            ));
        }
    }
}

impl Observer for Invariants {
    fn sent(&mut self, by: &str, verb: Verb, resource: &str, objects: Objects<'_>) {
        if resource == "leases" {
            return;
        }
        let lease = objects.get("leases", CONTAINERSHIP_NAMESPACE, LEASE);
        let holder = lease
            .map_or(&Value::Null, |lease| &lease["spec"]["holderIdentity"])
            .as_str()
            .unwrap_or_default();
        if holder != by {
            self.violated(format!(
                "{by} gives out a {} of {resource} while {holder:?} leads",
                verb.as_str()
            ));
        }
    }

    fn written(&mut self, write: &Write, _objects: Objects<'_>) {
        if self.traces && write.resource != "leases" {
            println!("{write}");
        }
        if write.is_accepted() && write.has_changed() && write.by.starts_with(REPLICA) {
            self.mirrored(write);
        }
    }
}
