//! Errors in the words of Compute Engine.

use serde_json::json;

use super::PROJECT;
use crate::fake_cloud::{Error, Scripted};

/// An error in the newer form, with the reason as a detail (`google.rpc.ErrorInfo`): the HTTP status, the canonical
/// code, for example `RESOURCE_EXHAUSTED`, and the reason, for example `RATE_LIMIT_EXCEEDED`.
#[must_use]
pub fn error_info(status: u16, code: &str, reason: &str) -> Scripted {
    let detail = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": "compute.googleapis.com"},
    });
    let body = json!({"error": {
        "code": status, "message": "of the fake", "status": code, "details": [detail],
        "errors": [{"message": "of the fake", "domain": "usageLimits", "reason": "other"}],
    }});
    Scripted::raw(status, &body.to_string())
}

/// The body of an error in the form that Compute Engine has always had.
pub(super) fn error((status, reason, message): Error<'_>) -> String {
    let domain = if reason.ends_with("LimitExceeded") {
        "usageLimits"
    } else {
        "global"
    };
    let error = json!({"message": message, "domain": domain, "reason": reason});
    json!({"error": {"code": status, "message": message, "errors": [error]}}).to_string()
}

pub(super) fn refused(status: u16, code: &'static str, message: String) -> Scripted {
    Scripted::Error { status, code, message }
}

pub(super) fn not_found(path: &str) -> Scripted {
    let message = format!("The resource 'projects/{PROJECT}/{path}' was not found");
    refused(404, "notFound", message)
}
