//! A year of a busy server: the size of its database, and what its lists and writes take then. The year is written into
//! the file of a server that does not run: 1,000 changes a day by people, for the 400 days that they are kept, and the
//! hourly reports of 1,000 nodes for the 30 days that these are kept.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::json;
use sqlx::{AnyConnection, Connection as _};

use super::server::Cloud;
use super::wire::{Wire, request};
use crate::report::quantile;

const CHANGES: u32 = 400 * 1_000;
const REPORTS: u32 = 30 * 24 * 1_000;
/// The time for which requests are measured: the server deletes old changes every five seconds.
const TIME: Duration = Duration::from_secs(12);

/// The results; times are the p99, in seconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Year {
    /// Of the database, in bytes.
    pub size: u64,
    pub ready: f64,
    pub audit: f64,
    /// The page of the audit log before the oldest half of the changes.
    pub old_audit: f64,
    pub list: f64,
    pub write: f64,
    /// The longest.
    pub longest_write: f64,
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn measure(cloud: &mut Cloud) -> Result<Year> {
    cloud.stop().await;
    let file = cloud.scratch.path().join("data/cloud.db");
    fill(&format!("sqlite://{}", file.display()), cloud).await?;
    let size = std::fs::metadata(&file)?.len();
    let ready = cloud.started().await;
    let cluster = &cloud.clusters[0];
    let (lists, audit) = (
        format!("{}/labels", cluster.path),
        format!("{}/audit?limit=100", cloud.organization),
    );
    let old = format!("{audit}&before={}", CHANGES / 2);
    let mut wire = Wire::open(cloud.address).await?;
    let mut found = [const { Vec::<f64>::new() }; 4];
    let start = Instant::now();
    for round in 0_u64.. {
        if start.elapsed() >= TIME {
            break;
        }
        let value = json!({ "value": format!("v{round}") }).to_string();
        for (times, request) in found.iter_mut().zip([
            request("GET", &audit, &cloud.token, "", ""),
            request("GET", &old, &cloud.token, "", ""),
            request("PATCH", &cluster.label, &cloud.token, "", &value),
            // After a change it is computed.
            request("GET", &lists, &cluster.api_key, "", ""),
        ]) {
            let sent = Instant::now();
            let reply = wire.ask(&request).await?;
            times.push(sent.elapsed().as_secs_f64());
            ensure!(reply.status == 200, "{reply:?}");
        }
    }
    let longest_write = found[2].iter().copied().fold(0.0, f64::max);
    let [audit, old_audit, write, list] = found.map(|times| quantile(times, 0.99));
    Ok(Year {
        size,
        ready,
        audit,
        old_audit,
        list,
        write,
        longest_write,
    })
}

/// Writes the year: numbers and times ascend, and each change has the size of one of a node pool.
async fn fill(url: &str, cloud: &Cloud) -> Result<()> {
    sqlx::any::install_default_drivers();
    let mut database = AnyConnection::connect(url).await?;
    let pool = json!({"name": "workers", "count": 3, "kubernetes_mode": "worker", "kubernetes_version": "1.30.1", "etcd": false,
        "is_schedulable": true, "os": null, "docker_version": "", "etcd_version": null, "autoscaling": {"enabled": false}});
    let status =
        json!({"status": {"type": "RUNNING", "message": "the kubelet reports that it is ready", "percent": 100}});
    let organization = cloud.organization.rsplit('/').next().unwrap_or_default();
    let (begin,): (i64,) = sqlx::query_as("SELECT value FROM sequence")
        .fetch_one(&mut database)
        .await?;
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
                INSERT INTO changes (sequence, at, organization_id, cluster_id, kind, object_id, action, actor, request_id, before, after) \
                SELECT $2 + i, strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-' || (($1 - i) * $3 / $1) || ' seconds'), $4, $5, $6, $5, 'update', $7 || $5, $5, $8, $8 FROM n";
    let mut number = begin;
    for (count, days, kind, actor, document) in [
        (CHANGES, 399, "node-pools", "user:", pool.to_string()),
        (REPORTS, 29, "nodes", "cluster:", status.to_string()),
    ] {
        let statement = sqlx::query(rows)
            .bind(i64::from(count))
            .bind(number)
            .bind(i64::from(days * 86_400));
        let statement = statement.bind(organization).bind(&cloud.clusters[0].id);
        statement
            .bind(kind)
            .bind(actor)
            .bind(document)
            .execute(&mut database)
            .await?;
        number += i64::from(count);
    }
    let counted = sqlx::query("UPDATE sequence SET value = $1").bind(number);
    counted.execute(&mut database).await?;
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(&mut database)
        .await?;
    Ok(database.close().await?)
}
