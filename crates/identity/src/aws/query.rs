//! One query of up to 1,000 claims.
//!
//! Each id is queried once, no matter how many Nodes claim it, and each claim is answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_ec2::types::Instance;

use super::API;
use super::call::CallCount;
use super::failure::unusable;
use super::instance::{Reading, identity};
use super::instance_id::{InstanceId, Target};
use crate::claim::Claim;
use crate::identifier::AnswerFn;
use crate::identity::Identity;
use crate::refusal::Refusal;

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
                Some(several) => Err(unusable(API, format!("{id} is listed {} times", several.len()))),
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
