//! What older sealing keys sealed is sealed with the first one, so that those can leave their file: credentials, scripts,
//! and the answers that are remembered for requests with an Idempotency-Key.
//!
//! Nothing that anybody sees changes by it. What cannot be opened stays as it is and keeps nothing else back.

use super::Error;
use super::cloud::Cloud;
use super::kind::Kind;
use super::store::{Author, Sealed, Transaction};

/// The kinds whose objects hold something sealed.
const KINDS: [Kind; 3] = [Kind::Registry, Kind::Provider, Kind::UpgradeScript];

/// Seals everything that needs it; says how much that was.
///
/// # Errors
/// When the database is unusable, or something cannot be opened: then not everything is sealed with the first key.
pub(super) async fn reseal(cloud: &Cloud) -> Result<usize, Error> {
    let (mut resealed, mut unopened) = (0, None);
    for sealed in cloud.store.sealed(&KINDS).await? {
        if cloud.is_current(sealed.head()) {
            continue;
        }
        let state = cloud.clone();
        let written = cloud.store.write(Author::default(), move |transaction| {
            Box::pin(async move { anew(&state, transaction, &sealed).await })
        });
        match written.await {
            Ok(()) => resealed += 1,
            Err(error @ Error::Internal(_)) => unopened = Some(error),
            Err(error) => return Err(error),
        }
    }
    unopened.map_or(Ok(resealed), Err)
}

/// As it is now: whoever changed it meanwhile has sealed it anew, and it stays as it is where it is gone.
async fn anew(cloud: &Cloud, transaction: &mut Transaction, sealed: &Sealed) -> Result<(), Error> {
    match sealed {
        Sealed::Object { kind, id, .. } => {
            if let Some(row) = transaction.get(*kind, id).await?
                && let Some(text) = cloud.open(&row)?
            {
                let secret = cloud.seal(row.kind, &row.id, &row.organization_id, &text)?;
                transaction.reseal(&row, &secret).await?;
            }
        }
        Sealed::Remembered { principal, name, .. } => {
            if let Some(answer) = transaction.remembered(principal, name).await? {
                let answer = cloud.reseal_reply(principal, name, &answer)?;
                transaction.reseal_remembered(principal, name, &answer).await?;
            }
        }
    }
    Ok(())
}
