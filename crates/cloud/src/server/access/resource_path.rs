//! The objects in the path of a request, and checks that they exist.

use super::organizations::unlocked;
use crate::models::Kind;
use crate::server::Error;
use crate::server::http::call::Call;
use crate::server::refusal::Refusal;
use crate::server::store::membership_id;
use crate::server::store::{Row, Source};

/// The objects in the path of a request: strings as in the store, empty if the path has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResourcePath {
    pub(crate) organization: String,
    pub(crate) cluster: String,
    pub(crate) pool: String,
    pub(crate) user: String,
    /// The id of the item.
    pub(crate) id: String,
    /// True if the user in the path is the caller.
    pub(crate) own: bool,
}

impl ResourcePath {
    /// The objects in the path of `call`. A malformed id is not found.
    pub(crate) fn of(call: &Call) -> Result<Self, Refusal> {
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
        let mut resource = Self {
            organization: key("organization_id")?,
            cluster: key("cluster_id")?,
            pool: key("node_pool_id")?,
            user,
            id: key("id")?,
            own,
        };
        // The paths below /v3/account are about the caller.
        if resource.organization.is_empty() && call.endpoint.kind == Some(Kind::SshKey) {
            resource.user = call.owner();
            resource.own = true;
        }
        let item = match call.endpoint.kind {
            Some(Kind::Organization) => Some(&resource.organization),
            Some(Kind::Cluster) => Some(&resource.cluster),
            Some(Kind::NodePool) => Some(&resource.pool),
            _ => None,
        };
        if let Some(id) = item.cloned() {
            resource.id = id;
        }
        if let Some(Kind::Upgrade) = call.endpoint.kind
            && resource.id.is_empty()
        {
            resource.id = key("upgrade_id")?;
        }
        Ok(resource)
    }

    /// The id of the parent of an object of `kind`.
    pub(crate) fn parent(&self, kind: Kind) -> &str {
        match kind.parent() {
            Some(Kind::User) => &self.user,
            Some(Kind::Cluster) => &self.cluster,
            Some(Kind::NodePool) => &self.pool,
            _ => &self.organization,
        }
    }

    /// The cluster that an object of `kind` concerns; empty for all of the organization.
    pub(crate) fn concerned(&self, kind: Kind) -> &str {
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
    pub(crate) async fn check_parents(&self, source: &mut dyn Source, kind: Kind, writes: bool) -> Result<(), Error> {
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

/// The object that the path refers to.
pub(crate) async fn find(source: &mut dyn Source, kind: Kind, resource: &ResourcePath) -> Result<Row, Error> {
    resource.check_parents(source, kind, false).await?;
    let row = source.get(kind, &resource.id).await?;
    let row = row.filter(|row| match kind {
        Kind::Organization => true,
        _ => row.parent_id == resource.parent(kind),
    });
    Ok(row.ok_or_else(Refusal::not_found)?)
}

/// The cluster that the path refers to.
pub(crate) async fn cluster(source: &mut dyn Source, resource: &ResourcePath) -> Result<Row, Error> {
    let row = source.get(Kind::Cluster, &resource.cluster).await?;
    let row = row.filter(|row| row.organization_id == resource.organization);
    Ok(row.ok_or_else(Refusal::not_found)?)
}
