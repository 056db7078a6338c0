//! The reasons why a plugin, or one of its objects, is not as desired, with the remedy.

use kube::Error;
use kube::core::Status;
use tidewaiter_api::AcceptedRelease;
use tidewaiter_api::names::{PLUGIN_LABEL, ROLLBACK_ANNOTATION, plugin_release_secret};
use tidewaiter_api::values::quoted;
use tidewaiter_cloud::client::ClientError;
use tidewaiter_kit::{Category, Chain, Notice, ReconcileError, Retry, WriteError};

use crate::controllers::plugin::desired::{Object, ObjectId, QUOTES, Refused, Untrusted};
use crate::controllers::plugin::settings::{Identity, PluginAccount};

/// The most that is repeated of what the API server said, in bytes.
const SAID: usize = 500;

/// Reason of a problem: the service account that is used may not do it.
pub(crate) const DENIED: &str = "Denied";

/// The reason why a plugin is blocked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) reason: &'static str,
    /// The object, its problem, and the remedy.
    pub(crate) note: String,
    /// True if it goes on by itself: then the plugin is not stalled.
    pub(crate) is_transient: bool,
}

impl Problem {
    pub(crate) fn stalling(reason: &'static str, note: String) -> Self {
        Self {
            reason,
            note,
            is_transient: false,
        }
    }

    pub(crate) fn transient(reason: &'static str, note: String) -> Self {
        Self {
            is_transient: true,
            ..Self::stalling(reason, note)
        }
    }

    pub(crate) fn refused(plugin: &str, version: &str, refused: &Refused) -> Self {
        let note = format!(
            "version {version} of plugin {plugin} is not applied: {refused}. Change the manifests in the cloud."
        );
        Self::stalling("ManifestsRefused", note)
    }

    pub(crate) fn untrusted(plugin: &str, version: &str, why: &Untrusted) -> Self {
        let note = format!("version {version} of plugin {plugin} is not applied: {why}.");
        Self::stalling("SignatureRefused", note)
    }

    /// A stored version that cannot be applied today.
    pub(crate) fn unusable(plugin: &str, entry: &AcceptedRelease, why: &str) -> Self {
        let secret = plugin_release_secret(plugin, &entry.revision);
        let note = format!(
            "version {} of plugin {plugin}, as it is stored in the Secret {secret}, is not applied: {why}. Change the setting that is named, or let \
             another version be applied: tidewaiter plugin history {plugin}.",
            entry.version
        );
        Self::stalling("StoredVersionRefused", note)
    }

    /// A rollback to a version that is not there.
    pub(crate) fn rollback_unknown(plugin: &str, asked: &str, releases: &[AcceptedRelease]) -> Self {
        let known: Vec<String> = releases
            .iter()
            .map(|release| {
                format!(
                    "{} ({})",
                    &release.revision[..release.revision.len().min(16)],
                    release.version
                )
            })
            .collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        let note = format!(
            "the annotation {ROLLBACK_ANNOTATION} names no accepted version: {}, must be REVISION@VERSION, with a revision of these: {known}, and the \
             version of the cloud. Nothing is changed. Correct it, or remove it: tidewaiter plugin rollback {plugin} --undo.",
            quoted(asked)
        );
        Self::stalling("RollbackUnknown", note)
    }

    pub(crate) fn removal_waits(note: String) -> Self {
        Self::transient("RemovalWaits", note)
    }

    pub(crate) fn unknown_kind(object: &Object) -> Self {
        let (id, version) = (&object.id, &object.version);
        let note = format!(
            "{id} is not applied: the API server has no kind {} in version {version}. Let the plugin, or another one, define it first, write a version \
             that it has (kubectl api-resources --api-group={}), or leave it out.",
            id.kind_name(),
            id.group
        );
        Self::stalling("UnknownKind", note)
    }

    pub(crate) fn foreign(id: &ObjectId, plugin: &str) -> Self {
        let note = format!(
            "{id} exists and is not of this plugin. It is left as it is. To hand it over, so that it is made as the manifests say and goes with the \
             plugin: {}. Or delete it, and the plugin creates its own.",
            handing_over(id, plugin)
        );
        Self::stalling("ForeignObject", note)
    }

