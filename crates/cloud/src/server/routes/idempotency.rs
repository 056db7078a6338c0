//! Changes, and idempotent creation: a repeated request with the same Idempotency-Key gets the stored response.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderName, HeaderValue};

use super::manifests::{text_with_manifests, version_of};
use super::prelude::*;
use crate::server::http::headers::IDEMPOTENCY_KEY;
use crate::server::state::ServerState;
use crate::server::store::Change;

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Applies the change that `call` requests completely or not at all, and responds with its reply.
///
/// # Errors
/// The error of `change`, or of [`Store::write`](crate::server::store::Store::write).
pub(super) async fn write<F>(app: &AppState, call: &Call, change: F) -> Result<Response, Error>
where
    F: AsyncFnOnce(&mut Transaction) -> Result<Reply, Error> + for<'t> Change<'t, Reply>,
{
    let written = app.store.write(call.by(), async move |transaction| {
        let mut reply = change(transaction).await?;
        reply.change = transaction.last_change();
        Ok(reply)
    });
    Ok(written.await?.into_response())
}

/// Creates an object with `make`, unless an earlier request with the same key created it.
///
/// # Errors
/// If `make` refuses, the key was used for another request, or the database cannot be written.
pub(super) async fn create_idempotent<F>(app: &AppState, call: &Call, make: F) -> Result<Response, Error>
where
    F: AsyncFnOnce(&mut Transaction) -> Result<Reply, Error> + for<'t> Change<'t, Reply>,
{
    let Some(name) = call.headers.get(IDEMPOTENCY_KEY) else {
        return write(app, call, make).await;
    };
    let printable = |name: &&str| name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let name = name.to_str().ok().filter(printable);
    let name = name.filter(|name| (1..=255).contains(&name.len()));
    let name = name.ok_or_else(|| Refusal::field("Idempotency-Key", "must be 1 to 255 printable ASCII characters"))?;
    let (name, actor, state) = (name.to_owned(), call.by().actor, app.clone());
    let mut asked = call.path.clone().into_bytes();
    asked.push(0);
    asked.extend_from_slice(&call.body);
    let request = URL_SAFE_NO_PAD.encode(digest(&SHA256, &asked));
    let is_plugin = call.endpoint.kind == Some(Kind::Plugin);
    let answered = app.store.write(call.by(), async move |transaction| {
        if let Some(sealed) = transaction.remembered(&actor, &name).await? {
            let (before, mut reply) = state.unseal_reply(&actor, &name, &sealed)?;
            if before != request {
                let reason = "was already used for another request; use a new key";
                return Err(Refusal::field("Idempotency-Key", reason).into());
            }
            refuse_gone(transaction, &reply).await?;
            if is_plugin {
                let id = version_of(&serde_json::from_str(&reply.body).map_err(Error::internal)?);
                reply.body = text_with_manifests(transaction, &id, &reply.body).await?;
            }
            reply.change = transaction.last_change();
            return Ok((reply, true));
        }
        let mut reply = make(transaction).await?;
        let whole = reply.bare.take().map(|bare| std::mem::replace(&mut reply.body, bare));
        let sealed = state.seal_reply(&actor, &name, &(&*request, &reply))?;
        reply.body = whole.unwrap_or(reply.body);
        reply.change = transaction.last_change();
        transaction.remember(&actor, &name, &sealed).await?;
        Ok((reply, false))
    });
    let (reply, replayed) = answered.await?;
    let mut response = reply.into_response();
    if replayed {
        response
            .headers_mut()
            .insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Refuses to repeat a response with the secret of an object that was deleted or has expired since then: it would be a
/// credential that does not work.
async fn refuse_gone(transaction: &mut Transaction, reply: &Reply) -> Result<(), Error> {
    let Some((kind, id)) = &reply.secret_of else {
        return Ok(());
    };
    let Some(kind) = Kind::of(kind) else {
        return Ok(());
    };
    if transaction.get(kind, id).await?.is_none() {
        let made = kind.singular();
        let reason =
            format!("was used for a request that created {made}, {id}, which does not exist any more; use a new key");
        let refusal = Refusal::field("Idempotency-Key", reason);
        return Err(refusal.with_status(http::StatusCode::CONFLICT).into());
    }
    Ok(())
}

impl ServerState {
    /// A response may contain a key that is shown only once, so it is encrypted, together with the digest of the
    /// request, with which a password in the request could be guessed.
    fn seal_reply(&self, actor: &str, name: &str, remembered: &(&str, &Reply)) -> Result<String, Error> {
        self.seal(Kind::ApiKey, &format!("{actor} {name}"), "", &text(remembered))
    }

    /// Returns the response, encrypted with the current key.
    pub(crate) fn reseal_reply(&self, actor: &str, name: &str, sealed: &str) -> Result<String, Error> {
        let id = format!("{actor} {name}");
        let text = self.unseal(Kind::ApiKey, &id, "", sealed)?;
        self.seal(Kind::ApiKey, &id, "", &text)
    }

    fn unseal_reply(&self, actor: &str, name: &str, sealed: &str) -> Result<(String, Reply), Error> {
        let text = self.unseal(Kind::ApiKey, &format!("{actor} {name}"), "", sealed)?;
        serde_json::from_str(&text).map_err(Error::internal)
    }
}
