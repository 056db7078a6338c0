//! Backups of databases that no server of this version has opened, on both databases.

use sqlx::AnyPool;
use tidewaiter_kit::SystemClock;
use tidewaiter_testkit::Postgres;

use super::*;
use crate::models::Kind;
use crate::server::store::{Opened, Store};

/// A database of the older version `tables`, with a label as that version stored it.
async fn made(url: &Url, tables: i64) -> AnyPool {
    let engine = engine::of(url).unwrap();
    engine.check().await.unwrap();
    let pool = engine.pool(1).await.unwrap();
    MIGRATIONS.run_to(tables, &pool).await.unwrap();
    let key = if tables == 1 {
        "env"
    } else {
        "cluster.containership.io/env"
    };
    let object = "INSERT INTO objects (kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, \
                  updated_at, spec, status, secret) VALUES ('labels', 'a', 'o', 'c', 'c', 'o', 1, '', '', $1, 'null', '')";
    let spec = json!({ "key": key, "value": "dev" }).to_string();
    sqlx::query(object).bind(spec).execute(&pool).await.unwrap();
    let name = "INSERT INTO names (kind, scope_id, name, id) VALUES ('labels', 'c', $1, 'a')";
    sqlx::query(name).bind(key).execute(&pool).await.unwrap();
    pool
}

async fn a_backup_has_the_version_of_its_database(urls: &mut dyn Iterator<Item = Url>) {
    let (mut next, mut told) = (|| urls.next().unwrap(), |_| {});
    for tables in MIGRATIONS.iter().map(|migration| migration.version) {
        let (old, new) = (next(), next());
        made(&old, tables).await.close().await;
        let mut copy = Vec::new();
        backup(&old, &mut copy, &mut told).await.unwrap();
        let head: Value = serde_json::from_slice(copy.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert_eq!(head["tables"], tables);
        restore(&new, &mut &*copy, &mut told).await.unwrap();
        let Opened { store, .. } = Store::open(&new, SystemClock::shared()).await.unwrap();
        let label = store.get(Kind::ClusterLabel, "a").await.unwrap().unwrap();
        assert_eq!(label.text("key"), Some("cluster.containership.io/env"), "{tables}");
    }
    let newer = next();
    let pool = made(&newer, version()).await;
    sqlx::query("UPDATE _sqlx_migrations SET version = 9999 WHERE version = 1")
        .execute(&pool)
        .await
        .unwrap();
    let refused = backup(&newer, &mut Vec::new(), &mut told).await.unwrap_err();
    assert!(refused.to_string().contains("have version 9999"), "{refused}");
}

#[tokio::test]
async fn what_follows_a_backup_is_not_left_out_and_what_is_not_there_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| -> Url { format!("sqlite://{}/{name}", folder.path().display()).parse().unwrap() };
    let missing = backup(&url("none"), &mut Vec::new(), &mut |_| {}).await.unwrap_err();
    assert!(missing.to_string().contains("none, which does not exist"), "{missing}");
    assert!(!folder.path().join("none").exists());
    made(&url("old"), version()).await.close().await;
    let mut copy = Vec::new();
    backup(&url("old"), &mut copy, &mut |_| {}).await.unwrap();
    let twice = copy.repeat(2);
    let refused = restore(&url("new"), &mut &*twice, &mut |_| {}).await.unwrap_err();
    assert!(refused.to_string().contains("more follows it"), "{refused}");
    restore(&url("new"), &mut &*copy, &mut |_| {}).await.unwrap();
}

mod sqlite {
    #[tokio::test]
    async fn a_backup_has_the_version_of_its_database() {
        let folder = tempfile::tempdir().unwrap();
        let url = |number: u32| {
            format!("sqlite://{}/{number}.db", folder.path().display())
                .parse()
                .unwrap()
        };
        super::a_backup_has_the_version_of_its_database(&mut (0..).map(url)).await;
    }
}

mod postgres {
    #[tokio::test]
    async fn a_backup_has_the_version_of_its_database() {
        let server = super::Postgres::shared().await;
        let mut urls = Vec::new();
        for _ in 0..=2 * super::version() {
            urls.push(server.url(&server.create_database().await).parse().unwrap());
        }
        super::a_backup_has_the_version_of_its_database(&mut urls.into_iter()).await;
    }
}
