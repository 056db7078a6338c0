//! Rows of the audit log.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::database::Store;
use super::deadline::within;
use super::draft::Origin;
use super::error::StoreError;
use super::row::{Row, select};
use super::source::{Source, query};
use crate::models::Kind;
use crate::server::Error;

/// The deletions that clusters see, those of nodes apart.
const DELETIONS: i64 = 1_000;

/// The kinds whose deletions they see: those that clusters mirror. A membership is a user of the organization. What
/// belongs to an object that stays is not among them: the assignment of a policy has an id that ends with that of the
/// policy.
const MIRRORED: [Kind; 11] = [
    Kind::User,
    Kind::Membership,
    Kind::Registry,
    Kind::Plugin,
    Kind::ClusterLabel,
    Kind::NodePool,
    Kind::NodePoolLabel,
    Kind::AutoscalingPolicy,
    Kind::Role,
    Kind::RoleBinding,
    Kind::Upgrade,
];

/// The statement that reads them. The deletions that concern all clusters and those of one are two ranges of an index:
/// the deletions of other clusters are not read. The other kinds are left out before the limit, or revoked tokens could
/// displace the rest. Nodes have a limit of their own, because an autoscaler deletes them all the time.
static RECORD: LazyLock<String> = LazyLock::new(|| {
    let word = |kind: Kind| format!("'{}'", kind.word());
    let (mirrored, node) = (MIRRORED.map(word).join(", "), word(Kind::Node));
    let part = |cluster: &str, kinds: &str| {
        format!(
            "SELECT * FROM (SELECT sequence, kind, object_id, at FROM changes WHERE organization_id = $1 \
             AND cluster_id = {cluster} AND action = 'delete' AND kind IN ({kinds}) AND NOT EXISTS \
             (SELECT 1 FROM objects WHERE objects.kind = changes.kind AND objects.id = changes.object_id) \
             ORDER BY sequence DESC LIMIT $3) AS part"
        )
    };
    let (shared, own, nodes) = (part("''", &mirrored), part("$2", &mirrored), part("$2", &node));
    format!(
        "SELECT kind, object_id, at FROM (SELECT * FROM (SELECT * FROM ({shared} UNION ALL {own}) AS found \
         ORDER BY sequence DESC LIMIT $3) AS mirrored UNION ALL {nodes}) AS record ORDER BY sequence DESC"
    )
});

/// The statement that reads what is removed with a node pool and not yet deleted. It begins with the removals, which
/// are few.
const REMOVED: &str = "SELECT objects.kind, id AS object_id, updated_at AS at FROM removals CROSS JOIN objects WHERE \
                       removals.kind IN ('nodes', 'node-pool-labels') AND objects.kind = removals.kind \
                       AND objects.parent_id = removals.parent_id AND objects.position <= removals.position \
                       AND cluster_id = $1 ORDER BY objects.position DESC LIMIT 1000";

/// A selection of the changes of an organization. An empty text selects all.
#[derive(Clone, Copy, Debug)]
pub struct ChangeFilter<'a> {
    pub kind: &'a str,
    /// The actor, or the id in its name.
    pub actor: &'a str,
    /// The earliest time, or the beginning of its text.
    pub since: &'a str,
    /// The smallest number.
    pub first: i64,
}

impl Default for ChangeFilter<'_> {
    /// All changes.
    fn default() -> Self {
        Self {
            kind: "",
            actor: "",
            since: "",
            first: i64::MIN,
        }
    }
}

