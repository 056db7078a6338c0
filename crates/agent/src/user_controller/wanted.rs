//! The keys that the Users of the cluster request, and those that are refused. Pure.
//!
//! Anyone who may write a User may let that user log in, and nothing more: an id becomes a part of a command only as
//! the UUID that it is, a key becomes a line only as the key that was parsed, and one user's bad key affects nobody
//! else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::containership::User as FullUser;
use tidewaiter_api::values::{EndTime, SshKeyLine, printable};
use tidewaiter_kit::writer::has_applied;
use uuid::Uuid;

use crate::authorized_keys::{LoginKey, Logins};

/// The controller of the coordinator that writes the Users.
const MIRROR: &str = "sync-users";

/// The keys of a user that are written.
const MAX_KEYS: usize = 64;

/// The size of all keys that are written: a third of what is read of a file.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// A key takes this much beside its data: the command and the id.
pub(super) const OVERHEAD: usize = 128;

/// A slim User.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = FullUser)]
pub struct User {
    /// With the record of which fields the mirror wrote.
    #[serde(deserialize_with = "tidewaiter_kit::slim::for_writer")]
    pub(crate) metadata: ObjectMeta,
    /// The parts of the spec that are read.
    pub(crate) spec: UserSpec,
}

/// A slim spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UserSpec {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) expires_at: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    pub(crate) ssh_keys: Vec<UserKey>,
}

/// A slim key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UserKey {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) expires_at: String,
    pub(crate) key: String,
}

/// Go writes an empty list as `null`.
fn null_is_empty<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<UserKey>, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// The logins that the Users request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The keys to write.
    pub(crate) logins: Arc<Logins>,
    /// The keys that are not written.
    pub(crate) refused: Vec<Refused>,
    /// The number of Users.
    pub(crate) users: usize,
}

/// A key that is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The name of the User object.
    pub(crate) user: String,
    /// The name of the key or its position; empty for all keys of the user.
    pub(crate) key: String,
    /// The reason, in words.
    pub(crate) reason: String,
}

impl User {
    fn object_name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The id, if it is written as the cloud writes it: any other form could be that of two users.
    pub(crate) fn id(&self) -> Option<Uuid> {
        let text = &self.spec.id;
        let id = Uuid::try_parse(text).ok()?;
        (id.hyphenated().to_string() == *text && self.object_name() == text).then_some(id)
    }

    /// The place among other users where there are too many keys.
    fn place(&self) -> Place {
        let keys = self.spec.ssh_keys.iter().map(|key| place(&key.expires_at)).min();
        keys.flatten().max(place(&self.spec.expires_at))
    }

    /// Returns true if the id and the keys are as the mirror of the cloud wrote them.
    fn is_of_mirror(&self) -> bool {
        let wrote = |field| has_applied(MIRROR, &self.metadata, &["spec", field]);
        wrote("id") && wrote("ssh_keys")
    }
}

/// The place of a key where there are too many: the access that does not end is first, then that which ends last.
type Place = Option<Reverse<EndTime>>;

/// The place of a key with this end.
fn place(expires_at: &str) -> Place {
    EndTime::of_field(expires_at).map(Reverse)
}

