//! Reads and answers the calls of Hetzner Cloud.

use std::collections::HashMap;
use std::time::SystemTime;

use http::{Method, Request};
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::{FakeServer, Hetzner, TOKEN};
use crate::fake_cloud::{Call, Error, Protocol, Quota, Scripted, Words, has_bearer, query};

/// As the API limits and defaults `per_page`.
const MAX_PER_PAGE: usize = 50;
const PER_PAGE: usize = 25;

const SELECTOR: &str = "label_selector";

/// A call for servers.
#[derive(Debug)]
pub enum Parameters {
    /// For one.
    Server(u64),
    /// For those that the parameters select.
    List(HashMap<String, String>),
}

impl Protocol for Hetzner {
    type Parameters = Parameters;

    const CONTENT_TYPE: &'static str = "application/json";
    const BEGINNING: &'static str = "{\"servers\": [";
    const WORDS: Words = Words {
        throttled: (429, "rate_limit_exceeded", "limit of 3600 requests per hour reached"),
        failed: (500, "server_error", "an internal error has occurred"),
        denied: (403, "forbidden", "insufficient permissions for this request"),
        unauthenticated: (401, "unauthorized", "unable to authenticate"),
    };

    fn error(_api: &str, (_, code, message): Error<'_>) -> String {
        json!({"error": {"code": code, "message": message, "details": null}}).to_string()
    }

    fn read(request: &Request<Bytes>) -> Option<(Call, Parameters)> {
        let rest = request.uri().path().strip_prefix("/v1/servers")?;
        if request.method() != Method::GET {
            return None;
        }
        if rest.is_empty() {
            let query = query(request);
            let call = Call {
                api: "servers.list",
                filter: query.get(SELECTOR).cloned(),
                ..Call::default()
            };
            return Some((call, Parameters::List(query)));
        }
        let id: u64 = rest.strip_prefix('/')?.parse().ok()?;
        let call = Call {
            api: "servers.get",
            names: vec![id.to_string()],
            ..Call::default()
        };
        Some((call, Parameters::Server(id)))
    }

    fn knows(&self, request: &Request<Bytes>) -> bool {
        has_bearer(request, TOKEN)
    }

    /// As the API does: the reset is a UNIX time, compared with the header `Date` of the same answer.
    #[expect(clippy::disallowed_methods, reason = "a server of its own, in real time")]
    fn quota(quota: Quota) -> Vec<(&'static str, String)> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let reset = now.map_or(0.0, |now| now.as_secs_f64()) + quota.full_in;
        vec![
            ("ratelimit-limit", format!("{:.0}", quota.capacity)),
            ("ratelimit-remaining", format!("{:.0}", quota.tokens.floor())),
            ("ratelimit-reset", format!("{reset:.0}")),
        ]
    }

    fn answer(&self, parameters: &Parameters) -> Result<(usize, String), Scripted> {
        let (rows, body) = match parameters {
            Parameters::Server(id) => (1, json!({"server": self.server(*id)?.json()})),
            Parameters::List(query) => self.list(query).ok_or_else(|| Scripted::error(400, "invalid_input"))?,
        };
        Ok((rows, body.to_string()))
    }
}

impl Hetzner {
    fn server(&self, id: u64) -> Result<&FakeServer, Scripted> {
        self.servers.get(&id).ok_or_else(|| Scripted::Error {
            status: 404,
            code: "not_found",
            message: format!("server with ID '{id}' not found"),
        })
    }

    /// The servers that are selected; `None` when the parameters are none of the API's.
    fn list(&self, query: &HashMap<String, String>) -> Option<(usize, Value)> {
        let number = |field: &str, default: usize| query.get(field).map_or(Some(default), |text| text.parse().ok());
        let (page, per_page) = (number("page", 1)?, number("per_page", PER_PAGE)?);
        let selector = query.get(SELECTOR).map(|text| text.split_once('='));
        let (1.., 1..=MAX_PER_PAGE, None | Some(Some(_))) = (page, per_page, selector) else {
            return None;
        };
        let wanted = selector.flatten();
        let is_wanted = |server: &&FakeServer| {
            wanted.is_none_or(|(key, value)| server.labels.get(key).is_some_and(|its| its == value))
        };
        let all: Vec<&FakeServer> = self.servers.values().filter(is_wanted).collect();
        let start = all.len().min((page - 1) * per_page);
        let end = all.len().min(start + per_page);
        let servers: Vec<Value> = all[start..end].iter().map(|server| server.json()).collect();
        let last = all.len().div_ceil(per_page).max(1);
        let pagination = json!({
            "page": page, "per_page": per_page, "previous_page": (page > 1).then(|| page - 1),
            "next_page": (page < last).then(|| page + 1), "last_page": last, "total_entries": all.len(),
        });
        Some((
            end - start,
            json!({"servers": servers, "meta": {"pagination": pagination}}),
        ))
    }
}
