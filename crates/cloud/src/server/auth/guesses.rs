//! Wrong passwords, counted by account and by the address that they come from.
//!
//! Only failures count. An address from which the owner of an account logged in before has a count of its own for that
//! account: nobody locks the owner out by guessing from elsewhere. This is remembered in memory for 30 days.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use moka::future::Cache;

use crate::server::http::permits::too_soon;
use crate::server::refusal::Refusal;

/// The number of wrong passwords, before one more is permitted per six seconds.
const GUESSES: u32 = 20;
const PERIOD: Duration = Duration::from_secs(6);
/// The time for which the address of a login is remembered.
const REMEMBERED: Duration = Duration::from_hours(30 * 24);
/// Old entries are dropped beyond this number.
const KEYS: u64 = 50_000;

/// The key by which failures are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Account(String),
    Client(IpAddr),
    Both(String, IpAddr),
}

/// Counts wrong passwords, by account and by address.
#[derive(Debug)]
pub(crate) struct Guesses {
    failures: DefaultKeyedRateLimiter<Key>,
    /// The keys with too many failures, each until its period has passed.
    blocked: Cache<Key, ()>,
    proven: Cache<(String, IpAddr), ()>,
}

impl Default for Guesses {
    fn default() -> Self {
        let guesses = NonZeroU32::new(GUESSES).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(PERIOD).unwrap_or(Quota::per_minute(guesses));
        Self {
            failures: RateLimiter::keyed(quota.allow_burst(guesses)),
            blocked: Cache::builder().max_capacity(KEYS).time_to_live(PERIOD).build(),
            proven: Cache::builder().max_capacity(KEYS).time_to_live(REMEMBERED).build(),
        }
    }
}

/// One attempt, whose outcome must be reported.
#[must_use]
pub(crate) struct Attempt<'a> {
    guesses: &'a Guesses,
    account: String,
    client: IpAddr,
    /// True if the owner logged in from this address before.
    pub(crate) proven: bool,
}

impl Guesses {
    /// Begins an attempt for `account` from `client`.
    pub(crate) fn attempt(&self, account: &str, client: IpAddr) -> Result<Attempt<'_>, Refusal> {
        let attempt = Attempt {
            guesses: self,
            account: account.to_owned(),
            client,
            proven: self.proven.contains_key(&(account.to_owned(), client)),
        };
        if attempt.keys().iter().any(|key| self.blocked.contains_key(key)) {
            return Err(too_soon(PERIOD.as_secs()));
        }
        Ok(attempt)
    }
}

impl Attempt<'_> {
    fn keys(&self) -> Vec<Key> {
        let (account, client) = (self.account.clone(), self.client);
        if self.proven {
            vec![Key::Both(account, client)]
        } else {
            vec![Key::Account(account), Key::Client(client)]
        }
    }

    /// The key of the limit on concurrent hashes: the account, and for its owner the address too, so that attempts from
    /// elsewhere take nothing from the owner's.
    pub(crate) fn share(&self) -> String {
        if self.proven {
            format!("{} from {}", self.account, self.client)
        } else {
            self.account.clone()
        }
    }

    /// The owner has logged in.
    pub(crate) async fn succeeded(self) {
        self.guesses.proven.insert((self.account, self.client), ()).await;
    }

    /// The password, or what it needs beside it, was wrong.
    pub(crate) async fn failed(self) {
        let Guesses { failures, blocked, .. } = self.guesses;
        if u64::try_from(failures.len()).unwrap_or(u64::MAX) > KEYS {
            failures.retain_recent();
        }
        for key in self.keys() {
            if failures.check_key(&key).is_err() {
                blocked.insert(key, ()).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    async fn guess(guesses: &Guesses, account: &str, last: u8) -> bool {
        let Ok(attempt) = guesses.attempt(account, address(last)) else {
            return false;
        };
        attempt.failed().await;
        true
    }

    #[tokio::test]
    async fn an_owner_who_logged_in_before_is_not_locked_out() {
        let guesses = Guesses::default();
        guesses.attempt("olivia", address(1)).unwrap().succeeded().await;
        // From many addresses, each of which guesses a little.
        for last in 2..22 {
            assert!(guess(&guesses, "olivia", last).await);
        }
        while guess(&guesses, "olivia", 30).await {}
        assert!(
            !guess(&guesses, "olivia", 31).await,
            "the account has too many failures"
        );
        for _ in 0..100 {
            guesses.attempt("olivia", address(1)).unwrap().succeeded().await;
        }
        // Somebody at that address guesses too.
        while guess(&guesses, "olivia", 1).await {}
        assert!(guesses.attempt("max", address(1)).is_ok());
    }

    #[tokio::test]
    async fn an_address_that_guesses_invented_accounts_is_refused() {
        let guesses = Guesses::default();
        let mut tried = 0;
        while guess(&guesses, &format!("invented{tried}"), 1).await {
            tried += 1;
        }
        assert!(tried < 40, "{tried}");
        assert!(guess(&guesses, "another", 2).await);
    }
}
