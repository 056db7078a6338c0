//! A cluster's API keys: each is shown only once, when it is created.

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::Error;
use super::call::{Call, Reply};
use super::cloud::Cloud;
use super::hash::ApiKey;
use super::lists::all;
use super::remember::{made, written};
use super::source::{Spot, cluster, found};
use super::store::{Listed, References, Row, SecretColumn, Transaction};
use super::view::unix_millis;
use crate::models::Kind;

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

pub(super) async fn list_keys(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    cluster(&mut &cloud.store, &spot).await?;
    let keys = Listed::Children(Kind::ApiKey, &spot.cluster);
    all(cloud, call, keys, |row| Ok(key_shown(row))).await
}

pub(super) async fn create_key(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let (owner, path) = (call.owner(), call.path.clone());
    made(cloud, call, async move |transaction| {
        spot.check(transaction, Kind::ApiKey, true).await?;
        let row = cluster(transaction, &spot).await?;
        let mut item = Map::new();
        let key = add_key(transaction, &row, &owner, &mut item).await?;
        item.insert("id".to_owned(), Value::from(key.id.clone()));
        let reply = Reply::made(format!("{path}/{}", key.id), &item).without_etag();
        Ok(reply.with_secret_of(&key))
    })
    .await
}

pub(super) async fn delete_key(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    written(cloud, call, async move |transaction| {
        spot.check(transaction, Kind::ApiKey, true).await?;
        let row = found(transaction, Kind::ApiKey, &spot).await?;
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}
