//! The calls of the API, each counted and with a timeout, and the pagination.
//!
//! A call contains only a server's id or our cluster's name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::fmt::rfc2822;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, DATE, HeaderMap};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidewaiter_kit::{CloudCalls, SharedClock};
use tracing::debug;
use url::form_urlencoded::Serializer;

use super::api;
use super::connect::Client;
use super::server::{Server, ServerId};
use crate::failure::Failure;
use crate::page_tokens::ENDLESS;

/// The maximum page size.
const PAGE: &str = "50";

/// The maximum number of pages: 10,000 servers, several times what a cluster can have.
const MAX_PAGES: u32 = 200;

/// The maximum size of a response's body in bytes: a page of servers takes about 300 KB.
const MAX_BODY: usize = 8 << 20;

/// The maximum time without a call, whatever the headers say.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// The requested servers, each with all its rows; a malformed row affects only its own server.
pub(super) type Listing = HashMap<ServerId, Vec<Result<Server, Failure>>>;

#[derive(Debug)]
pub(super) struct Caller {
    client: Client,
    calls: CloudCalls,
    quota: Quota,
}

#[derive(Deserialize)]
struct One {
    server: Server,
}

#[derive(Deserialize)]
struct Page {
    servers: Vec<Value>,
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    pagination: Pagination,
}

#[derive(Deserialize)]
struct Pagination {
    next_page: Option<u32>,
}

impl Caller {
    pub(super) fn new(client: Client, clock: SharedClock, calls: CloudCalls) -> Self {
        Self {
            client,
            calls,
            quota: Quota::new(clock),
        }
    }

    /// Reads one server.
    pub(super) async fn server(&self, id: ServerId) -> Result<Server, Failure> {
        let url = format!("{}/{id}", self.client.servers);
        let one: One = self.counted(api::GET, url).await?;
        Ok(one.server)
    }

    /// Lists the `wanted` servers that match the selector, or of the whole project without one.
    pub(super) async fn list(&self, selector: Option<&str>, wanted: &[ServerId]) -> Result<Listing, Failure> {
        let wanted: HashSet<ServerId> = wanted.iter().copied().collect();
        let mut listing = Listing::default();
        let take = |id, row| {
            if wanted.contains(&id) {
                listing.entry(id).or_default().push(read(id, row));
            }
        };
        self.rows(selector, take).await?;
        Ok(listing)
    }

    /// Lists all servers that match the selector, and how many pages they are.
    pub(super) async fn all(&self, selector: &str) -> Result<(BTreeMap<ServerId, Server>, u32), Failure> {
        let mut servers = BTreeMap::new();
        let take = |id, row| {
            servers.insert(id, read(id, row));
        };
        let pages = self.rows(Some(selector), take).await?;
        let servers = servers.into_iter().map(|(id, server)| Ok((id, server?)));
        Ok((servers.collect::<Result<_, _>>()?, pages))
    }

    /// Reads the pages of a listing, and returns their number. Sorted by id, so that a server created meanwhile does
    /// not move others to another page, and each page but the last has a server with a higher id than all before: a
    /// listing that goes on without one never ends.
    async fn rows(&self, selector: Option<&str>, mut take: impl FnMut(ServerId, Value)) -> Result<u32, Failure> {
        let mut highest = None;
        for page in 1..=MAX_PAGES {
            let answer: Page = self.counted(api::LIST, self.page_url(selector, page)).await?;
            let before = highest;
            for row in answer.servers {
                let Some(id) = row.get("id").and_then(Value::as_u64) else {
                    continue;
                };
                highest = highest.max(Some(id));
                take(ServerId::of(id), row);
            }
            match answer.meta.pagination.next_page {
                Some(next) if next == page + 1 && highest > before => {}
                Some(_) => break,
                None => {
                    self.quota.note_pages(page);
                    return Ok(page);
                }
            }
        }
        Err(Failure::unusable(api::LIST, ENDLESS))
    }

