//! The reason why a write did not succeed, what could help, and what to report.

use std::fmt::{self, Display};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::Status;

use crate::chain::{Chain, causes};
use crate::client::is_fenced;
use crate::clock::Elapsed;
use crate::events::{Notice, cut};
use crate::key::Key;
use crate::retry::{Category, ReconcileError, Retry};

/// The longest part of a message of the API server in a notice, in bytes.
const MAX_MESSAGE_BYTES: usize = 600;

/// The words of the API server about a field that it does not know. Source: `NewStrictDecodingError` of its runtime.
const UNKNOWN_FIELD: &str = "strict decoding error: unknown field";

/// Its words about such a field in an apply, with status 500. Source: `validation.go` of structured-merge-diff's
/// `typed`.
const UNDECLARED_FIELD: &str = "field not declared in schema";

/// A write that did not succeed, as far as is known.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {kind} {key}")]
pub struct WriteError {
    verb: Verb,
    kind: String,
    key: Key,
    failure: Failure,
    source: kube::Error,
}

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    Create,
    Replace,
    Patch,
    Apply,
    Delete,
}

/// The meaning of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// The object is of another version, or exists already: observe it again.
    Conflict,
    /// Somebody else's object has the name.
    Foreign,
    /// The object, its namespace or its kind does not exist.
    Gone,
    /// The API server refuses this very content.
    Rejected,
    /// We may not, or an admission policy says no.
    Denied,
    /// This replica does not lead any more: nothing was sent.
    Fenced,
    /// The API server is overloaded, unreachable or failing; whether anything was written is unknown.
    Unknown,
}

impl WriteError {
    pub(super) fn new<K: Resource<DynamicType = ()>>(verb: Verb, meta: &ObjectMeta, source: kube::Error) -> Self {
        Self {
            verb,
            kind: K::kind(&()).into_owned(),
            key: Key::of_meta(meta),
            failure: Failure::of(&source),
            source,
        }
    }

    /// True if the object is of another version than was observed, or exists where none was.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.failure == Failure::Conflict
    }

    /// True if somebody else's object has the name.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.failure == Failure::Foreign
    }

    /// True if the write may have taken effect, or may do so yet.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.failure == Failure::Unknown
    }

    /// The key of the object.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The same error about an object that is somebody else's.
    pub(super) fn of_foreign(self) -> Self {
        Self {
            failure: Failure::Foreign,
            ..self
        }
    }

    /// True if the object, its namespace or its kind does not exist.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.failure == Failure::Gone
    }

    /// The message of the API server.
    fn api_message(&self) -> String {
        match &self.source {
            kube::Error::Api(status) => {
                // Before it, the API server repeats the whole object.
                let unknown = status.message.find(UNKNOWN_FIELD).map(|start| &status.message[start..]);
                unknown.unwrap_or(&status.message).trim_end_matches('.').to_owned()
            }
            other => Chain(other).to_string(),
        }
    }

    /// The reason for an Event and the remedy, if the owner of the object can do something about it.
    fn advice(&self) -> Option<(&'static str, &'static str)> {
        Some(match self.failure {
            Failure::Rejected if matches!(&self.source, kube::Error::Api(status) if is_unknown_field(status)) => (
                "WriteRejected",
                "Nothing was changed. Apply the CustomResourceDefinitions of this version of Tidewaiter (tidewaiter crds); it is retried every few minutes.",
            ),
            Failure::Rejected => (
                "WriteRejected",
                "Nothing was changed; it is retried every few minutes and whenever something changes.",
            ),
            Failure::Denied if matches!(&self.source, kube::Error::Api(status) if status.code == 401) => (
                "WriteDenied",
                "The credentials are not valid or have expired: renew them. The write is retried.",
            ),
            Failure::Denied => (
                "WriteDenied",
                "Apply Tidewaiter's role from deploy/; if a rule of it lists resourceNames, add the name of this object. Then look for a ResourceQuota or an admission policy that denies the write. It is retried.",
            ),
            Failure::Unknown if self.is_webhook() => (
                "WebhookFailed",
                "Restore the webhook, or let its failurePolicy be Ignore. The write is retried.",
            ),
            Failure::Unknown if self.is_timeout() => (
                "WriteTimedOut",
                "If other writes succeed, look for an admission webhook that hangs (kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations), and shorten its timeoutSeconds. The write is retried.",
            ),
            Failure::Foreign | Failure::Conflict | Failure::Gone | Failure::Fenced | Failure::Unknown => return None,
        })
    }

    /// The error and its cause, and the remedy if there is one.
    #[must_use]
    pub(crate) fn explained(&self) -> String {
        let chain = Chain(self).to_string();
        match self.advice() {
            Some((_, remedy)) => format!("{}. {remedy}", chain.trim_end_matches('.')),
            None => chain,
        }
    }

    /// True if the API server did not answer in time, or ended the request because it took too long.
    fn is_timeout(&self) -> bool {
        match &self.source {
            kube::Error::Api(status) => status.code == 504,
            other => causes(other).any(<dyn std::error::Error>::is::<Elapsed>),
        }
    }

    /// True if an admission webhook did not answer. Source: `NewInternalError` of the API server's webhook dispatcher.
    fn is_webhook(&self) -> bool {
        matches!(&self.source, kube::Error::Api(status) if status.message.contains("failed calling webhook"))
    }
}

