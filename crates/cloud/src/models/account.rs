//! The account of the caller.

use serde::Serialize;
use utoipa::ToSchema;

use super::document::InvalidField;
use super::fields::{Fields, Model};
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

impl Model for Account {
    const KIND: &'static str = "an account";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            id: fields.required("id")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
            name: fields.required("name")?,
            enabled: fields.required("enabled")?,
            email: fields.required("email")?,
            phone: fields.optional("phone")?,
            avatar_url: fields.optional("avatar_url")?,
        })
    }
}
