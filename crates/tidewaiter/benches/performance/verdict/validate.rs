//! `tidewaiter validate` next to what it cannot do without: the same lists, received and thrown away.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::{AsyncReadExt as _, try_join};
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use kube::Client;
use serde::Serialize;
use tidewaiter_testkit::ApiProxy;
use tokio::process::Command;
use url::form_urlencoded::byte_serialize;

use crate::bed::{Bed, CLUSTER};
use crate::report::{count, note};

/// The number of runs of each, in turn.
const RUNS: usize = 3;
const PAGE: usize = 500;
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/pods";
/// The code of a verdict that is known and not ready: some of the pods are not.
const FAILED: i32 = 2;

/// Seconds of each run.
#[derive(Debug, Default, Serialize)]
pub struct Validated {
    pub validate: Vec<f64>,
    pub bare: Vec<f64>,
    /// Megabytes a second of the pods alone, which do not come from the API server,
    pub pods_rate: f64,
    /// and of the Nodes alone, which do.
    pub nodes_rate: f64,
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
pub async fn measure(bed: &Bed, proxy: &ApiProxy) -> Result<Validated> {
    let client = Client::try_from(kube::Config::new(proxy.url().parse()?))?;
    let mut seconds = Validated {
        pods_rate: rate(&client, PODS).await?,
        nodes_rate: rate(&client, NODES).await?,
        ..Validated::default()
    };
    for _ in 0..RUNS {
        let begin = Instant::now();
        validate(bed, proxy).await?;
        seconds.validate.push(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        try_join!(
            list(&client, NODES),
            list(&client, PODS),
            ask_cloud(bed),
            read_store(bed),
        )?;
        seconds.bare.push(begin.elapsed().as_secs_f64());
        note(&format!(
            "verdict: tidewaiter validate and the bare lists: {seconds:.2?}"
        ));
    }
    Ok(seconds)
}

async fn validate(bed: &Bed, proxy: &ApiProxy) -> Result<()> {
    let mut command = Command::new(&bed.controller);
    command.arg("validate").arg("--conf").arg(bed.config());
    command.arg("--kubeconfig").arg(proxy.kubeconfig());
    command.env_clear().envs(bed.ec2.environment());
    let done = command.kill_on_drop(true).output().await?;
    let told = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.code() == Some(FAILED), "validate: {}\n{told}", done.status);
    Ok(())
}

/// Megabytes a second of a list that nothing else hinders.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
async fn rate(client: &Client, path: &str) -> Result<f64> {
    let begin = Instant::now();
    let bytes = list(client, path).await?;
    Ok(count(bytes) / 1e6 / begin.elapsed().as_secs_f64())
}

/// All pages, one after the other, each read to its end. How many bytes they have.
async fn list(client: &Client, path: &str) -> Result<usize> {
    let mut bytes = 0;
    let mut buffer = vec![0; 1 << 16];
    let mut next = String::new();
    loop {
        let request = Request::get(format!("{path}?limit={PAGE}{next}")).body(Vec::new())?;
        let mut page = Box::pin(client.request_stream(request).await?);
        let mut head = Vec::new();
        loop {
            let read = page.read(&mut buffer).await?;
            if read == 0 {
                break;
            }
            bytes += read;
            // The token stands before the first item.
            if head.len() < 1024 {
                head.extend_from_slice(&buffer[..read]);
            }
        }
        let head = String::from_utf8_lossy(&head);
        let token = head
            .split_once("\"continue\":\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        match token {
            Some((token, _)) if !token.is_empty() => next = format!("&continue={token}"),
            _ => return Ok(bytes),
        }
    }
}

/// The groups, and the instances of the cluster page by page.
async fn ask_cloud(bed: &Bed) -> Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let ask = async |call: String| {
        let call = client.post(bed.ec2.endpoint()).body(call);
        let call = call.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = call.header(AUTHORIZATION, "AWS4-HMAC-SHA256 a").send().await?;
        anyhow::Ok(answer.error_for_status()?.text().await?)
    };
    let groups = ask(format!(
        "Action=DescribeAutoScalingGroups&Version=2011-01-01&MaxRecords=100&Filters.member.1.Name=tag%3AKubernetesCluster\
         &Filters.member.1.Values.member.1={CLUSTER}"
    ));
    let instances = async {
        let mut next = String::new();
        loop {
            let page = ask(format!(
                "Action=DescribeInstances&Version=2016-11-15&MaxResults=1000&Filter.1.Name=tag%3AKubernetesCluster\
                 &Filter.1.Value.1={CLUSTER}{next}"
            ));
            let page = page.await?;
            let token = page
                .split_once("<nextToken>")
                .and_then(|(_, rest)| rest.split_once('<'));
            let Some((token, _)) = token else { return Ok(()) };
            next = byte_serialize(token.as_bytes()).fold("&NextToken=".to_owned(), |next, part| next + part);
        }
    };
    try_join!(groups, instances)?;
    Ok(())
}

async fn read_store(bed: &Bed) -> Result<()> {
    let config = bed.config();
    let state = config.parent().context("a file lies in a folder")?.join("state");
    tokio::fs::read(state.join("cluster-completed.spec")).await?;
    read_all(&state.join("instancegroup")).await
}

async fn read_all(folder: &Path) -> Result<()> {
    let mut files = tokio::fs::read_dir(folder).await?;
    while let Some(file) = files.next_entry().await? {
        tokio::fs::read(file.path()).await?;
    }
    Ok(())
}