impl Failure {
    fn of(error: &kube::Error) -> Self {
        match error {
            error if is_fenced(error) => Self::Fenced,
            kube::Error::Api(status) => match status.code {
                404 | 410 => Self::Gone,
                409 => Self::Conflict,
                400 | 405 | 413 | 415 | 422 => Self::Rejected,
                403 if is_terminating(status) => Self::Gone,
                401 | 403 => Self::Denied,
                500 if is_unknown_field(status) => Self::Rejected,
                _ => Self::Unknown,
            },
            kube::Error::BuildRequest(_) => Self::Rejected,
            _ => Self::Unknown,
        }
    }
}

/// True if the API server does not know a field of the object.
fn is_unknown_field(status: &Status) -> bool {
    status.message.contains(UNKNOWN_FIELD) || status.message.contains(UNDECLARED_FIELD)
}

/// True if the write was refused because its namespace is being deleted. Source: the admission plugin
/// `NamespaceLifecycle`.
fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// The notice about somebody else's object that has the name of ours.
pub(crate) fn foreign(kind: &str, key: &Key) -> Notice {
    let note = format!(
        "{kind} {key} exists and is not managed by Tidewaiter. It is left as it is: delete it, and Tidewaiter creates its own."
    );
    Notice::warning("ForeignObject", "Create", note)
}

/// The error of an object that exists although no cache shows it.
pub(super) fn exists() -> kube::Error {
    kube::Error::Api(Box::new(
        Status::failure("the object exists already", "AlreadyExists").with_code(409),
    ))
}

/// The error of an object whose version is not the one that was observed.
pub(super) fn outdated() -> kube::Error {
    kube::Error::Api(Box::new(
        Status::failure("the cached object is outdated", "Conflict").with_code(409),
    ))
}

impl ReconcileError for WriteError {
    fn category(&self) -> Category {
        let (class, retry) = match self.failure {
            // The watch brings what is new, most often before; but it may be interrupted itself.
            Failure::Conflict => ("conflict", Retry::Backoff),
            Failure::Gone => ("gone", Retry::Backoff),
            Failure::Denied => ("denied", Retry::Backoff),
            Failure::Foreign => ("foreign", Retry::Slow),
            Failure::Rejected => ("rejected", Retry::Slow),
            Failure::Fenced => ("fenced", Retry::Slow),
            Failure::Unknown => ("api", Retry::of(&self.source)),
        };
        if self.failure == Failure::Foreign {
            return Category::refusal(class, retry).notify(foreign(&self.kind, &self.key));
        }
        let notice = self.advice().map(|(reason, remedy)| {
            // The remedy stays, however much an admission policy has to say.
            let note = format!("{self}: {}. {remedy}", cut(&self.api_message(), MAX_MESSAGE_BYTES));
            Notice::warning(reason, self.verb.action(), note)
        });
        Category::new(class, retry).notify(notice)
    }
}

impl Verb {
    fn action(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Create => "Create",
            Self::Replace => "Update",
            Self::Patch => "Patch",
            Self::Apply => "Apply",
            Self::Delete => "Delete",
        }
    }
}

