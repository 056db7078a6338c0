//! The context and the parent objects. Each command has the flags that mean something to it, and no others.

use anyhow::{Result, bail};
use clap::Args;
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::models::values::OrganizationId;

/// The context and the parent objects, as far as they are given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) context: Option<String>,
    pub(crate) organization: Option<OrganizationId>,
    /// By name or id.
    pub(crate) cluster: Option<String>,
    /// By name or id.
    pub(crate) node_pool: Option<String>,
    /// By e-mail address or id.
    pub(crate) user: Option<String>,
}

/// A server and an account there.
#[derive(Clone, Debug, Args)]
pub(crate) struct AccountPlace {
    /// The context [default: the current one]
    #[arg(long, value_name = "NAME", env = "TIDEWAITER_CLOUD_CONTEXT")]
    pub(crate) context: Option<String>,
}

/// An organization.
#[derive(Clone, Debug, Args)]
pub(crate) struct OrganizationPlace {
    #[command(flatten)]
    account: AccountPlace,

    /// The organization's id [default: that of the context]
    #[arg(long, value_name = "ID")]
    organization: Option<OrganizationId>,
}

/// A cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterPlace {
    #[command(flatten)]
    above: OrganizationPlace,

    /// The cluster, by name or id [default: that of the context]
    #[arg(long, value_name = "CLUSTER")]
    cluster: Option<String>,
}

/// A node pool.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodePoolPlace {
    #[command(flatten)]
    above: ClusterPlace,

    /// The node pool, by name or id
    #[arg(long, value_name = "POOL")]
    node_pool: Option<String>,
}

/// The parent of an object of any kind.
#[derive(Clone, Debug, Args)]
pub(crate) struct ObjectPlace {
    #[command(flatten)]
    above: ClusterPlace,

    /// The node pool, by name or id (for its nodes and labels)
    #[arg(long, value_name = "POOL")]
    node_pool: Option<String>,

    /// The user, by e-mail address or id (for SSH keys) [default: the logged-in user]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

impl ObjectPlace {
    /// The context and the parents of an object of this kind.
    ///
    /// # Errors
    /// A flag names a parent that no object of this kind has.
    pub(crate) fn of(&self, kind: Kind) -> Result<Place> {
        let place = Place::from(self);
        let given = [
            ("--organization", Kind::Organization, place.organization.is_some()),
            ("--cluster", Kind::Cluster, place.cluster.is_some()),
            ("--node-pool", Kind::NodePool, place.node_pool.is_some()),
            ("--user", Kind::User, place.user.is_some()),
        ];
        for (flag, parent, is_given) in given {
            let mut above = std::iter::successors(kind.parent(), |parent| parent.parent());
            if is_given && !above.any(|above| above == parent) {
                bail!("{flag} has no meaning for {}: omit it", kind.word());
            }
        }
        Ok(place)
    }
}

impl From<&AccountPlace> for Place {
    fn from(given: &AccountPlace) -> Self {
        Self {
            context: given.context.clone(),
            ..Self::default()
        }
    }
}

impl From<&OrganizationPlace> for Place {
    fn from(given: &OrganizationPlace) -> Self {
        Self {
            organization: given.organization,
            ..Self::from(&given.account)
        }
    }
}

impl From<&ClusterPlace> for Place {
    fn from(given: &ClusterPlace) -> Self {
        Self {
            cluster: given.cluster.clone(),
            ..Self::from(&given.above)
        }
    }
}

impl From<&NodePoolPlace> for Place {
    fn from(given: &NodePoolPlace) -> Self {
        Self {
            node_pool: given.node_pool.clone(),
            ..Self::from(&given.above)
        }
    }
}

impl From<&ObjectPlace> for Place {
    fn from(given: &ObjectPlace) -> Self {
        Self {
            node_pool: given.node_pool.clone(),
            user: given.user.clone(),
            ..Self::from(&given.above)
        }
    }
}
