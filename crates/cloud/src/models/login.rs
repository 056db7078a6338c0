//! Logging in, and small answers.

use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::document::InvalidField;
use super::fields::{Fields, Model};
use super::schema;
use super::secret::Secret;
use super::values::{ClusterId, Email};

/// The body of `POST /v3/login/METHOD`. `Serialize` leaves the password out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Login {
    /// Who logs in.
    pub email: Email,
    /// With what.
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

/// The answer to a request that goes on after it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Accepted {
    /// The cluster that will be.
    pub id: ClusterId,
}

impl Login {
    /// The body as a client sends it.
    #[must_use]
    pub fn revealed(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Revealed<'a> {
            email: &'a Email,
            password: &'a str,
        }
        Revealed {
            email: &self.email,
            password: self.password.expose(),
        }
    }
}

impl Token {
    /// The answer as the client that logged in gets it.
    #[must_use]
    pub fn revealed(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Revealed<'a> {
            token: &'a str,
        }
        Revealed {
            token: self.token.expose(),
        }
    }
}

impl ToSchema for Login {}

/// By hand, because the derive leaves out what serde leaves out.
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

impl Model for Accepted {
    const KIND: &'static str = "an answer";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            id: fields.required("id")?,
        })
    }
}
