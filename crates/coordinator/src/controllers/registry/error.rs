//! The reasons why a registry is not as desired, with the remedy, and the Event on its Registry.
//!
//! No error contains a credential, or what a registry said.

use tidewaiter_api::cloud_sync::CLOUD_SYNC;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, REGISTRY_SECRET_LABEL, registry_secret_name};
use tidewaiter_kit::{Category, ChildrenError, Notice, ReconcileError, Retry};

use super::board::State;
use super::credential::InvalidSource;
use super::ecr::EcrError;

/// The text about the pull secrets, if there are any.
const STAY: &str = "The pull secrets in the namespaces stay as they are.";

/// The text about the pull secrets, if there are none.
const NONE: &str = "No namespace gets a pull secret.";

/// The effect on the pull secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// No copy exists.
    None,
    /// They have this very credential.
    Same,
    /// They have the credential that worked last.
    Earlier,
}

/// A registry that is not as it should be, under the name that people know.
#[derive(Debug, thiserror::Error)]
#[error("the registry {registry} is not as it should be")]
pub(super) struct Failed {
    pub(super) registry: String,
    /// True if namespaces have a pull secret of an earlier credential.
    pub(super) has_copies: bool,
    #[source]
    pub(super) why: RegistryError,
}

/// The reason why a registry is not as desired.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistryError {
    #[error("there is no Secret with its credentials")]
    Missing { id: String },
    #[error("its credentials in the cluster were edited, and it is not known how the cloud lists them")]
    Edited(String),
    #[error("its credentials or its address cannot be used: {0}")]
    Invalid(#[from] InvalidSource),
    #[error("its name is longer than a label's value may be")]
    Name,
    #[error("{host} refuses the credential")]
    Refused { host: String, copies: Copies },
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
            Self::Missing { .. } | Self::Edited(_) => State::Missing,
            Self::Invalid(_) | Self::Name => State::Invalid,
            Self::Refused { .. } => State::Refused,
            Self::Unchecked { .. } => State::Unchecked,
            Self::Token(_) => State::NoToken,
            Self::NotWritten(_) => State::NotWritten,
        }
    }

    /// The reason, the effect on the pull secrets, and the remedy.
    fn notice(&self, has_copies: bool) -> Option<Notice> {
        let stay = if has_copies { STAY } else { NONE };
        let (reason, action, note) = match self {
            Self::Missing { id } => (
                "CredentialMissing",
                "Read",
                format!(
                    "it has no credentials, because the Secret {CONTAINERSHIP_NAMESPACE}/{} with the label {REGISTRY_SECRET_LABEL}={id} does not exist. The coordinator makes it of what the cloud lists: if it stays away, kubectl describe cloudsync {CLOUD_SYNC} says why. {stay}",
                    registry_secret_name(id)
                ),
            ),
            Self::Edited(object) => (
                "CredentialEdited",
                "Read",
                format!(
                    "somebody edited its credentials in the {object}, and the coordinator has not reached the cloud since it started. They are not used, and the edit is undone when the cloud answers: kubectl describe cloudsync {CLOUD_SYNC} says why it does not. {stay}"
                ),
            ),
            Self::Invalid(source) => (
                "CredentialInvalid",
                "Read",
                format!("{source}. Correct the registry in the cloud. {stay}"),
            ),
            Self::Name => (
                "CredentialInvalid",
                "Read",
                "it gets no pull secret, because its name has more than 63 characters and no label can have it as its value. Delete this Registry, and add the registry in the cloud, which gives it an id."
                    .to_owned(),
            ),
            Self::Refused { host, copies } => {
                let copies = match copies {
                    Copies::None => NONE,
                    Copies::Same => "It is in the pull secrets of all namespaces, so nodes cannot pull with it.",
                    Copies::Earlier => copies.kept(),
                };
                let note = format!(
                    "{host} refuses the credential. {copies} Correct the credentials of the registry in the cloud: they are tried at once."
                );
                ("CredentialRefused", "Verify", note)
            }
            Self::Unchecked { host, why, copies } => {
                let note = format!(
                    "the credential cannot be tried at {host}: {why}. {} It is tried again. If only the nodes can reach {host}, add it to registries.unverifiedHosts.",
                    copies.kept()
                );
                ("CredentialUnchecked", "Verify", note)
            }
            Self::Token(error) => {
                let remedy = match error {
                    EcrError::Refused(_) => "Correct the key of the registry in the cloud, or permit ecr:GetAuthorizationToken to it.",
                    EcrError::Throttled | EcrError::Unavailable(_) => "It is tried again.",
                };
                let stay = if has_copies {
                    "The token in the pull secrets stays until it expires."
                } else {
                    NONE
                };
                let note = format!("{error}. {stay} {remedy}");
                ("TokenNotRenewed", "Renew", note)
            }
            Self::NotWritten(error) => return error.notice(),
        };
        Some(Notice::warning(reason, action, note))
    }
}

