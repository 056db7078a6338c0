//! A cluster's API keys: each is shown only once, when it is created.

use super::lists::all;
use super::prelude::*;
use crate::server::access::resource_path::{cluster, find};
use crate::server::keys::hash::ApiKey;
use crate::server::store::SecretColumn;

/// Creates a key for a cluster, and adds its text to `item`, for the only response that contains it.
pub(super) async fn add_key(
    transaction: &mut Transaction,
    cluster: &Row,
    owner: &str,
    item: &mut Map<String, Value>,
) -> Result<Row, Error> {
    let key = ApiKey::generate().map_err(Error::internal)?;
    let id = key.id().to_string();
    let row = Row {
        organization_id: cluster.organization_id.clone(),
        cluster_id: cluster.id.clone(),
        parent_id: cluster.id.clone(),
        owner_id: owner.to_owned(),
        secret: SecretColumn(key.hash().map_err(Error::internal)?),
        ..Row::new(Kind::ApiKey, &id)
    };
    let row = transaction.insert(row, &References::default()).await?;
    item.insert("api_key".to_owned(), Value::from(key.expose().as_str()));
    Ok(row)
}

fn key_shown(row: &Row) -> Value {
    json!({ "id": row.id, "created_at": unix_millis(&row.created_at), "owner_id": row.owner_id })
}

pub(super) async fn list_keys(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    cluster(&mut &app.store, &resource).await?;
    let keys = Listed::Children(Kind::ApiKey, &resource.cluster);
    all(app, call, keys, |row| Ok(key_shown(row))).await
}

pub(super) async fn create_key(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    let (owner, path) = (call.owner(), call.path.clone());
    create_idempotent(app, call, async move |transaction| {
        resource.check_parents(transaction, Kind::ApiKey, true).await?;
        let row = cluster(transaction, &resource).await?;
        let mut item = Map::new();
        let key = add_key(transaction, &row, &owner, &mut item).await?;
        item.insert("id".to_owned(), Value::from(key.id.clone()));
        let reply = Reply::made(format!("{path}/{}", key.id), &item).without_etag();
        Ok(reply.with_secret_of(&key))
    })
    .await
}

pub(super) async fn delete_key(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    write(app, call, async move |transaction| {
        resource.check_parents(transaction, Kind::ApiKey, true).await?;
        let row = find(transaction, Kind::ApiKey, &resource).await?;
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}
