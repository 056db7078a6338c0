//! The users of an organization. A user's home is the organization that created the user: only its admins, and the
//! user, can change the user. Of a user with permissions elsewhere, admins change only the end of the access.
//!
//! No caller gets more permissions over a user than the caller has: anyone who can set a password can act as that user.

use std::collections::HashMap;

use super::lists::{Page, cached};
use super::prelude::*;
use super::references::{parse_update, refuse_past, refuse_past_end, take_end};
use super::representation::all_shown;
use super::users::{
    change_role, create_user, delete_user, join_existing, parse_end_tokens, remove_member, replace_password, rewrite,
};
use crate::models::Document;
use crate::server::access::organizations::unlocked;
use crate::server::access::resource_path::cluster;
use crate::server::access::users::{
    at_home, end_of, is_read_only, may_act_for, may_end, never_ends, not_the_last_owner, only_owners_make_owners,
    role_of,
};
use crate::server::auth::passwords::hash_password;
use crate::server::http::call::refuse_others;
use crate::server::http::list_cache::{CacheScope, CachedList};
use crate::server::http::response_budget::Held;
use crate::server::store::{Scope, membership_id};

/// The field of a member with the end of the membership.
const ROLE_END: &str = "role_expires_at";

/// A member of an organization.
struct Member {
    membership: Row,
    user: Row,
    keys: Vec<Row>,
}

impl Member {
    /// The representation of a member. A cluster does not receive the keys of read-only users, and the earlier one of
    /// two ends is that of the user, which it enforces.
    fn shown(&self, app: &AppState, to: &Principal) -> Result<Map<String, Value>, Error> {
        let mut item = shown(app, &self.user, false)?;
        item.remove("phone");
        item.insert("added_at".to_owned(), unix_millis(&self.membership.created_at));
        let role = self.membership.spec.get("role").cloned().unwrap_or_default();
        let hidden = matches!(to, Principal::Cluster { .. }) && is_read_only(&self.membership);
        let keys = all_shown(app, self.keys.iter().filter(|_| !hidden), false)?;
        item.insert("role".to_owned(), role);
        item.insert("ssh_keys".to_owned(), json!(keys));
        let end = end_of(&self.membership);
        if matches!(to, Principal::Cluster { .. }) {
            let ends = [end_of(&self.user), end].into_iter().flatten();
            item.extend(ends.min().map(|end| ("expires_at".to_owned(), json!(end))));
        } else {
            let is_home = self.user.organization_id == self.membership.organization_id;
            item.insert("home".to_owned(), Value::Bool(is_home));
            item.extend(end.map(|end| (ROLE_END.to_owned(), json!(end))));
        }
        Ok(item)
    }

    async fn find(source: &mut dyn Source, organization: &str, user: &str) -> Result<Self, Error> {
        let membership = source
            .existing(Kind::Membership, &membership_id(organization, user))
            .await?;
        let row = source.existing(Kind::User, user).await?;
        let keys = source.children(Kind::SshKey, user).await?;
        Ok(Self {
            membership,
            user: row,
            keys,
        })
    }
}

/// The users of an organization; below a cluster, only those who may log in on its nodes.
pub(super) async fn list(app: &AppState, call: &Call, of_cluster: bool) -> Result<Response, Error> {
    let organization = call.key("organization_id")?;
    let to = &call.caller()?.principal;
    let is_cluster = matches!(to, Principal::Cluster { .. });
    let key = format!("{} {:?} {is_cluster}", call.path, call.query);
    cached(app, call, &key, CacheScope::Everything, || {
        computed(app, call, &organization, of_cluster)
    })
    .await
}

async fn computed(
    app: &AppState,
    call: &Call,
    organization: &str,
    of_cluster: bool,
) -> Result<(CachedList, Held), Error> {
    let as_of = app.store.feed().latest();
    if of_cluster {
        cluster(&mut &app.store, &ResourcePath::of(call)?).await?;
    }
    let to = &call.caller()?.principal;
    let listed = Listed::Children(Kind::Membership, organization);
    let mut page = Page::begin(app, call, listed).await?;
    loop {
        let rows = page.next(app, listed).await?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            break;
        };
        let range = (first.position, last.position);
        for member in with_users(app, organization, range, rows).await? {
            if !(of_cluster && is_read_only(&member.membership)) {
                let item = member.shown(app, to)?;
                page.push(&member.user.id, member.membership.position, &item)?;
            }
        }
    }
    let scope = |kind| Scope {
        kind,
        organization: uuid(organization),
        cluster: Uuid::nil(),
    };
    let mut scopes = [Kind::User, Kind::SshKey, Kind::Membership].map(scope).to_vec();
    if of_cluster {
        // The cluster may be deleted, and a list that no longer exists is not an empty one.
        scopes.push(Scope {
            cluster: call.id("cluster_id")?,
            ..scope(Kind::Cluster)
        });
    }
    page.end(as_of, scopes)
}

