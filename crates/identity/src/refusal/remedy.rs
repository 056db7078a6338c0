//! The remedies for an operator, each in one or two sentences. That for a missing response depends on the cloud.

use super::{GroupHold, Mark, Refusal, UnavailableCause};

impl Refusal {
    /// The remedy for an operator, in one sentence.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::InvalidProviderId { .. } => {
                "Check that the cloud controller manager runs and that the node's kubelet is set up for this cloud."
            }
            Self::NotFound { .. } => {
                "If the instance exists, check the controller's account or project and its region. If it does not exist, delete the Node."
            }
            Self::NotRunning { .. } => "No action is needed if the instance is being terminated. Otherwise, start it.",
            Self::Starting { .. } => "No action is needed: the cloud is queried again every few seconds.",
            Self::ForeignProject { theirs: Some(_), .. } => {
                "Find out who registered this Node: it claims an instance of another cluster."
            }
            Self::ForeignProject { mark, theirs: None, .. } | Self::NotInGroup { mark, .. } => mark.remedy(),
            Self::NotManaged { .. } => {
                "Delete the instance and let its instance group create a new one, or run kops update cluster --yes if the group has changed."
            }
            Self::NameMismatch { .. } => {
                "Find out who registered this Node. If the cluster uses custom node names, set nodeNames: warn."
            }
            Self::NameScheme { .. } => {
                "If the Nodes of this cluster are named so, correct nodeNames or kOps' file. Otherwise, find out who registered this Node: it may have the certificate of an earlier instance."
            }
            Self::AddressMismatch { .. } => {
                "Find out who registered this Node, and check the --node-ip of its kubelet."
            }
            Self::ZoneMismatch { .. } => {
                "Find out who wrote this providerID: a cloud controller manager writes the correct zone."
            }
            Self::ProjectMismatch { .. } => {
                "If the cluster is in the other project, correct the setting project (TIDEWAITER_PROJECT or GCP_PROJECT). Otherwise, find out who registered this Node."
            }
            Self::GroupChanged { hold, .. } => hold.remedy(),
            Self::Duplicate { .. } => "Find out which Node belongs to the instance and delete the other.",
            Self::Throttled { .. } => {
                "No action is needed if this is temporary. Otherwise, find other callers of this API in the same account or project."
            }
            Self::Unavailable { api, cause, .. } => cause.remedy(api),
        }
    }
}

impl Mark {
    /// The remedy for a missing or invalid mark.
    fn remedy(self) -> &'static str {
        match self {
            Self::Tag => "Restore the tags that kOps sets on the instance: kops update cluster --yes.",
            Self::Label => "Restore the labels that kOps sets on the server: kops update cluster --yes.",
            Self::Template => {
                "Create a new instance template and replace the instance: kops update cluster --yes, then kops rolling-update cluster --yes."
            }
        }
    }
}

impl GroupHold {
    fn remedy(self) -> &'static str {
        match self {
            Self::Setting => {
                "Find out who changed the group and change it back. If the change is right, replace the instance, or set onGroupChange: follow."
            }
            Self::ControlPlane => {
                "Find out who changed the group and change it back. If the change is right, replace the instance: the Node of a worker never becomes one of the control plane."
            }
            Self::Undefined => {
                "Find out who changed the group. If the change is right, correct the file of the new group in the state store: until it can be read, the Node may be one of the control plane's."
            }
            Self::Tags => {
                "Find out who changed the group and change it back. If the change is right, replace the instance: its other tags, from which its labels come, are still those of the group that launched it."
            }
        }
    }
}

impl UnavailableCause {
    /// The first part of `api` selects the cloud.
    fn remedy(self, api: &str) -> &'static str {
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
