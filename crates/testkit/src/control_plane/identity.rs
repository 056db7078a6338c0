//! The identity of a client to the API server.

/// A user of the API server, authenticated by a client certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A member of `system:masters`: may do everything, past all authorization.
    Admin,
    /// The kubelet of this Node: `system:node:<name>` in `system:nodes`.
    Kubelet(String),
    /// A service account, with the name and groups that its token would give it. The object need not exist.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Any user, in at most two groups (besides `system:authenticated`, which the API server adds).
    User {
        /// The user name.
        name: String,
        /// The groups.
        groups: Vec<String>,
    },
}

impl Identity {
    /// The kubelet of this Node.
    #[must_use]
    pub fn kubelet(node: impl Into<String>) -> Self {
        Self::Kubelet(node.into())
    }

    /// This service account.
    #[must_use]
    pub fn service_account(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self::ServiceAccount {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// This user, in these groups.
    #[must_use]
    pub fn user(name: impl Into<String>, groups: &[&str]) -> Self {
        Self::User {
            name: name.into(),
            groups: groups.iter().map(ToString::to_string).collect(),
        }
    }

    /// The user name, as it stands in the audit log and in role bindings.
    #[must_use]
    pub fn username(&self) -> String {
        match self {
            Self::Admin => "admin".to_owned(),
            Self::Kubelet(node) => format!("system:node:{node}"),
            Self::ServiceAccount { namespace, name } => format!("system:serviceaccount:{namespace}:{name}"),
            Self::User { name, .. } => name.clone(),
        }
    }

    pub(super) fn groups(&self) -> Vec<String> {
        match self {
            Self::Admin => vec!["system:masters".to_owned()],
            Self::Kubelet(_) => vec!["system:nodes".to_owned()],
            Self::ServiceAccount { namespace, .. } => {
                vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                ]
            }
            Self::User { groups, .. } => groups.clone(),
        }
    }
}
