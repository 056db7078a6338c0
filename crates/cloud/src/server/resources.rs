//! The code that all kinds in the table of collections share: create, read, change, delete.

use std::sync::Arc;

use axum::response::Response;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Error;
use super::answers::with_held;
use super::call::{Call, Reply, object, respond, text};
use super::catalogue::{hold_changed, hold_created};
use super::cloud::Cloud;
use super::digest::uuid;
use super::principal::Principal;
use super::refusal::Refusal;
use super::remember::{made, written};
use super::source::{Spot, found};
use super::store::{Row, SecretColumn, Source, Transaction};
use super::ties::{bound_teams, said, ties};
use super::users::only_own_key;
use super::view::shown;
use crate::models::Kind;

/// Responds with one object.
pub(super) async fn get(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    let spot = Spot::of(call)?;
    let mut source = &cloud.store;
    let row = found(&mut source, kind, &spot).await?;
    let asker = &call.known()?.principal;
    if kind == Kind::RoleBinding && !super::roles::concerns(&row.spec, asker) {
        return Err(Refusal::not_found().into());
    }
    let secrets = asker.sees_secrets(uuid(&row.organization_id));
    let item = shown(cloud, &row, secrets)?;
    if kind == Kind::Plugin {
        drop(row);
        return super::catalogue::with_manifests(cloud, call, item).await;
    }
    Ok(respond(call, &item))
}

/// The representation of an object, the same for all requests, so that its ETag is unique.
async fn whole(cloud: &Cloud, source: &mut dyn Source, row: &Row, secrets: bool) -> Result<Map<String, Value>, Error> {
    let mut item = shown(cloud, row, secrets)?;
    if row.kind == Kind::Plugin {
        super::catalogue::add_manifests(source, &mut item).await?;
    }
    Ok(item)
}

/// The representation that the condition of a write is about. It omits credentials that cannot be decrypted, so that
/// they can be replaced, and their object deleted.
async fn seen(cloud: &Cloud, source: &mut dyn Source, row: &Row, secrets: bool) -> Result<Map<String, Value>, Error> {
    let secrets = secrets && cloud.open(row).is_ok();
    whole(cloud, source, row, secrets).await
}

/// Creates an object.
pub(super) async fn create(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    if kind == Kind::Cluster {
        refuse_provisioning(&call.body)?;
    }
    let document = kind.read(&call.body)?;
    let spot = Spot::of(call)?;
    let (owner, path, known) = (call.owner(), call.path.clone(), Arc::clone(call.known()?));
    let held = hold_created(cloud, call, &document).await?;
    let state = cloud.clone();
    let response = made(cloud, call, async move |transaction| {
        let mut spot = spot;
        may_write(transaction, &mut spot, kind, &known.principal).await?;
        let organization = home_of(transaction, kind, &spot).await?;
        let document = super::catalogue::respelled(transaction, document).await?;
        bound_teams(transaction, &organization, &document, None).await?;
        only_own_key(transaction, &spot.user, &document, None).await?;
        let ties = ties(transaction, kind, spot.parent(kind), &organization, &document).await?;
        let id = Uuid::new_v4().to_string();
        let secret = state.sealed(kind, &id, &organization, document.credentials.as_ref(), None)?;
        let row = Row {
            organization_id: organization.clone(),
            cluster_id: spot.concerned(kind).to_owned(),
            parent_id: spot.parent(kind).to_owned(),
            owner_id: owner.clone(),
            spec: document.spec,
            secret: SecretColumn(secret),
            ..Row::new(kind, &id)
        };
        let row = transaction.insert(row, &ties).await?;
        let secrets = known.principal.sees_secrets(uuid(&organization));
        let mut item = whole(&state, transaction, &row, secrets).await?;
        let mut reply = Reply::made(format!("{path}/{id}"), &item);
        match kind {
            Kind::Plugin => reply.bare = Some(text(&shown(&state, &row, secrets)?)),
            Kind::Cluster => {
                let key = super::keys::add_key(transaction, &row, &owner, &mut item).await?;
                return Ok(reply.showing_once(&item).with_secret_of(&key));
            }
            Kind::SshKey => super::users::tell_elsewhere(transaction, &row).await?,
            _ => {}
        }
        Ok(reply)
    });
    Ok(with_held(response.await?, held))
}

