//! Recovery on the server's own machine: a person becomes an operator with a new password, when no operator is left or
//! nobody can log in any more.
//!
//! It needs the database and nothing else. Servers on PostgreSQL may run, and follow at once. A server on SQLite holds
//! the lock of its file, so it has to be stopped first.

use serde_json::{Map, Value};
use tidewaiter_kit::SharedClock;
use url::Url;
use uuid::Uuid;

use super::Error;
use super::access::users::role_of;
use super::digest::uuid;
use super::init::{text_object, write_alone};
use super::keys::hash::Password;
use super::principal::OrgRole;
use super::refusal::Refusal;
use super::routes::second_factor::remove_second_factor;
use super::routes::users::{END, join_existing, replace_password, rewrite};
use super::store::{References, Row, Source, Store, Transaction, membership_id};
use crate::models::Kind;

/// The maximum number of organizations that an error names.
const NAMED: usize = 10;

/// The person who becomes an operator.
#[derive(Debug)]
pub struct RecoverOptions<'a> {
    pub email: &'a str,
    /// The home of a new user, without which an unknown address is refused. It gets the person as its owner if it has
    /// none.
    pub organization: Option<Uuid>,
    pub password: Password<'a>,
}

/// The result of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoverSummary {
    pub user: Uuid,
    pub organization: Uuid,
    /// True if there was no user with the e-mail address.
    pub is_new: bool,
    /// True if the organization had no other owner, and so the person is its owner now.
    pub is_owner: bool,
}

/// Makes a person an operator in the database at `url`, with a new password. The older logins and tokens of the
/// person end, and the security keys and recovery codes are removed.
///
/// # Errors
/// If the database does not exist or cannot be written, a server uses its file, or the organization is not clear.
pub async fn recover(url: &Url, clock: SharedClock, person: RecoverOptions<'_>) -> Result<RecoverSummary, Error> {
    Store::check_exists(url)?;
    let hash = person.password.hash().map_err(Error::internal)?;
    let (email, organization) = (person.email.to_owned(), person.organization);
    let opened = Store::open(url, clock).await?;
    write_alone(opened, async move |transaction| {
        recovered(transaction, &email, organization, hash).await
    })
    .await
}

async fn recovered(
    transaction: &mut Transaction,
    email: &str,
    organization: Option<Uuid>,
    hash: String,
) -> Result<RecoverSummary, Error> {
    let found = transaction.named(Kind::User, "", &email.to_lowercase()).await?;
    let is_new = found.is_none();
    let (user, organization) = match (found, organization) {
        (Some(user), None) => {
            let home = user.organization_id.clone();
            (without_end(transaction, user).await?, home)
        }
        (Some(user), Some(id)) => {
            let organization = existing_organization(transaction, id).await?;
            (without_end(transaction, user).await?, organization)
        }
        (None, Some(id)) => {
            let home = existing_organization(transaction, id).await?;
            (new_user(transaction, email, &home).await?, home)
        }
        (None, None) => return Err(unknown_user(transaction, email).await?.into()),
    };
    let is_owner = join_without_owner(transaction, &organization, &user, is_new).await?;
    if transaction.get(Kind::Operator, &user.id).await?.is_none() {
        let operator = Row {
            organization_id: user.organization_id.clone(),
            parent_id: user.id.clone(),
            owner_id: user.id.clone(),
            ..Row::new(Kind::Operator, &user.id)
        };
        transaction.insert(operator, &References::default()).await?;
    }
    replace_password(transaction, &user, hash, None, true).await?;
    remove_second_factor(transaction, &user.id).await?;
    transaction.record_recovery(&user).await?;
    Ok(RecoverSummary {
        user: uuid(&user.id),
        organization: uuid(&organization),
        is_new,
        is_owner,
    })
}

async fn existing_organization(transaction: &mut Transaction, id: Uuid) -> Result<String, Error> {
    let row = transaction.get(Kind::Organization, &id.to_string()).await?;
    let missing = || Refusal::field("organization", format!("is {id}, and there is no such organization"));
    Ok(row.ok_or_else(missing)?.id)
}

/// The refusal of an address that no user has: a mistyped address makes no operator.
async fn unknown_user(transaction: &mut Transaction, email: &str) -> Result<Refusal, Error> {
    let organizations = transaction.children(Kind::Organization, "").await?;
    if organizations.is_empty() {
        return Ok(Refusal::conflict(
            "the database has no organization: run tidewaiter cloud init",
        ));
    }
    let listed = organizations.iter().take(NAMED);
    let listed = listed.map(|row| format!("{} ({})", row.id, row.text("name").unwrap_or_default()));
    let listed: Vec<String> = listed.collect();
    Ok(Refusal::conflict(format!(
        "there is no user {email}: correct the address, or create the user in the home that --organization ID names: {}",
        listed.join(", ")
    )))
}

async fn new_user(transaction: &mut Transaction, email: &str, home: &str) -> Result<Row, Error> {
    let document = Kind::User.read(text_object(&[("name", email), ("email", email)]).as_bytes())?;
    let id = Uuid::new_v4().to_string();
    let row = Row {
        organization_id: home.to_owned(),
        parent_id: home.to_owned(),
        owner_id: id.clone(),
        spec: document.spec,
        ..Row::new(Kind::User, id)
    };
    let references = References {
        name: document.name,
        ..References::default()
    };
    transaction.insert(row, &references).await
}

/// The user, whose access does not end: that of an operator cannot.
async fn without_end(transaction: &mut Transaction, user: Row) -> Result<Row, Error> {
    let mut spec: Map<String, Value> = user.spec.clone();
    if spec.remove("expires_at").is_none() {
        return Ok(user);
    }
    let phone = spec.remove("phone");
    let document = Kind::User.read_value(&Value::Object(spec))?;
    rewrite(transaction, &user, document, phone).await
}

/// Makes the user the owner of an organization without another one, and returns true. A new user is a member of the
/// home in any case, with the least role: as an operator, the user can get another one.
async fn join_without_owner(
    transaction: &mut Transaction,
    organization: &str,
    user: &Row,
    is_new: bool,
) -> Result<bool, Error> {
    let is_owner = !transaction.has_owner_except(organization, &user.id).await?;
    let membership = membership_id(organization, &user.id);
    match transaction.get(Kind::Membership, &membership).await? {
        Some(row) if is_owner && (role_of(&row) != Some(OrgRole::Owner) || row.spec.contains_key(END)) => {
            let mut spec = row.spec.clone();
            spec.remove(END);
            spec.insert("role".to_owned(), Value::from(OrgRole::Owner.word()));
            let references = References::to(Kind::User, &user.id);
            transaction.update(&row, spec, String::new(), &references).await?;
        }
        None if is_owner => {
            join_existing(transaction, organization, &user.id, (OrgRole::Owner, None), &user.id).await?;
        }
        None if is_new => {
            join_existing(transaction, organization, &user.id, (OrgRole::ReadOnly, None), &user.id).await?;
        }
        _ => {}
    }
    Ok(is_owner)
}
