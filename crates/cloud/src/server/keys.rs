//! A cluster's API keys: each is shown only once, when it is created.

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::Error;
use super::call::{Call, Reply, text, unless_known};
use super::cloud::Cloud;
use super::digest::etag;
use super::hash::ApiKey;
use super::remember::made;
use super::source::{Source, Spot, cluster, found};
use super::store::{Draft, References, Row, Transaction};
use super::view::unix_millis;
use crate::models::Kind;

/// Creates a key for a cluster, and adds its text to the response, the only one that contains it.
pub(super) async fn add_key(
    transaction: &mut Transaction,
    cluster: &Row,
    owner: &str,
    item: &mut Map<String, Value>,
) -> Result<String, Error> {
    let key = ApiKey::generate().map_err(Error::internal)?;
    let id = key.id().hyphenated().to_string();
    let draft = Draft {
        kind: Kind::ApiKey,
        id: id.clone(),
        organization_id: cluster.organization_id.clone(),
        cluster_id: cluster.id.clone(),
        parent_id: cluster.id.clone(),
        owner_id: owner.to_owned(),
        spec: Map::new(),
        secret: key.hash().map_err(Error::internal)?,
        ties: References::default(),
    };
    transaction.insert(draft).await?;
    item.insert("api_key".to_owned(), Value::from(key.expose().as_str()));
    Ok(id)
}

fn key_shown(row: &Row) -> Value {
    json!({ "id": row.id, "created_at": unix_millis(&row.created_at), "owner_id": row.owner_id })
}

pub(super) async fn list_keys(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    cluster(&mut Source::Store(&cloud.store), &spot).await?;
    let rows = cloud.store.children(Kind::ApiKey, &spot.cluster).await?;
    let items: Vec<Value> = rows.iter().map(key_shown).collect();
    let body = Bytes::from(text(&items));
    Ok(unless_known(call, &etag(&body), body))
}

pub(super) async fn create_key(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let (owner, path) = (call.owner(), call.path.clone());
    made(cloud, call, move |transaction| {
        Box::pin(async move {
            spot.check(&mut Source::Transaction(transaction), Kind::ApiKey, true)
                .await?;
            let row = cluster(&mut Source::Transaction(transaction), &spot).await?;
            let mut item = Map::new();
            let id = add_key(transaction, &row, &owner, &mut item).await?;
            item.insert("id".to_owned(), Value::from(id.clone()));
            Ok(Reply::made(format!("{path}/{id}"), &item).without_etag())
        })
    })
    .await
}

pub(super) async fn delete_key(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            spot.check(&mut Source::Transaction(transaction), Kind::ApiKey, true)
                .await?;
            let row = found(&mut Source::Transaction(transaction), Kind::ApiKey, &spot).await?;
            transaction.remove(&row).await?;
            Ok(Reply::nothing())
        })
    });
    Ok(reply.await?.into_response())
}
