//! The validity of tokens, from their names: the name of a token, within its user or API key, is its expiry and its id.
//! So tokens are counted and deleted by ranges of an index.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sqlx::Row as _;

use super::deadline::within;
use super::draft::References;
use super::error::StoreError;
use super::source::{Source as _, query};
use super::transaction::Transaction;
use crate::models::{Kind, UniqueName};
use crate::server::Error;

/// The tokens of a user or an API key that have not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTokens {
    pub count: i64,
    /// The id of the first token to expire; empty without tokens.
    pub first: String,
    /// The last one to expire.
    pub last: Option<(Timestamp, String)>,
}

impl References {
    /// The references of the token `id` of a user or an API key.
    pub fn of_token(parent: &str, id: &str, expires_at: Timestamp) -> Self {
        let name = format!("{} {id}", text(expires_at));
        Self {
            name: Some(UniqueName::of("id", &[("id", &name)])),
            scope: parent.to_owned(),
            ..Self::default()
        }
    }
}

impl Transaction {
    /// The tokens of a user or an API key that have not expired.
    pub async fn live_tokens(&mut self, parent: &str) -> Result<LiveTokens, StoreError> {
        let statement = "SELECT COUNT(*) AS live, COALESCE(MIN(name), '') AS first, COALESCE(MAX(name), '') AS last \
                         FROM names WHERE kind = 'tokens' AND scope_id = $1 AND name > $2";
        let found = query(statement, &[parent, &text(self.now)]);
        let found = within(found.fetch_one(&mut *self.connection)).await?;
        let split = |name: &str| {
            let (expires_at, id) = name.split_once(' ')?;
            Some((expires_at.parse().ok()?, id.to_owned()))
        };
        Ok(LiveTokens {
            count: found.try_get("live")?,
            first: split(found.try_get("first")?).map(|(_, id)| id).unwrap_or_default(),
            last: split(found.try_get("last")?),
        })
    }

    /// Ends the login of a user that expires first if the user has as many tokens as the operator permits, so that
    /// nothing that a user does keeps the user from logging in.
    pub async fn make_room_for_login(&mut self, user: &str) -> Result<(), Error> {
        let live = self.live_tokens(user).await?;
        if live.count >= self.quotas.limit(Kind::Token)
            && let Some(first) = self.get(Kind::Token, &live.first).await?
        {
            self.remove(&first).await?;
        }
        Ok(())
    }

    /// Checks that the user may have one token more.
    ///
    /// # Errors
    /// If the user has as many as the operator permits.
    pub async fn check_room_for_token(&mut self, user: &str) -> Result<(), Error> {
        let live = self.live_tokens(user).await?;
        Ok(self.quotas.check_tokens(live.count + 1)?)
    }

    /// Deletes expired tokens. No caller sees the difference, so there is no audit row and no event.
    pub(super) async fn expire_tokens(&mut self, now: Timestamp) -> Result<(), StoreError> {
        // Both by the indexes `names_of_tokens`.
        let objects = "DELETE FROM objects WHERE kind = 'tokens' AND id IN (SELECT id FROM names WHERE kind = 'tokens' \
                       AND name < $1 ORDER BY name LIMIT 1000) RETURNING organization_id";
        let names = "DELETE FROM names WHERE kind = 'tokens' AND id IN (SELECT id FROM names WHERE kind = 'tokens' \
                     AND name < $1 ORDER BY name LIMIT 1000)";
        let now = text(now);
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        for row in self.fetch(objects, &[&now]).await? {
            *counts.entry(row.try_get(0)?).or_default() += 1;
        }
        self.run(query(names, &[&now])).await?;
        for (organization, number) in counts {
            self.count_less(Kind::Token, &organization, number).await?;
        }
        Ok(())
    }
}

/// To the second, so that the order of the texts is that of the times.
fn text(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