    fn page_url(&self, selector: Option<&str>, page: u32) -> String {
        let url = format!("{}?", self.client.servers);
        let start = url.len();
        let mut query = Serializer::for_suffix(url, start);
        query.append_pair("page", &page.to_string());
        query.append_pair("per_page", PAGE);
        query.append_pair("sort", "id:asc");
        if let Some(selector) = selector {
            query.append_pair("label_selector", selector);
        }
        query.finish()
    }

    async fn counted<T: DeserializeOwned>(&self, api: &'static str, url: String) -> Result<T, Failure> {
        if self.quota.is_exhausted() {
            return Err(Failure::throttled(api));
        }
        let result = self.get(api, url).await;
        let outcome = result.as_ref().map_or_else(Failure::outcome, |_| "ok");
        self.calls.count(api, outcome);
        debug!(api, outcome, "asked Hetzner Cloud");
        result
    }

    async fn get<T: DeserializeOwned>(&self, api: &'static str, url: String) -> Result<T, Failure> {
        let call = self
            .client
            .http
            .get(url)
            .header(AUTHORIZATION, self.client.authorization());
        let mut answer = call.send().await.map_err(|error| Failure::of_hetzner(api, &error))?;
        let status = answer.status();
        if status == StatusCode::TOO_MANY_REQUESTS {
            self.quota.note(answer.headers());
        }
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| Failure::of_hetzner(api, &error))? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_BODY {
                let limit = format!("the response is larger than {} MiB", MAX_BODY >> 20);
                return Err(Failure::unusable(api, limit));
            }
        }
        if !status.is_success() {
            return Err(Failure::of_hetzner_status(api, status.as_u16(), &body));
        }
        serde_json::from_slice(&body).map_err(|_| Failure::not_of_hetzner(api, status.as_u16()))
    }
}

fn read(id: ServerId, row: Value) -> Result<Server, Failure> {
    serde_json::from_value(row).map_err(|_| Failure::unusable(api::LIST, format!("{id} is malformed")))
}

/// The quota of calls: after a response that it is exhausted, no call is made until enough of it is available again.
///
/// Source: "Rate Limiting" of the API reference. A project may make `RateLimit-Limit` calls an hour, of which
/// `RateLimit-Remaining` are left. They come back one by one, and at `RateLimit-Reset` (a UNIX time) all of them are
/// available. That time is compared with the `Date` of the same response, so our own clock need not be correct.
#[derive(Debug)]
struct Quota {
    clock: SharedClock,
    /// No call before this (monotonic time).
    not_before: Mutex<Duration>,
    /// The number of pages of the last complete listing: fewer calls than these are of no use.
    pages: AtomicU32,
}

impl Quota {
    fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            not_before: Mutex::default(),
            pages: AtomicU32::new(1),
        }
    }

    /// Returns true if a call would be in vain.
    fn is_exhausted(&self) -> bool {
        self.clock.monotonic() < *self.not_before.lock()
    }

    fn note_pages(&self, pages: u32) {
        self.pages.store(pages, Ordering::Relaxed);
    }

    /// Reads the headers of a response that the quota is exhausted. Without them nothing is known.
    fn note(&self, headers: &HeaderMap) {
        let Some(per_call) = per_call(headers) else { return };
        let wait = per_call
            .saturating_mul(self.pages.load(Ordering::Relaxed))
            .min(MAX_WAIT);
        *self.not_before.lock() = self.clock.monotonic() + wait;
    }
}

/// The time after which one more call is available.
fn per_call(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let number = |name: &str| text(name)?.trim().parse::<u32>().ok();
    let used = number("ratelimit-limit")?.checked_sub(number("ratelimit-remaining")?)?;
    let reset: i64 = text("ratelimit-reset")?.trim().parse().ok()?;
    let sent = rfc2822::parse(text(DATE.as_str())?).ok()?.timestamp().as_second();
    let all = u32::try_from(reset.checked_sub(sent)?).ok()?;
    Duration::from_secs(all.into()).checked_div(used)
}
