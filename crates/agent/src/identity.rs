//! The Node of the agent's token.
//!
//! The API server puts the name of the node into the token of a pod, and into each request that is made with it. The
//! agent asks for it there, because the admission policy compares reports with the same claim. It needs no permission
//! to read Nodes.

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;

const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

/// The Node of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeClaim {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The reason why the Node is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    /// The API server does not answer.
    #[error("the API server does not say whose token the agent has")]
    Review(#[source] kube::Error),
    /// The token is not that of a pod, or the API server is older than 1.32.
    #[error(
        "the agent's token names no node, so it may write no NodeReport: run the agent as a pod, on Kubernetes 1.32 or later"
    )]
    NoNode,
    /// Somebody gave the agent the token of another node's pod.
    #[error(
        "the agent's token is for the node {claimed:?}, but NODE_NAME is {expected:?}: run each agent as a pod of the DaemonSet"
    )]
    OtherNode {
        /// The node in the token.
        claimed: String,
        /// The node in the settings.
        expected: String,
    },
}

/// Requests the Node once, when the API server can be reached. Clones share the answer.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    expected: String,
    known: Arc<OnceLock<NodeClaim>>,
}

impl Identity {
    pub(crate) fn new(expected: &str) -> Self {
        Self {
            expected: expected.to_owned(),
            known: Arc::default(),
        }
    }

    /// The Node that the token names.
    pub(crate) async fn claim(&self, client: &Client) -> Result<NodeClaim, IdentityError> {
        if let Some(known) = self.known.get() {
            return Ok(known.clone());
        }
        let question = SelfSubjectReview {
            metadata: ObjectMeta::default(),
            status: None,
        };
        let answer = Api::all(client.clone()).create(&PostParams::default(), &question).await;
        let user = answer
            .map_err(IdentityError::Review)?
            .status
            .and_then(|status| status.user_info);
        let extra = user.and_then(|user| user.extra).unwrap_or_default();
        let value = |key: &str| extra.get(key).and_then(|values| values.first()).cloned();
        let (Some(name), Some(uid)) = (value(NODE_NAME), value(NODE_UID)) else {
            return Err(IdentityError::NoNode);
        };
        if name != self.expected {
            return Err(IdentityError::OtherNode {
                claimed: name,
                expected: self.expected.clone(),
            });
        }
        Ok(self.known.get_or_init(|| NodeClaim { name, uid }).clone())
    }

    /// The Node as an Event refers to it.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.expected.clone()),
            uid: self.known.get().map(|known| known.uid.clone()),
            ..ObjectReference::default()
        }
    }
}
