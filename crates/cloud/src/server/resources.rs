//! What is made, listed, got, changed and deleted all alike: every kind of the table of collections.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::LINK;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Error;
use super::call::{Call, Reply, object, set, text, unless_known};
use super::cloud::{Answer, Cloud};
use super::document::{self, Document};
use super::kind::Kind;
use super::principal::Principal;
use super::refusal::Refusal;
use super::remember::made;
use super::source::{Source, Spot, membership_id};
use super::store::{Draft, Name, Row, Scope, Ties, Transaction};
use super::view::{self, shown, uuid};

/// The most that are in one part of a list.
const PART: u32 = 1_000;

/// Answers with a list: from memory while nothing changed that it depends on.
pub(super) async fn list(cloud: &Cloud, call: &Call, kind: Kind) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let secrets = kind == Kind::Registry && call.known()?.principal.sees_secrets(uuid(&spot.organization));
    // A cluster sees of its organization's bindings its own.
    let bound = bound_cluster(call, kind)?;
    let key = format!("{} {:?} {secrets} {bound:?} {}", call.path, call.query, spot.user);
    if let Some(answer) = cloud.kept(&key).await
        && let Some(response) = answered(call, &answer)
    {
        return Ok(response);
    }
    let as_of = cloud.store.feed().latest();
    let mut source = Source::Store(&cloud.store);
    spot.check(&mut source, kind, false).await?;
    let rows = source.children(kind, spot.parent(kind)).await?;
    let (rows, next) = part(call, rows)?;
    let mut items = Vec::with_capacity(rows.len());
    for row in &rows {
        items.push(shown(cloud, row, secrets)?);
    }
    match kind {
        Kind::Role => super::roles::narrow(call, &mut items),
        Kind::RoleBinding => super::roles::of_cluster(bound.as_deref(), &mut items),
        _ => {}
    }
    let scope = |kind, cluster| Scope {
        kind,
        organization: uuid(&spot.organization),
        cluster: uuid(cluster),
    };
    // What stands above it may go, and a list that is not there any more is not an empty one.
    let scopes = vec![
        scope(kind, spot.concerned(kind)),
        scope(Kind::Cluster, ""),
        scope(Kind::NodePool, &spot.cluster),
        scope(Kind::Membership, ""),
    ];
    let answer = Arc::new(Answer::new(as_of, scopes, Bytes::from(text(&items)), next));
    let kept = kind != Kind::SshKey || !spot.organization.is_empty();
    if kept {
        cloud.keep(key, Arc::clone(&answer), secrets).await;
    }
    answered(call, &answer).ok_or_else(|| Error::Refused(Refusal::not_found()))
}

/// The answer, unless its body is needed and was not kept.
pub(super) fn answered(call: &Call, answer: &Answer) -> Option<Response> {
    let body = match &answer.body {
        Some(body) => body.clone(),
        None if call.has(&answer.etag) => Bytes::new(),
        None => return None,
    };
    let mut response = unless_known(call, &answer.etag, body);
    if let Some(next) = &answer.next {
        set(response.headers_mut(), LINK, &format!("<{next}>; rel=\"next\""));
    }
    Some(response)
}