impl Copies {
    /// The content of the pull secrets while the credential does not count as one that works.
    fn kept(self) -> &'static str {
        match self {
            Self::None => "It is used untried in all namespaces, because no earlier one worked.",
            Self::Same => STAY,
            Self::Earlier => "The pull secrets in the namespaces keep the credential that worked last.",
        }
    }
}

impl ReconcileError for Failed {
    fn category(&self) -> Category {
        use RegistryError as Why;
        let class = self.why.state().word();
        let category = match &self.why {
            Why::Missing { .. } | Why::Edited(_) | Why::Invalid(_) | Why::Name | Why::Refused { .. } => {
                Category::refusal(class, Retry::Slow)
            }
            Why::Token(EcrError::Refused(_)) => Category::new(class, Retry::Slow),
            Why::Unchecked { .. } | Why::Token(_) => Category::new(class, Retry::Backoff),
            Why::NotWritten(error) => Category::new(class, error.retry()),
        };
        // An Event is read in a list of those of all objects, so it names the registry.
        let notice = self.why.notice(self.has_copies).map(|notice| Notice {
            note: format!("Registry {}: {}", self.registry, notice.note),
            ..notice
        });
        category.notify(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_names_the_registry_and_the_object_or_the_host_and_says_what_helps() {
        let host = || "r.example.com".to_owned();
        let id = || "f00d".to_owned();
        let refused = |copies| RegistryError::Refused { host: host(), copies };
        let unchecked = |copies| RegistryError::Unchecked {
            host: host(),
            why: "it does not answer in time",
            copies,
        };
        let cloudsync = "kubectl describe cloudsync cloud";
        for (why, cause, stays, remedy) in [
            (
                RegistryError::Missing { id: id() },
                "containership-core/registry-f00d",
                "stay as they are",
                cloudsync,
            ),
            (
                RegistryError::Edited("Secret containership-core/registry-f00d".to_owned()),
                "edited its credentials in the Secret containership-core/registry-f00d",
                "stay as they are",
                cloudsync,
            ),
            (
                InvalidSource::Region.into(),
                "the region",
                "stay as they are",
                "Correct the registry in the cloud",
            ),
            (
                RegistryError::Name,
                "more than 63 characters",
                "no pull secret",
                "add the registry in the cloud",
            ),
            (
                refused(Copies::None),
                "r.example.com refuses",
                "No namespace gets",
                "in the cloud",
            ),
            (
                refused(Copies::Same),
                "r.example.com refuses",
                "nodes cannot pull",
                "in the cloud",
            ),
            (
                refused(Copies::Earlier),
                "r.example.com refuses",
                "keep the credential that worked last",
                "in the cloud",
            ),
            (
                unchecked(Copies::None),
                "at r.example.com: it does not",
                "used untried",
                "registries.unverifiedHosts",
            ),
            (
                unchecked(Copies::Same),
                "at r.example.com: it does not",
                "stay as they are",
                "registries.unverifiedHosts",
            ),
            (
                EcrError::Refused("NotAuthorized").into(),
                "ECR refuses the key (NotAuthorized)",
                "stays until",
                "GetAuthorizationToken",
            ),
            (
                EcrError::Throttled.into(),
                "too many requests",
                "stays until",
                "tried again",
            ),
        ] {
            let registry = "\"CI\" (f00d)".to_owned();
            let failed = Failed {
                registry,
                has_copies: true,
                why,
            };
            let note = failed.notice().unwrap().note;
            assert!(
                note.starts_with("Registry \"CI\" (f00d): ") && note.ends_with('.'),
                "{note}"
            );
            for words in [cause, stays, remedy] {
                assert!(note.contains(words), "{words}: {note}");
            }
            for internal in ["mirror", "reconcile"] {
                assert!(!note.contains(internal), "{note}");
            }
        }
    }

    #[test]
    fn without_an_earlier_credential_an_event_says_that_there_is_no_pull_secret() {
        for why in [
            RegistryError::Missing { id: "f00d".to_owned() },
            RegistryError::Edited("Registry a".to_owned()),
            InvalidSource::Region.into(),
            EcrError::Throttled.into(),
        ] {
            let failed = Failed {
                registry: "CI".to_owned(),
                has_copies: false,
                why,
            };
            let note = failed.notice().unwrap().note;
            assert!(note.contains(NONE) && !note.contains(STAY), "{note}");
        }
    }
}
