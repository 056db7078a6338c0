//! The code that all kinds in the table of collections share: create, read, change, delete.

use std::sync::Arc;

use super::identities::check_sign_in;
use super::manifests::{hold_changed, hold_created};
use super::prelude::*;
use super::references::{bound_teams, parse_update, refuse_past_end, resolve_references};
use super::users::only_own_key;
use crate::server::access::operators::may_delete_home;
use crate::server::access::resource_path::find;
use crate::server::access::users::may_act_for;
use crate::server::http::response_budget::with_held;
use crate::server::store::SecretColumn;

pub(super) async fn get(app: &AppState, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    let resource = ResourcePath::of(call)?;
    let mut source = &app.store;
    let row = find(&mut source, kind, &resource).await?;
    let asker = &call.caller()?.principal;
    if kind == Kind::RoleBinding && !super::roles::concerns(&row.spec, asker) {
        return Err(Refusal::not_found().into());
    }
    let secrets = call.sees_secrets(uuid(&row.organization_id));
    let item = shown(app, &row, secrets)?;
    if kind == Kind::Plugin {
        drop(row);
        return super::manifests::with_manifests(app, call, item).await;
    }
    Ok(respond(call, &item))
}

/// The representation of an object, the same for all requests, so that its ETag is unique.
async fn whole(app: &AppState, source: &mut dyn Source, row: &Row, secrets: bool) -> Result<Map<String, Value>, Error> {
    let mut item = shown(app, row, secrets)?;
    if row.kind == Kind::Plugin {
        super::manifests::add_manifests(source, &mut item).await?;
    }
    Ok(item)
}

/// The representation that the condition of a write is about. It omits credentials that cannot be decrypted, so that
/// they can be replaced, and their object deleted.
async fn seen(app: &AppState, source: &mut dyn Source, row: &Row, secrets: bool) -> Result<Map<String, Value>, Error> {
    let secrets = secrets && app.open(row).is_ok();
    whole(app, source, row, secrets).await
}

pub(super) async fn create(app: &AppState, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    if kind == Kind::Cluster {
        refuse_provisioning(&call.body)?;
    }
    let document = kind.read(&call.body)?;
    let resource = ResourcePath::of(call)?;
    let (owner, path, caller) = (call.owner(), call.path.clone(), Arc::clone(call.caller()?));
    let held = hold_created(app, call, &document).await?;
    let state = app.clone();
    let response = create_idempotent(app, call, async move |transaction| {
        let mut resource = resource;
        may_write(transaction, &mut resource, kind, &caller.principal).await?;
        let organization = home_of(transaction, kind, &resource).await?;
        let document = super::catalogue::respelled(transaction, document).await?;
        refuse_past_end(&document, None, transaction.now())?;
        bound_teams(transaction, &organization, &document, None).await?;
        only_own_key(transaction, &resource.user, &document, None).await?;
        let references = resolve_references(transaction, kind, resource.parent(kind), &organization, &document).await?;
        let id = Uuid::new_v4().to_string();
        let secret = state.sealed(kind, &id, &organization, document.credentials.as_ref(), None)?;
        let row = Row {
            organization_id: organization.clone(),
            cluster_id: resource.concerned(kind).to_owned(),
            parent_id: resource.parent(kind).to_owned(),
            owner_id: owner.clone(),
            spec: document.spec,
            secret: SecretColumn(secret),
            ..Row::new(kind, &id)
        };
        let row = transaction.insert(row, &references).await?;
        let secrets = caller.principal.sees_secrets(uuid(&organization));
        let mut item = whole(&state, transaction, &row, secrets).await?;
        let mut reply = Reply::made(format!("{path}/{id}"), &item);
        match kind {
            Kind::Plugin => reply.bare = Some(text(&shown(&state, &row, secrets)?)),
            Kind::Cluster => {
                let key = super::api_keys::add_key(transaction, &row, &owner, &mut item).await?;
                return Ok(reply.showing_once(&item).with_secret_of(&key));
            }
            Kind::SshKey => super::users::notify_other_organizations(transaction, &row).await?,
            _ => {}
        }
        Ok(reply)
    });
    Ok(with_held(response.await?, held))
}