/// The part of a list that was asked for, and where the next one is. Without `limit` and `after` that is all of it.
pub(super) fn part(call: &Call, mut rows: Vec<Row>) -> Result<(Vec<Row>, Option<String>), Refusal> {
    if let Some(after) = call.asked("after") {
        let place = rows.iter().position(|row| row.id == after);
        let unknown = || {
            let mut refusal = Refusal::field("after", "is the id of nothing in this list; begin again without it");
            refusal.status = http::StatusCode::BAD_REQUEST;
            refusal
        };
        rows.drain(..=place.ok_or_else(unknown)?);
    }
    let Some(limit) = call.number("limit", PART)? else {
        return Ok((rows, None));
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if rows.len() <= limit {
        return Ok((rows, None));
    }
    rows.truncate(limit);
    let last = rows.last().map(|row| row.id.clone()).unwrap_or_default();
    let rest = call.query.iter().filter(|(key, _)| key != "after");
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(rest).append_pair("after", &last);
    Ok((rows, Some(format!("{}?{}", call.path, query.finish()))))
}

/// The cluster whose bindings are asked for.
fn bound_cluster(call: &Call, kind: Kind) -> Result<Option<String>, Refusal> {
    if kind != Kind::RoleBinding {
        return Ok(None);
    }
    let asked = call.asked("cluster_id").map(Uuid::try_parse).transpose();
    let asked = asked.map_err(|_| {
        let mut refusal = Refusal::field("cluster_id", "must be the id of a cluster: a UUID");
        refusal.status = http::StatusCode::BAD_REQUEST;
        refusal
    })?;
    let bound = match call.known()?.principal {
        Principal::Cluster { id, .. } if asked.is_some_and(|asked| asked != id) => {
            return Err(Refusal::not_found());
        }
        Principal::Cluster { id, .. } => Some(id),
        Principal::User { .. } => asked,
    };
    Ok(bound.map(|id| id.hyphenated().to_string()))
}

/// Answers with one object.
pub(super) async fn get(cloud: &Cloud, call: &Call, kind: Kind) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let mut source = Source::Store(&cloud.store);
    let row = found(&mut source, kind, &spot).await?;
    let asker = &call.known()?.principal;
    if kind == Kind::RoleBinding && !super::roles::concerns(&row.spec, asker) {
        return Err(Refusal::not_found().into());
    }
    let secrets = asker.sees_secrets(uuid(&row.organization_id));
    let item = whole(cloud, &mut source, &row, secrets).await?;
    let body = Bytes::from(text(&item));
    Ok(unless_known(call, &view::etag(&body), body))
}

/// An item as it is answered, whatever was asked of it: so its ETag is one and the same.
async fn whole(cloud: &Cloud, source: &mut Source<'_>, row: &Row, secrets: bool) -> Result<Map<String, Value>, Error> {
    let mut item = shown(cloud, row, secrets)?;
    if row.kind == Kind::Plugin {
        super::catalogue::add_manifests(source, &mut item).await?;
    }
    Ok(item)
}

/// The object that the path names.
pub(super) async fn found(source: &mut Source<'_>, kind: Kind, spot: &Spot) -> Result<Row, Error> {
    spot.check(source, kind, false).await?;
    let row = source.get(kind, &spot.id).await?;
    let row = row.filter(|row| match kind {
        Kind::Organization => true,
        _ => row.parent_id == spot.parent(kind),
    });
    Ok(row.ok_or_else(Refusal::not_found)?)
}

/// Makes an object.
pub(super) async fn create(cloud: &Cloud, call: &Call, kind: Kind) -> Result<Response, Error> {
    if kind == Kind::Cluster {
        refuse_provisioning(&call.body)?;
    }
    let document = document::read(kind, &call.body)?;
    let spot = Spot::of(call)?;
    let (owner, path, known) = (
        call.owner(),
        call.path.clone(),
        Arc::clone(call.known.as_ref().ok_or_else(super::access::unknown)?),
    );
    let state = cloud.clone();
    made(cloud, call, move |transaction| {
        Box::pin(async move {
            let mut spot = spot;
            may_write(transaction, &mut spot, kind, &known.principal).await?;
            let organization = home_of(transaction, kind, &spot).await?;
            let ties = ties(transaction, kind, spot.parent(kind), &organization, &document).await?;
            let id = Uuid::new_v4().hyphenated().to_string();
            let secret = state.sealed(kind, &id, &organization, document.credentials.as_ref(), None)?;
            let draft = Draft {
                kind,
                id: id.clone(),
                organization_id: organization.clone(),
                cluster_id: spot.concerned(kind).to_owned(),
                parent_id: spot.parent(kind).to_owned(),
                owner_id: owner.clone(),
                spec: document.spec,
                secret,
                ties,
            };
            let row = transaction.insert(draft).await?;
            let secrets = known.principal.sees_secrets(uuid(&organization));
            let mut item = whole(&state, &mut Source::Transaction(transaction), &row, secrets).await?;
            match kind {
                Kind::Cluster => drop(super::clusters::add_key(transaction, &row, &owner, &mut item).await?),
                Kind::SshKey => super::members::tell_elsewhere(transaction, &row).await?,
                _ => {}
            }
            Ok(Reply::made(format!("{path}/{id}"), &item))
        })
    })
    .await
}

