//! The permissions of a caller. Pure.
//!
//! The claim `terminate` alone proves nothing about this cluster: the cloud gives it to the admins of any organization.
//! So the caller must also administer this one, if the cloud says what the caller is in it. And a token for another
//! cluster is worth nothing here: the kube-apiserver of that cluster has seen it.

use tidewaiter_cloud::client::{Audience, Caller, Cluster};

/// The role in the claims that `DELETE /terminate` requires.
const TERMINATE: &str = "terminate";
/// The roles in an organization that include it.
const ADMINS: [&str; 2] = ["owner", "admin"];

/// The reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The token is for another cluster.
    Audience,
    /// The caller is no member of the cluster's organization.
    Organization,
    /// The caller may not terminate.
    Role,
}

impl Denied {
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Audience => "the token is for another cluster",
            Self::Organization => "you are not a member of the organization of this cluster",
            Self::Role => {
                "this requires the role terminate, which owners and admins of the organization have in a token of \
                 tidewaiter credential --cluster NAME, and not in that of their login"
            }
        }
    }
}

/// Checks that the caller may read the identity of this cluster.
pub(super) fn may_read(caller: &Caller, cluster: Cluster) -> Result<(), Denied> {
    match caller.audience {
        Audience::Cluster(id) if id != cluster.id => return Err(Denied::Audience),
        Audience::Unknown => return Err(Denied::Audience),
        Audience::Cloud | Audience::Cluster(_) => {}
    }
    let member = caller
        .organizations
        .iter()
        .any(|it| it.organization == cluster.organization);
    if member { Ok(()) } else { Err(Denied::Organization) }
}

/// Checks that the caller may have everything removed.
pub(super) fn may_terminate(caller: &Caller, cluster: Cluster) -> Result<(), Denied> {
    may_read(caller, cluster)?;
    let here = caller
        .organizations
        .iter()
        .filter(|it| it.organization == cluster.organization);
    let administers = here
        .filter_map(|it| it.role.as_deref())
        .all(|role| ADMINS.contains(&role));
    if administers && caller.roles.iter().any(|role| role == TERMINATE) {
        return Ok(());
    }
    Err(Denied::Role)
}

#[cfg(test)]
mod tests {
    use tidewaiter_cloud::client::Membership;

    use super::*;

    const OURS: &str = "11111111-1111-4111-8111-111111111111";
    const OTHER: &str = "99999999-9999-4999-8999-999999999999";

    fn cluster() -> Cluster {
        Cluster {
            organization: OURS.parse().unwrap(),
            id: "22222222-2222-4222-8222-222222222222".parse().unwrap(),
        }
    }

    fn caller(memberships: &[(&str, Option<&str>)], roles: &[&str], audience: Audience) -> Caller {
        let memberships = memberships.iter().map(|(organization, role)| Membership {
            organization: organization.parse().unwrap(),
            role: role.map(str::to_owned),
        });
        Caller {
            subject: String::new(),
            organizations: memberships.collect(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            audience,
        }
    }

    #[test]
    fn who_has_a_token_of_a_login_is_told_which_one_to_use() {
        assert!(Denied::Role.message().contains("tidewaiter credential --cluster NAME"));
    }

    #[test]
    fn members_read_and_admins_terminate() {
        let (own, cloud) = (Audience::Cluster(cluster().id), Audience::Cloud);
        let terminate = &["terminate"][..];
        let allowed = Ok(());
        for (memberships, roles, audience, reads, terminates) in [
            (&[(OURS, Some("owner"))][..], terminate, cloud, allowed, allowed),
            (&[(OURS, Some("admin"))], terminate, own, allowed, allowed),
            // A cloud that does not say it.
            (&[(OURS, None)], terminate, cloud, allowed, allowed),
            (&[(OURS, Some("owner"))], &[], cloud, allowed, Err(Denied::Role)),
            (&[(OURS, Some("owner"))], &["admin"], cloud, allowed, Err(Denied::Role)),
            (&[(OURS, Some("cluster"))], terminate, cloud, allowed, Err(Denied::Role)),
            // An admin of another organization.
            (
                &[(OTHER, Some("owner")), (OURS, Some("read_only"))],
                terminate,
                cloud,
                allowed,
                Err(Denied::Role),
            ),
            (
                &[(OTHER, Some("owner"))],
                terminate,
                cloud,
                Err(Denied::Organization),
                Err(Denied::Organization),
            ),
            (
                &[],
                terminate,
                cloud,
                Err(Denied::Organization),
                Err(Denied::Organization),
            ),
            // A token that another cluster has seen.
            (
                &[(OURS, Some("owner"))],
                terminate,
                Audience::Cluster(OTHER.parse().unwrap()),
                Err(Denied::Audience),
                Err(Denied::Audience),
            ),
            (
                &[(OURS, Some("owner"))],
                terminate,
                Audience::Unknown,
                Err(Denied::Audience),
                Err(Denied::Audience),
            ),
        ] {
            let caller = caller(memberships, roles, audience);
            assert_eq!(may_read(&caller, cluster()), reads, "{caller:?}");
            assert_eq!(may_terminate(&caller, cluster()), terminates, "{caller:?}");
        }
    }
}
