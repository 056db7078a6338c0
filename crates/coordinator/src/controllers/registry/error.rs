//! Why a registry is not as it should be, what could help, and what its Registry says in an Event.
//!
//! No error contains a credential, or what a registry said.

use tidewaiter_kit::{ChildrenError, Notice, ReconcileError, Retry};

use super::board::State;
use super::credential::InvalidSource;
use super::ecr::EcrError;

/// What becomes of the pull secrets meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// No copy exists.
    None,
    /// They have this very credential.
    Same,
    /// They have the credential that worked last.
    Earlier,
}

/// A registry that is not as it should be.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistryError {
    #[error("there is no Secret with its credentials")]
    Missing { secret: String },
    #[error("its credentials in the cluster were edited, and it is not known how the cloud lists them")]
    Edited,
    #[error("its credentials or its address cannot be used: {0}")]
    Invalid(#[from] InvalidSource),
    #[error("its name is longer than a label's value may be")]
    Name,
    #[error("it refuses the credential")]
    Refused(Copies),
    #[error("{host} cannot be asked: {why}")]
    Unchecked {
        host: String,
        why: &'static str,
        copies: Copies,
    },
    #[error(transparent)]
    Token(#[from] EcrError),
    #[error("its pull secret is not as it should be in containership-core")]
    NotWritten(#[source] ChildrenError),
}

impl RegistryError {
    pub(super) fn state(&self) -> State {
        match self {
            Self::Missing { .. } | Self::Edited => State::Missing,
            Self::Invalid(_) | Self::Name => State::Invalid,
            Self::Refused(_) => State::Refused,
            Self::Unchecked { .. } => State::Unchecked,
            Self::Token(_) => State::NoToken,
            Self::NotWritten(_) => State::NotWritten,
        }
    }
}

impl ReconcileError for RegistryError {
    fn retry(&self) -> Retry {
        match self {
            Self::Missing { .. }
            | Self::Edited
            | Self::Invalid(_)
            | Self::Name
            | Self::Refused(_)
            | Self::Token(EcrError::Refused(_)) => Retry::Slow,
            Self::Unchecked { .. } | Self::Token(_) => Retry::Backoff,
            Self::NotWritten(error) => error.retry(),
        }
    }

    fn class(&self) -> &'static str {
        self.state().word()
    }

    fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Missing { .. } | Self::Edited | Self::Invalid(_) | Self::Name | Self::Refused(_)
        )
    }

    fn notice(&self) -> Option<Notice> {
        const KEPT: &str = "The pull secrets keep the credential that worked last.";
        let (reason, action, note) = match self {
            Self::Missing { secret } => (
                "CredentialMissing",
                "Read",
                format!(
                    "The Secret {secret} in containership-core with the label of this registry does not exist. The mirror of the cloud writes it. Existing pull secrets stay as they are."
                ),
            ),
            Self::Edited => (
                "CredentialEdited",
                "Read",
                "Somebody edited the credentials of this registry in the cluster, and the coordinator has not reached the cloud since it started. They are not used, and the mirror undoes the edit when the cloud answers. Existing pull secrets stay as they are."
                    .to_owned(),
            ),
            Self::Invalid(source) => (
                "CredentialInvalid",
                "Read",
                format!("{source}. Correct the registry in the cloud. Existing pull secrets stay as they are."),
            ),
            Self::Name => (
                "CredentialInvalid",
                "Read",
                "The name of the Registry has more than 63 characters, so no label can have it as its value."
                    .to_owned(),
            ),
            Self::Refused(copies) => {
                let copies = match copies {
                    Copies::None => "No pull secret is made.",
                    Copies::Same => "It is in the pull secrets, so nodes cannot pull with it.",
                    Copies::Earlier => KEPT,
                };
                let note = format!("The registry refuses the credential. {copies} Correct the registry in the cloud.");
                ("CredentialRefused", "Verify", note)
            }
            Self::Unchecked { host, why, copies } => {
                let copies = match copies {
                    Copies::None => "It is used untried, because no earlier one worked.",
                    Copies::Same => "The pull secrets stay as they are.",
                    Copies::Earlier => KEPT,
                };
                let note = format!(
                    "The credential cannot be tried at {host}: {why}. {copies} It is tried again. If only the nodes can reach the registry, add {host} to registries.unverifiedHosts."
                );
                ("CredentialUnchecked", "Verify", note)
            }
            Self::Token(error) => (
                "TokenNotRenewed",
                "Renew",
                format!("{error}. The token in the pull secrets stays. It is tried again."),
            ),
            Self::NotWritten(error) => return error.notice(),
        };
        Some(Notice::warning(reason, action, note))
    }
}