/// Whether whoever asks may change what is there: the organization is not locked, and who gives a user a key, or takes it
/// from him, may be that user.
async fn may_write(transaction: &mut Transaction, spot: &mut Spot, kind: Kind, asker: &Principal) -> Result<(), Error> {
    if spot.organization.is_empty() {
        // A user's own key: it concerns his home, and where else he is.
        let user = transaction.get(Kind::User, &spot.user).await?;
        spot.organization = user.ok_or_else(Refusal::not_found)?.organization_id;
    }
    spot.check(&mut Source::Transaction(transaction), kind, true).await?;
    if kind == Kind::SshKey && !spot.own {
        super::members::may_act_for(transaction, asker, &spot.organization, &spot.user).await?;
    }
    Ok(())
}

/// An SSH key is its user's home's, wherever it was added from.
async fn home_of(transaction: &mut Transaction, kind: Kind, spot: &Spot) -> Result<String, Error> {
    if kind != Kind::SshKey {
        return Ok(spot.organization.clone());
    }
    let user = transaction
        .get(Kind::User, &spot.user)
        .await?
        .ok_or_else(Refusal::not_found)?;
    Ok(user.organization_id)
}

/// The old API's `POST` of a cluster made machines. Here they are made by others.
fn refuse_provisioning(body: &[u8]) -> Result<(), Refusal> {
    let body = object(body)?;
    let wanted = ["template_id", "configuration"]
        .into_iter()
        .find(|field| body.contains_key(*field));
    wanted.map_or(Ok(()), |field| {
        Err(Refusal {
            status: http::StatusCode::NOT_IMPLEMENTED,
            message: format!("{field}: machines are not provisioned here; make the cluster with kOps or another tool, and attach it with its name alone"),
            field: Some(field.to_owned()),
            retry_after: None,
        })
    })
}

/// What other objects have to do with what `document` says, if all that it refers to is there.
pub(super) async fn ties(
    transaction: &mut Transaction,
    kind: Kind,
    parent: &str,
    organization: &str,
    document: &Document,
) -> Result<Ties, Error> {
    for used in &document.uses {
        let there = match used.kind {
            Kind::User => {
                let membership = membership_id(organization, &used.id);
                transaction.get(Kind::Membership, &membership).await?.is_some()
            }
            Kind::PluginVersion => {
                let version = transaction.get(Kind::PluginVersion, &used.id).await?;
                version.is_some_and(|version| version.spec.get("disabled") != Some(&Value::Bool(true)))
            }
            _ => {
                let row = transaction.get(used.kind, &used.id).await?;
                row.is_some_and(|row| row.organization_id == organization)
            }
        };
        if !there {
            let of = if used.kind == Kind::PluginVersion {
                "the catalogue"
            } else {
                "this organization"
            };
            let reason = format!("{} is not {} of {of}", used.id, used.kind.singular());
            return Err(Refusal::field(used.field.clone(), reason).into());
        }
    }
    let scope = if kind == Kind::User {
        String::new()
    } else {
        parent.to_owned()
    };
    Ok(Ties {
        name: document.name.clone().map(|(field, name)| Name { scope, name, field }),
        uses: document.uses.iter().map(|used| (used.kind, used.id.clone())).collect(),
    })
}

/// Replaces an object, or changes it by a merge patch.
pub(super) async fn change(cloud: &Cloud, call: &Call, kind: Kind, patch: bool) -> Result<Response, Error> {
    let body = object(&call.body)?;
    let mut spot = Spot::of(call)?;
    let (condition, by, state) = (call.condition(), call.by(), cloud.clone());
    let known = Arc::clone(call.known.as_ref().ok_or_else(super::access::unknown)?);
    let reply = cloud.store.write(by, move |transaction| {
        Box::pin(async move {
            may_write(transaction, &mut spot, kind, &known.principal).await?;
            let before = found(&mut Source::Transaction(transaction), kind, &spot).await?;
            let secrets = known.principal.sees_secrets(uuid(&before.organization_id));
            let seen = whole(&state, &mut Source::Transaction(transaction), &before, secrets).await?;
            condition.check(text(&seen).as_bytes())?;
            let document = said(&state, &before, &seen, body, patch)?;
            if kind == Kind::Plugin {
                super::catalogue::check_upgrade(transaction, &before, &document.spec).await?;
            }
            let ties = ties(transaction, kind, &before.parent_id, &before.organization_id, &document).await?;
            let secret = state.sealed(
                kind,
                &before.id,
                &before.organization_id,
                document.credentials.as_ref(),
                Some(&before),
            )?;
            let after = transaction.update(&before, document.spec, secret, &ties).await?;
            if kind == Kind::SshKey && after != before {
                super::members::tell_elsewhere(transaction, &after).await?;
            }
            let item = whole(&state, &mut Source::Transaction(transaction), &after, secrets).await?;
            Ok(Reply::ok(&item))
        })
    });
    Ok(reply.await?.into_response())
}

