//! Scripts in requests, in responses and in the store: of upgrades, and of templates.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use tidewaiter_signature::sha256;

use super::prelude::*;
use crate::models::UpgradeScript;
use crate::server::digest::etag;
use crate::server::http::response::unless_known;
use crate::server::store::SecretColumn;

/// The script in the body of a request.
pub(super) fn parse_script(body: &[u8]) -> Result<UpgradeScript, Refusal> {
    let script = str::from_utf8(body).map_err(|_| Refusal::field("script", "must be UTF-8"))?;
    script.parse().map_err(|error| Refusal::field("script", error))
}

/// Responds with a script.
pub(super) fn script_response(call: &Call, script: String) -> Response {
    let body = Bytes::from(script);
    let mut response = unless_known(call, &etag(&body), body);
    let shell = HeaderValue::from_static("text/x-shellscript; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, shell);
    response
}

/// Stores a script as the object `row`, encrypted because it may contain a token for joining. The spec, and so the
/// audit log, has its digest. The same script again changes nothing.
pub(super) async fn store(
    app: &AppState,
    transaction: &mut Transaction,
    mut row: Row,
    script: &UpgradeScript,
) -> Result<(), Error> {
    let text = script.as_str();
    let sha256 = sha256(text.as_bytes());
    row.spec.insert("sha256".to_owned(), sha256.into());
    let before = transaction.get(row.kind, &row.id).await?;
    if before.as_ref().is_none_or(|before| before.spec != row.spec) {
        row.secret = SecretColumn(app.seal(row.kind, &row.id, &row.organization_id, text)?);
        transaction.put(before.as_ref(), row, &References::default()).await?;
    }
    Ok(())
}
