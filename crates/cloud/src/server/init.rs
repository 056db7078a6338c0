//! Initializes a server: its keys, and the first organization with its owner, who becomes an operator.

use std::path::Path;

use serde_json::Map;
use tidewaiter_kit::SharedClock;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use super::Error;
use super::keys::hash::Password;
use super::keys::sealing::Sealer;
use super::keys::signing::{KeyRing, SigningError};
use super::principal::OrgRole;
use super::refusal::Refusal;
use super::routes::organizations::new_organization;
use super::routes::users::join;
use super::serve::ServeError;
use super::store::{Author, Change, Opened, References, Row, SecretColumn, Source, Store, Transaction};
use crate::models::{Document, Kind};

/// The first organization and its owner.
#[derive(Debug)]
pub struct InitOptions<'a> {
    pub organization: &'a str,
    pub name: &'a str,
    pub email: &'a str,
    pub password: Password<'a>,
}

/// The created organization and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitSummary {
    pub organization: Uuid,
    pub owner: Uuid,
}

/// Creates the signing keys and the sealing key, if they do not exist.
///
/// # Errors
/// If they cannot be written. Existing keys are never overwritten.
pub fn make_keys(keys: &Path, sealing: &Path, clock: &SharedClock) -> Result<(), ServeError> {
    // A process that was killed may have left an empty folder.
    if !keys.exists() || matches!(KeyRing::load(keys), Err(SigningError::Empty { .. })) {
        KeyRing::create(keys, clock.now())?;
    }
    if !sealing.exists() {
        Sealer::create(sealing)?;
    }
    Ok(())
}

/// Creates the first organization in the database at `url`, and its owner.
///
/// # Errors
/// If there already is one, a name or address is invalid, or the database cannot be written.
pub async fn create_organization(
    url: &Url,
    clock: SharedClock,
    founder: InitOptions<'_>,
) -> Result<InitSummary, Error> {
    let organization = text_object(&[("name", founder.organization)]);
    let organization = Kind::Organization.read(organization.as_bytes())?;
    let user = text_object(&[("name", founder.name), ("email", founder.email)]);
    let user = Kind::User.read(user.as_bytes())?;
    let hash = founder.password.hash().map_err(Error::internal)?;
    let opened = Store::open(url, clock).await?;
    write_alone(opened, async move |transaction| {
        first(transaction, organization, user, hash).await
    })
    .await
}

/// Applies one change, and completes it, in a process that does not serve.
pub(super) async fn write_alone<T, F>(opened: Opened, change: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: AsyncFnOnce(&mut Transaction) -> Result<T, Error> + for<'t> Change<'t, T>,
{
    let Opened { store, writer, .. } = opened;
    let done = CancellationToken::new();
    let made = async {
        let made = store.write(Author::system(), change).await;
        done.cancel();
        made
    };
    let (made, _) = tokio::join!(made, writer.run(done.clone()));
    made
}

/// Returns true if the database at `url` has an organization already.
///
/// # Errors
/// If the database cannot be read.
pub async fn has_organization(url: &Url, clock: SharedClock) -> Result<bool, Error> {
    let Opened { store, .. } = Store::open(url, clock).await?;
    Ok(!store.ids(Kind::Organization).await?.is_empty())
}

pub(super) fn text_object(fields: &[(&str, &str)]) -> String {
    let fields = fields
        .iter()
        .map(|(key, value)| ((*key).to_owned(), serde_json::Value::from(*value)));
    serde_json::Value::Object(fields.collect()).to_string()
}

async fn first(
    transaction: &mut Transaction,
    organization: Document,
    user: Document,
    hash: String,
) -> Result<InitSummary, Error> {
    if !transaction.children(Kind::Organization, "").await?.is_empty() {
        let message = "the database already has an organization; log in, or use an empty database";
        return Err(Refusal::conflict(message).into());
    }
    let owner = Uuid::new_v4();
    let id = owner.to_string();
    let organization = new_organization(transaction, organization.spec, &id).await?;
    let row = |kind, parent: &str, spec, secret| Row {
        organization_id: organization.id.clone(),
        parent_id: parent.to_owned(),
        owner_id: id.clone(),
        spec,
        secret: SecretColumn(secret),
        ..Row::new(kind, &id)
    };
    let named = References {
        name: user.name,
        ..References::default()
    };
    let user = row(Kind::User, &organization.id, user.spec, String::new());
    transaction.insert(user, &named).await?;
    for (kind, secret) in [(Kind::Password, hash), (Kind::Operator, String::new())] {
        let row = row(kind, &id, Map::new(), secret);
        transaction.insert(row, &References::default()).await?;
    }
    join(transaction, &organization.id, &id, (OrgRole::Owner, None), &id).await?;
    Ok(InitSummary {
        organization: super::digest::uuid(&organization.id),
        owner,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use tidewaiter_kit::SystemClock;

    use super::*;

    #[test]
    fn keys_are_made_in_the_empty_folder_of_a_killed_process() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, sealing) = (folder.path().join("keys"), folder.path().join("sealing"));
        fs::create_dir(&keys).unwrap();
        let clock: SharedClock = Arc::new(SystemClock);
        for _ in 0..2 {
            make_keys(&keys, &sealing, &clock).unwrap();
            assert_eq!(fs::read_dir(&keys).unwrap().count(), 1);
        }
    }
}