/// The members whose memberships are `rows`, which have the positions of `range`.
async fn with_users(
    app: &AppState,
    organization: &str,
    range: (i64, i64),
    rows: Vec<Row>,
) -> Result<Vec<Member>, Error> {
    let (users, all_keys) = app.store.members(organization, range).await?;
    let mut users: HashMap<String, Row> = users.into_iter().map(|user| (user.id.clone(), user)).collect();
    let mut keys: HashMap<String, Vec<Row>> = HashMap::new();
    for key in all_keys {
        keys.entry(key.parent_id.clone()).or_default().push(key);
    }
    let member = |membership: Row| {
        let user = users.remove(membership.text("user_id")?)?;
        let keys = keys.remove(&user.id).unwrap_or_default();
        Some(Member { membership, user, keys })
    };
    Ok(rows.into_iter().filter_map(member).collect())
}

pub(super) async fn get(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut source = &app.store;
    let member = Member::find(&mut source, &call.key("organization_id")?, &call.key("user_id")?).await?;
    Ok(respond(call, &member.shown(app, &call.caller()?.principal)?))
}

/// The role in `body`.
pub(super) fn parse_role(body: &mut Map<String, Value>) -> Result<Option<OrgRole>, Refusal> {
    let Some(sent) = body.remove("role") else {
        return Ok(None);
    };
    let role = sent.as_str().and_then(OrgRole::of);
    let words = OrgRole::ALL.map(OrgRole::word).join(", ");
    role.map(Some)
        .ok_or_else(|| Refusal::field("role", format!("must be one of {words}")))
}

pub(super) async fn create(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let role = parse_role(&mut body)?.unwrap_or(OrgRole::Member);
    let end = take_end(&mut body, ROLE_END)?;
    let password = hash_password(app, call, &mut body, "password").await?;
    let document = Kind::User.read_value(&Value::Object(body))?;
    let organization = call.key("organization_id")?;
    let asker = call.caller()?.principal.clone();
    only_owners_make_owners(&asker, &organization, role)?;
    let (state, path, owner) = (app.clone(), call.path.clone(), call.owner());
    create_idempotent(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        refuse_past_end(&document, None, transaction.now())?;
        refuse_past(ROLE_END, end.as_ref(), None, transaction.now())?;
        let id = Uuid::new_v4().to_string();
        let role = (role, end.as_ref());
        let (user, membership) = create_user(
            transaction,
            (id.as_str(), owner.as_str()),
            &organization,
            document,
            password,
            role,
        )
        .await?;
        let member = Member {
            membership,
            user,
            keys: Vec::new(),
        };
        Ok(Reply::made(format!("{path}/{id}"), &member.shown(&state, &asker)?))
    })
    .await
}

/// Checks the end of a member's access, if `document` changes it: nobody prolongs the own access, and that of an owner
/// of any organization does not end.
async fn check_end(
    transaction: &mut Transaction,
    asker: &Principal,
    member: &Member,
    document: &Document,
) -> Result<(), Error> {
    let set = document.spec.get("expires_at");
    if set == member.user.spec.get("expires_at") {
        return Ok(());
    }
    refuse_past_end(document, Some(&member.user), transaction.now())?;
    if asker.user() == Some(uuid(&member.user.id)) {
        let message = "expires_at: only another admin can change the end of your own access";
        return Err(Refusal::forbidden(message).into());
    }
    let memberships = transaction.using(Kind::Membership, Kind::User, &member.user.id).await?;
    if set.is_some() && memberships.iter().any(|row| role_of(row) == Some(OrgRole::Owner)) {
        let reason = "cannot be set for an owner, or an organization could be left without one: set another role first";
        return Err(Refusal::field("expires_at", reason).into());
    }
    Ok(())
}

