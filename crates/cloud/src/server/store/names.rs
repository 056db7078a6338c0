//! Names as the table `names` stores them: a long one as its digest, because PostgreSQL indexes at most 2,704 bytes.

use sqlx::AnyPool;
use tidewaiter_signature::sha256;

use super::error::StoreError;

/// The maximum length of a name that is stored as it is, in bytes.
const MAX_BYTES: usize = 512;

/// The name as it is stored.
pub(super) fn stored(name: &str) -> String {
    if name.len() <= MAX_BYTES {
        return name.to_owned();
    }
    format!("sha256:{}", sha256(name.as_bytes()))
}

/// Replaces the long names that an earlier version stored.
pub(super) async fn shorten(pool: &AnyPool) -> Result<(), StoreError> {
    let long = "SELECT kind, scope_id, name FROM names WHERE octet_length(name) > $1";
    let found: Vec<(String, String, String)> = sqlx::query_as(long)
        .bind(i64::try_from(MAX_BYTES).unwrap_or(i64::MAX))
        .fetch_all(pool)
        .await?;
    for (kind, scope, name) in found {
        sqlx::query("UPDATE names SET name = $1 WHERE kind = $2 AND scope_id = $3 AND name = $4")
            .bind(stored(&name))
            .bind(kind)
            .bind(scope)
            .bind(name)
            .execute(pool)
            .await?;
    }
    Ok(())
}