impl Store {
    /// Passes the selected changes of an organization to `take`, newest first, until it breaks: at most `limit` before
    /// the number `before`.
    pub async fn each_change(
        &self,
        organization: &str,
        selected: &ChangeFilter<'_>,
        (before, limit): (i64, i64),
        mut take: impl FnMut(&AuditedChange<'_>) -> Result<ControlFlow<()>, Error> + Send,
    ) -> Result<(), Error> {
        let statement = query(
            "SELECT sequence, at, cluster_id, kind, object_id, action, actor, request_id, before, after FROM changes \
             WHERE organization_id = $1 AND ($2 = '' OR kind = $2) \
             AND ($3 = '' OR actor IN ($3, 'user:' || $3, 'service_account:' || $3, 'cluster:' || $3)) AND at >= $4 \
             AND sequence < $5 AND sequence >= $6 ORDER BY sequence DESC LIMIT $7",
            &[organization, selected.kind, selected.actor, selected.since],
        )
        .bind(before)
        .bind(selected.first)
        .bind(limit);
        self.each_row(statement, |row| {
            take(&AuditedChange::of(row).map_err(StoreError::from)?)
        })
        .await
    }

    /// The number and the time of the change of an organization that is `skipped` changes before the last one with a
    /// number below `before`.
    pub async fn change_before(
        &self,
        organization: &str,
        (before, skipped): (i64, i64),
    ) -> Result<Option<(i64, String)>, StoreError> {
        let statement = "SELECT sequence, at FROM changes WHERE organization_id = $1 AND sequence < $2 \
                         ORDER BY sequence DESC LIMIT 1 OFFSET $3";
        let found = self
            .read(query(statement, &[organization]).bind(before).bind(skipped))
            .await?;
        let read = |row: &AnyRow| Ok((row.try_get(0)?, row.try_get(1)?));
        found.first().map(read).transpose()
    }

    /// The last deletions of objects that a cluster of an organization mirrors, newest first: at most [`DELETIONS`],
    /// and as many of nodes. An object that exists again, a membership for example, is not deleted.
    pub async fn deletions(&self, organization: &str, cluster: &str) -> Result<Vec<Value>, StoreError> {
        // First, so that what is deleted in between is in one of the two.
        let mut found = Source::fetch(&mut &*self, REMOVED, &[cluster]).await?;
        let mut reader = self.reader().await?;
        let deleted = query(&RECORD, &[organization, cluster])
            .bind(DELETIONS)
            .fetch_all(&mut *reader);
        let deleted = within(deleted).await?;
        found.extend(reader.end(deleted));
        let deletions: Result<Vec<_>, sqlx::Error> = found.iter().map(deletion).collect();
        Ok(deletions?.into_iter().flatten().collect())
    }

    /// The members, roles and bindings of an organization that were changed after they were created: the lists of a
    /// cluster may have had them.
    pub async fn each_changed_access(
        &self,
        organization: &str,
        mut take: impl FnMut(Row) -> Result<ControlFlow<()>, Error> + Send,
    ) -> Result<(), Error> {
        let statement = select!(
            "kind IN ('memberships', 'roles', 'role-bindings') AND parent_id = $1 AND updated_at <> created_at ORDER BY position"
        );
        self.each_row(query(statement, &[organization]), |row| take(Row::read(row)?))
            .await
    }
}

fn deletion(row: &AnyRow) -> Result<Option<Value>, sqlx::Error> {
    let text = |column| row.try_get::<&str, _>(column);
    let (kind, id, at) = (text("kind")?, text("object_id")?, text("at")?);
    Ok(Kind::of(kind).and_then(|kind| recorded(kind, id, at)))
}

/// An entry of the record of deletions: the kind as clusters know it, and the id.
pub fn recorded(kind: Kind, id: &str, at: &str) -> Option<Value> {
    // The id of a membership ends with the user's.
    let id = id.rsplit('.').next().unwrap_or(id);
    Some(json!({ "kind": kind.facts().event?.word(), "id": id, "at": at }))
}

/// A change with its time, author and request, and with what differs before and after it, without secrets. The objects
/// are shown as they are stored: a tree of values would take many times their size.
#[derive(Serialize)]
pub struct AuditedChange<'a> {
    action: &'a str,
    actor: &'a str,
    address: &'a str,
    after: Option<&'a RawValue>,
    at: &'a str,
    before: Option<&'a RawValue>,
    client_request_id: &'a str,
    cluster_id: &'a str,
    /// Its number.
    pub id: i64,
    kind: &'a str,
    object_id: &'a str,
    request_id: &'a str,
}

impl<'a> AuditedChange<'a> {
    fn of(row: &'a AnyRow) -> Result<Self, sqlx::Error> {
        let text = |column| row.try_get::<&str, _>(column);
        // `null` before a creation and after a deletion.
        let document = |column| Ok::<_, sqlx::Error>(serde_json::from_str(text(column)?).ok());
        let [request_id, address, client_request_id] = Origin::parts(text("request_id")?);
        Ok(Self {
            action: text("action")?,
            actor: text("actor")?,
            address,
            after: document("after")?,
            at: text("at")?,
            before: document("before")?,
            client_request_id,
            cluster_id: text("cluster_id")?,
            id: row.try_get("sequence")?,
            kind: text("kind")?,
            object_id: text("object_id")?,
            request_id,
        })
    }
}
