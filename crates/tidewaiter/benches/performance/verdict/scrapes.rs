//! Scrapes of the MetricsServer, each client with one connection that it keeps.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{TryStreamExt as _, stream};
use tokio::time::{MissedTickBehavior, interval_at};

use crate::process::Role;

/// Far more than scrape a cluster, and far more often.
const CLIENTS: u32 = 50;
const SCRAPES: usize = 200;
const EVERY: Duration = Duration::from_millis(100);

pub struct Scraper {
    client: reqwest::Client,
    url: String,
}

impl Scraper {
    pub fn new(controller: &Role) -> Result<Self> {
        Ok(Self {
            client: reqwest::Client::builder().no_proxy().build()?,
            url: controller.metrics.clone(),
        })
    }

    pub async fn page(&self) -> Result<String> {
        let answer = self.client.get(&self.url).send().await?;
        Ok(answer.error_for_status()?.text().await?)
    }
}

/// Has many clients scrape, one after the other and again. The seconds that each scrape took.
///
/// # Errors
/// When one of them failed, or told of nothing.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn many(controller: &Role) -> Result<Vec<f64>> {
    let begin = Instant::now() + EVERY;
    let clients = (0..CLIENTS).map(|number| Ok((Scraper::new(controller)?, begin + EVERY * number / CLIENTS)));
    let scrapes = stream::iter(clients).map_ok(|(client, begin)| tokio::spawn(one(client, begin)));
    let all: Vec<Vec<f64>> = scrapes
        .map_ok(|task| async move { task.await? })
        .try_buffer_unordered(usize::MAX)
        .try_collect()
        .await?;
    Ok(all.concat())
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
async fn one(scraper: Scraper, begin: Instant) -> Result<Vec<f64>> {
    let mut ticks = interval_at(begin.into(), EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one connects.
    scraper.page().await?;
    let mut took = Vec::with_capacity(SCRAPES);
    for _ in 0..SCRAPES {
        ticks.tick().await;
        let begin = Instant::now();
        let page = scraper.page().await?;
        took.push(begin.elapsed().as_secs_f64());
        ensure!(
            page.contains("\ntidewaiter_cluster_verdict{"),
            "a scrape without a verdict:\n{page}"
        );
    }
    Ok(took)
}
