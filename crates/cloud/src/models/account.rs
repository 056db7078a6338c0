//! The account of the caller.

use serde::Serialize;
use utoipa::ToSchema;

use super::fields::model;
use super::values::{DisplayName, Email, HttpUrl, Phone, UnixMillis, UserId};

/// The response of `GET /v3/account`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Account {
    pub id: UserId,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub name: DisplayName,
    pub enabled: bool,
    pub email: Email,
    pub phone: Option<Phone>,
    pub avatar_url: Option<HttpUrl>,
}

model! {
    Account, "an account" =>
    required { id, created_at, updated_at, name, enabled, email } optional { phone, avatar_url }
}
