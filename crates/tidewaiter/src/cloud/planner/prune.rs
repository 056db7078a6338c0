//! Deletes objects that no document names: of the kinds and clusters of the scope, and never the calling user.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::Value;
use tidewaiter_cloud::client::Path;
use tidewaiter_cloud::models::Kind;

use super::Planner;
use crate::cloud::api_document::name_of;
use crate::cloud::documents::{Document, PruneScope};
use crate::cloud::plan::Change;
use crate::cloud::session::text;

impl Planner<'_> {
    /// The objects that no document names, of the kinds of the scope.
    pub(super) async fn prune(&mut self, scope: &PruneScope, documents: &[Document]) -> Result<()> {
        let mut kinds: Vec<Kind> = scope.kinds.clone();
        kinds.sort_unstable();
        kinds.dedup();
        // A user who deletes the own account could not continue.
        let (account, _) = self.session.get(Path::new(["account"])).await?;
        self.kept.insert((Kind::User, text(&account, "id").to_owned()));
        let clusters = self.clusters_of(scope).await?;
        for kind in kinds.into_iter().rev() {
            for (_, list) in self.lists_of(kind, scope, documents).await? {
                // A binding of a cluster outside the scope stays.
                let in_scope = |object: &&Value| {
                    let cluster = text(object, "cluster_id");
                    let named = cluster.is_empty() || clusters.iter().any(|id| id == cluster);
                    kind != Kind::RoleBinding || named
                };
                let objects = self.objects(&list).await?.iter().filter(in_scope);
                let found: Vec<(String, String)> = objects
                    .map(|object| {
                        let called: Vec<&str> = kind.facts().key.iter().map(|field| text(object, field)).collect();
                        (text(object, "id").to_owned(), name_of(object, &called))
                    })
                    .collect();
                for (id, title) in found {
                    if !self.kept.contains(&(kind, id.clone())) {
                        let (_, etag) = self.session.get(list.clone().below(&id)).await?;
                        self.push(kind, title, list.clone(), Change::Delete { id, etag });
                    }
                }
            }
        }
        Ok(())
    }

    async fn clusters_of(&mut self, scope: &PruneScope) -> Result<Vec<String>> {
        let list = self.session.organization()?.below("clusters");
        let mut ids = Vec::new();
        for name in &scope.clusters {
            ids.push(self.id(Kind::Cluster, &list, name).await?);
        }
        Ok(ids)
    }

    /// The lists of a kind that are in the scope: of the organization, of the clusters that it names, of the users that
    /// documents give keys to.
    async fn lists_of(
        &mut self,
        kind: Kind,
        scope: &PruneScope,
        documents: &[Document],
    ) -> Result<BTreeMap<String, Path>> {
        let mut lists = Vec::new();
        match kind.parent() {
            Some(Kind::Organization) => lists.push(self.session.organization()?.below(kind.facts().segment)),
            Some(Kind::User) => {
                for document in documents.iter().filter(|document| document.kind == kind) {
                    lists.push(self.list_of(document).await?);
                }
            }
            Some(Kind::Cluster | Kind::NodePool) => {
                if scope.clusters.is_empty() {
                    bail!(
                        "to prune the kind {}, the Scope must list clusters: clusters: [NAME]",
                        kind.name()
                    );
                }
                for name in &scope.clusters {
                    let cluster = self.cluster(Some(name)).await?;
                    if kind.parent() == Some(Kind::Cluster) {
                        lists.push(cluster.below(kind.facts().segment));
                        continue;
                    }
                    let pools = cluster.below("node-pools");
                    let ids: Vec<String> = self
                        .objects(&pools)
                        .await?
                        .iter()
                        .map(|pool| text(pool, "id").to_owned())
                        .collect();
                    lists.extend(
                        ids.into_iter()
                            .map(|id| pools.clone().below(id).below(kind.facts().segment)),
                    );
                }
            }
            _ => {}
        }
        Ok(lists.into_iter().map(|list| (list.to_string(), list)).collect())
    }
}
