//! The pages of the console in an organization of 1,000 clusters, 10,000 nodes and 5,000 users: what each takes, alone
//! and beside those of seven other people, next to an answer of the same server that reads nothing.

mod fill;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use serde::Serialize;
use serde_json::json;
use tidewaiter_testkit::usage::Peak;

use super::server::{Cloud, Contents, PASSWORD, private_registry};
use super::wire::Wire;
use crate::report::{Chapter, Figure, count, figure, median, most, note, quantile};
use fill::fill;

/// How often a page is requested by one person, and by each of several at once.
const ALONE: usize = 100;
const TOGETHER: usize = 25;
/// The people who request pages at once: the server makes few pages of one person at once.
const PEOPLE: usize = 8;
const REGISTRIES: usize = 100;

/// A page, and its times in seconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    name: String,
    bytes: usize,
    p50: f64,
    p99: f64,
    /// Beside those of other people.
    p99_together: f64,
}

pub async fn measure(program: &Path) -> Result<Chapter> {
    note("a cloud with an organization of 5,000 users");
    let registry = |number| private_registry(&format!("images-{number}.example.org"), "p");
    let contents = Contents {
        registries: (0..REGISTRIES).map(registry).collect(),
        users: 0,
        ..Contents::large()
    };
    let cloud = Cloud::start(program, &contents).await?;
    let (paths, emails) = fill(&cloud, PEOPLE).await?;
    let people = try_join_all(emails.iter().map(|email| Person::sign_in(&cloud, email)));
    let mut people = people.await?;
    note("the pages of the console");
    let mut memory = Peak::begin(cloud.process.pid());
    let mut pages = Vec::new();
    for (name, path) in paths {
        pages.push(page(&mut people, name, &path).await?);
        memory.look();
    }
    let memory = memory.end().anonymous;
    let constant = median(times(&mut people[0], "/readyz", 10 * ALONE).await?.0);
    cloud.stop().await;
    Ok(Chapter {
        key: "console",
        title: "The console, with 1,000 clusters, 10,000 nodes and 5,000 users".to_owned(),
        figures: figures(&pages, constant, memory),
        details: json!({"pages": pages, "constant": constant, "memory": memory}),
    })
}

fn figures(pages: &[Page], constant: f64, memory: f64) -> Vec<Figure> {
    let milliseconds = |what: String, key, seconds: f64| figure(what, key, seconds * 1000.0, " ms", 1);
    let slowest = |time: fn(&Page) -> f64| most(pages.iter().map(time));
    let each = pages.iter().map(|page| {
        let (p50, together) = (page.p50 * 1000.0, page.p99_together * 1000.0);
        let kib = count(page.bytes) / 1024.0;
        let what = format!(
            "  {}: p50 {p50:.1} ms, {PEOPLE} at once p99 {together:.1} ms, {kib:.0} KiB; p99",
            page.name
        );
        milliseconds(what, "page", page.p99)
    });
    let first = [
        milliseconds("the slowest page, p99".to_owned(), "pageP99", slowest(|page| page.p99)).at_most(100.0),
        milliseconds(
            format!("  {PEOPLE} people at once"),
            "pageP99Together",
            slowest(|page| page.p99_together),
        ),
        figure(
            "the slowest page / a constant answer, p50",
            "pageRatio",
            slowest(|page| page.p50) / constant,
            "",
            0,
        ),
        milliseconds("  the constant answer".to_owned(), "constant", constant),
        figure("memory of the process alone, the most", "memory", memory, " MiB", 1),
    ];
    first.into_iter().chain(each).collect()
}

async fn page(people: &mut [Person], name: &str, path: &str) -> Result<Page> {
    let (alone, bytes) = times(&mut people[0], path, ALONE).await?;
    let together = try_join_all(people.iter_mut().map(|person| times(person, path, TOGETHER))).await?;
    Ok(Page {
        name: name.to_owned(),
        bytes,
        p50: median(alone.iter().copied()),
        p99: quantile(alone, 0.99),
        p99_together: quantile(together.into_iter().flat_map(|(times, _)| times), 0.99),
    })
}

/// A person in a browser.
struct Person {
    wire: Wire,
    cookie: String,
}

impl Person {
    /// Signs in by the form of the console.
    async fn sign_in(cloud: &Cloud, email: &str) -> Result<Self> {
        let mut wire = Wire::open(cloud.address).await?;
        let form = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("email", email), ("password", PASSWORD), ("return_to", "/")])
            .finish();
        let length = form.len();
        let request = format!(
            "POST /sign-in HTTP/1.1\r\nhost: bench\r\nsec-fetch-site: same-origin\r\ncontent-length: {length}\r\n\
             content-type: application/x-www-form-urlencoded\r\n\r\n{form}"
        );
        let reply = wire.ask(request.as_bytes()).await?;
        ensure!(reply.status == 303, "{email}: {}", reply.status);
        let cookie = reply.cookie.context("a sign-in sets a cookie")?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(Self { wire, cookie })
    }
}

/// The seconds of each of `number` requests for a page, and its size in bytes.
#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
async fn times(person: &mut Person, path: &str, number: usize) -> Result<(Vec<f64>, usize)> {
    let cookie = &person.cookie;
    let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\ncookie: {cookie}\r\n\r\n").into_bytes();
    let (mut seconds, mut bytes) = (Vec::with_capacity(number), 0);
    for _ in 0..number {
        let sent = Instant::now();
        let reply = person.wire.ask(&request).await?;
        seconds.push(sent.elapsed().as_secs_f64());
        ensure!(reply.status == 200, "{path}: {} {}", reply.status, reply.body);
        bytes = reply.body.len();
    }
    Ok((seconds, bytes))
}
