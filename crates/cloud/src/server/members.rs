//! The users of an organization. A user's home is the organization that created the user: only its admins, and the
//! user, can change the user.
//!
//! No caller gets more permissions over a user than the caller has: anyone who can set a password can act as that user.

use std::collections::HashMap;

use axum::response::Response;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Error;
use super::answers::Held;
use super::call::{Call, Reply, object, refuse_others, respond, text};
use super::cloud::{Answer, Cloud, Kept};
use super::digest::uuid;
use super::identity::role_of;
use super::lists::{Page, cached};
use super::principal::{OrgRole, Principal};
use super::refusal::Refusal;
use super::remember::{made, written};
use super::source::{Spot, at_home, cluster, membership_id, unlocked};
use super::store::{Listed, References, Row, Scope, SecretColumn, Source};
use super::ties::{said, ties};
use super::users::{
    forget, hashed, join, join_existing, leave, may_act_for, not_the_last_owner, only_owners_make_owners,
    replace_password, rewrite,
};
use super::view::{all_shown, shown, unix_millis};
use crate::models::Kind;

/// A member of an organization.
struct Member {
    membership: Row,
    user: Row,
    keys: Vec<Row>,
}

impl Member {
    /// The representation of a member. A cluster does not receive the keys of read-only users.
    fn shown(&self, cloud: &Cloud, to: &Principal) -> Result<Map<String, Value>, Error> {
        let mut item = shown(cloud, &self.user, false)?;
        item.remove("phone");
        item.insert("added_at".to_owned(), unix_millis(&self.membership.created_at));
        let role = self.membership.spec.get("role").cloned().unwrap_or_default();
        let hidden = matches!(to, Principal::Cluster { .. }) && is_read_only(&self.membership);
        let keys = all_shown(cloud, self.keys.iter().filter(|_| !hidden), false)?;
        item.insert("role".to_owned(), role);
        item.insert("ssh_keys".to_owned(), json!(keys));
        Ok(item)
    }

