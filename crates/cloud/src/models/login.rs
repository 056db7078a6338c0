//! Logging in, and small responses.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::fields::model;
use super::values::{ClusterId, Email};
use super::{Fields, InvalidField, Model, Secret, schema};

/// The body of `POST /v3/login/METHOD`. `Serialize` omits the password.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Login {
    /// The user's e-mail address.
    pub email: Email,
    /// The user's password.
    #[serde(skip)]
    pub password: Secret,
}

/// The response to a login. It contains only the token, so its only `Serialize` is
/// [`revealed`](Self::revealed).
#[derive(Clone, Debug, PartialEq, ToSchema)]
pub struct Token {
    /// The value for `Authorization: JWT …`.
    pub token: Secret,
}

model! {
    /// The answer to a request that goes on after it.
    Accepted, "an answer" =>
    /// The cluster that will be.
    required id: ClusterId,
}

impl Login {
    /// The body as a client sends it.
    #[must_use]
    pub fn revealed(&self) -> impl Serialize + '_ {
        BTreeMap::from([("email", self.email.as_str()), ("password", self.password.expose())])
    }
}

impl Token {
    /// The response to the client that logged in.
    #[must_use]
    pub fn revealed(&self) -> impl Serialize + '_ {
        BTreeMap::from([("token", self.token.expose())])
    }
}

impl ToSchema for Login {}

/// Written by hand, because the derive omits fields that serde skips.
impl PartialSchema for Login {
    fn schema() -> RefOr<Schema> {
        let login = schema::object("The credentials of a login.")
            .property("email", Email::schema())
            .property("password", schema::write_only(Secret::schema()));
        login.required("email").required("password").into()
    }
}

impl Model for Login {
    const KIND: &'static str = "a login";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            email: fields.required("email")?,
            password: fields.required("password")?,
        })
    }
}

impl Model for Token {
    const KIND: &'static str = "a token";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            token: fields.required("token")?,
        })
    }
}
