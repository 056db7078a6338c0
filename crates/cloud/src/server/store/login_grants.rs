//! The logins that a person grants to a program, and those that wait for a security key. Each is used once and expires;
//! the number of those of one person, of one network and of all is limited.
//!
//! A code is stored as its digest. No grant is in the audit log: the token that comes of it is.

use jiff::Timestamp;
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::error::StoreError;
use super::source::{Source, query};
use super::transaction::Transaction;
use crate::server::Error;
use crate::server::refusal::Refusal;

/// The maximum number of grants of one kind.
const MAX: i64 = 4_096;
/// The maximum number of grants of one kind for one person, or for one network.
const MAX_OF_OWNER: i64 = 16;

/// The way in which a login continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantKind {
    /// The browser is redirected to the program (RFC 8252).
    Browser,
    /// The program asks until the person has typed a code (RFC 8628).
    Device,
    /// After the password, the browser sends a security key's signature or a recovery code.
    SecondFactor,
    /// After the password, the browser registers the first security key.
    FirstKey,
    /// A signed-in person registers a security key. No login comes of it.
    AnotherKey,
}

impl GrantKind {
    const ALL: [Self; 5] = [
        Self::Browser,
        Self::Device,
        Self::SecondFactor,
        Self::FirstKey,
        Self::AnotherKey,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Self::Browser => "browser",
            Self::Device => "device",
            Self::SecondFactor => "second-factor",
            Self::FirstKey => "first-key",
            Self::AnotherKey => "another-key",
        }
    }
}

/// The decision of the person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantState {
    Pending,
    Approved,
    Denied,
}

impl GrantState {
    const ALL: [Self; 3] = [Self::Pending, Self::Approved, Self::Denied];

    fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
        }
    }
}

/// A login that a person may grant, or has granted, to a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginGrant {
    /// The digest of the code with which the program gets its token.
    pub digest: String,
    pub kind: GrantKind,
    /// The person or the network that the limit is of.
    pub owner: String,
    pub state: GrantState,
    /// The id of the person who decided; empty before.
    pub user: String,
    /// The id of the token of the login that decided; empty before.
    pub token: String,
    /// The code that the person types; empty without one.
    pub user_code: String,
    /// The name of the program.
    pub client: String,
    /// The address from which the program asked; empty if it did not ask the server.
    pub address: String,
    /// The PKCE challenge (RFC 7636), or the state of a ceremony of WebAuthn with its challenge; empty without one.
    pub challenge: String,
    pub redirect_uri: String,
    /// Seconds since 1970.
    pub expires_at: i64,
}

macro_rules! select_grant {
    ($condition:literal) => {
        concat!(
            "SELECT digest, kind, owner, state, user_id, token_id, user_code, client, address, challenge, redirect_uri, \
             expires_at FROM login_grants WHERE ",
            $condition
        )
    };
}

impl LoginGrant {
    /// The grant with the code of this digest, if it has not expired.
    pub async fn with_digest(
        source: &mut dyn Source,
        digest: &str,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let found = source.fetch(select_grant!("digest = $1"), &[digest]).await?;
        Self::first(&found, now)
    }

    /// The grant with this code of a person, if it has not expired.
    pub async fn with_user_code(
        source: &mut dyn Source,
        user_code: &str,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let statement = select_grant!("user_code = $1 AND user_code <> ''");
        Self::first(&source.fetch(statement, &[user_code]).await?, now)
    }

    fn first(rows: &[AnyRow], now: Timestamp) -> Result<Option<Self>, StoreError> {
        let grant = rows.first().map(Self::read).transpose()?;
        Ok(grant.filter(|grant| grant.expires_at > now.as_second()))
    }

    fn read(row: &AnyRow) -> Result<Self, StoreError> {
        let text = |column| row.try_get::<String, _>(column);
        let (kind, state) = (text("kind")?, text("state")?);
        let damaged = || StoreError::Damaged("a row of login_grants".to_owned());
        let kind = GrantKind::ALL.into_iter().find(|known| known.word() == kind);
        let state = GrantState::ALL.into_iter().find(|known| known.word() == state);
        Ok(Self {
            digest: text("digest")?,
            kind: kind.ok_or_else(damaged)?,
            owner: text("owner")?,
            state: state.ok_or_else(damaged)?,
            user: text("user_id")?,
            token: text("token_id")?,
            user_code: text("user_code")?,
            client: text("client")?,
            address: text("address")?,
            challenge: text("challenge")?,
            redirect_uri: text("redirect_uri")?,
            expires_at: row.try_get("expires_at")?,
        })
    }
}

