//! The report after a removal: what clusters have done, and the credentials that stay.

use std::fmt::Write as _;
use std::time::Duration;

use tidewaiter_api::values::printable;

use super::super::cluster_reports::follow;
use super::super::session::Session;
use super::{Leaver, Outcome};

/// The time in which clusters usually follow.
const WAIT: Duration = Duration::from_secs(10);

impl Leaver {
    /// The credentials that the person may know, as lines.
    pub(super) fn not_removed(&self) -> String {
        let mut shown = String::new();
        for membership in &self.memberships {
            for created in &membership.created {
                let created = printable(&format!("{created} in {}", membership.name));
                let _ = writeln!(shown, "not removed: revoke it if the person may know it: {created}");
            }
        }
        shown
    }

    /// What the clusters have done, as far as they report it within [`WAIT`], and what stays.
    pub(super) async fn report(&self, session: &Session, outcome: &Outcome<'_>) -> String {
        let (mut followed, mut behind) = (Vec::new(), Vec::new());
        for (membership, made) in &outcome.made {
            // Without a number of the server, or with an error, it is not known which have.
            let unknown = (Vec::new(), membership.clusters.clone());
            let (some, others) = if made.is_empty() || membership.clusters.is_empty() {
                unknown
            } else {
                let found = follow(session, &membership.organization, made, WAIT, |_| ()).await;
                found.unwrap_or(unknown)
            };
            followed.extend(some);
            behind.extend(others);
        }
        let not_removed = self.not_removed();
        if followed.is_empty() && behind.is_empty() {
            return format!("no cluster is concerned\n{not_removed}");
        }
        let listed = |names: &[String]| match names {
            [] => "none".to_owned(),
            names => printable(&names.join(", ")),
        };
        format!(
            "{not_removed}have followed: {}\n\
             have not, as far as the cloud knows: {}\n\
             Ask each: tidewaiter explain access --user {}\n\
             A token for a kube-apiserver lasts for kubernetesTokenSeconds (by default, ten minutes); open watches\n\
             and kubectl exec go on. Open SSH sessions go on: tidewaiter explain logins says where nodes record them; end\n\
             them there.\n",
            listed(&followed),
            listed(&behind),
            self.id
        )
    }
}
