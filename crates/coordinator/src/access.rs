//! The actions that a person or a team may perform in the cluster, and the bindings that permit them.
//!
//! - A user or a team may do what every binding that names them gives, no matter who made it: the objects of the
//!   cluster decide, not the cloud.
//! - Beside it stands what the cloud gives and the cluster does not: rules that are refused, and bindings that wait.
//! - The cluster does not know who is in a team; the question names the teams.
//! - Nothing is written.

mod answer;
mod asked;
mod describe;
mod live;

use kube::Client;

pub use answer::{
    AccessExplained, EventExplained, GrantExplained, RefusedExplained, RoleExplained, UserExplained, WaitingExplained,
};

use asked::Asked;
use live::Live;

/// The question.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The user, by id or by the name that the cluster knows.
    pub user: Option<String>,
    /// Teams, by id: those of the user, if there is one.
    pub teams: Vec<String>,
    /// The namespace; None for all.
    pub namespace: Option<String>,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// No User has this name, and it is no id.
    #[error(
        "there is no User {asked} in this cluster ({known}): give the id, which tidewaiter cloud get users -o wide shows. Users without access to the \
         nodes have no name in the cluster"
    )]
    NoUser {
        /// The requested name.
        asked: String,
        /// The existing names.
        known: String,
    },
    /// Several Users have this name.
    #[error("{} Users are named {asked}: give one of the ids {}", .ids.len(), .ids.join(", "))]
    Ambiguous {
        /// The requested name.
        asked: String,
        /// Their ids.
        ids: Vec<String>,
    },
    /// It is no id of a team.
    #[error(
        "{asked} is no id of a team, and the cluster does not know the names of teams ({known}): give the id, which tidewaiter cloud get teams -o wide shows"
    )]
    NoTeam {
        /// The requested name.
        asked: String,
        /// The names in the bindings.
        known: String,
    },
    /// The API server does not know the custom resources.
    #[error("this cluster has no {0}: apply deploy/crds/coordinator")]
    NoDefinition(&'static str),
    /// The API server does not let itself be read.
    #[error("{what} cannot be read")]
    Read {
        /// The objects that could not be read.
        what: &'static str,
        /// The cause.
        source: kube::Error,
    },
}

/// Answers the question.
///
/// # Errors
/// As [`AccessError`] says. A user who may do nothing is an answer.
pub async fn explain(client: &Client, question: &Question) -> Result<AccessExplained, AccessError> {
    let live = Live::read(client, question.namespace.as_deref()).await?;
    let asked = Asked::find(&live, question)?;
    let details = live.details(client, &asked).await?;
    Ok(describe::explain(&live, &details, &asked))
}

#[cfg(test)]
mod tests;