    async fn found(source: &mut dyn Source, organization: &str, user: &str) -> Result<Self, Error> {
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

/// Returns true if the member has no SSH access to the nodes of clusters.
pub(super) fn is_read_only(membership: &Row) -> bool {
    role_of(membership) == Some(OrgRole::ReadOnly)
}

/// The users of an organization; below a cluster, only those who may log in on its nodes.
pub(super) async fn list(cloud: &Cloud, call: &Call, of_cluster: bool) -> Result<Response, Error> {
    let organization = call.key("organization_id")?;
    let to = &call.known()?.principal;
    let key = format!("{} {:?} {}", call.path, call.query, to.user().is_some());
    cached(cloud, call, &key, Kept::Everything, || {
        computed(cloud, call, &organization, of_cluster)
    })
    .await
}

async fn computed(cloud: &Cloud, call: &Call, organization: &str, of_cluster: bool) -> Result<(Answer, Held), Error> {
    let as_of = cloud.store.feed().latest();
    if of_cluster {
        cluster(&mut &cloud.store, &Spot::of(call)?).await?;
    }
    let to = &call.known()?.principal;
    let listed = Listed::Children(Kind::Membership, organization);
    let mut page = Page::begin(cloud, call, listed).await?;
    loop {
        let rows = page.next(cloud, listed).await?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            break;
        };
        let range = (first.position, last.position);
        for member in with_users(cloud, organization, range, rows).await? {
            if !(of_cluster && is_read_only(&member.membership)) {
                let item = member.shown(cloud, to)?;
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
    cloud: &Cloud,
    organization: &str,
    range: (i64, i64),
    rows: Vec<Row>,
) -> Result<Vec<Member>, Error> {
    let (users, all_keys) = cloud.store.members(organization, range).await?;
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

pub(super) async fn get(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut source = &cloud.store;
    let member = Member::found(&mut source, &call.key("organization_id")?, &call.key("user_id")?).await?;
    Ok(respond(call, &member.shown(cloud, &call.known()?.principal)?))
}

/// The role in `body`.
fn said_role(body: &mut Map<String, Value>) -> Result<Option<OrgRole>, Refusal> {
    let Some(said) = body.remove("role") else {
        return Ok(None);
    };
    let role = said.as_str().and_then(OrgRole::of);
    let words = OrgRole::ALL.map(OrgRole::word).join(", ");
    role.map(Some)
        .ok_or_else(|| Refusal::field("role", format!("must be one of {words}")))
}

pub(super) async fn create(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let role = said_role(&mut body)?.unwrap_or(OrgRole::Member);
    let password = hashed(cloud, &call.known()?.principal, &mut body, "password").await?;
    let document = Kind::User.read_value(&Value::Object(body))?;
    let organization = call.key("organization_id")?;
    let asker = call.known()?.principal.clone();
    only_owners_make_owners(&asker, &organization, role)?;
    let (state, path, owner) = (cloud.clone(), call.path.clone(), call.owner());
    made(cloud, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let ties = ties(transaction, Kind::User, &organization, &organization, &document).await?;
        let id = Uuid::new_v4().to_string();
        let row = |kind, parent: &str, spec, secret| Row {
            organization_id: organization.clone(),
            parent_id: parent.to_owned(),
            owner_id: owner.clone(),
            spec,
            secret: SecretColumn(secret),
            ..Row::new(kind, &id)
        };
        let user = row(Kind::User, &organization, document.spec, String::new());
        let user = transaction.insert(user, &ties).await?;
        if let Some(hash) = password {
            let password = row(Kind::Password, &id, Map::new(), hash);
            transaction.insert(password, &References::default()).await?;
        }
        let membership = join(transaction, &organization, &id, role, &owner).await?;
        let member = Member {
            membership,
            user,
            keys: Vec::new(),
        };
        Ok(Reply::made(format!("{path}/{id}"), &member.shown(&state, &asker)?))
    })
    .await
}

pub(super) async fn change(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let patch = call.is_patch();
    let mut body = object(&call.body)?;
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let (asker, state, condition) = (call.known()?.principal.clone(), cloud.clone(), call.condition());
    written(cloud, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let member = Member::found(transaction, &organization, &id).await?;
        let seen = member.shown(&state, &asker)?;
        condition.check(text(&seen).as_bytes())?;
        may_act_for(transaction, &asker, &organization, &id).await?;
        if let Some(role) = body.remove("role")
            && seen.get("role") != Some(&role)
        {
            return Err(Refusal::field("role", "is changed with PUT …/role; omit it").into());
        }
        // The telephone number is not in `seen`: only the user can change it.
        let mut public = member.user.clone();
        let phone = public.spec.remove("phone");
        let document = said(&state, &public, &seen, body, patch)?;
        let user = rewrite(transaction, &member.user, document, phone).await?;
        let member = Member { user, ..member };
        Ok(Reply::ok(&member.shown(&state, &asker)?))
    })
    .await
}

pub(super) async fn set_role(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let role = said_role(&mut body)?.ok_or_else(|| Refusal::field("role", "is missing"))?;
    refuse_others(&body)?;
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let (asker, owner) = (call.known()?.principal.clone(), call.owner());
    only_owners_make_owners(&asker, &organization, role)?;
    written(cloud, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let membership = transaction
            .get(Kind::Membership, &membership_id(&organization, &id))
            .await?;
        let row = if let Some(row) = membership {
            if role_of(&row) == Some(OrgRole::Owner) && role != OrgRole::Owner {
                only_owners_make_owners(&asker, &organization, OrgRole::Owner)?;
                not_the_last_owner(transaction, &organization, &id).await?;
            }
            let mut spec = row.spec.clone();
            spec.insert("role".to_owned(), Value::from(role.word()));
            transaction
                .update(&row, spec, String::new(), &References::to(Kind::User, &id))
                .await?
        } else {
            let operator = matches!(asker, Principal::User { operator: true, .. });
            let known = transaction.get(Kind::User, &id).await?;
            // An admin must not learn whether the user exists in another organization.
            known.filter(|_| operator).ok_or_else(Refusal::not_found)?;
            join_existing(transaction, &organization, &id, role, &owner).await?
        };
        Ok(Reply::ok(&row.spec))
    })
    .await
}

pub(super) async fn set_password(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let mut body = object(&call.body)?;
    let hash = hashed(cloud, &call.known()?.principal, &mut body, "password").await?;
    let hash = hash.ok_or_else(|| Refusal::field("password", "is missing"))?;
    refuse_others(&body)?;
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let asker = call.known()?.principal.clone();
    written(cloud, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        Member::found(transaction, &organization, &id).await?;
        let user = may_act_for(transaction, &asker, &organization, &id).await?;
        replace_password(transaction, &user, hash, None).await?;
        Ok(Reply::nothing())
    })
    .await
}

/// Revokes all tokens of a user, also of one who has permissions elsewhere: it gives nobody more permissions.
pub(super) async fn end_logins(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    written(cloud, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        Member::found(transaction, &organization, &id).await?;
        let user = at_home(transaction, &organization, &id).await?;
        transaction.remove_tokens(&user, None).await?;
        Ok(Reply::nothing())
    })
    .await
}

pub(super) async fn delete(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (organization, id) = (call.key("organization_id")?, call.key("user_id")?);
    let (asker, state, condition) = (call.known()?.principal.clone(), cloud.clone(), call.condition());
    written(cloud, call, async move |transaction| {
        unlocked(transaction, &organization).await?;
        let member = Member::found(transaction, &organization, &id).await?;
        condition.check(text(&member.shown(&state, &asker)?).as_bytes())?;
        let role = role_of(&member.membership).unwrap_or(OrgRole::Owner);
        only_owners_make_owners(&asker, &organization, role)?;
        not_the_last_owner(transaction, &organization, &id).await?;
        if member.user.organization_id == organization {
            may_act_for(transaction, &asker, &organization, &id).await?;
            forget(transaction, &member.user).await?;
        } else {
            leave(transaction, &member.membership).await?;
        }
        Ok(Reply::nothing())
    })
    .await
}
