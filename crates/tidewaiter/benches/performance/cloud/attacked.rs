//! An honest client beside each attack of the tests: how much longer its slowest requests take than without one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::json;

use tidewaiter_testkit::usage::Peak;

use super::attackers::{ATTACKS, Field, elsewhere, prepare};
use super::server::{Cloud, EMAIL, PASSWORD, word};
use super::wire::{Wire, request};
use crate::report::quantile;

/// The time for which the honest client sends requests beside each attack.
const TIME: Duration = Duration::from_secs(5);

/// The results.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attacked {
    /// The p99 without an attack, in seconds.
    pub quiet: f64,
    /// For each attack its p99 beside it, in seconds.
    pub attacks: Vec<(&'static str, f64)>,
    /// The most that the process had alone, in MiB.
    pub memory: f64,
}

pub async fn measure(cloud: &Cloud) -> Result<Attacked> {
    let field = Arc::new(field(cloud).await?);
    prepare(&field).await;
    honest(cloud).await?;
    let quiet = honest(cloud).await?;
    let mut memory = Peak::begin(cloud.process.pid());
    let mut attacks = Vec::new();
    let elsewhere = elsewhere()?;
    for (name, attack) in ATTACKS {
        let mut attackers = {
            let _there = elsewhere.enter();
            attack(&field)
        };
        attacks.push((*name, honest(cloud).await?));
        memory.look();
        attackers.shutdown().await;
    }
    elsewhere.shutdown_background();
    let memory = memory.end().anonymous;
    Ok(Attacked { quiet, attacks, memory })
}

/// The p99 of a cluster's lists, the signing keys and an owner's writes, each on a connection that is kept. None may
/// fail.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
async fn honest(cloud: &Cloud) -> Result<f64> {
    let (cluster, mut times) = (&cloud.clusters[0], Vec::new());
    let mut wire = Wire::open(cloud.address).await?;
    let start = Instant::now();
    for round in 0_u64.. {
        if start.elapsed() >= TIME {
            break;
        }
        let value = json!({ "value": format!("v{round}") }).to_string();
        for request in [
            request("GET", &format!("{}/labels", cluster.path), &cluster.api_key, "", ""),
            request(
                "GET",
                &format!("{}/users", cloud.organization),
                &cluster.api_key,
                "",
                "",
            ),
            request("GET", "/.well-known/jwks.json", "", "", ""),
            request("PATCH", &cluster.label, &cloud.token, "", &value),
        ] {
            let sent = Instant::now();
            let reply = wire.ask(&request).await?;
            ensure!(reply.status == 200, "{reply:?}");
            times.push(sent.elapsed().as_secs_f64());
        }
    }
    Ok(quantile(times, 0.99))
}

/// Another organization with an owner, 200 users and a cluster.
async fn field(cloud: &Cloud) -> Result<Field> {
    let mut wire = Wire::open(cloud.address).await?;
    let made = cloud
        .ask(&mut wire, "POST", "/v3/organizations", &json!({"name": "Other"}))
        .await?;
    let organization = format!("/v3/organizations/{}", word(&made, "id")?);
    let (users, clusters) = (format!("{organization}/users"), format!("{organization}/clusters"));
    let mut made = Vec::new();
    for number in 0..200 {
        let body = json!({"name": format!("Other {number}"), "email": format!("other-{number}@example.org")});
        made.push(word(&cloud.ask(&mut wire, "POST", &users, &body).await?, "id")?);
    }
    let owner = json!({"name": "Olaf", "email": "olaf@example.org", "role": "owner", "password": PASSWORD});
    cloud.ask(&mut wire, "POST", &users, &owner).await?;
    let login = json!({"email": "olaf@example.org", "password": PASSWORD});
    let token = cloud.ask(&mut wire, "POST", "/v3/login/password", &login).await?;
    let cluster = cloud
        .ask(&mut wire, "POST", &clusters, &json!({"name": "prod"}))
        .await?;
    let address: SocketAddr = cloud.address;
    Ok(Field {
        address,
        email: EMAIL.to_owned(),
        token: word(&token, "token")?,
        cluster: format!("{clusters}/{}", word(&cluster, "id")?),
        api_key: word(&cluster, "api_key")?,
        user: format!("{users}/{}", made[0]),
        users: made,
        organization,
    })
}
