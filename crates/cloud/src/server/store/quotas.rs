//! The maximum number of objects of each kind in an organization, and of tokens of a user, counted in the transaction
//! that creates them.

use std::collections::BTreeMap;

use prometheus::IntCounterVec;

use crate::models::Kind;
use crate::server::refusal::Refusal;

/// The quotas of a server.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    /// The quotas that differ from [`Facts::quota`](crate::models::Facts::quota).
    pub limits: BTreeMap<Kind, i64>,
    /// Counts refusals, by kind.
    pub refused: Option<IntCounterVec>,
}

impl Quotas {
    /// The maximum number of objects of `kind` in an organization; of tokens, those of one user.
    pub(in crate::server) fn limit(&self, kind: Kind) -> i64 {
        self.limits.get(&kind).copied().unwrap_or_else(|| kind.facts().quota)
    }

    pub(super) fn check(&self, kind: Kind, count: i64) -> Result<(), Refusal> {
        let (limit, word) = (self.limit(kind), kind.word());
        let message = format!("the organization has {limit} {word}, the maximum: delete some");
        self.bound(kind, count, &message)
    }

    /// Checks the number of tokens that a user would have.
    pub(super) fn check_tokens(&self, count: i64) -> Result<(), Refusal> {
        let limit = self.limit(Kind::Token);
        let message =
            format!("you have {limit} tokens and logins, the maximum: revoke some, or wait until some expire");
        self.bound(Kind::Token, count, &message)
    }

    fn bound(&self, kind: Kind, count: i64, message: &str) -> Result<(), Refusal> {
        if count <= self.limit(kind) {
            return Ok(());
        }
        let word = kind.word();
        if let Some(refused) = &self.refused {
            refused.with_label_values(&[word]).inc();
        }
        Err(Refusal::forbidden(format!(
            "{message}, or ask the operator of the server to raise quotas.{word}"
        )))
    }
}
