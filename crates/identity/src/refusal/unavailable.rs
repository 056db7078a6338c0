//! The causes of a missing response from the cloud, and their remedies, which depend on the cloud.

/// The reason why there is no usable response from the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnavailableCause {
    /// The caller is authenticated and lacks the permission.
    #[error("permission denied")]
    Denied,
    /// There are no credentials, or the cloud rejects them.
    #[error("no valid credentials")]
    Credentials,
    /// No connection, or timeout.
    #[error("not reachable")]
    Unreachable,
    /// The cloud reported an internal error.
    #[error("the cloud failed")]
    Failed,
    /// The response cannot be interpreted.
    #[error("unusable response")]
    Unusable,
}

impl UnavailableCause {
    /// The value of the label `outcome` in the metric of calls.
    pub(crate) fn outcome(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Credentials => "no_credentials",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
            Self::Unusable => "unusable",
        }
    }

    /// The first part of `api` selects the cloud.
    pub(super) fn remedy(self, api: &str) -> &'static str {
        let cloud = api.split(':').next().unwrap_or_default();
        match (self, cloud) {
            (Self::Denied, "gce") => "Grant the role roles/compute.viewer to the controller's service account.",
            (Self::Denied, "hcloud") => "Configure an API token with read permission for the project.",
            (Self::Denied, _) => "Grant the controller's role the permission for this call.",
            (Self::Credentials, "gce") => {
                "Provide credentials: the service account of the machine, or GOOGLE_APPLICATION_CREDENTIALS. If there are some, check the clock of this machine."
            }
            (Self::Credentials, "hcloud") => "Provide credentials: an API token of the project, in HCLOUD_TOKEN.",
            (Self::Credentials, _) => {
                "Provide credentials: an instance profile that the pod can reach, or a role for its service account. If there are some, check the clock of this machine."
            }
            (Self::Unreachable, _) => {
                "Check routes, DNS and firewalls between the control plane and the cloud's endpoint."
            }
            (Self::Failed, _) => "No action is needed if this is temporary. Otherwise, see the cloud's status page.",
            (Self::Unusable, _) => {
                "Check that the endpoint belongs to the cloud and that no proxy responds in its place."
            }
        }
    }
}
