//! Permissions over a user, the end of a user's access, and the rule that every organization keeps an owner.

use jiff::Timestamp;

use crate::client::ACCESS_ENDED;
use crate::models::Kind;
use crate::models::values::EndTime;
use crate::server::Error;
use crate::server::digest::uuid;
use crate::server::principal::{OrgRole, Principal};
use crate::server::refusal::Refusal;
use crate::server::store::{Row, Source, Transaction, membership_id};

/// The role of a membership or a service account.
pub(crate) fn role_of(membership: &Row) -> Option<OrgRole> {
    membership.text("role").and_then(OrgRole::of)
}

/// The end of the access of a user, a service account, a membership, a role binding, or an SSH key; `None` if it does
/// not end.
pub(crate) fn end_of(row: &Row) -> Option<EndTime> {
    row.text("expires_at").and_then(EndTime::of_field)
}

/// The end of the membership of `user` in a team; `None` if it does not end.
pub(crate) fn end_in_team(team: &Row, user: &str) -> Option<EndTime> {
    let end = team.spec.get("user_ends")?.get(user)?;
    EndTime::of_field(end.as_str()?)
}

/// Checks that the access of a user or a service account has not ended.
pub(crate) fn not_ended(user: &Row, now: Timestamp) -> Result<(), Refusal> {
    match end_of(user).filter(|end| end.has_passed(now)) {
        Some(end) => {
            let message = format!("{ACCESS_ENDED} at {end}: ask an admin of your organization for a later expires_at");
            Err(Refusal::new(http::StatusCode::UNAUTHORIZED, message))
        }
        None => Ok(()),
    }
}

/// Checks that the access of a user who becomes an owner or an operator does not end: an organization or the server
/// would be left without one.
pub(crate) fn never_ends(user: &Row) -> Result<(), Refusal> {
    match end_of(user) {
        Some(end) => {
            let reason = format!("is {end}, and the access of an owner or operator cannot end: remove it first");
            Err(Refusal {
                status: http::StatusCode::CONFLICT,
                ..Refusal::field("expires_at", reason)
            })
        }
        None => Ok(()),
    }
}

/// Returns true if the member has no SSH access to the nodes of clusters.
pub(crate) fn is_read_only(membership: &Row) -> bool {
    role_of(membership) == Some(OrgRole::ReadOnly)
}

/// The user, if the organization is the user's home: only there can others change the user.
pub(crate) async fn at_home(source: &mut dyn Source, organization: &str, user: &str) -> Result<Row, Error> {
    let row = source.existing(Kind::User, user).await?;
    if row.organization_id == organization {
        return Ok(row);
    }
    Err(
        Refusal::forbidden("the user's home is another organization: only an owner there or the user can change this")
            .into(),
    )
}

pub(crate) fn only_owners_make_owners(asker: &Principal, organization: &str, role: OrgRole) -> Result<(), Refusal> {
    if role == OrgRole::Owner && asker.role_in(uuid(organization)) != Some(OrgRole::Owner) {
        return Err(Refusal::forbidden("only owners can add or remove owners"));
    }
    Ok(())
}

/// Returns the user's row if `asker` may act as that user, in effect: change the user's credentials.
pub(crate) async fn may_act_for(
    transaction: &mut Transaction,
    asker: &Principal,
    organization: &str,
    user: &str,
) -> Result<Row, Error> {
    let row = may_end(transaction, asker, organization, user).await?;
    let is_own = asker.user().is_some_and(|asker| asker == uuid(user));
    if !is_own && transaction.using(Kind::Membership, Kind::User, user).await?.len() > 1 {
        return Err(permissions_outside().into());
    }
    Ok(row)
}

/// Returns the user's row if `asker` may change the end of that user's access, also in other organizations: nobody can
/// act as the user by it.
pub(crate) async fn may_end(
    transaction: &mut Transaction,
    asker: &Principal,
    organization: &str,
    user: &str,
) -> Result<Row, Error> {
    let row = at_home(transaction, organization, user).await?;
    if asker.user().is_some_and(|asker| asker == uuid(user)) {
        return Ok(row);
    }
    let membership = transaction
        .get(Kind::Membership, &membership_id(organization, user))
        .await?;
    let role = membership.as_ref().and_then(role_of);
    if role > asker.role_in(uuid(organization)) {
        return Err(Refusal::forbidden(
            "the user has more permissions than you: only an owner or the user can change this",
        )
        .into());
    }
    if transaction.get(Kind::Operator, user).await?.is_some() {
        return Err(permissions_outside().into());
    }
    Ok(row)
}

fn permissions_outside() -> Refusal {
    Refusal::forbidden("the user also has permissions outside this organization, so only the user can change this")
}

pub(crate) async fn not_the_last_owner(
    transaction: &mut Transaction,
    organization: &str,
    user: &str,
) -> Result<(), Error> {
    if transaction.has_owner_except(organization, user).await? {
        return Ok(());
    }
    let message = format!("the organization {organization} would have no owner: make another user an owner first");
    Err(Refusal::conflict(message).into())
}