/// The logins that `users` request. A User that is being deleted requests nothing, however long a finalizer keeps it:
/// a finalizer prolongs no access that the cloud has ended. A key that has ended is requested with its end, because an
/// end is no removal, which may have to wait. Where there are too many keys, those who can log in (`first`) keep
/// theirs: nobody takes their place by new Users. Where a mirror of the cloud writes the Users (`is_mirrored`), one
/// that somebody else has made or edited changes nothing: who can log in keeps the keys that the node has, until the
/// mirror has undone it.
pub(crate) fn wanted<U: AsRef<User>>(users: impl IntoIterator<Item = U>, first: &Logins, is_mirrored: bool) -> Wanted {
    let mut wanted = Wanted::default();
    let (mut owners, mut bytes) = (BTreeMap::new(), 0);
    let mut by_id = BTreeMap::new();
    for user in users {
        if user.as_ref().metadata.deletion_timestamp.is_some() {
            wanted.refuse(
                user.as_ref(),
                "",
                "the User is being deleted, so nobody logs in as it: remove the finalizer that keeps it, and the mirror of the cloud makes it again \
                 if the cloud has the user",
            );
            continue;
        }
        wanted.users += 1;
        match user.as_ref().id() {
            Some(id) if is_mirrored && !user.as_ref().is_of_mirror() => {
                wanted.keep(id, first, &mut owners, &mut bytes);
                wanted.refuse(
                    user.as_ref(),
                    "",
                    "somebody else than the mirror of the cloud has written the User; it has the keys that it had, until the mirror restores it",
                );
            }
            Some(id) => {
                by_id.insert(id, user);
            }
            None => wanted.refuse(
                user.as_ref(),
                "",
                "the id must be a UUID in lower case, and the name of the object",
            ),
        }
    }
    let mut users: Vec<_> = by_id.iter().collect();
    users.sort_by_cached_key(|&(id, user)| (!first.contains_key(id), user.as_ref().place()));
    for (id, user) in users {
        wanted.add(*id, user.as_ref(), &mut owners, &mut bytes);
    }
    wanted
}

impl Wanted {
    fn refuse(&mut self, user: &User, key: &str, reason: impl Into<String>) {
        self.refused.push(Refused {
            user: printable(user.object_name()),
            key: printable(key).chars().take(64).collect(),
            reason: reason.into(),
        });
    }

    /// The user keeps the keys that it has.
    fn keep(&mut self, id: Uuid, first: &Logins, owners: &mut BTreeMap<String, Uuid>, bytes: &mut usize) {
        let Some(keys) = first.get(&id) else { return };
        *bytes += keys.iter().map(|key| key.data.len() + OVERHEAD).sum::<usize>();
        owners.extend(keys.iter().map(|key| (key.data.clone(), id)));
        Arc::make_mut(&mut self.logins).insert(id, keys.clone());
    }

    /// `owners` has the user of each key that is written.
    fn add(&mut self, id: Uuid, user: &User, owners: &mut BTreeMap<String, Uuid>, bytes: &mut usize) {
        let mut own = BTreeSet::new();
        let end_of_user = EndTime::of_field(&user.spec.expires_at);
        let mut keys: Vec<_> = user.spec.ssh_keys.iter().enumerate().collect();
        keys.sort_by_cached_key(|(_, given)| place(&given.expires_at));
        if keys.len() > MAX_KEYS {
            let reason =
                format!("only {MAX_KEYS} keys of a user are written: those that end last, and the first of them");
            self.refuse(user, "", reason);
            keys.truncate(MAX_KEYS);
        }
        for (index, given) in keys {
            let position = format!("number {}", index + 1);
            let name = if given.name.is_empty() { &position } else { &given.name };
            let key = match SshKeyLine::parse(&given.key) {
                Ok(key) => LoginKey {
                    end: [end_of_user, EndTime::of_field(&given.expires_at)]
                        .into_iter()
                        .flatten()
                        .min(),
                    ..LoginKey::from(&key)
                },
                Err(rule) => {
                    self.refuse(user, name, format!("the key {rule}"));
                    continue;
                }
            };
            if !own.insert(key.data.clone()) {
                continue;
            }
            if let Some(other) = owners.get(&key.data) {
                let reason =
                    format!("the key is also that of the user {other}, and sshd could not tell whose login it is");
                self.refuse(user, name, reason);
                continue;
            }
            let size = key.data.len() + OVERHEAD;
            if *bytes + size > MAX_BYTES {
                self.refuse(
                    user,
                    name,
                    format!("the keys of all users take more than {MAX_BYTES} bytes"),
                );
                continue;
            }
            *bytes += size;
            owners.insert(key.data.clone(), id);
            Arc::make_mut(&mut self.logins).entry(id).or_default().push(key);
        }
    }
}

#[cfg(test)]
mod tests;