impl Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.action().to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Node;

    use super::*;

    #[test]
    fn what_each_status_means() {
        let meta = ObjectMeta {
            name: Some("n".to_owned()),
            ..ObjectMeta::default()
        };
        for (code, retry, class, notice) in [
            (404, Retry::Backoff, "gone", None),
            (409, Retry::Backoff, "conflict", None),
            (400, Retry::Slow, "rejected", Some("WriteRejected")),
            (422, Retry::Slow, "rejected", Some("WriteRejected")),
            (401, Retry::Backoff, "denied", Some("WriteDenied")),
            (403, Retry::Backoff, "denied", Some("WriteDenied")),
            (429, Retry::Backoff, "api", None),
            (500, Retry::Backoff, "api", None),
        ] {
            let status = Status::failure("no", "No").with_code(code);
            let error = WriteError::new::<Node>(Verb::Patch, &meta, kube::Error::Api(Box::new(status)));
            assert_eq!((error.retry(), error.class()), (retry, class), "{code}");
            assert_eq!(
                error.notice().map(|notice| notice.reason.into_owned()).as_deref(),
                notice,
                "{code}"
            );
            assert_eq!(error.to_string(), "cannot patch Node n");
            if code == 403 {
                let said = error.explained();
                assert!(said.contains("answered 403 No: no. Apply Tidewaiter's role"), "{said}");
            }
        }
    }

    #[test]
    fn a_webhook_that_does_not_answer_is_reported() {
        let meta = ObjectMeta::default();
        let said = "Internal error occurred: failed calling webhook \"w.example.com\": connection refused";
        let status = Status::failure(said, "InternalError").with_code(500);
        let error = WriteError::new::<Node>(Verb::Patch, &meta, kube::Error::Api(Box::new(status)));
        assert_eq!((error.retry(), error.class()), (Retry::Backoff, "api"));
        let notice = error.notice().unwrap();
        assert!(notice.reason == "WebhookFailed" && notice.note.contains("w.example.com"));
    }

    #[test]
    fn a_write_that_takes_too_long_is_reported() {
        let status = Status::failure("request did not complete within requested timeout", "Timeout").with_code(504);
        let elapsed = Elapsed(Duration::from_secs(40));
        for source in [
            kube::Error::Api(Box::new(status)),
            kube::Error::Service(Box::new(elapsed)),
        ] {
            let error = WriteError::new::<Node>(Verb::Patch, &ObjectMeta::default(), source);
            assert_eq!((error.retry(), error.class()), (Retry::Backoff, "api"));
            let notice = error.notice().unwrap();
            assert!(
                notice.reason == "WriteTimedOut" && notice.note.contains("timeoutSeconds"),
                "{}",
                notice.note
            );
        }
        let closed = kube::Error::Service("connection refused".into());
        let error = WriteError::new::<Node>(Verb::Patch, &ObjectMeta::default(), closed);
        assert!(error.notice().is_none(), "the API server is away");
    }

    #[test]
    fn the_notice_holds_what_the_server_said_and_the_remedy() {
        let meta = ObjectMeta {
            name: Some("n".to_owned()),
            ..ObjectMeta::default()
        };
        let long = "é".repeat(2_000);
        for said in ["denied by policy.", &long] {
            let status = Status::failure(said, "Invalid").with_code(422);
            let error = WriteError::new::<Node>(Verb::Patch, &meta, kube::Error::Api(Box::new(status)));
            let note = error.notice().unwrap().note;
            assert!(note.starts_with("cannot patch Node n: "), "{note}");
            assert!(
                note.ends_with("whenever something changes.") && note.len() < 1_000,
                "{note}"
            );
            assert!(!note.contains("Status") && !note.contains(".."), "{note}");
        }
    }

    #[test]
    fn a_field_that_is_unknown_is_named_and_not_the_whole_object() {
        let said = format!(
            "\"\": Invalid value: \"{}\": {UNKNOWN_FIELD} \"spec.kinds\"",
            "x".repeat(2_000)
        );
        let status = Status::failure(&said, "Invalid").with_code(422);
        let error = WriteError::new::<Node>(Verb::Patch, &ObjectMeta::default(), kube::Error::Api(Box::new(status)));
        let note = error.notice().unwrap().note;
        assert!(
            note.contains("unknown field \"spec.kinds\". Nothing was changed. Apply"),
            "{note}"
        );
        assert!(!note.contains("xx"), "{note}");
    }

    /// The API server answers an apply with 500, as if it failed.
    #[test]
    fn an_apply_with_a_field_that_the_definition_lacks_is_rejected_with_the_remedy() {
        let said = format!(
            "failed to create typed patch object (/n; tidewaiter.dev/v1alpha1, Kind=NodeIdentity): .spec.new: {UNDECLARED_FIELD}"
        );
        let status = Status::failure(&said, "InternalError").with_code(500);
        let error = WriteError::new::<Node>(Verb::Apply, &ObjectMeta::default(), kube::Error::Api(Box::new(status)));
        assert_eq!((error.retry(), error.class()), (Retry::Slow, "rejected"));
        assert!(!error.is_in_doubt(), "nothing was written");
        let notice = error.notice().unwrap();
        assert_eq!(notice.reason, "WriteRejected");
        assert!(
            notice
                .note
                .contains(".spec.new: field not declared in schema. Nothing was changed. Apply the CustomRes"),
            "{}",
            notice.note
        );
    }

    #[test]
    fn a_server_that_says_when_is_asked_then() {
        let mut status = Status::failure("later", "TooManyRequests").with_code(429);
        status.details = Some(kube::core::response::StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: vec![],
            retry_after_seconds: 7,
        });
        let error = WriteError::new::<Node>(Verb::Create, &ObjectMeta::default(), kube::Error::Api(Box::new(status)));
        assert_eq!(error.retry(), Retry::BackoffAfter(Duration::from_secs(7)));
    }
}