    pub(crate) fn of_other_plugin(id: &ObjectId, other: &str, plugin: &str) -> Self {
        let note = format!(
            "{id} is of plugin {other}. It is left as it is: only one plugin can have it. Take it out of the manifests of one of them. To hand it over, \
             after it was taken out of those of the other: {} --overwrite.",
            handing_over(id, plugin)
        );
        Self::stalling("ForeignObject", note)
    }

    pub(crate) fn job_failed(id: &ObjectId, tail: Option<&str>) -> Self {
        let log = tail
            .map(|tail| format!(" The end of its log: {tail}"))
            .unwrap_or_default();
        let note = format!("{id} failed, and does not run again for this version. To run it again, delete it.{log}");
        Self::stalling("JobFailed", note)
    }

    pub(crate) fn no_account(plugin: &Identity) -> Self {
        let note = format!(
            "nothing of plugin {plugin} is read or written: pluginServiceAccounts has no row for it. Add one, or one for *."
        );
        Self::stalling(DENIED, note)
    }

    /// Of a request about an object that failed, as this service account, or as the coordinator itself.
    pub(crate) fn failed(verb: &str, id: &ObjectId, error: &Error, account: Option<&PluginAccount>) -> Self {
        let Error::Api(status) = error else {
            let note = format!("cannot {verb} {id}: {}. It is tried again.", Chain(error));
            return Self::transient("ApplyFailed", note);
        };
        let said = if id.is_secret() {
            said_of_secret(status)
        } else {
            status.message.trim_end_matches('.').to_owned()
        };
        let said = &said[..said.floor_char_boundary(SAID)];
        let ends = status.code == 403 && status.message.contains("because it is being terminated");
        // An admission webhook and an admission policy, which use different words. The access is permitted.
        let refused = status.code == 403
            && ["denied the request", "denied request"]
                .iter()
                .any(|words| status.message.contains(words));
        // The objects that server-side apply cannot read, for example because of two environment variables of one name,
        // are its internal errors; so are values that are no quantity or no base64.
        let is_unreadable = status.code == 500
            && ["failed to create typed patch object", "failed to convert new object"]
                .iter()
                .any(|words| status.message.contains(words));
        let (reason, remedy) = match status.code {
            500 if is_unreadable => ("ApplyFailed", unreadable(id)),
            403 if ends => (
                "ApplyFailed",
                format!(
                    "The namespace {} is being deleted. It is tried again: the namespace must go, or what keeps it (kubectl describe namespace).",
                    id.namespace
                ),
            ),
            403 if refused => (
                "ApplyFailed",
                "An admission webhook or policy refuses it. It is tried again.".to_owned(),
            ),
            401 | 403 => (DENIED, denied(&status.message, account)),
            422 if is_immutable(&status.message) && id.is_prerequisite() => (
                "ImmutableField",
                "Change the manifests in the cloud. It is not replaced: everything in it would go, also what is of others."
                    .to_owned(),
            ),
            422 if is_immutable(&status.message) => (
                "ImmutableField",
                "To let the object be deleted and created again, annotate it in the manifests with tidewaiter.dev/on-immutable: replace."
                    .to_owned(),
            ),
            // Another object of the name appeared, or this one was replaced, after the look at it.
            408 | 409 => ("ApplyFailed", "It is tried again.".to_owned()),
            400..=422 => (
                "ApplyFailed",
                "Change the manifests in the cloud. If they are right, the object has a field that excludes one of theirs, set by somebody or by \
                 default: take it out, or delete the object. It is tried again."
                    .to_owned(),
            ),
            _ => ("ApplyFailed", "It is tried again.".to_owned()),
        };
        Self {
            reason,
            note: format!("cannot {verb} {id}: {said}. {remedy}"),
            is_transient: !(is_unreadable || (400..=422).contains(&status.code))
                || status.code == 409
                || status.code == 408
                || ends
                || refused,
        }
    }
}

/// The remedy for an object that the API server cannot read.
fn unreadable(id: &ObjectId) -> String {
    let names = if id.is_secret() {
        "kubectl apply --server-side --dry-run=server"
    } else {
        "the message"
    };
    format!(
        "Change the manifests in the cloud: correct the field that {names} names. It may be unknown, have a value of another type ({QUOTES}), or be a \
         list with two items of the same key."
    )
}

