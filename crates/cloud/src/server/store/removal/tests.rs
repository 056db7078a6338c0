//! Removals of more objects than one step deletes, on both databases.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

use sqlx::Executor as _;
use tidewaiter_kit::SystemClock;
use tidewaiter_testkit::{Postgres, eventually};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::*;
use crate::models::UniqueName;
use crate::server::store::{Listed, Opened, References, Store, backup, restore};

const ORGANIZATION: &str = "11111111-1111-4111-8111-111111111111";
const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
const POOL: &str = "33333333-3333-4333-8333-333333333333";
const NODES: i64 = 950;
const SOON: Duration = Duration::from_mins(1);

async fn open(url: &Url) -> Opened {
    Store::open(url, SystemClock::shared()).await.unwrap()
}

/// The number of objects of a list.
async fn listed(store: &Store, list: Listed<'_>) -> usize {
    let mut number = 0;
    let each = store.each(list, i64::MIN, i64::MAX, |_| {
        number += 1;
        Ok(ControlFlow::Continue(()))
    });
    each.await.unwrap();
    number
}

fn author(queue: &str) -> Author {
    Author {
        actor: format!("user:{queue}"),
        origin: Origin {
            id: "request".to_owned(),
            ..Origin::default()
        },
        queue: queue.to_owned(),
    }
}

fn row(kind: Kind, id: &str, parent: &str) -> Row {
    let cluster = if [Kind::NodePool, Kind::Node].contains(&kind) {
        CLUSTER
    } else {
        ""
    };
    Row {
        organization_id: ORGANIZATION.to_owned(),
        cluster_id: cluster.to_owned(),
        parent_id: parent.to_owned(),
        ..Row::new(kind, id)
    }
}

/// Runs the writer while `work` runs.
async fn writing<T>(opened: Opened, work: impl AsyncFnOnce(&Store) -> T) -> T {
    let (shutdown, store) = (CancellationToken::new(), opened.store.clone());
    let work = async {
        let result = work(&store).await;
        shutdown.cancel();
        result
    };
    tokio::join!(work, opened.writer.run(shutdown.clone())).0
}

/// A cluster with a node pool of many nodes, which have names.
async fn seed(store: &Store) {
    let seeded = store.write(author("seed"), async move |transaction| {
        for (kind, id, parent) in [
            (Kind::Organization, ORGANIZATION, ""),
            (Kind::Cluster, CLUSTER, ORGANIZATION),
            (Kind::NodePool, POOL, CLUSTER),
        ] {
            transaction
                .insert(row(kind, id, parent), &References::default())
                .await?;
        }
        Ok(())
    });
    seeded.await.unwrap();
    let nodes = format!(
        "INSERT INTO objects (kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, updated_at, spec, status, secret) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {NODES}) \
         SELECT 'nodes', '44444444-4444-4444-8444-' || substr(CAST(1000000000000 + i AS TEXT), 2), '{ORGANIZATION}', '{CLUSTER}', '{POOL}', \
         '', 3, '2026-11-24T03:00:00Z', '2026-11-24T03:00:00Z', '{{}}', '', '' FROM n"
    );
    let names = "INSERT INTO names (kind, scope_id, name, id) SELECT kind, cluster_id, 'node-' || substr(id, 25), id \
                 FROM objects WHERE kind = 'nodes'";
    let counts = "INSERT INTO counts (organization_id, kind, count) SELECT organization_id, kind, COUNT(*) \
                  FROM objects WHERE kind = 'nodes' GROUP BY organization_id, kind";
    store.pool.execute(sqlx::AssertSqlSafe(nodes)).await.unwrap();
    store.pool.execute(names).await.unwrap();
    store.pool.execute(counts).await.unwrap();
}

async fn number(store: &Store, statement: &'static str) -> i64 {
    sqlx::query_as::<_, (i64,)>(statement)
        .fetch_one(&store.pool)
        .await
        .unwrap()
        .0
}

async fn nodes_left(store: &Store) -> i64 {
    number(store, "SELECT COUNT(*) FROM objects WHERE kind = 'nodes'").await
}

