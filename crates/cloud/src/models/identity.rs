//! The accounts of a user at providers of OpenID Connect.

use super::fields::model;
use super::values::{HttpUrl, IdentityId, Slug, Subject, UnixMillis, UserId};

model! {
    /// The account of a user at a provider, with which the user signs in.
    Identity, "an identity" =>
    required id: IdentityId,
    required created_at: UnixMillis,
    required user_id: UserId,
    /// The name of the provider in the settings of the server when it was linked.
    required provider: Slug,
    required issuer: HttpUrl,
    /// The id of the account at the provider.
    required subject: Subject,
}
