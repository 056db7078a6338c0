//! Finds the requested instances with few calls, so that one failing zone does not affect the others.
//!
//! A few instances are queried by name. More are looked up in one listing of all zones, by the label that kOps sets on
//! the instances of a cluster. The label decides nothing: an instance can lose it or have another cluster's, so
//! instances missing from the listing are queried by name, or, if there are too many, looked up in listings of their
//! zones.
//!
//! A listing of all zones fails as a whole when one zone does. Then each zone is listed separately, and for a while
//! directly: only the Nodes of the failing zone wait for it.
//!
//! A listing that is refused, or whose response cannot be used (one row is enough), says nothing about single
//! instances: they are queried by name instead, a few first.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;

use futures::future::{join, join_all};
use tracing::debug;

use super::call::{Listing, NOT_REACHABLE, Reading};
use super::names::{Target, Zone};
use super::query::{MAX_NOT_LISTED, MAX_UNLISTED, Query};
use super::{Gce, api};
use crate::failure::Failure;
use crate::refusal::{Refusal, UnavailableCause};

/// The maximum number of instances that are queried by name concurrently: one round trip, as for a listing, without
/// unneeded rows.
const FEW: usize = 4;

/// The maximum number of instances that are queried by name concurrently because their listing failed.
const AT_ONCE: usize = 32;

/// The maximum number of zones that one query lists separately: a region has three or four.
const MAX_ZONES: usize = 32;

impl Gce {
    /// Answers each of `targets`.
    pub(super) async fn find(&self, targets: Vec<Target>, query: &Query<'_>) {
        if targets.len() <= FEW {
            self.by_name(&targets, query).await;
            return;
        }
        if self.zones_are_apart() {
            return self.zone_by_zone(targets, query).await;
        }
        let wanted: HashSet<&Target> = targets.iter().collect();
        match self.caller.all_zones(&self.filter, &wanted).await {
            Ok(listing) => self.take(api::LIST_ALL_ZONES, &targets, listing, query).await,
            Err(failure) if failure.may_depend_on_target() => {
                debug!(outcome = failure.outcome(), "lists the zones one by one");
                self.zone_by_zone(targets, query).await;
            }
            // It names no zone that could be missing.
            Err(failure) if failure.is_not_found() => refuse_all(&targets, &failure, query),
            Err(failure) => self.not_listed(&failure, targets, query).await,
        }
    }

    /// Queries `targets` by name, and returns whether any of the calls got a usable response.
    async fn by_name(&self, targets: &[Target], query: &Query<'_>) -> bool {
        let responses = join_all(targets.iter().map(|target| self.one_by_name(target, query))).await;
        responses.contains(&true)
    }

    async fn one_by_name(&self, target: &Target, query: &Query<'_>) -> bool {
        match self.caller.instance(target).await {
            Ok(reading) => {
                let is_usable = !reading.as_ref().is_err_and(Refusal::is_transient);
                self.settle([(target.clone(), reading)], query).await;
                is_usable
            }
            Err(failure) if failure.is_not_found() => {
                query.not_found(target);
                true
            }
            Err(failure) => {
                query.refuse(target, failure.refusal());
                false
            }
        }
    }

    /// Answers `targets`, whose listing failed. A zone that does not exist has no instances.
    async fn not_listed(&self, failure: &Failure, targets: Vec<Target>, query: &Query<'_>) {
        if failure.is_not_found() {
            for target in &targets {
                query.not_found(target);
            }
        } else if failure.may_depend_on_listing() {
            self.by_name_instead(failure, targets, query).await;
        } else {
            refuse_all(&targets, failure, query);
        }
    }

    /// Queries `targets` by name, a few first. If none of those gets a response, the failure does not depend on the
    /// listing, and the others are refused.
    async fn by_name_instead(&self, failure: &Failure, mut targets: Vec<Target>, query: &Query<'_>) {
        debug!(outcome = failure.outcome(), "queries by name what cannot be listed");
        let mut at_once = FEW;
        while !targets.is_empty() {
            let rest = targets.split_off(targets.len().min(at_once));
            if !query.take_gets(targets.len(), MAX_NOT_LISTED) {
                targets.extend(rest);
                break;
            }
            let responded = self.by_name(&targets, query).await;
            targets = rest;
            if !responded {
                break;
            }
            at_once = AT_ONCE;
        }
        refuse_all(&targets, failure, query);
    }

    /// Lists each zone separately, and records whether zones failed.
    async fn zone_by_zone(&self, targets: Vec<Target>, query: &Query<'_>) {
        let ends = in_zones(targets, query, |zone, targets| async move {
            let listing = self.one_zone(&zone, Some(&self.filter), &targets, query).await?;
            self.take(api::LIST_ZONE, &targets, listing, query).await;
            Ok(())
        })
        .await;
        self.note_zones(&ends);
    }

    /// The listing of one zone. If it fails, `targets` are answered here.
    async fn one_zone(
        &self,
        zone: &Zone,
        filter: Option<&str>,
        targets: &[Target],
        query: &Query<'_>,
    ) -> Result<Listing, Failure> {
        let wanted: HashSet<&Target> = targets.iter().collect();
        let listing = self.caller.one_zone(zone, filter, &wanted).await;
        if let Err(failure) = &listing {
            self.not_listed(failure, targets.to_vec(), query).await;
        }
        listing
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
        if query.take_gets(targets.len(), MAX_UNLISTED) {
            self.by_name(&targets, query).await;
            return;
        }
        in_zones(targets, query, |zone, targets| async move {
            let listing = self.one_zone(&zone, None, &targets, query).await?;
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

fn refuse_all(targets: &[Target], failure: &Failure, query: &Query<'_>) {
    let refusal: Refusal = failure.refusal();
    for target in targets {
        query.refuse(target, refusal.clone());
    }
}
