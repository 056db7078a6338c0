//! Takes the calls, records them and decides what each gets.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::answer::Scripted;
use super::{Call, FakeServer, Shared, State, TOKEN};
use crate::fake_http::{self, Body, Outcome, Port};

const CONTENT_TYPE: &str = "application/json";

/// As the API limits and defaults `per_page`.
const MAX_PER_PAGE: usize = 50;
const PER_PAGE: usize = 25;

type Query = HashMap<String, String>;

/// What a call gets: how many servers, the outcome, and its name.
type Answer = (usize, Outcome, String);

/// Serves on a port of its own.
pub(super) async fn open(shared: &Arc<Shared>) -> Port {
    let shared = Arc::clone(shared);
    Port::open(move |request| handle(Arc::clone(&shared), request)).await
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
    let path = request.uri().path().strip_prefix("/v1/servers");
    let id = path.and_then(|rest| rest.strip_prefix('/')).map(str::parse::<u64>);
    let known = path.is_some_and(|rest| rest.is_empty() || matches!(id, Some(Ok(_))));
    if request.method() != Method::GET || !known {
        let body = "<html>404 page not found".to_owned();
        return Ok(fake_http::response(StatusCode::NOT_FOUND, "text/html", body));
    }
    let query: Query = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
        .into_owned()
        .collect();
    let has_token = request
        .headers()
        .get(http::header::AUTHORIZATION)
        .is_some_and(|value| value.as_bytes() == format!("Bearer {TOKEN}").as_bytes());
    let (latency, outcome) = {
        let mut state = shared.lock();
        let outcome = state.take_call(has_token, id.and_then(Result::ok), &query);
        (state.latency, outcome)
    };
    outcome.carry_out(latency, CONTENT_TYPE).await
}

impl State {
    fn take_call(&mut self, has_token: bool, id: Option<u64>, query: &Query) -> Outcome {
        let scripted = self
            .script
            .pop_front()
            .or_else(|| self.always.clone())
            .or_else(|| self.bad_ids.get(&id?).cloned());
        let (rows, outcome, word) = match scripted {
            Some(scripted) => refused(scripted),
            None => self.decide(has_token, id, query),
        };
        self.calls.push(Call {
            id,
            selector: query.get("label_selector").cloned(),
            rows,
            outcome: word,
        });
        outcome
    }

    fn decide(&mut self, has_token: bool, id: Option<u64>, query: &Query) -> Answer {
        if !has_token {
            return refused(Scripted::unauthorized());
        }
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.take()) {
            return refused(Scripted::throttled());
        }
        match id {
            Some(id) => match self.servers.get(&id) {
                Some(server) => good(1, &json!({"server": server.json()})),
                None => refused(Scripted::Error {
                    status: 404,
                    code: "not_found",
                    message: format!("server with ID '{id}' not found"),
                }),
            },
            None => self.list(query),
        }
    }

    fn list(&self, query: &Query) -> Answer {
        let invalid = || refused(Scripted::error(400, "invalid_input"));
        let number = |field: &str, default: usize| query.get(field).map_or(Some(default), |text| text.parse().ok());
        let (Some(page), Some(per_page)) = (number("page", 1), number("per_page", PER_PAGE)) else {
            return invalid();
        };
        let selector = query.get("label_selector").map(|text| text.split_once('='));
        let (1.., 1..=MAX_PER_PAGE, None | Some(Some(_))) = (page, per_page, selector) else {
            return invalid();
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
        good(
            end - start,
            &json!({"servers": servers, "meta": {"pagination": pagination}}),
        )
    }
}

fn good(rows: usize, body: &Value) -> Answer {
    (rows, Outcome::Reply(StatusCode::OK, body.to_string()), "ok".to_owned())
}

fn refused(scripted: Scripted) -> Answer {
    let (outcome, word) = scripted.follow();
    (0, outcome, word)
}