/// What a body says of an object that is there: with the fields that the server makes as they are, or without them.
pub(super) fn said(
    cloud: &Cloud,
    before: &Row,
    seen: &Map<String, Value>,
    mut body: Map<String, Value>,
    patch: bool,
) -> Result<Document, Error> {
    let manifests: &[&str] = match before.kind {
        Kind::Plugin => &["manifests", "jobs"],
        _ => &[],
    };
    for field in view::made(before.kind).iter().chain(manifests) {
        if let Some(value) = body.remove(*field)
            && seen.get(*field) != Some(&value)
        {
            return Err(Refusal::field(*field, "is made by the server and cannot be changed; leave it out").into());
        }
    }
    if before.kind == Kind::Role {
        super::roles::forget_ids(&mut body);
    }
    // Credentials that no answer has cannot be sent back: who says nothing of them keeps them.
    if !patch
        && before.kind == Kind::Provider
        && !body.contains_key("credentials")
        && let Some(credentials) = cloud.credentials(before)?
    {
        body.insert("credentials".to_owned(), credentials);
    }
    let whole = if patch {
        let mut whole = before.spec.clone();
        if let Some(credentials) = cloud.credentials(before)? {
            whole.insert("credentials".to_owned(), credentials);
        }
        let mut whole = Value::Object(whole);
        json_patch::merge(&mut whole, &Value::Object(body));
        whole
    } else {
        Value::Object(body)
    };
    Ok(document::read(before.kind, text(&whole).as_bytes())?)
}

/// Deletes an object and all below it. What others refer to stays, but for bindings and assignments, which go with it.
pub(super) async fn delete(cloud: &Cloud, call: &Call, kind: Kind) -> Result<Response, Error> {
    let mut spot = Spot::of(call)?;
    let (condition, state) = (call.condition(), cloud.clone());
    let known = Arc::clone(call.known.as_ref().ok_or_else(super::access::unknown)?);
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            may_write(transaction, &mut spot, kind, &known.principal).await?;
            let row = found(&mut Source::Transaction(transaction), kind, &spot).await?;
            let secrets = known.principal.sees_secrets(uuid(&row.organization_id));
            let seen = whole(&state, &mut Source::Transaction(transaction), &row, secrets).await?;
            condition.check(text(&seen).as_bytes())?;
            if kind == Kind::SshKey {
                super::members::tell_elsewhere(transaction, &row).await?;
            }
            remove(transaction, &row).await?;
            Ok(Reply::nothing())
        })
    });
    Ok(reply.await?.into_response())
}

/// Removes `row`, and what has no meaning without it.
pub(super) async fn remove(transaction: &mut Transaction, row: &Row) -> Result<(), Error> {
    if row.kind == Kind::Organization {
        for user in transaction.children(Kind::User, &row.id).await? {
            super::members::forget(transaction, &user, &row.id).await?;
        }
    } else {
        for (kind, id) in transaction.users_of(row.kind, &row.id).await? {
            match kind {
                Kind::RoleBinding if row.kind != Kind::Role => {}
                Kind::PolicyAssignment => {}
                _ => {
                    let used = row.kind.singular();
                    let message = format!(
                        "{used} is used by {} {id}: change or delete that first",
                        kind.singular()
                    );
                    return Err(Refusal::conflict(message).into());
                }
            }
            if let Some(user) = transaction.get(kind, &id).await? {
                transaction.remove(&user).await?;
            }
        }
    }
    transaction.remove(row).await?;
    Ok(())
}
