//! The calls of the API, each counted and with a timeout, and the pagination.
//!
//! A call contains only a server's id or our cluster's name.

use std::collections::{HashMap, HashSet};

use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tidewaiter_kit::CloudCalls;
use tracing::debug;
use url::form_urlencoded::Serializer;

use super::api;
use super::connect::Client;
use super::failure::Failure;
use super::server::Server;
use super::server_id::ServerId;

/// The maximum page size.
const PAGE: &str = "50";

/// The maximum number of pages: 10,000 servers, several times what a cluster can have.
const MAX_PAGES: usize = 200;

/// The requested servers, each with all its rows.
pub(super) type Listing = HashMap<ServerId, Vec<Server>>;

#[derive(Debug)]
pub(super) struct Caller {
    client: Client,
    calls: CloudCalls,
}

#[derive(Deserialize)]
struct One {
    server: Server,
}

#[derive(Deserialize)]
struct Page {
    servers: Vec<Server>,
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
    pub(super) fn new(client: Client, calls: CloudCalls) -> Self {
        Self { client, calls }
    }

    /// Reads one server.
    pub(super) async fn server(&self, id: ServerId) -> Result<Server, Failure> {
        let url = format!("{}/{id}", self.client.servers);
        let one: One = self.counted(api::GET, url).await?;
        Ok(one.server)
    }

    /// Lists the `wanted` servers that match the selector, or of the whole project without one. Sorted by id, so that a
    /// server created meanwhile does not move others to another page.
    pub(super) async fn list(&self, selector: Option<&str>, wanted: &[ServerId]) -> Result<Listing, Failure> {
        let wanted: HashSet<ServerId> = wanted.iter().copied().collect();
        let mut listing = Listing::default();
        let mut page = 1_u32;
        for _ in 0..MAX_PAGES {
            let answer: Page = self.counted(api::LIST, self.page_url(selector, page)).await?;
            for server in answer.servers {
                let id = ServerId::of(server.id);
                if wanted.contains(&id) {
                    listing.entry(id).or_default().push(server);
                }
            }
            match answer.meta.pagination.next_page {
                Some(next) => page = next,
                None => return Ok(listing),
            }
        }
        Err(Failure::unusable(api::LIST, format!("more than {MAX_PAGES} pages")))
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
        let answer = call.send().await.map_err(|error| Failure::of(api, &error))?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| Failure::of(api, &error))?;
        if !status.is_success() {
            return Err(Failure::answered(api, status.as_u16(), &body));
        }
        serde_json::from_slice(&body).map_err(|_| Failure::not_hetzner(api, status.as_u16()))
    }
}
