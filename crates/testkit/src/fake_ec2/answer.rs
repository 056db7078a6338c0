//! What the fake answers, in the words of EC2.

use http::StatusCode;

use super::instance::{FakeInstance, escaped};

/// An answer that a test has put into the queue.
#[derive(Clone, Debug)]
pub enum Scripted {
    /// An error in EC2's own form.
    Error {
        /// The HTTP status.
        status: u16,
        /// The code, for example `InternalError`.
        code: &'static str,
        /// The message.
        message: String,
    },
    /// Any status and body.
    Raw {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: String,
    },
    /// These instances, whatever was asked: too many, too few, one twice.
    Instances(Vec<FakeInstance>),
    /// These instances on the first page of several; the token of the next one is `page-2`.
    Page(Vec<FakeInstance>),
    /// The connection is closed without an answer.
    Drop,
    /// The answer begins and never ends: the connection is closed in the middle of the body.
    BreakOff,
    /// No answer at all; the connection stays open.
    Hang,
}

impl Scripted {
    fn error(status: u16, code: &'static str, message: &str) -> Self {
        Self::Error {
            status,
            code,
            message: message.to_owned(),
        }
    }

    /// Too many calls.
    #[must_use]
    pub fn throttled() -> Self {
        Self::error(503, "RequestLimitExceeded", "Request limit exceeded.")
    }

    /// EC2 has failed.
    #[must_use]
    pub fn internal_error() -> Self {
        Self::error(500, "InternalError", "An internal error has occurred")
    }

    /// The role may not make this call.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::error(
            403,
            "UnauthorizedOperation",
            "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/masters/i-1 is \
             not authorized to perform: ec2:DescribeInstances",
        )
    }

    /// The credentials are not valid.
    #[must_use]
    pub fn auth_failure() -> Self {
        Self::error(
            401,
            "AuthFailure",
            "AWS was not able to validate the provided access credentials",
        )
    }

    /// A page of a proxy or a captive portal, which says that all is well.
    #[must_use]
    pub fn html() -> Self {
        Self::Raw {
            status: 200,
            body: "<!DOCTYPE html><html><body>Welcome! Please log in.</body></html>".to_owned(),
        }
    }

    /// Nothing that is XML.
    #[must_use]
    pub fn garbage() -> Self {
        Self::Raw {
            status: 200,
            body: "\u{0}\u{1}{]<&nonsense".to_owned(),
        }
    }
}

/// A status and a body.
pub(super) type Reply = (StatusCode, String);

/// An answer with these items of `reservationSet`.
pub(super) fn reservations<'a>(items: impl Iterator<Item = &'a str>, next_token: Option<&str>) -> Reply {
    let mut body = String::with_capacity(1 << 16);
    body.push_str(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<DescribeInstancesResponse \
         xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>fake</requestId><reservationSet>",
    );
    items.for_each(|item| body.push_str(item));
    body.push_str("</reservationSet>");
    if let Some(token) = next_token {
        body.push_str("<nextToken>");
        body.push_str(token);
        body.push_str("</nextToken>");
    }
    body.push_str("</DescribeInstancesResponse>");
    (StatusCode::OK, body)
}

pub(super) fn error(status: u16, code: &str, message: &str) -> Reply {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{}</Code><Message>{}</Message></Error>\
         </Errors><RequestID>fake</RequestID></Response>",
        escaped(code),
        escaped(message)
    );
    (status, body)
}

/// The message of `InvalidInstanceID.NotFound`, which names every id that is unknown.
pub(super) fn not_found(unknown: &[&str]) -> String {
    match unknown {
        [id] => format!("The instance ID '{id}' does not exist"),
        ids => format!("The instance IDs '{}' do not exist", ids.join(", ")),
    }
}
