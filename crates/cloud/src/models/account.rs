//! The account of the caller.

use super::fields::model;
use super::values::{DisplayName, Email, HttpUrl, Phone, UnixMillis, UserId};

model! {
    /// The response of `GET /v3/account`.
    Account, "an account" =>
    required id: UserId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required name: DisplayName,
    required enabled: bool,
    required email: Email,
    optional phone: Option<Phone>,
    optional avatar_url: Option<HttpUrl>,
}
