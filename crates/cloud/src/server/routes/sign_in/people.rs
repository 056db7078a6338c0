//! The users of the people whom providers know: who may sign in, who is created, and the teams of their groups.

use std::collections::BTreeSet;

use super::super::identities::{add, name};
use super::super::prelude::*;
use super::super::references::{join_team, resolve_references};
use super::super::users::join;
use crate::models::values::DisplayName;
use crate::server::access::organizations::{is_locked, unlocked};
use crate::server::access::users::not_ended;
use crate::server::oidc::{Person, ProviderSettings, ProvisionSettings};
use crate::server::store::membership_id;

/// Checks that the user is a member of the only organization of the provider, if it has one.
pub(super) async fn check_member(
    transaction: &mut Transaction,
    settings: &ProviderSettings,
    user: &str,
) -> Result<(), Error> {
    let Some(organization) = &settings.organization else {
        return Ok(());
    };
    let membership = membership_id(organization, user);
    let membership = transaction.get(Kind::Membership, &membership).await?;
    if membership.is_some_and(|membership| not_ended(&membership, transaction.now()).is_ok()) {
        return Ok(());
    }
    let message = format!(
        "{} is for members of the organization {organization}: ask an admin there to add you",
        settings.title
    );
    Err(Refusal::forbidden(message).into())
}

/// Creates the user `id` for a person whom no user is linked with. An address of an existing user is refused: it proves
/// nothing about who had it when that user was created.
pub(super) async fn provision(
    transaction: &mut Transaction,
    settings: &ProviderSettings,
    person: &Person,
    id: &str,
) -> Result<Row, Error> {
    let title = &settings.title;
    let role = settings.provision.as_ref().and_then(ProvisionSettings::role);
    let (Some(role), Some(organization)) = (role, &settings.organization) else {
        let message = format!(
            "no user is linked with this account at {title}: sign in with your password and link {title} under \
             \"My account\", or ask an admin of your organization to add you"
        );
        return Err(Refusal::forbidden(message).into());
    };
    let Some(email) = &person.email else {
        let message = format!("{title} has not verified your e-mail address: verify it there, and sign in again");
        return Err(Refusal::forbidden(message).into());
    };
    if transaction
        .named(Kind::User, "", &email.to_lowercase())
        .await?
        .is_some()
    {
        let message = format!(
            "a user with the e-mail address of your account at {title} exists: sign in with your password and link \
             {title} under \"My account\""
        );
        return Err(Refusal::conflict(message).into());
    }
    let subject = name(&person.issuer, &person.subject).name;
    if transaction.is_blocked(organization, &subject).await? {
        let message = format!("the user of your account at {title} was removed: ask an admin to invite you");
        return Err(Refusal::forbidden(message).into());
    }
    unlocked(transaction, organization).await?;
    let name = person.name.as_ref().filter(|name| name.parse::<DisplayName>().is_ok());
    let document = Kind::User.read_value(&json!({ "name": name.unwrap_or(email), "email": email }))?;
    let references = resolve_references(transaction, Kind::User, organization, organization, &document).await?;
    let row = Row {
        organization_id: organization.clone(),
        parent_id: organization.clone(),
        owner_id: id.to_owned(),
        spec: document.spec,
        ..Row::new(Kind::User, id)
    };
    let user = transaction.insert(row, &references).await?;
    join(transaction, organization, id, (role, None), id).await?;
    add(transaction, &user, &settings.name, person).await?;
    Ok(user)
}

/// Adds the user to the teams of the person's groups, and removes the user from the other teams of the mapping. Teams
/// that no group is mapped to stay as they are, and so do all teams of a locked organization.
pub(super) async fn follow_groups(
    transaction: &mut Transaction,
    settings: &ProviderSettings,
    person: &Person,
    user: &str,
) -> Result<(), Error> {
    let Some(organization) = settings.organization.as_deref().filter(|_| !settings.teams.is_empty()) else {
        return Ok(());
    };
    if is_locked(&transaction.existing(Kind::Organization, organization).await?) {
        return Ok(());
    }
    let groups = settings.teams.iter().filter(|(group, _)| person.groups.contains(group));
    let wanted: BTreeSet<&String> = groups.map(|(_, team)| team).collect();
    let mapped: BTreeSet<&String> = settings.teams.values().collect();
    let mut left = Vec::new();
    for name in mapped {
        let Some(team) = transaction.named(Kind::Team, organization, name).await? else {
            continue;
        };
        let users = team.spec.get("user_ids").and_then(Value::as_array);
        let is_member = users.is_some_and(|users| users.iter().any(|id| id.as_str() == Some(user)));
        match (is_member, wanted.contains(name)) {
            (false, true) => join_team(transaction, &team, user).await?,
            (true, false) => left.push(team),
            _ => {}
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    transaction.leave_teams(user, &left).await
}