/// The part of an error about a Secret that contains no value of it: the fields. The API server repeats the values that
/// it refuses.
fn said_of_secret(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let fields = causes.filter(|cause| !cause.field.is_empty());
    let fields: Vec<String> = fields
        .map(|cause| format!("{}: {}", cause.field, cause.reason))
        .collect();
    match status.code {
        404 => status.message.clone(),
        422 if !fields.is_empty() => fields.join(", "),
        _ => "what the API server said is not shown".to_owned(),
    }
}

/// The command by which a person makes the object the plugin's.
pub(crate) fn handing_over(id: &ObjectId, plugin: &str) -> String {
    format!("kubectl label {} {PLUGIN_LABEL}={plugin}", id.as_argument())
}

/// The remedy when the API server denies a request about an object of a plugin.
fn denied(said: &str, account: Option<&PluginAccount>) -> String {
    match account {
        None => "Bind the service account of the coordinator to what the plugin needs (deploy/coordinator/plugins), and look for a quota or \
                 an admission policy that denies it."
            .to_owned(),
        Some(account) if said.contains("cannot impersonate") => format!(
            "Permit the coordinator to impersonate the service account {account} (deploy/coordinator/plugin-accounts), or correct \
             pluginServiceAccounts."
        ),
        Some(account) => format!(
            "It was tried as the service account {account} (pluginServiceAccounts). Permit it to get, list, watch, create, patch and delete the \
             kind there, leave the object out, or look for a quota or an admission policy that denies it."
        ),
    }
}

/// Returns true if the API server refused a change that it would accept as a new object. Source: its validation
/// functions, which say so in words only.
pub(crate) fn is_immutable(message: &str) -> bool {
    [
        "immutable",
        "may not change once set",
        "updates to statefulset spec for fields other than",
        "updates to parameters are forbidden",
        "updates to provisioner are forbidden",
        "updates to reclaimPolicy are forbidden",
        "may not be changed in an update",
        "cannot change roleRef",
        // Pods.
        "pod updates may not change fields other than",
        "pod updates may not add or remove containers",
        "existing toleration can not be modified",
        "must be less than or equal to previous value",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// The reason why a pass did not end well.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PluginError {
    #[error("{}", .0.first().map_or("", |problem| &problem.note))]
    Problems(Vec<Problem>),
    #[error("cannot fetch the manifests: {}", .0.reason())]
    Cloud(#[source] ClientError),
    #[error("cannot read the objects of the plugin")]
    Read(#[source] Error),
    #[error("cannot read the stored version of the plugin")]
    Stored(#[source] Error),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl From<Problem> for PluginError {
    fn from(problem: Problem) -> Self {
        Self::Problems(vec![problem])
    }
}

impl PluginError {
    /// The problem in the status.
    pub(crate) fn problem(&self) -> Option<Problem> {
        let unread = |error: &Error| format!("the objects of the plugin cannot be read: {}", Chain(error));
        Some(match self {
            Self::Problems(problems) => return problems.first().cloned(),
            Self::Cloud(error) => Problem::transient(
                "ManifestsUnavailable",
                format!(
                    "the manifests cannot be fetched from the cloud: {}. It is tried again.",
                    error.reason()
                ),
            ),
            Self::Read(error) if matches!(error, Error::Api(status) if status.code == 403) => Problem::stalling(
                DENIED,
                format!(
                    "{}. Bind the service account of the coordinator to what the plugin needs (deploy/coordinator/plugins).",
                    unread(error)
                ),
            ),
            Self::Read(error) => Problem::transient("ReadFailed", format!("{}. It is tried again.", unread(error))),
            Self::Stored(_) | Self::Write(_) => return None,
        })
    }
}

impl ReconcileError for PluginError {
    fn category(&self) -> Category {
        let (class, retry) = match self {
            Self::Write(error) => return error.category(),
            Self::Problems(problems) if problems.iter().all(|problem| problem.reason == "ManifestsRefused") => {
                ("objects", Retry::Slow)
            }
            Self::Problems(_) => ("objects", Retry::Backoff),
            Self::Cloud(error) => {
                let retry = error.retry_after().map_or(Retry::Backoff, Retry::BackoffAfter);
                (error.class(), retry)
            }
            Self::Read(error) | Self::Stored(error) => ("read", Retry::of(error)),
        };
        let problem = self.problem();
        let notice = problem.map(|problem| Notice::warning(problem.reason, "Apply", problem.note));
        Category::new(class, retry).notify(notice)
    }
}

#[cfg(test)]
mod tests;
