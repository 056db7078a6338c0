//! One query of up to 1,000 claims, and the ids in it that share a call.
//!
//! Each id is queried once, no matter how many Nodes claim it, and each claim is answered. Ids and zones that made
//! calls fail are queried separately for a while, and an outage costs one call per query. This affects only which ids
//! share a call, never an answer. It is bounded, and a success clears an entry at once.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_ec2::types::Instance;
use parking_lot::Mutex;
use tidewaiter_kit::SharedClock;

use super::call::{API, By, CallCount, MAX_FILTER_VALUES};
use super::instance::{InstanceId, Reading, Target, identity};
use crate::failure::Failure;
use crate::identifier::{AnswerFn, Claim, Identity};
use crate::refusal::Refusal;

/// The maximum number of ids in one call of EC2 without pagination.
pub(super) const MAX_IDS: usize = 1_000;

/// Longer than the maximum backoff for a refused Node, so that a bad id fails only one call.
const ID_APART: Duration = Duration::from_hours(1);

/// The time for which a zone is queried separately after a failure. Its first success ends this.
const ZONE_APART: Duration = Duration::from_mins(15);

/// Limits the remembered ids and zones: more than there are Nodes that could name them.
const MAX_IDS_APART: usize = 10_000;
const MAX_ZONES_APART: usize = 64;

/// A query and its answers.
pub(super) struct Query<'a> {
    /// The claimants of each id: the index of the claim and the zone that it names.
    asked: BTreeMap<InstanceId, Vec<(usize, Box<str>)>>,
    answers: &'a AnswerFn<'a>,
    pub(super) call_count: CallCount,
    /// True if EC2 has answered a call.
    answered: AtomicBool,
}

impl<'a> Query<'a> {
    /// Parses the claims; those without a valid instance id are refused here.
    pub(super) fn new(claims: &[Claim], answers: &'a AnswerFn<'a>) -> Self {
        let mut asked: BTreeMap<InstanceId, Vec<(usize, Box<str>)>> = BTreeMap::new();
        for (place, claim) in claims.iter().enumerate() {
            match Target::read(&claim.provider_id) {
                Ok(target) => asked.entry(target.id).or_default().push((place, target.zone)),
                Err(refusal) => answers(place, Err(refusal)),
            }
        }
        Self {
            asked,
            answers,
            call_count: CallCount::default(),
            answered: AtomicBool::new(false),
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &InstanceId> {
        self.asked.keys()
    }

    /// The zone in the first claim of `id`. It decides only which ids share a call.
    pub(super) fn zone(&self, id: &InstanceId) -> &str {
        self.claimants(id).first().map_or("", |(_, zone)| zone)
    }

    pub(super) fn has_several_zones(&self) -> bool {
        let mut zones = self.ids().map(|id| self.zone(id));
        let first = zones.next();
        zones.any(|zone| Some(zone) != first)
    }

    pub(super) fn by_zone(&self, ids: &[InstanceId]) -> Vec<(String, Vec<InstanceId>)> {
        let mut zones: BTreeMap<&str, Vec<InstanceId>> = BTreeMap::new();
        for id in ids {
            zones.entry(self.zone(id)).or_default().push(id.clone());
        }
        zones.into_iter().map(|(zone, ids)| (zone.to_owned(), ids)).collect()
    }

    /// Answers `ids` from the instances that EC2 listed. Instances that were not requested are ignored.
    pub(super) fn answer(&self, ids: &[InstanceId], instances: &[Instance], reading: &Reading) {
        self.answered.store(true, Ordering::Relaxed);
        let mut listed: BTreeMap<&str, Vec<&Instance>> = BTreeMap::new();
        for instance in instances {
            listed
                .entry(instance.instance_id().unwrap_or_default())
                .or_default()
                .push(instance);
        }
        for id in ids {
            let found = match listed.get(id.as_str()).map(Vec::as_slice) {
                None | Some([]) => Err(not_found(id)),
                Some([instance]) => identity(id, instance, reading),
                Some(several) => {
                    let several = format!("{id} is listed {} times", several.len());
                    Err(Failure::unusable(API, several).refusal())
                }
            };
            for (place, zone) in self.claimants(id) {
                (self.answers)(*place, found.clone().and_then(|identity| in_zone(identity, zone)));
            }
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn not_found(&self, ids: &[InstanceId]) {
        for id in ids {
            self.refuse(std::slice::from_ref(id), &not_found(id));
        }
    }

    pub(super) fn refuse(&self, ids: &[InstanceId], refusal: &Refusal) {
        for (place, _) in ids.iter().flat_map(|id| self.claimants(id)) {
            (self.answers)(*place, Err(refusal.clone()));
        }
    }

    fn claimants(&self, id: &InstanceId) -> &[(usize, Box<str>)] {
        self.asked.get(id).map_or(&[], Vec::as_slice)
    }
}

fn not_found(id: &InstanceId) -> Refusal {
    Refusal::NotFound {
        instance: id.to_string(),
    }
}

fn in_zone(identity: Identity, claimed: &str) -> Result<Identity, Refusal> {
    if identity.zone == claimed {
        return Ok(identity);
    }
    Err(Refusal::ZoneMismatch {
        instance: identity.instance,
        claimed: claimed.to_owned(),
        actual: identity.zone,
    })
}

/// Ids that are queried in one call.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) ids: Vec<InstanceId>,
    pub(super) by: By,
}

/// The ids and zones that made calls fail.
#[derive(Debug)]
pub(super) struct Suspects {
    clock: SharedClock,
    apart: Mutex<Apart>,
}

#[derive(Debug, Default)]
struct Apart {
    ids: HashMap<InstanceId, Duration>,
    zones: HashMap<Box<str>, Duration>,
}

impl Suspects {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            apart: Mutex::default(),
        }
    }

    /// Marks ids that EC2 does not know, or that make it fail. They are queried by filter, separately from the others.
    pub(super) fn suspect_ids<'a>(&self, ids: impl Iterator<Item = &'a InstanceId>) {
        let now = self.clock.monotonic();
        let mut apart = self.apart.lock();
        for id in ids {
            remember(&mut apart.ids, id.clone(), now, now + ID_APART, MAX_IDS_APART);
        }
    }