/// Checks that the caller may change the object: the organization is not locked, and only callers who may act as a user
/// can add or remove the user's keys.
async fn may_write(transaction: &mut Transaction, spot: &mut Spot, kind: Kind, asker: &Principal) -> Result<(), Error> {
    if spot.organization.is_empty() {
        // A user's own key: it belongs to the user's home, and concerns the user's other organizations too.
        let user = transaction.existing(Kind::User, &spot.user).await?;
        spot.organization = user.organization_id;
    }
    spot.check(transaction, kind, true).await?;
    if kind == Kind::SshKey && !spot.own {
        super::users::may_act_for(transaction, asker, &spot.organization, &spot.user).await?;
    }
    Ok(())
}

/// An SSH key belongs to its user's home organization, whichever organization it was added in.
async fn home_of(transaction: &mut Transaction, kind: Kind, spot: &Spot) -> Result<String, Error> {
    if kind != Kind::SshKey {
        return Ok(spot.organization.clone());
    }
    let user = transaction.existing(Kind::User, &spot.user).await?;
    Ok(user.organization_id)
}

/// In the original API, `POST` of a cluster created machines. Here, clusters are only attached.
fn refuse_provisioning(body: &[u8]) -> Result<(), Refusal> {
    let body = object(body)?;
    let wanted = ["template_id", "configuration"]
        .into_iter()
        .find(|field| body.contains_key(*field));
    wanted.map_or(Ok(()), |field| {
        Err(Refusal {
            status: http::StatusCode::NOT_IMPLEMENTED,
            message: format!("{field}: machines are not provisioned here; create the cluster with kOps or another tool, and attach it by its name alone"),
            field: Some(field.to_owned()),
            retry_after: None,
        })
    })
}

/// Replaces an object, or applies a merge patch to it.
pub(super) async fn change(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (kind, patch) = (call.kind()?, call.is_patch());
    let body = object(&call.body)?;
    let mut spot = Spot::of(call)?;
    let (condition, state) = (call.condition(), cloud.clone());
    let known = Arc::clone(call.known()?);
    let held = hold_changed(cloud, call, &spot.id, &body).await?;
    let response = written(cloud, call, async move |transaction| {
        may_write(transaction, &mut spot, kind, &known.principal).await?;
        let before = found(transaction, kind, &spot).await?;
        let secrets = known.principal.sees_secrets(uuid(&before.organization_id));
        let seen = seen(&state, transaction, &before, secrets).await?;
        condition.check(text(&seen).as_bytes())?;
        let document = said(&state, &before, &seen, body, patch)?;
        let document = super::catalogue::respelled(transaction, document).await?;
        super::catalogue::check_upgrade(transaction, &before, &document).await?;
        bound_teams(transaction, &before.organization_id, &document, Some(&before)).await?;
        only_own_key(transaction, &spot.user, &document, Some(&before)).await?;
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
            super::users::tell_elsewhere(transaction, &after).await?;
        }
        let item = whole(&state, transaction, &after, secrets).await?;
        Ok(Reply::ok(&item))
    });
    Ok(with_held(response.await?, held))
}

/// Deletes an object and all objects that it owns. Objects that are referred to cannot be deleted, except that bindings
/// and assignments are deleted too.
pub(super) async fn delete(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    let mut spot = Spot::of(call)?;
    let (condition, state) = (call.condition(), cloud.clone());
    let known = Arc::clone(call.known()?);
    written(cloud, call, async move |transaction| {
        may_write(transaction, &mut spot, kind, &known.principal).await?;
        let row = found(transaction, kind, &spot).await?;
        let secrets = known.principal.sees_secrets(uuid(&row.organization_id));
        let seen = seen(&state, transaction, &row, secrets).await?;
        condition.check(text(&seen).as_bytes())?;
        match kind {
            Kind::SshKey => super::users::tell_elsewhere(transaction, &row).await?,
            Kind::Organization => super::operators::may_delete_home(transaction, &known.principal, &row.id).await?,
            _ => {}
        }
        remove(transaction, &row).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// Removes `row`, and objects that have no meaning without it.
pub(super) async fn remove(transaction: &mut Transaction, row: &Row) -> Result<(), Error> {
    if row.kind == Kind::Organization {
        return super::users::disband(transaction, row).await;
    }
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
    }
    for kind in [Kind::RoleBinding, Kind::PolicyAssignment] {
        let rows = transaction.using(kind, row.kind, &row.id).await?;
        transaction.remove_all(&rows).await?;
    }
    transaction.remove(row).await
}