impl Transaction {
    /// Adds a grant. If there are as many as are permitted, one of a kind other than `browser` takes the place of the
    /// oldest pending one, of its owner or of all: nobody switches this way to log in off for others.
    ///
    /// # Errors
    /// If there are as many as are permitted, and none is displaced.
    pub async fn add_login_grant(&mut self, grant: &LoginGrant) -> Result<(), Error> {
        let kind = grant.kind.word();
        let counted =
            "SELECT COUNT(*) AS total, COUNT(CASE WHEN owner = $2 THEN 1 END) AS own FROM login_grants WHERE kind = $1";
        let counted = self.fetch(counted, &[kind, &grant.owner]).await?;
        let (total, own): (i64, i64) = match counted.first() {
            Some(row) => (row.try_get("total")?, row.try_get("own")?),
            None => (0, 0),
        };
        let of_owner = own >= MAX_OF_OWNER;
        if (of_owner || total >= MAX) && !self.displace(grant, of_owner).await? {
            let message = "too many logins wait for an approval; try again later";
            return Err(Refusal::too_many(message, 60).into());
        }
        let insert = "INSERT INTO login_grants (digest, kind, owner, state, user_id, token_id, user_code, client, address, \
                      challenge, redirect_uri, expires_at) \
                      VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        let values: [&str; 11] = [
            &grant.digest,
            kind,
            &grant.owner,
            grant.state.word(),
            &grant.user,
            &grant.token,
            &grant.user_code,
            &grant.client,
            &grant.address,
            &grant.challenge,
            &grant.redirect_uri,
        ];
        self.silent = true;
        Ok(self.run(query(insert, &values).bind(grant.expires_at)).await?)
    }

    /// Deletes the oldest pending grant of the kind of `grant`, of its owner alone if `of_owner`. Returns false if there
    /// is none, or the kind is `browser`.
    async fn displace(&mut self, grant: &LoginGrant, of_owner: bool) -> Result<bool, StoreError> {
        if grant.kind == GrantKind::Browser {
            return Ok(false);
        }
        let owner = if of_owner { &*grant.owner } else { "" };
        let delete = "DELETE FROM login_grants WHERE digest = (SELECT digest FROM login_grants WHERE kind = $2 \
                      AND state = 'pending' AND (owner = $1 OR $1 = '') ORDER BY expires_at, digest LIMIT 1) \
                      RETURNING digest";
        Ok(!self.fetch(delete, &[owner, grant.kind.word()]).await?.is_empty())
    }

    /// Stores the decision in `grant`.
    pub async fn decide_login_grant(&mut self, grant: &LoginGrant) -> Result<(), StoreError> {
        let update = "UPDATE login_grants SET state = $1, user_id = $2, token_id = $3 WHERE digest = $4";
        let values: [&str; 4] = [grant.state.word(), &grant.user, &grant.token, &grant.digest];
        self.silent = true;
        self.run(query(update, &values)).await
    }

    /// Removes a grant, which is used.
    pub async fn remove_login_grant(&mut self, grant: &LoginGrant) -> Result<(), StoreError> {
        self.silent = true;
        let delete = "DELETE FROM login_grants WHERE digest = $1";
        self.run(query(delete, &[&grant.digest])).await
    }

    /// Removes what a user has granted and no program has used: it ends with the logins of the user.
    pub async fn forget_login_grants(&mut self, user: &str) -> Result<(), StoreError> {
        self.silent = true;
        self.run(query("DELETE FROM login_grants WHERE user_id = $1", &[user]))
            .await
    }

    /// Deletes expired grants.
    pub(super) async fn expire_login_grants(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let delete = query("DELETE FROM login_grants WHERE expires_at <= $1", &[]);
        self.run(delete.bind(now.as_second())).await
    }
}