pub(super) async fn change(app: &AppState, call: &Call) -> Result<Response, Error> {
    let patch = call.is_patch();
    let mut body = object(&call.body)?;
    let only_end = patch && body.keys().all(|field| field == "expires_at");
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let (asker, state, condition) = (call.caller()?.principal.clone(), app.clone(), call.condition());
    write(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let member = Member::find(transaction, &organization, &id).await?;
        let seen = member.shown(&state, &asker)?;
        condition.check(text(&seen).as_bytes())?;
        if only_end {
            may_end(transaction, &asker, &organization, &id).await?;
        } else {
            may_act_for(transaction, &asker, &organization, &id).await?;
        }
        for field in ["role", ROLE_END, "home"] {
            if let Some(value) = body.remove(field)
                && *seen.get(field).unwrap_or(&Value::Null) != value
            {
                return Err(Refusal::field(field, "is changed with PUT …/role, if at all; omit it").into());
            }
        }
        // The telephone number is not in `seen`: only the user can change it.
        let mut public = member.user.clone();
        let phone = public.spec.remove("phone");
        let document = parse_update(&state, &public, &seen, body, patch)?;
        check_end(transaction, &asker, &member, &document).await?;
        let user = rewrite(transaction, &member.user, document, phone).await?;
        let member = Member { user, ..member };
        Ok(Reply::ok(&member.shown(&state, &asker)?))
    })
    .await
}

pub(super) async fn set_role(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let role = parse_role(&mut body)?.ok_or_else(|| Refusal::field("role", "is missing"))?;
    let end = take_end(&mut body, "expires_at")?;
    refuse_others(&body)?;
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let (asker, owner) = (call.caller()?.principal.clone(), call.owner());
    only_owners_make_owners(&asker, &organization, role)?;
    write(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let membership = transaction
            .get(Kind::Membership, &membership_id(&organization, &id))
            .await?;
        let row = if let Some(row) = membership {
            change_role(transaction, &asker, &row, role, end).await?
        } else {
            let operator = matches!(asker, Principal::User { operator: true, .. });
            let known = transaction.get(Kind::User, &id).await?;
            // An admin must not learn whether the user exists in another organization.
            let known = known.filter(|_| operator).ok_or_else(Refusal::not_found)?;
            if role == OrgRole::Owner {
                never_ends(&known)?;
            }
            refuse_past("expires_at", end.as_ref(), None, transaction.now())?;
            join_existing(transaction, &organization, &id, (role, end.as_ref()), &owner).await?
        };
        Ok(Reply::ok(&row.spec))
    })
    .await
}

/// Sets the password of another user. One's own takes the old one, which a thief of a login does not have.
pub(super) async fn set_password(app: &AppState, call: &Call) -> Result<Response, Error> {
    if call.caller()?.principal.user() == Some(uuid(&call.key("user_id")?)) {
        let message = "your own password takes the old one: PUT /v3/account/password, or tidewaiter cloud set-password \
                       without a name";
        return Err(Refusal::forbidden(message).into());
    }
    let mut body = object(&call.body)?;
    let hash = hash_password(app, call, &mut body, "password").await?;
    let hash = hash.ok_or_else(|| Refusal::field("password", "is missing"))?;
    let end_tokens = parse_end_tokens(&mut body)?;
    refuse_others(&body)?;
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let asker = call.caller()?.principal.clone();
    write(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        Member::find(transaction, &organization, &id).await?;
        let user = may_act_for(transaction, &asker, &organization, &id).await?;
        replace_password(transaction, &user, hash, None, end_tokens).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// Revokes all tokens of a user, also of one who has permissions elsewhere: it gives nobody more permissions.
pub(super) async fn end_logins(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    write(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        Member::find(transaction, &organization, &id).await?;
        let user = at_home(transaction, &organization, &id).await?;
        transaction.remove_tokens(&user, None).await?;
        Ok(Reply::nothing())
    })
    .await
}

pub(super) async fn delete(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let (asker, state, condition) = (call.caller()?.principal.clone(), app.clone(), call.condition());
    write(app, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let member = Member::find(transaction, &organization, &id).await?;
        condition.check(text(&member.shown(&state, &asker)?).as_bytes())?;
        let role = role_of(&member.membership).unwrap_or(OrgRole::Owner);
        only_owners_make_owners(&asker, &organization, role)?;
        not_the_last_owner(transaction, &organization, &id).await?;
        if member.user.organization_id == organization {
            may_act_for(transaction, &asker, &organization, &id).await?;
            delete_user(transaction, &member.user).await?;
        } else {
            remove_member(transaction, &member.membership).await?;
        }
        Ok(Reply::nothing())
    })
    .await
}
