//! The account of the caller.

use super::fields::model;
use super::schema;
use super::values::{DisplayName, Email, EndTime, HttpUrl, Phone, UnixMillis, UserId};

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
    /// An admin sets it: from this second on, no login and no token is accepted. If absent, it does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    nullable expires_at: Option<EndTime> as Option<schema::EndTime>,
}
