//! Registry controller: makes a pull secret of the credentials of each Registry, and puts it into every namespace.
//!
//! One pass is about one Registry: it reads the credentials, tries them, or asks ECR for a token, and then says what
//! the pull secret is. [`copies`] puts that into every namespace, and the Containership controller attaches it to
//! service accounts.
//!
//! - **Make before break**: a credential replaces one that works only after the registry let it in. The pull secret in
//!   `containership-core` is written first, and is what a new leader begins with, so a restart changes nothing.
//! - Registries are independent: each waits for its own host, without a permit.
//! - The credentials are those that the cloud lists. Their copy in the cluster is read only while that is not known,
//!   and only if nobody but the mirror has written it.
//! - Nothing is sent to a host that the credentials do not name, and in the mode `secret` nothing of a Registry but its
//!   name is read.
//! - No credential is in a log, an Event, a metric or an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource as _;
use parking_lot::Mutex;
use serde_json::json;
use tidewaiter_api::names::{
    CONTAINERSHIP_NAMESPACE, CONTROLLER_LABEL, MANAGED_LABEL, MANAGED_VALUE, registry_secret_name,
};
use tidewaiter_api::values::quoted;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::{Cache, CloudCalls, Everywhere, Key, Next, Pass, Reconciler, SharedClock, Writer};

mod address;
mod board;
mod challenge;
mod copies;
mod credential;
mod ecr;
mod error;
mod pull_secret;
mod settings;
mod shelf;
mod start;
mod stored;
mod unlabelled;
mod verify;

pub use credential::check_registry;
pub use settings::RegistrySettings;
pub(super) use shelf::{Entries, Registries, RegistryLists};
pub(super) use start::start;

use address::ServerAddress;
use board::{Board, State};
use credential::{Credential, EcrLogin, Login, Source};
use error::{Copies, Failed, RegistryError};
use pull_secret::{PullSecret, SecretCopy, TokenLife};
use stored::{SecretData, StoredRegistry, StoredSecret};
use verify::{Verdict, Verify};

use crate::digest::Digest;
use crate::mirror::{Effect, RegistryCredentialsIn};

/// The longest value of a label.
const LABEL_VALUE: usize = 63;

/// A credential that works is verified again after this time (±10 %), so that one that was revoked is reported.
const RECHECK: Duration = Duration::from_hours(1);
const JITTER: f64 = 0.1;

/// A Registry may be there before the Secret with its credentials. If that is missing for longer, it is reported.
const MISSING: Duration = Duration::from_secs(5);

/// A token is renewed after this time at the earliest, whatever ECR says about its life.
const SHORTEST: Duration = Duration::from_secs(10);

struct RegistryController<V> {
    settings: RegistrySettings,
    registries: Registries,
    secrets: Cache<StoredSecret>,
    everywhere: Arc<Everywhere<SecretCopy>>,
    writer: Arc<Writer>,
    verifier: V,
    calls: CloudCalls,
    board: Board,
    clock: SharedClock,
    /// By registry: what its host let in last, and when (monotonic).
    accepted: Mutex<BTreeMap<String, (Digest, Duration)>>,
    /// By registry: since when there are no credentials (monotonic).
    missing: Mutex<BTreeMap<String, Duration>>,
}

impl<V: Verify> Reconciler for RegistryController<V> {
    const NAME: &'static str = "registry";
    type Error = Failed;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, Failed> {
        let id = pass.key().name().to_owned();
        if !self.registries.exists(&id) {
            self.registries.remove(&id);
            self.board.remove(&id);
            self.accepted.lock().remove(&id);
            self.missing.lock().remove(&id);
            return Ok(Next::UntilChanged);
        }
        if self.registries.pull_secret(&id).is_none()
            && let Some(record) = self.record(&id)
        {
            // What worked before the restart goes on working, also in new namespaces.
            self.registries.put(&id, Arc::new(record));
        }
        let Some(registry) = self.registries.get(&id) else {
            // Deleted in the cluster only: what works goes on working until the mirror has restored it.
            self.board.remove(&id);
            return Ok(Next::UntilChanged);
        };
        pass.about(registry.object_ref(&()));
        let result = self.refresh(pass, &id, &registry).await;
        let state = result.as_ref().map_or_else(RegistryError::state, |_| State::Ready);
        let current = self.registries.pull_secret(&id);
        let expires = current
            .as_ref()
            .and_then(|secret| secret.token().map(|token| token.expires));
        self.board.set(&id, state, expires);
        result.map_err(|why| Failed {
            registry: self.called(&id),
            has_copies: current.is_some(),
            why,
        })
    }
}

