//! The body of every error response.

use serde::Serialize;
use tidewaiter_api::values::printable;
use utoipa::ToSchema;

use super::fields::{At, Read};
use super::{Fields, InvalidField, Model};

/// The maximum number of characters in a message.
const SHOWN: usize = 1_024;

/// `{"code", "message"}`, and the field, if one is invalid.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Failure {
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599, examples(422))]
    pub code: u32,
    /// One line, safe to print.
    #[schema(examples("name: is missing: must be a text (name)"))]
    pub message: String,
    /// The path of the field, as in [`InvalidField`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(examples("name"))]
    pub field: Option<String>,
}

impl Failure {
    /// The rejection of a document, with `code`.
    #[must_use]
    pub fn refused(code: u32, error: &InvalidField) -> Self {
        Self {
            code,
            message: line(&error.to_string()),
            field: Some(line(&error.field)).filter(|field| !field.is_empty()),
        }
    }
}

fn line(text: &str) -> String {
    printable(text).chars().take(SHOWN).collect()
}

/// Text that is sanitized instead of rejected, so that the message of a failure is never lost.
struct Line(String);

impl Read for Line {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        at.text("a message").map(line).map(Self)
    }
}

impl Model for Failure {
    const KIND: &'static str = "a failure";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let Line(message) = fields.required("message")?;
        let field: Option<Line> = fields.optional("field")?;
        Ok(Self {
            code: fields.number("code", 400, 599)?,
            message,
            field: field.map(|Line(field)| field),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_field_in_one_bounded_line() {
        let error = |field: &str, reason: &str| InvalidField {
            field: field.to_owned(),
            reason: reason.to_owned(),
        };
        let failure = Failure::refused(422, &error("rules[0]", "is\nempty"));
        assert_eq!(failure.message, "rules[0]: is\\nempty");
        assert_eq!(failure.field.as_deref(), Some("rules[0]"));
        assert_eq!(Failure::refused(400, &error("", "is empty")).field, None);
        assert_eq!(
            Failure::refused(422, &error("a", &"b".repeat(9_000))).message.len(),
            SHOWN
        );
    }
}