/// Checks that the caller may change the object: the organization is not locked, and only callers who may act as a user
/// can add or remove the user's keys.
async fn may_write(
    transaction: &mut Transaction,
    resource: &mut ResourcePath,
    kind: Kind,
    asker: &Principal,
) -> Result<(), Error> {
    if resource.organization.is_empty() {
        // A user's own key: it belongs to the user's home, and concerns the user's other organizations too.
        let user = transaction.existing(Kind::User, &resource.user).await?;
        resource.organization = user.organization_id;
    }
    resource.check_parents(transaction, kind, true).await?;
    if kind == Kind::SshKey && !resource.own {
        may_act_for(transaction, asker, &resource.organization, &resource.user).await?;
    }
    Ok(())
}

/// An SSH key belongs to its user's home organization, whichever organization it was added in.
async fn home_of(transaction: &mut Transaction, kind: Kind, resource: &ResourcePath) -> Result<String, Error> {
    if kind != Kind::SshKey {
        return Ok(resource.organization.clone());
    }
    let user = transaction.existing(Kind::User, &resource.user).await?;
    Ok(user.organization_id)
}

/// In the original API, `POST` of a cluster created machines. Here, clusters are only attached.
fn refuse_provisioning(body: &[u8]) -> Result<(), Refusal> {
    let body = object(body)?;
    let wanted = ["template_id", "configuration"]
        .into_iter()
        .find(|field| body.contains_key(*field));
    wanted.map_or(Ok(()), |field| {
        let reason = "machines are not provisioned here; create the cluster with kOps or another tool, and attach it by its name alone";
        Err(Refusal::field(field, reason).with_status(http::StatusCode::NOT_IMPLEMENTED))
    })
}

/// Replaces an object, or applies a merge patch to it.
pub(super) async fn change(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (kind, patch) = (call.kind()?, call.is_patch());
    let body = object(&call.body)?;
    let mut resource = ResourcePath::of(call)?;
    let (condition, state, is_of_page) = (call.condition(), app.clone(), call.is_of_page);
    let (caller, owner) = (Arc::clone(call.caller()?), call.owner());
    let held = hold_changed(app, call, &resource.id, &body).await?;
    let response = write(app, call, async move |transaction| {
        may_write(transaction, &mut resource, kind, &caller.principal).await?;
        let before = find(transaction, kind, &resource).await?;
        let secrets = !is_of_page && caller.principal.sees_secrets(uuid(&before.organization_id));
        let seen = seen(&state, transaction, &before, secrets).await?;
        condition.check(text(&seen).as_bytes())?;
        let document = parse_update(&state, &before, &seen, body, patch)?;
        let document = super::catalogue::respelled(transaction, document).await?;
        super::catalogue::check_upgrade(transaction, &before, &document).await?;
        super::roles::refuse_escalation(transaction, &caller.principal, &before, &document).await?;
        refuse_past_end(&document, Some(&before), transaction.now())?;
        bound_teams(transaction, &before.organization_id, &document, Some(&before)).await?;
        only_own_key(transaction, &resource.user, &document, Some(&before)).await?;
        check_sign_in(&state, transaction, &owner, &document, Some(&before)).await?;
        super::identities::refuse_weaker_sign_in(transaction, &caller, &document, &before).await?;
        let references =
            resolve_references(transaction, kind, &before.parent_id, &before.organization_id, &document).await?;
        let (organization, credentials) = (&before.organization_id, document.credentials.as_ref());
        let secret = state.sealed(kind, &before.id, organization, credentials, Some(&before))?;
        let after = transaction.update(&before, document.spec, secret, &references).await?;
        if kind == Kind::SshKey && after != before {
            super::users::notify_other_organizations(transaction, &after).await?;
        }
        let item = whole(&state, transaction, &after, secrets).await?;
        Ok(Reply::ok(&item))
    });
    Ok(with_held(response.await?, held))
}

/// Deletes an object and all objects that it owns. Objects that are referred to cannot be deleted, except that bindings
/// and assignments are deleted too.
pub(super) async fn delete(app: &AppState, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    let mut resource = ResourcePath::of(call)?;
    let (condition, state, is_of_page) = (call.condition(), app.clone(), call.is_of_page);
    let caller = Arc::clone(call.caller()?);
    write(app, call, async move |transaction| {
        may_write(transaction, &mut resource, kind, &caller.principal).await?;
        let row = find(transaction, kind, &resource).await?;
        let secrets = !is_of_page && caller.principal.sees_secrets(uuid(&row.organization_id));
        let seen = seen(&state, transaction, &row, secrets).await?;
        condition.check(text(&seen).as_bytes())?;
        match kind {
            Kind::SshKey => super::users::notify_other_organizations(transaction, &row).await?,
            Kind::Organization => may_delete_home(transaction, &caller.principal, &row.id).await?,
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
