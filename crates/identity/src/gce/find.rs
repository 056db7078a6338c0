//! Finds the requested instances with few calls, so that one failing zone does not affect the others.
//!
//! A few instances are queried by name. More are looked up in one listing of all zones, by the label that kOps sets on
//! the instances of a cluster. The label decides nothing: an instance can lose it or have another cluster's, so
//! instances missing from the listing are queried by name, or, if there are too many, looked up in listings of their
//! zones.
//!
//! A listing of all zones fails as a whole when one zone does. Then each zone is listed separately, and for a while
//! directly: only the Nodes of the failing zone wait for it.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;

use futures::future::{join, join_all};
use tracing::debug;

use super::call::{Listing, NOT_REACHABLE, Reading};
use super::failure::Failure;
use super::names::{Target, Zone};
use super::query::Query;
use super::{Gce, api};
use crate::refusal::{Refusal, UnavailableCause};

/// The maximum number of instances that are queried by name concurrently: one round trip, as for a listing, without
/// unneeded rows.
const FEW: usize = 4;

/// The maximum number of zones that one query lists separately: a region has three or four.
const MAX_ZONES: usize = 32;

impl Gce {
    /// Answers each of `targets`.
    pub(super) async fn find(&self, targets: Vec<Target>, query: &Query<'_>) {
        if targets.len() <= FEW {
            return self.by_name(targets, query).await;
        }
        if self.zones_are_apart() {
            return self.zone_by_zone(targets, query).await;
        }
        let wanted: HashSet<&Target> = targets.iter().collect();
        match self.caller.all_zones(&self.filter, &wanted).await {
            Ok(listing) => self.take(api::LIST_ALL_ZONES, &targets, listing, query).await,
            Err(failure) if failure.may_depend_on_zone() => {
                debug!(outcome = failure.outcome(), "lists the zones one by one");
                self.zone_by_zone(targets, query).await;
            }
            Err(failure) => refuse_all(&targets, &failure, query),
        }
    }

    async fn by_name(&self, targets: Vec<Target>, query: &Query<'_>) {
        join_all(targets.iter().map(|target| self.one_by_name(target, query))).await;
    }

    async fn one_by_name(&self, target: &Target, query: &Query<'_>) {
        match self.caller.instance(target).await {
            Ok(reading) => self.settle([(target.clone(), reading)], query).await,
            Err(failure) if failure.is_not_found() => query.not_found(target),
            Err(failure) => query.refuse(target, failure.refusal()),
        }
    }

    /// Lists each zone separately, and records whether zones failed.
    async fn zone_by_zone(&self, targets: Vec<Target>, query: &Query<'_>) {
        let ends = in_zones(targets, query, |zone, targets| async move {
            let wanted: HashSet<&Target> = targets.iter().collect();
            let listing = self.caller.one_zone(&zone, Some(&self.filter), &wanted).await;
            let listing = listed_or_refused(listing, &targets, query)?;
            self.take(api::LIST_ZONE, &targets, listing, query).await;
            Ok(())
        })
        .await;
        self.note_zones(&ends);
    }

    /// Answers `targets` from a listing by label, and looks up missing ones elsewhere.
    async fn take(&self, api: &'static str, targets: &[Target], listing: Listing, query: &Query<'_>) {
        let mut missing = Vec::new();
        for target in targets {
            if listing.listed.contains_key(target) {
                continue;
            }
            if listing.silent.contains(target.zone.as_str()) {
                let failure = Failure::new(api, UnavailableCause::Failed, NOT_REACHABLE);
                query.refuse(target, failure.refusal());
            } else {
                missing.push(target.clone());
            }
        }
        join(self.settle_listed(api, listing, query), self.unlisted(missing, query)).await;
    }

    async fn settle_listed(&self, api: &'static str, listing: Listing, query: &Query<'_>) {
        let once = listing.listed.into_iter().map(|(target, mut rows)| {
            let count = rows.len();
            let reading = rows.pop().filter(|_| count == 1).unwrap_or_else(|| {
                let failure = Failure::unusable(api, format!("{target} is listed {count} times"));
                Err(failure.refusal())
            });
            (target, reading)
        });
        self.settle(once, query).await;
    }

    /// Looks up instances that the listing by label does not contain.
    async fn unlisted(&self, targets: Vec<Target>, query: &Query<'_>) {
        if query.take_gets(targets.len()) {
            return self.by_name(targets, query).await;
        }
        in_zones(targets, query, |zone, targets| async move {
            let wanted: HashSet<&Target> = targets.iter().collect();
            let listing = self.caller.one_zone(&zone, None, &wanted).await;
            let listing = listed_or_refused(listing, &targets, query)?;
            for target in targets.iter().filter(|target| !listing.listed.contains_key(*target)) {
                query.not_found(target);
            }
            self.settle_listed(api::LIST_ZONE, listing, query).await;
            Ok(())
        })
        .await;
    }

    /// Answers refused instances, and continues with the groups of the others.
    async fn settle(&self, found: impl IntoIterator<Item = (Target, Reading)>, query: &Query<'_>) {
        let mut running = Vec::new();
        for (target, reading) in found {
            match reading {
                Ok(found) => running.push(found),
                Err(refusal) => query.refuse(&target, refusal),
            }
        }
        self.group(running, query).await;
    }
}

/// Runs `ask` concurrently for each zone and returns the results.
async fn in_zones<'q, F>(
    targets: Vec<Target>,
    query: &Query<'_>,
    ask: impl Fn(Zone, Vec<Target>) -> F + 'q,
) -> Vec<Result<(), Failure>>
where
    F: Future<Output = Result<(), Failure>> + Send + 'q,
{
    let mut zones: BTreeMap<Zone, Vec<Target>> = BTreeMap::new();
    for target in targets {
        zones.entry(target.zone.clone()).or_default().push(target);
    }
    let mut zones: Vec<(Zone, Vec<Target>)> = zones.into_iter().collect();
    // A kubelet can name any zone, so zones named by the most Nodes go first.
    zones.sort_by_key(|(_, targets)| std::cmp::Reverse(targets.len()));
    for (_, targets) in zones.split_off(zones.len().min(MAX_ZONES)) {
        let failure = Failure::unusable(api::LIST_ZONE, format!("more than {MAX_ZONES} zones"));
        refuse_all(&targets, &failure, query);
    }
    let asked: Vec<_> = zones.into_iter().map(|(zone, targets)| ask(zone, targets)).collect();
    join_all(asked).await
}

/// A zone's listing. On failure, refuses its Nodes.
fn listed_or_refused(
    listing: Result<Listing, Failure>,
    targets: &[Target],
    query: &Query<'_>,
) -> Result<Listing, Failure> {
    listing.inspect_err(|failure| {
        if failure.is_not_found() {
            for target in targets {
                query.not_found(target);
            }
        } else {
            refuse_all(targets, failure, query);
        }
    })
}

fn refuse_all(targets: &[Target], failure: &Failure, query: &Query<'_>) {
    let refusal: Refusal = failure.refusal();
    for target in targets {
        query.refuse(target, refusal.clone());
    }
}