impl<V: Verify> RegistryController<V> {
    async fn refresh(&self, pass: &mut Pass, id: &str, registry: &StoredRegistry) -> Result<Next, RegistryError> {
        if id.len() > LABEL_VALUE {
            return Err(RegistryError::Name);
        }
        let source = match self.source(id, registry) {
            Err(RegistryError::Missing { .. }) if !self.is_missing_for_long(id) => return Ok(Next::Pending(MISSING)),
            source => source?,
        };
        self.missing.lock().remove(id);
        match source.credential()? {
            Credential::Password(login) => self.with_password(pass, id, &login).await,
            Credential::Ecr(login) => self.with_token(pass, id, &login).await,
        }
    }

    /// The name that people know it by, from the cloud, with its id. Its Registry in the cluster may be forged.
    fn called(&self, id: &str) -> String {
        let listed = self.registries.lists().map(|lists| lists.registries.effect(id));
        let Some(Effect::Listed(listed)) = listed else {
            return id.to_owned();
        };
        let mut names = [&listed.spec.description, &listed.spec.serveraddress].into_iter();
        let name = names.find(|name| !name.trim().is_empty());
        name.map_or_else(|| id.to_owned(), |name| format!("{} ({id})", quoted(name)))
    }

    /// The pull secret that was written last.
    fn record(&self, id: &str) -> Option<PullSecret> {
        let stored = self.secrets.get(&Key::namespaced(CONTAINERSHIP_NAMESPACE, id))?;
        PullSecret::of_stored(id, stored.pull_secret_of().map(|_| &*stored)?)
    }

    fn source(&self, id: &str, registry: &StoredRegistry) -> Result<Source, RegistryError> {
        let lists = self.registries.lists();
        if self.settings.registry_credentials == RegistryCredentialsIn::Inline {
            let spec = &registry.spec.0;
            return match lists.map(|lists| (lists, lists.registries.effect(id))) {
                Some((_, Effect::Listed(listed))) => Ok(listed.spec.clone().into()),
                Some((lists, _)) if !lists.registries.wrote(registry.meta(), "spec", spec) => Err(
                    RegistryError::Edited(format!("Registry {CONTAINERSHIP_NAMESPACE}/{id}")),
                ),
                _ => Ok(Source::of_spec(spec)?),
            };
        }
        let name = registry_secret_name(id);
        let listed = lists.map(|lists| (lists, lists.credentials.effect(&name)));
        if let Some((_, Effect::Listed(listed))) = &listed {
            return Ok(Source::of_data(listed.data.as_ref().unwrap_or(&SecretData::new()))?);
        }
        let secret = self.secrets.get(&Key::namespaced(CONTAINERSHIP_NAMESPACE, &name));
        let secret = secret.filter(|secret| secret.credentials_of() == Some(id));
        let Some((secret, data)) = secret
            .as_ref()
            .and_then(|secret| Some((secret, secret.data.0.as_ref()?)))
        else {
            return Err(RegistryError::Missing { id: id.to_owned() });
        };
        if listed.is_some_and(|(lists, _)| !lists.credentials.wrote(secret.meta(), "data", &json!(data))) {
            return Err(RegistryError::Edited(format!(
                "Secret {CONTAINERSHIP_NAMESPACE}/{name}"
            )));
        }
        Ok(Source::of_data(data)?)
    }

    /// Returns true if the credentials have been missing for longer than the mirror takes to write them.
    fn is_missing_for_long(&self, id: &str) -> bool {
        let now = self.clock.monotonic();
        let since = *self.missing.lock().entry(id.to_owned()).or_insert(now);
        now.saturating_sub(since) >= MISSING
    }

