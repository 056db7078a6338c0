//! Encrypts with the first sealing key what older keys encrypted, so that older keys can be removed: credentials,
//! scripts, and the responses stored for requests with an Idempotency-Key.
//!
//! This changes nothing that a client can see. A value that cannot be decrypted stays unchanged and does not affect
//! others.

use super::Error;
use super::state::AppState;
use super::store::{Author, Sealed, Source, Store, StoreError, Transaction};
use crate::models::Kind;

/// The kinds with encrypted fields.
const KINDS: [Kind; 4] = [
    Kind::Registry,
    Kind::Provider,
    Kind::UpgradeScript,
    Kind::ScriptTemplate,
];

/// The beginnings of the encrypted values of objects, which name their keys.
pub(super) async fn heads(store: &Store) -> Result<Vec<Vec<u8>>, StoreError> {
    let sealed = store.sealed(&KINDS).await?;
    let objects = sealed.iter().filter(|sealed| matches!(sealed, Sealed::Object { .. }));
    Ok(objects.map(Sealed::head).collect())
}

/// Encrypts every value that needs it, and returns their number.
///
/// # Errors
/// If the database is unusable, or a value cannot be decrypted: then not everything is encrypted with the first key.
pub(super) async fn reseal(app: &AppState) -> Result<usize, Error> {
    let (mut resealed, mut unopened) = (0, None);
    for sealed in app.store.sealed(&KINDS).await? {
        if app.sealer.load().is_current(&sealed.head()) {
            continue;
        }
        let state = app.clone();
        let written = app.store.write(Author::default(), async move |transaction| {
            reseal_row(&state, transaction, &sealed).await
        });
        match written.await {
            Ok(()) => resealed += 1,
            Err(error @ Error::Internal(_)) => unopened = Some(error),
            Err(error) => return Err(error),
        }
    }
    unopened.map_or(Ok(resealed), Err)
}

/// Reads the current value: a concurrent change has encrypted it already, and a deleted one is skipped.
async fn reseal_row(app: &AppState, transaction: &mut Transaction, sealed: &Sealed) -> Result<(), Error> {
    match sealed {
        Sealed::Object { kind, id, .. } => {
            if let Some(row) = transaction.get(*kind, id).await?
                && let Some(text) = app.open(&row)?
            {
                let secret = app.seal(row.kind, &row.id, &row.organization_id, &text)?;
                transaction.reseal(&row, &secret).await?;
            }
        }
        Sealed::Remembered { principal, name, .. } => {
            if let Some(answer) = transaction.remembered(principal, name).await? {
                let answer = app.reseal_reply(principal, name, &answer)?;
                transaction.reseal_remembered(principal, name, &answer).await?;
            }
        }
    }
    Ok(())
}