    /// Marks a zone whose call failed while calls for other zones succeeded.
    pub(super) fn suspect_zone(&self, zone: &str) {
        let now = self.clock.monotonic();
        remember(
            &mut self.apart.lock().zones,
            zone.into(),
            now,
            now + ZONE_APART,
            MAX_ZONES_APART,
        );
    }

    /// Clears answered ids and their zones.
    pub(super) fn clear<'a>(&self, ids: impl Iterator<Item = &'a InstanceId>, query: &Query<'_>) {
        let mut apart = self.apart.lock();
        if apart.ids.is_empty() && apart.zones.is_empty() {
            return;
        }
        for id in ids {
            apart.ids.remove(id);
            apart.zones.remove(query.zone(id));
        }
    }

    /// The initial calls: by id for all unsuspected ids, by id for each suspected zone, and by filter for suspected
    /// ids.
    pub(super) fn divide(&self, query: &Query<'_>) -> Vec<Part> {
        let now = self.clock.monotonic();
        let apart = self.apart.lock();
        let held = |until: Option<&Duration>| until.is_some_and(|until| *until > now);
        let (suspected, rest): (Vec<_>, Vec<_>) = query.ids().cloned().partition(|id| held(apart.ids.get(id)));
        let (in_trouble, clean): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|id| held(apart.zones.get(query.zone(id))));
        drop(apart);
        let zones = query.by_zone(&in_trouble).into_iter().map(|(_, ids)| ids);
        let by_id = clean.chunks(MAX_IDS).map(<[_]>::to_vec).chain(zones);
        let by_filter = suspected.chunks(MAX_FILTER_VALUES).map(<[_]>::to_vec);
        by_id
            .map(|ids| Part { ids, by: By::Id })
            .chain(by_filter.map(|ids| Part { ids, by: By::Filter }))
            .collect()
    }
}

/// Inserts a key. If the map is full, expired entries are removed; if it is still full, a new key is dropped.
fn remember<K: Eq + Hash>(apart: &mut HashMap<K, Duration>, key: K, now: Duration, until: Duration, limit: usize) {
    if apart.len() >= limit {
        apart.retain(|_, until| *until > now);
    }
    if apart.len() < limit || apart.contains_key(&key) {
        apart.insert(key, until);
    }
}

/// One part of a query finds out whether EC2 is back, while every call fails, whichever ids it names. Splitting each
/// failed call would make several calls per try for as long as EC2 is away. The parts take turns, because EC2 may come
/// back for one zone before another, and contain fewer ids each round, because one failing id in each zone looks like
/// an outage, too.
///
/// The number of queries since one failed for all ids in all zones; None if the last one did not.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<usize>>);

impl Outage {
    /// Everything has failed.
    pub(super) fn begin(&self) {
        self.0.lock().get_or_insert(0);
    }

    /// A call has succeeded.
    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }

    /// During an outage, the part of this try, and the others.
    pub(super) fn part(&self, parts: &[Part], query: &Query<'_>) -> Option<(Part, Vec<Part>)> {
        let mut turns = self.0.lock();
        let turn = turns.as_mut()?;
        let zones = |Part { ids, by }: &Part| {
            let by = *by;
            query.by_zone(ids).into_iter().map(move |(_, ids)| Part { ids, by })
        };
        let mut parts: Vec<Part> = parts.iter().flat_map(zones).collect();
        let (round, place) = (turn.checked_div(parts.len())?, *turn % parts.len());
        let mut part = parts.swap_remove(place);
        let ids = part.ids.len();
        part.ids.rotate_left(*turn % ids);
        let rest = part.ids.split_off((ids >> round.min(10)).max(1));
        if !rest.is_empty() {
            parts.push(Part { ids: rest, by: part.by });
        }
        *turn += 1;
        Some((part, parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_runs_out() {
        let second = Duration::from_secs(1);
        let mut apart = HashMap::new();
        for key in 0..5 {
            remember(&mut apart, key, second, 2 * second, 3);
        }
        assert_eq!(apart.len(), 3);
        remember(&mut apart, 0, second, 9 * second, 3);
        assert_eq!(apart[&0], 9 * second, "what is known may be renewed when it is full");
        remember(&mut apart, 7, 2 * second, 3 * second, 3);
        assert_eq!(apart.len(), 2, "what has run out makes room");
    }
}