    async fn with_password(&self, pass: &mut Pass, id: &str, login: &Login) -> Result<Next, RegistryError> {
        let desired = Arc::new(PullSecret::of_login(id, login));
        let copies = match self.registries.pull_secret(id) {
            None => Copies::None,
            Some(current) if current.digest() == desired.digest() => Copies::Same,
            Some(_) => Copies::Earlier,
        };
        match self.verdict(pass, id, login, desired.digest()).await {
            Verdict::Refused => {
                let host = login.address.place();
                return Err(RegistryError::Refused { host, copies });
            }
            Verdict::Unknown(why) => {
                if copies == Copies::None {
                    // There is nothing to lose, and the nodes may reach what we do not.
                    self.publish(id, desired).await?;
                }
                return Err(RegistryError::Unchecked {
                    host: login.address.place(),
                    why,
                    copies,
                });
            }
            Verdict::Accepted => {}
        }
        if copies != Copies::Same {
            self.publish(id, desired).await?;
        }
        Ok(Next::After(jittered(RECHECK, JITTER)))
    }

    /// The result of a login at the registry, at most an hour old.
    async fn verdict(&self, pass: &mut Pass, id: &str, login: &Login, digest: &Digest) -> Verdict {
        let place = login.address.place();
        let is_exempt = |host: &String| host.eq_ignore_ascii_case(&place);
        if !self.settings.verify_credentials || self.settings.unverified_hosts.iter().any(is_exempt) {
            return Verdict::Accepted;
        }
        let now = self.clock.monotonic();
        let is_recent = |(known, at): &(Digest, Duration)| known == digest && now < *at + RECHECK / 2;
        if self.accepted.lock().get(id).is_some_and(is_recent) {
            return Verdict::Accepted;
        }
        let verdict = pass.outside(self.verifier.check(login)).await;
        match verdict {
            Verdict::Accepted => drop(self.accepted.lock().insert(id.to_owned(), (digest.clone(), now))),
            Verdict::Refused => drop(self.accepted.lock().remove(id)),
            Verdict::Unknown(_) => {}
        }
        verdict
    }

    async fn with_token(&self, pass: &mut Pass, id: &str, login: &EcrLogin) -> Result<Next, RegistryError> {
        let source = login.digest();
        let current = self.registries.pull_secret(id);
        let current = current.as_ref().and_then(|secret| secret.token());
        let now = self.clock.now();
        let good = current.filter(|token| token.source == source.as_str() && now < token.renews);
        if let Some(token) = good {
            return Ok(Next::After(until(token.renews, now)));
        }
        // Boxed: the future of the SDK takes 24 kB.
        let token = pass.outside(Box::pin(ecr::token(login, &self.calls))).await?;
        let now = self.clock.now();
        let life = match until(token.expires, now) {
            // Our clock is wrong.
            Duration::ZERO => RECHECK,
            life => jittered(life / 2, JITTER).max(SHORTEST),
        };
        let renews = now.saturating_add(life).unwrap_or(Timestamp::MAX);
        let own = login.address.as_ref().map(ServerAddress::key);
        let places: Vec<&str> = [Some(token.endpoint.as_str()), own].into_iter().flatten().collect();
        let secret = PullSecret::of_token(
            id,
            &places,
            (&token.username, token.password.expose()),
            &login.email,
            TokenLife {
                expires: token.expires,
                renews,
                source: source.as_str().to_owned(),
            },
        );
        self.publish(id, Arc::new(secret)).await?;
        Ok(Next::After(life))
    }

    /// This is the pull secret from now on. A new leader begins with the one in `containership-core`, so that is
    /// written first.
    async fn publish(&self, id: &str, secret: Arc<PullSecret>) -> Result<(), RegistryError> {
        let namespace = Key::new(CONTAINERSHIP_NAMESPACE);
        let written = self
            .everywhere
            .ensure_in(&self.writer, &namespace, &[&*secret], &[])
            .await;
        self.registries.put(id, secret);
        written.map(drop).map_err(RegistryError::NotWritten)
    }
}

/// The label selector of the Secrets in `containership-core` that are read.
fn selector(mode: RegistryCredentialsIn) -> String {
    match mode {
        RegistryCredentialsIn::Secret => format!("{MANAGED_LABEL}={MANAGED_VALUE}"),
        // No Secret with credentials: only what we wrote.
        RegistryCredentialsIn::Inline => format!("{MANAGED_LABEL}={MANAGED_VALUE},{CONTROLLER_LABEL}"),
    }
}

fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