async fn all_deleted(store: &Store) {
    eventually("all to be deleted", SOON, async || {
        let left = number(
            store,
            "SELECT (SELECT COUNT(*) FROM objects WHERE kind = 'nodes') + (SELECT COUNT(*) FROM removals)",
        )
        .await;
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

/// Deletes the cluster while another organization writes, whose write is pending before anything is deleted.
async fn others_write_between_the_steps(url: Url) {
    let store = writing(open(&url).await, async |store: &Store| {
        seed(store).await;
        let deleted = store.write(author(ORGANIZATION), async move |transaction| {
            let cluster = transaction.existing(Kind::Cluster, CLUSTER).await?;
            transaction.remove(&cluster).await
        });
        let other = async |turn: u32| {
            let written = store.write(author("other"), async move |transaction| {
                let registry = Row {
                    organization_id: "other".to_owned(),
                    ..row(Kind::Registry, &turn.to_string(), "other")
                };
                transaction.insert(registry, &References::default()).await
            });
            written.await.unwrap().position
        };
        let (deleted, first) = tokio::join!(deleted, other(1));
        deleted.unwrap();
        let second = other(2).await;
        all_deleted(store).await;
        let last = number(store, "SELECT MAX(sequence) FROM changes WHERE kind = 'nodes'").await;
        assert!(first < second && second < last, "{first} {second} {last}");
        store.clone()
    })
    .await;
    // The same audit rows and counts as of a small deletion.
    let rows = number(
        &store,
        "SELECT COUNT(*) FROM changes WHERE kind = 'nodes' AND action = 'delete' AND actor LIKE 'user:1111%' \
                               AND request_id = 'request' AND before = '{}'",
    );
    assert_eq!(rows.await, NODES);
    let counted = "SELECT CAST(SUM(count) AS BIGINT) FROM counts WHERE kind IN ('nodes', 'node-pools', 'clusters')";
    assert_eq!(number(&store, counted).await, 0);
    assert_eq!(number(&store, "SELECT COUNT(*) FROM names").await, 0);
    assert_eq!(
        store.feed().latest(),
        number(&store, "SELECT value FROM sequence").await
    );
}

/// Covers the nodes of a pool as the first commit of a removal does, and deletes none of them.
async fn removed_pool(url: &Url) -> Store {
    writing(open(url).await, async |store: &Store| {
        seed(store).await;
        let removed = store.write(author(ORGANIZATION), async move |transaction| {
            let pool = transaction.existing(Kind::NodePool, POOL).await?;
            transaction.remove_all(from_ref(&pool)).await?;
            Ok(transaction.cover(&[pool]).await?)
        });
        removed.await.unwrap();
        store.clone()
    })
    .await
}

async fn what_is_removed_is_gone_before_it_is_deleted(url: Url) {
    let store = removed_pool(&url).await;
    assert_eq!(nodes_left(&store).await, NODES);
    assert_eq!(listed(&store, Listed::InCluster(Kind::Node, CLUSTER)).await, 0);
    assert_eq!(listed(&store, Listed::Children(Kind::Node, POOL)).await, 0);
    assert_eq!(store.ids(Kind::Node).await.unwrap(), HashSet::new());
    let id = "44444444-4444-4444-8444-000000000007";
    assert_eq!(store.get(Kind::Node, id).await.unwrap(), None);
    // Clusters trust a list that lacks nodes only if the record of deletions names them.
    let record = store.deletions(ORGANIZATION, CLUSTER).await.unwrap();
    let named = record.iter().filter(|entry| entry["kind"] == "nodes").count();
    assert_eq!(i64::try_from(named).unwrap(), NODES);
    drop(store);
    // A name of a removed node can be given to another one, which keeps it.
    writing(open(&url).await, async |store: &Store| {
        let named = store.write(author(ORGANIZATION), async move |transaction| {
            transaction
                .insert(row(Kind::NodePool, "new", CLUSTER), &References::default())
                .await?;
            let references = References {
                name: Some(UniqueName::of("name", &[("name", "node-000000000007")])),
                scope: CLUSTER.to_owned(),
                ..References::default()
            };
            transaction.insert(row(Kind::Node, "node", "new"), &references).await?;
            transaction.resume().await?;
            Ok(())
        });
        named.await.unwrap();
        eventually("the nodes to be deleted", SOON, async || {
            let left = nodes_left(store).await;
            if left == 1 { Ok(()) } else { Err(left) }
        })
        .await;
        let named = store.clone();
        let found = (&mut &named)
            .named(Kind::Node, CLUSTER, "node-000000000007")
            .await
            .unwrap();
        assert_eq!(found.unwrap().id, "node");
    })
    .await;
}

/// A removal that a restart interrupts, and one that a backup contains.
async fn an_interrupted_removal_is_resumed(url: Url) {
    drop(removed_pool(&url).await);
    let folder = tempfile::tempdir().unwrap();
    let restored: Url = format!("sqlite://{}/restored.db", folder.path().display())
        .parse()
        .unwrap();
    let mut copy = Vec::new();
    backup(&url, &mut copy, &mut |_| {}).await.unwrap();
    restore(&restored, &mut copy.as_slice(), &mut |_| {}).await.unwrap();
    for url in [url, restored] {
        let Opened {
            store,
            writer,
            maintenance,
        } = open(&url).await;
        assert_eq!(listed(&store, Listed::InCluster(Kind::Node, CLUSTER)).await, 0);
        let shutdown = CancellationToken::new();
        let deleted = async {
            all_deleted(&store).await;
            shutdown.cancel();
        };
        let _ = tokio::join!(deleted, writer.run(shutdown.clone()), maintenance.run(shutdown.clone()));
    }
}

macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                let folder = tempfile::tempdir().unwrap();
                super::$name(format!("sqlite://{}/cloud.db", folder.path().display()).parse().unwrap()).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                let server = super::Postgres::shared().await;
                super::$name(server.url(&server.create_database().await).parse().unwrap()).await;
            })+
        }
    };
}

on_both!(
    others_write_between_the_steps,
    what_is_removed_is_gone_before_it_is_deleted,
    an_interrupted_removal_is_resumed,
);
