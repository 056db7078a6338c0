//! The objects in the path of a request, and checks that they exist.

use super::Error;
use super::call::Call;
use super::refusal::Refusal;
use super::store::{Row, Source};
use super::view::is_locked;
use crate::models::Kind;

/// The objects in the path of a request: strings as in the store, empty if the path has none.
#[derive(Clone, Debug, Default)]
pub(super) struct Spot {
    pub(super) organization: String,
    pub(super) cluster: String,
    pub(super) pool: String,
    pub(super) user: String,
    /// The id of the item.
    pub(super) id: String,
    /// True if the user in the path is the caller.
    pub(super) own: bool,
}

impl Spot {
    /// The objects in the path of `call`. A malformed id is not found.
    pub(super) fn of(call: &Call) -> Result<Self, Refusal> {
        let key = |name: &str| {
            if call.has_parameter(name) {
                call.key(name)
            } else {
                Ok(String::new())
            }
        };
        let caller = call.user().ok();
        let user = key("user_id")?;
        let own = caller.is_some_and(|caller| caller.to_string() == user);
        let mut spot = Self {
            organization: key("organization_id")?,
            cluster: key("cluster_id")?,
            pool: key("node_pool_id")?,
            user,
            id: key("id")?,
            own,
        };
        // The paths below /v3/account are about the caller.
        if spot.organization.is_empty() && call.endpoint.kind == Some(Kind::SshKey) {
            spot.user = call.owner();
            spot.own = true;
        }
        let item = match call.endpoint.kind {
            Some(Kind::Organization) => Some(&spot.organization),
            Some(Kind::Cluster) => Some(&spot.cluster),
            Some(Kind::NodePool) => Some(&spot.pool),
            _ => None,
        };
        if let Some(id) = item.cloned() {
            spot.id = id;
        }
        if let Some(Kind::Upgrade) = call.endpoint.kind
            && spot.id.is_empty()
        {
            spot.id = key("upgrade_id")?;
        }
        Ok(spot)
    }

    /// The id of the parent of an object of `kind`.
    pub(super) fn parent(&self, kind: Kind) -> &str {
        match kind.parent() {
            Some(Kind::User) => &self.user,
            Some(Kind::Cluster) => &self.cluster,
            Some(Kind::NodePool) => &self.pool,
            _ => &self.organization,
        }
    }

    /// The cluster that an object of `kind` concerns; empty for all of the organization.
    pub(super) fn concerned(&self, kind: Kind) -> &str {
        match kind {
            // Not the organization's other objects.
            Kind::Cluster | Kind::Organization => "",
            _ if self.parent(kind) == self.organization => "",
            _ => &self.cluster,
        }
    }

    /// Checks that all objects in the path exist and belong to each other. `writes` means that the request changes
    /// something.
    ///
    /// # Errors
    /// If one does not exist, or if the organization is locked.
    pub(super) async fn check(&self, source: &mut dyn Source, kind: Kind, writes: bool) -> Result<(), Error> {
        if writes && !self.organization.is_empty() {
            unlocked(source, &self.organization).await?;
        }
        if !self.cluster.is_empty() && kind != Kind::Cluster {
            let cluster = source.get(Kind::Cluster, &self.cluster).await?;
            cluster
                .filter(|cluster| cluster.organization_id == self.organization)
                .ok_or_else(Refusal::not_found)?;
        }
        if !self.pool.is_empty() && kind != Kind::NodePool {
            let pool = source.get(Kind::NodePool, &self.pool).await?;
            pool.filter(|pool| pool.parent_id == self.cluster)
                .ok_or_else(Refusal::not_found)?;
        }
        if kind == Kind::SshKey && !self.organization.is_empty() {
            let membership = membership_id(&self.organization, &self.user);
            source.existing(Kind::Membership, &membership).await?;
        }
        Ok(())
    }
}

/// The organization, unless it is locked.
pub(super) async fn unlocked(source: &mut dyn Source, organization: &str) -> Result<Row, Error> {
    let row = source.existing(Kind::Organization, organization).await?;
    if is_locked(&row) {
        return Err(
            Refusal::forbidden("the organization is locked: ask an operator of this server to unlock it").into(),
        );
    }
    Ok(row)
}

/// The user, if the organization is the user's home: only there can others change the user.
pub(super) async fn at_home(source: &mut dyn Source, organization: &str, user: &str) -> Result<Row, Error> {
    let row = source.existing(Kind::User, user).await?;
    if row.organization_id == organization {
        return Ok(row);
    }
    Err(
        Refusal::forbidden("the user's home is another organization: only an owner there or the user can change this")
            .into(),
    )
}

/// The id of a membership.
pub(super) fn membership_id(organization: &str, user: &str) -> String {
    format!("{organization}.{user}")
}

/// The object that the path refers to.
pub(super) async fn found(source: &mut dyn Source, kind: Kind, spot: &Spot) -> Result<Row, Error> {
    spot.check(source, kind, false).await?;
    let row = source.get(kind, &spot.id).await?;
    let row = row.filter(|row| match kind {
        Kind::Organization => true,
        _ => row.parent_id == spot.parent(kind),
    });
    Ok(row.ok_or_else(Refusal::not_found)?)
}

/// The cluster that the path refers to.
pub(super) async fn cluster(source: &mut dyn Source, spot: &Spot) -> Result<Row, Error> {
    let row = source.get(Kind::Cluster, &spot.cluster).await?;
    let row = row.filter(|row| row.organization_id == spot.organization);
    Ok(row.ok_or_else(Refusal::not_found)?)
}
