//! Lists, read row by row: of a long list, one object at a time is in memory as a tree of values.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::thread::available_parallelism;
use std::time::Duration;

use futures::TryStreamExt as _;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use tidewaiter_kit::{Clock as _, SystemClock};
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use super::database::Store;
use super::deadline::within;
use super::error::StoreError;
use super::row::{Row, select};
use super::source::{Source, Statement, query};
use crate::models::Kind;
use crate::server::Error;

/// The work after which other tasks have a turn: rows that are there already are read without waiting.
const TURN: Duration = Duration::from_millis(1);

/// The permits to work on a row of a list that took a turn: for half of the cores, so that short requests, which wait
/// for the database many times, find a core each time that it answers.
pub(super) fn long_lists() -> Semaphore {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    Semaphore::new((cores / 2).max(1))
}

/// The objects of a list, in the order of their creation.
#[derive(Clone, Copy, Debug)]
pub enum Listed<'a> {
    /// The objects of a kind below a parent.
    Children(Kind, &'a str),
    /// The objects of a kind in a cluster.
    InCluster(Kind, &'a str),
    /// The autoscaling policies that are assigned to a node pool.
    AssignedTo(&'a str),
    /// The reports of the clusters of an organization.
    ReportsOf(&'a str),
}

impl Listed<'_> {
    /// The kind of the objects.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Children(kind, _) | Self::InCluster(kind, _) => *kind,
            Self::AssignedTo(_) => Kind::AutoscalingPolicy,
            Self::ReportsOf(_) => Kind::ClusterReport,
        }
    }

    fn owner(&self) -> &str {
        let (Self::Children(_, owner) | Self::InCluster(_, owner) | Self::AssignedTo(owner) | Self::ReportsOf(owner)) =
            self;
        owner
    }

    /// The statement that reads at most $4 of them after the position $3. An index has them in this order.
    fn statement(&self) -> &'static str {
        match self {
            Self::Children(..) => {
                select!("kind = $1 AND parent_id = $2 AND position > $3 ORDER BY position LIMIT $4")
            }
            Self::InCluster(..) => {
                select!("kind = $1 AND cluster_id = $2 AND position > $3 ORDER BY position LIMIT $4")
            }
            Self::AssignedTo(_) => select!(
                "kind = $1 AND id IN (SELECT used_id FROM uses WHERE used_kind = $1 \
                 AND kind = 'autoscaling-assignments' AND id IN (SELECT id FROM objects \
                 WHERE kind = 'autoscaling-assignments' AND parent_id = $2)) AND position > $3 ORDER BY position LIMIT $4"
            ),
            Self::ReportsOf(_) => select!(
                "kind = $1 AND id IN (SELECT id FROM objects WHERE kind = 'clusters' AND parent_id = $2) \
                 AND position > $3 ORDER BY position LIMIT $4"
            ),
        }
    }
}

impl Store {
    /// Passes at most `limit` objects of a list after the position `after` to `take`, until it breaks.
    pub async fn each(
        &self,
        listed: Listed<'_>,
        after: i64,
        limit: i64,
        mut take: impl FnMut(Row) -> Result<ControlFlow<()>, Error> + Send,
    ) -> Result<(), Error> {
        let values = [listed.kind().word(), listed.owner()];
        let statement = query(listed.statement(), &values).bind(after).bind(limit);
        self.each_row(statement, |row| take(Row::read(row)?)).await
    }

