//! Logging in.

use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::values::Email;
use super::{Fields, InvalidField, Model, Secret, schema};

/// The body of `POST /v3/login/METHOD`.
#[derive(Clone, Debug, PartialEq)]
pub struct Login {
    pub email: Email,
    pub password: Secret,
}

impl ToSchema for Login {}

/// Written by hand, because it is a part of another schema, which has no references.
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
