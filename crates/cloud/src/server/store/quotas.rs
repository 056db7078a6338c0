//! The maximum number of objects of each kind in an organization, and of tokens of a user, counted in the transaction
//! that creates them.

use std::collections::BTreeMap;

use prometheus::IntCounterVec;
use sqlx::Row as _;

use super::StoreError;
use super::reads::query;
use super::transaction::Transaction;
use crate::models::Kind;
use crate::server::Error;
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
    pub(super) fn limit(&self, kind: Kind) -> i64 {
        self.limits.get(&kind).copied().unwrap_or_else(|| kind.facts().quota)
    }

    fn check(&self, kind: Kind, count: i64) -> Result<(), Refusal> {
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

impl Transaction {
    /// Counts one object more of `kind`. Tokens are limited for each user instead: otherwise one user could fill the
    /// quota, and nobody else of the organization would log in any more.
    pub(super) async fn count_one(&mut self, kind: Kind, organization: &str) -> Result<(), Error> {
        let statement = "INSERT INTO counts (organization_id, kind, count) VALUES ($1, $2, 1) \
                         ON CONFLICT (organization_id, kind) DO UPDATE SET count = counts.count + 1 RETURNING count";
        let counted = query(statement, &[organization, kind.word()]);
        let counted = self.all(counted).await?;
        if kind == Kind::Token {
            return Ok(());
        }
        let count = counted.first().map(|row| row.try_get(0)).transpose()?;
        Ok(self.quotas.check(kind, count.unwrap_or_default())?)
    }

    /// Counts `number` objects less of `kind`.
    pub(super) async fn count_less(&mut self, kind: Kind, organization: &str, number: i64) -> Result<(), StoreError> {
        let statement = "UPDATE counts SET count = count - $3 WHERE organization_id = $1 AND kind = $2";
        let counted = query(statement, &[organization, kind.word()]).bind(number);
        self.run(counted).await
    }

    /// Counts `number` objects of `kind` as those of the organization `to`, whatever its quota.
    pub(super) async fn count_moved(
        &mut self,
        kind: Kind,
        from: &str,
        to: &str,
        number: i64,
    ) -> Result<(), StoreError> {
        self.count_less(kind, from, number).await?;
        let statement = "INSERT INTO counts (organization_id, kind, count) VALUES ($1, $2, $3) \
                         ON CONFLICT (organization_id, kind) DO UPDATE SET count = counts.count + excluded.count";
        self.run(query(statement, &[to, kind.word()]).bind(number)).await
    }
}