    /// Passes each row that `statement` selects to `take`, until it breaks. Each row has the deadline of a statement.
    pub(super) async fn each_row(
        &self,
        statement: Statement,
        mut take: impl FnMut(&AnyRow) -> Result<ControlFlow<()>, Error> + Send,
    ) -> Result<(), Error> {
        let mut reader = self.reader().await?;
        let mut rows = statement.fetch(&mut *reader);
        let (mut worked, mut is_long) = (Duration::ZERO, false);
        let taken = loop {
            let Some(row) = within(rows.try_next()).await? else {
                break Ok(());
            };
            let permit = if is_long {
                self.long_lists.acquire().await.ok()
            } else {
                None
            };
            let began = SystemClock.monotonic();
            match take(&row) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break Ok(()),
                Err(error) => break Err(error),
            }
            worked += SystemClock.monotonic().saturating_sub(began);
            drop(permit);
            if worked > TURN {
                (worked, is_long) = (Duration::ZERO, true);
                yield_now().await;
            }
        };
        drop(rows);
        reader.end(taken)
    }

    /// The position of the object `id`, if the list has it.
    pub async fn position(&self, listed: Listed<'_>, id: &str) -> Result<Option<i64>, StoreError> {
        let row = self.get(listed.kind(), id).await?;
        let owned = |row: &Row| match listed {
            Listed::Children(_, parent) => row.parent_id == parent,
            Listed::InCluster(_, cluster) => row.cluster_id == cluster,
            Listed::AssignedTo(_) | Listed::ReportsOf(_) => false,
        };
        Ok(row.filter(owned).map(|row| row.position))
    }

    /// The members of an organization whose memberships have the positions `first` to `last`, whatever their home, and
    /// their SSH keys.
    pub async fn members(
        &self,
        organization: &str,
        (first, last): (i64, i64),
    ) -> Result<(Vec<Row>, Vec<Row>), StoreError> {
        let users = select!(
            "kind = 'users' AND id IN (SELECT used_id FROM uses WHERE used_kind = 'users' AND kind = 'memberships' \
             AND id IN (SELECT id FROM objects WHERE kind = 'memberships' AND parent_id = $1 \
             AND position BETWEEN $2 AND $3))"
        );
        let keys = select!(
            "kind = 'ssh-keys' AND parent_id IN (SELECT used_id FROM uses WHERE used_kind = 'users' \
             AND kind = 'memberships' AND id IN (SELECT id FROM objects WHERE kind = 'memberships' AND parent_id = $1 \
             AND position BETWEEN $2 AND $3)) ORDER BY position"
        );
        let read = async |statement| {
            let mut reader = self.reader().await?;
            let query = query(statement, &[organization]).bind(first).bind(last);
            let found = within(query.fetch_all(&mut *reader)).await?;
            reader.end(found).iter().map(Row::read).collect::<Result<Vec<_>, _>>()
        };
        Ok((read(users).await?, read(keys).await?))
    }

    /// The size of the document of an object in bytes; 0 if the object does not exist.
    pub async fn size(&self, kind: Kind, id: &str) -> Result<i64, StoreError> {
        let statement = "SELECT CAST(octet_length(spec) AS BIGINT) AS size FROM objects WHERE kind = $1 AND id = $2";
        let found = Source::fetch(&mut &*self, statement, &[kind.word(), id]).await?;
        let size = found.first().map(|row| row.try_get("size")).transpose()?;
        Ok(size.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use url::Url;

    use super::*;

    const HUNDRED: &str =
        "WITH RECURSIVE number(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < 100) SELECT i FROM number";

    async fn opened(folder: &tempfile::TempDir) -> Store {
        let url = format!("sqlite://{}/cloud.db", folder.path().display());
        let url: Url = url.parse().unwrap();
        Store::open(&url, SystemClock::shared()).await.unwrap().store
    }

    /// The work on a row that takes longer than a turn, so that the next one is there already.
    fn work() -> ControlFlow<()> {
        let end = SystemClock.monotonic() + 2 * TURN;
        while SystemClock.monotonic() < end {}
        ControlFlow::Continue(())
    }

    #[tokio::test]
    async fn long_lists_leave_cores_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder).await;
        let permits = u32::try_from(store.long_lists.available_permits()).unwrap();
        let all = store.long_lists.acquire_many(permits).await.unwrap();
        let rows = AtomicUsize::new(0);
        let mut each = pin!(store.each_row(query(HUNDRED, &[]), |_| {
            rows.fetch_add(1, Ordering::SeqCst);
            Ok(work())
        }));
        let others = async {
            while rows.load(Ordering::SeqCst) == 0 {
                yield_now().await;
            }
            for _ in 0..10_000 {
                yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = &mut each => panic!("it had no permit"),
            () = others => {}
        }
        // The first row of a list needs none: it may be short.
        assert_eq!(rows.load(Ordering::SeqCst), 1);
        drop(all);
        each.await.unwrap();
        assert_eq!(rows.load(Ordering::SeqCst), 100);
    }

    #[tokio::test]
    async fn a_long_list_gives_other_tasks_a_turn() {
        let folder = tempfile::tempdir().unwrap();
        let store = opened(&folder).await;
        let (mut rows, mut turns) = (0, 0);
        let each = store.each_row(query(HUNDRED, &[]), |_| {
            rows += 1;
            Ok(work())
        });
        let other = async {
            loop {
                turns += 1;
                yield_now().await;
            }
        };
        tokio::select! {
            biased;
            read = each => read.unwrap(),
            () = other => {}
        }
        assert!(rows == 100 && turns >= 90, "{turns} turns beside {rows} rows");
    }
}
