//! The rows of the audit log that are no changes: failed logins, reads of credentials, and tokens for kube-apiservers.
//! These are too many for a row each, and a GET must not wait for a write: each subject has one row an hour with a
//! count, which the maintenance task writes within seconds. A process that is killed loses the last counts.
//!
//! Anybody can fail to log in, so the number of rows is limited: subjects beyond the limit share a row that names
//! neither an object nor an address.

mod rows;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use parking_lot::Mutex;

use super::draft::Origin;
use crate::models::Kind;

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// A wrong password or API key.
    FailedLogin,
    /// A response with credentials, or with a script, which may contain a token for joining.
    Read,
    /// A token for a kube-apiserver.
    Issue,
}

impl Action {
    /// Its name in the audit log.
    pub fn word(self) -> &'static str {
        match self {
            Self::FailedLogin => "failed-login",
            Self::Read => "read",
            Self::Issue => "issue",
        }
    }

    /// The maximum number of rows an hour: of one caller (of failed logins: of one account), and of all.
    fn most(self) -> (usize, usize) {
        match self {
            Self::FailedLogin => (16, 512),
            Self::Read | Self::Issue => (64, 8_192),
        }
    }
}

/// The subject of a row: an action of a caller on an object, from an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub action: Action,
    /// The organization; empty if it is unknown.
    pub organization: String,
    /// The cluster that it concerns, or empty.
    pub cluster: String,
    pub kind: Kind,
    /// The object; empty for a whole list, and if the object is unknown.
    pub object: String,
    /// `user:ID` or `cluster:ID`; empty if nobody logged in.
    pub actor: String,
    pub address: String,
}

impl Subject {
    /// The account or caller whose rows are limited together.
    fn holder(&self) -> (Action, String) {
        let holder = match self.action {
            Action::FailedLogin => &self.object,
            Action::Read | Action::Issue => &self.actor,
        };
        (self.action, holder.clone())
    }
}

/// A row, and what it has.
#[derive(Clone, Copy, Debug)]
struct Written {
    row: i64,
    count: u64,
    bytes: i64,
}

#[derive(Clone, Debug)]
struct Count {
    number: u64,
    first: Timestamp,
    last: Timestamp,
    /// The first request.
    origin: Origin,
    written: Option<Written>,
}

/// The counts of the hour.
#[derive(Debug, Default)]
struct Hour {
    begin: String,
    counts: BTreeMap<Subject, Count>,
    holders: HashMap<(Action, String), usize>,
    totals: HashMap<Action, usize>,
}

/// The counts that are not yet in the audit log.
#[derive(Debug, Default)]
pub(super) struct Observed(Mutex<Vec<Hour>>);

impl Observed {
    fn add(&self, mut subject: Subject, mut origin: Origin, now: Timestamp) {
        let begin = now.strftime("%Y-%m-%dT%H").to_string();
        let mut hours = self.0.lock();
        if hours.last().is_none_or(|hour| hour.begin != begin) {
            hours.push(Hour {
                begin,
                ..Hour::default()
            });
        }
        let Some(hour) = hours.last_mut() else { return };
        if !hour.counts.contains_key(&subject) {
            let (each, all) = subject.action.most();
            let holder = hour.holders.entry(subject.holder()).or_default();
            let total = hour.totals.entry(subject.action).or_default();
            if *total >= all {
                subject.organization.clear();
                subject.actor.clear();
            }
            if *holder >= each || *total >= all {
                subject.cluster.clear();
                subject.object.clear();
                subject.address.clear();
                origin = Origin::default();
            } else {
                *holder += 1;
                *total += 1;
            }
        }
        let count = hour.counts.entry(subject).or_insert_with(|| Count {
            number: 0,
            first: now,
            last: now,
            origin,
            written: None,
        });
        count.number += 1;
        count.last = now;
    }

    /// The counts that are not written yet. Removes earlier hours that are written completely.
    fn pending(&self) -> Vec<(Subject, Count)> {
        let mut hours = self.0.lock();
        let is_written = |count: &Count| count.written.is_some_and(|written| written.count == count.number);
        let last = hours.len().saturating_sub(1);
        let mut place = 0;
        hours.retain(|hour| {
            place += 1;
            place > last || !hour.counts.values().all(is_written)
        });
        let all = hours.iter().flat_map(|hour| &hour.counts);
        let pending = all.filter(|(_, count)| !is_written(count));
        pending
            .map(|(subject, count)| (subject.clone(), count.clone()))
            .collect()
    }

    fn written(&self, rows: Vec<(Subject, Timestamp, Written)>) {
        let mut hours = self.0.lock();
        for (subject, first, written) in rows {
            let counts = hours.iter_mut().filter_map(|hour| hour.counts.get_mut(&subject));
            for counted in counts.filter(|counted| counted.first == first) {
                counted.written = Some(written);
            }
        }
    }
}
