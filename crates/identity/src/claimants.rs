//! The claimants of each instance: several Nodes that claim one instance cause one query, and each is answered.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::identifier::{AnswerFn, Claim, Identity};
use crate::refusal::Refusal;

/// The instances that the claims of one query name, as the provider's type `T`.
pub(crate) struct Claimants<'a, T> {
    places: BTreeMap<T, Vec<usize>>,
    answers: &'a AnswerFn<'a>,
}

impl<'a, T: Clone + Display + Ord> Claimants<'a, T> {
    /// Parses the claims; those that `read` refuses are passed to `refused` and never queried.
    pub(crate) fn new(
        claims: &[Claim],
        answers: &'a AnswerFn<'a>,
        read: impl Fn(&Claim) -> Result<T, Refusal>,
        mut refused: impl FnMut(usize, Refusal),
    ) -> Self {
        let mut places: BTreeMap<T, Vec<usize>> = BTreeMap::new();
        for (place, claim) in claims.iter().enumerate() {
            match read(claim) {
                Ok(target) => places.entry(target).or_default().push(place),
                Err(refusal) => refused(place, refusal),
            }
        }
        Self { places, answers }
    }

    /// The claimed instances, without duplicates.
    pub(crate) fn targets(&self) -> Vec<T> {
        self.places.keys().cloned().collect()
    }

    /// Answers all claims of `target`.
    pub(crate) fn answer(&self, target: &T, result: &Result<Identity, Refusal>) {
        for place in self.places.get(target).map_or(&[][..], Vec::as_slice) {
            (self.answers)(*place, result.clone());
        }
    }

    pub(crate) fn refuse(&self, target: &T, refusal: Refusal) {
        self.answer(target, &Err(refusal));
    }

    pub(crate) fn not_found(&self, target: &T) {
        let instance = target.to_string();
        self.refuse(target, Refusal::NotFound { instance });
    }
}
