//! Why a pass over a Node did not end as it should, and what could help.

use tidewaiter_api::InvalidValue;
use tidewaiter_identity::Refusal;
use tidewaiter_kit::{Notice, NoticeKind, ReconcileError, Retry};
use tidewaiter_kops::DefinitionError;

use super::apply::ApplyError;

/// A pass that has to be made again, or that cannot succeed as things are.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The Node's own name or uid is not one; no API server has such a Node.
    #[error("the Node cannot be read")]
    Unreadable(#[from] InvalidValue),
    /// The cloud, or the proof, says no; or the cloud could not be asked.
    #[error("not identified")]
    Refused(#[source] Refusal),
    /// The group's definition is not to be had.
    #[error("identified, and not labelled")]
    Undefined(#[source] DefinitionError),
    /// A write did not go through.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl ReconcileError for NodeError {
    fn retry(&self) -> Retry {
        match self {
            Self::Unreadable(_) => Retry::UntilChanged,
            Self::Refused(_) | Self::Undefined(_) => Retry::Backoff,
            Self::Apply(error) => match (error, error.code()) {
                // Gone: its deletion is on the way. Or refused: this very content would be refused again.
                (ApplyError::Patch(_), Some(404)) | (_, Some(400 | 422)) => Retry::UntilChanged,
                _ if tidewaiter_kit::is_fenced(error.write()) => Retry::UntilChanged,
                // A conflict too: the watch brings what is new, most often before; but it may be away itself for a while.
                _ => Retry::Backoff,
            },
        }
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::Refused(refusal) if refusal.is_transient() => "cloud",
            Self::Refused(_) => "refused",
            Self::Undefined(_) => "definition",
            Self::Apply(error) => match error.code() {
                Some(404) => "gone",
                Some(400 | 422) => "rejected",
                Some(401 | 403) => "denied",
                Some(409) => "conflict",
                _ if tidewaiter_kit::is_fenced(error.write()) => "fenced",
                _ => "api",
            },
        }
    }

    /// What the plan could not foresee: a write that the API server refused. The rest the plan has told already.
    fn notice(&self) -> Option<Notice> {
        let Self::Apply(error) = self else { return None };
        let (reason, remedy) = match error.code()? {
            400 | 422 => (
                "WriteRejected",
                "The labels stay as they are until the Node or its group's definition changes.",
            ),
            401 | 403 => (
                "WriteDenied",
                "Apply the role of deploy/controller, and look for an admission policy that denies the write.",
            ),
            _ => return None,
        };
        Some(Notice {
            kind: NoticeKind::Warning,
            reason: reason.into(),
            action: "Label".into(),
            note: format!("{error}: {}. {remedy}", error.write()),
        })
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("no", "No").with_code(code)))
    }

    #[test]
    fn what_could_help() {
        let rows = [
            (
                NodeError::Apply(ApplyError::Patch(api(404))),
                Retry::UntilChanged,
                "gone",
                None,
            ),
            (
                NodeError::Apply(ApplyError::Record(api(404))),
                Retry::Backoff,
                "gone",
                None,
            ),
            (
                NodeError::Apply(ApplyError::Patch(api(409))),
                Retry::Backoff,
                "conflict",
                None,
            ),
            (
                NodeError::Apply(ApplyError::Patch(api(422))),
                Retry::UntilChanged,
                "rejected",
                Some("WriteRejected"),
            ),
            (
                NodeError::Apply(ApplyError::Record(api(403))),
                Retry::Backoff,
                "denied",
                Some("WriteDenied"),
            ),
            (
                NodeError::Apply(ApplyError::Patch(api(500))),
                Retry::Backoff,
                "api",
                None,
            ),
            (
                NodeError::Refused(Refusal::Throttled { api: "x" }),
                Retry::Backoff,
                "cloud",
                None,
            ),
            (
                NodeError::Refused(Refusal::NotFound {
                    instance: "i".to_owned(),
                }),
                Retry::Backoff,
                "refused",
                None,
            ),
        ];
        for (error, retry, class, notice) in rows {
            assert_eq!((error.retry(), error.class()), (retry, class), "{error:?}");
            assert_eq!(
                error.notice().map(|notice| notice.reason.into_owned()).as_deref(),
                notice,
                "{error:?}"
            );
        }
    }
}
