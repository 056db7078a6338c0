//! Takes the calls, records them and decides what each gets.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::answer::Refused;
use super::group::Row;
use super::route::Route;
use super::{Call, FakeInstance, PROJECT, REGION, Shared, State, TOKEN, link};
use crate::fake_http::{self, Body, Outcome, Port};

const CONTENT_TYPE: &str = "application/json; charset=UTF-8";

/// As the API limits and defaults `maxResults`.
const MAX_RESULTS: usize = 500;

/// What a call gets when all is well: how many rows, and the body.
type Good = (usize, Value);

type Query = HashMap<String, String>;

/// Serves on a port of its own.
pub(super) async fn open(shared: &Arc<Shared>) -> Port {
    let shared = Arc::clone(shared);
    Port::open(move |request| handle(Arc::clone(&shared), request)).await
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
    let path = request.uri().path();
    if path.starts_with("/computeMetadata/") {
        return Ok(metadata(&shared, &request));
    }
    let Some((project, route)) = Route::read(request.method(), path) else {
        return Ok(fake_http::response(
            StatusCode::NOT_FOUND,
            "text/html",
            format!("<html>The requested URL {path} was not found on this server."),
        ));
    };
    let query: Query = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
        .into_owned()
        .collect();
    let has_token = request
        .headers()
        .get(http::header::AUTHORIZATION)
        .is_some_and(|value| value.as_bytes() == format!("Bearer {TOKEN}").as_bytes());
    let (latency, outcome) = {
        let mut state = shared.lock();
        let outcome = state.take_call(has_token, &project, &route, &query);
        (state.latency, outcome)
    };
    outcome.carry_out(latency, CONTENT_TYPE).await
}

/// The metadata server, which answers only those who say that they mean it.
fn metadata(shared: &Shared, request: &Request<Incoming>) -> Response<Body> {
    const FLAVOR: &str = "metadata-flavor";
    let state = shared.lock();
    let asked_rightly = request.headers().get(FLAVOR).is_some_and(|flavor| flavor == "Google");
    let (status, text) = match (request.method(), request.uri().path()) {
        _ if !asked_rightly => (StatusCode::FORBIDDEN, String::new()),
        _ if state.metadata_away => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
        (&Method::GET, "/computeMetadata/v1/project/project-id") => (StatusCode::OK, state.metadata_project.clone()),
        (&Method::GET, "/computeMetadata/v1/universe/universe-domain") => (StatusCode::OK, "googleapis.com".to_owned()),
        (&Method::GET, "/computeMetadata/v1/instance/service-accounts/default/token") => {
            let token = json!({"access_token": TOKEN, "expires_in": 3599, "token_type": "Bearer"});
            (StatusCode::OK, token.to_string())
        }
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    drop(state);
    let mut response = fake_http::response(status, "application/text", text);
    response
        .headers_mut()
        .insert(FLAVOR, HeaderValue::from_static("Google"));
    response
}

impl State {
    fn take_call(&mut self, has_token: bool, project: &str, route: &Route, query: &Query) -> Outcome {
        let scripted = self
            .script
            .pop_front()
            .or_else(|| self.scripts.get_mut(route.api())?.pop_front())
            .or_else(|| self.always.clone())
            .or_else(|| self.bad_names.get(route.name()?).cloned());
        let (outcome, rows, word) = match scripted {
            Some(scripted) => {
                let (outcome, word) = scripted.follow();
                (outcome, 0, word)
            }
            None if self.hangs(route) => (Outcome::Hang, 0, "hang".to_owned()),
            None => match self.decide(has_token, project, route, query) {
                Ok((rows, body)) => (Outcome::Reply(StatusCode::OK, body.to_string()), rows, "ok".to_owned()),
                Err(refused) => (refused.outcome(), 0, refused.reason.to_owned()),
            },
        };
        self.calls.push(Call {
            api: route.api(),
            what: route.what(),
            filter: query.get("filter").cloned(),
            rows,
            outcome: word,
        });
        outcome
    }

    fn hangs(&self, route: &Route) -> bool {
        match route {
            Route::ListAllZones => !self.slow_zones.is_empty(),
            _ => route.zone().is_some_and(|zone| self.slow_zones.contains(zone)),
        }
    }

    fn decide(&mut self, has_token: bool, project: &str, route: &Route, query: &Query) -> Result<Good, Refused> {
        if !has_token {
            return Err(Refused::new(401, "authError", "Invalid Credentials"));
        }
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.take()) {
            return Err(Refused::new(403, "rateLimitExceeded", "Rate Limit Exceeded"));
        }
        if project != PROJECT {
            return Err(Refused::new(
                403,
                "forbidden",
                format!("Required permission for 'projects/{project}'"),
            ));
        }
        if let Some(zone) = route.zone().filter(|zone| !self.has_zone(zone)) {
            let message = format!("Invalid value for field 'zone': '{zone}'. Unknown zone.");
            return Err(Refused::new(400, "invalid", message));
        }
        let failing = |zone: &str| self.bad_zones.contains(zone) || self.unreachable_zones.contains(zone);
        let in_trouble = match route {
            Route::ListAllZones => !self.bad_zones.is_empty(),
            _ => route.zone().is_some_and(failing),
        };
        if in_trouble {
            return Err(Refused::new(503, "backendError", "Backend Error"));
        }
        self.answer(route, query)
    }

    /// The zones of its region, and those where a test has put something.
    fn has_zone(&self, zone: &str) -> bool {
        zone.starts_with(REGION)
            || self
                .instances
                .keys()
                .chain(self.groups.keys())
                .any(|(known, _)| known == zone)
    }

    fn answer(&self, route: &Route, query: &Query) -> Result<Good, Refused> {
        match route {
            Route::GetInstance { zone, name } => match self.instances.get(&(zone.clone(), name.clone())) {
                Some(instance) => Ok((1, instance.json())),
                None => Err(Refused::not_found(&format!("zones/{zone}/instances/{name}"))),
            },
            Route::ListZone { zone } => self.list_zone(zone, query),
            Route::ListAllZones => self.list_all_zones(query),
            Route::ListZonalGroup { zone: place, name } | Route::ListRegionalGroup { region: place, name } => {
                self.list_group(place, name, query)
            }
            Route::GetGlobalTemplate { name } => self.template("global", name),
            Route::GetRegionalTemplate { region, name } => self.template(region, name),
        }
    }

    fn template(&self, place: &str, name: &str) -> Result<Good, Refused> {
        match self.templates.get(&(place.to_owned(), name.to_owned())) {
            Some(template) => Ok((1, template.json())),
            None => Err(Refused::not_found(&format!("{place}/instanceTemplates/{name}"))),
        }
    }

    fn list_zone(&self, zone: &str, query: &Query) -> Result<Good, Refused> {
        let filter = Filter::read(query)?;
        let all: Vec<&FakeInstance> = self
            .instances
            .values()
            .filter(|instance| instance.zone == zone && filter.lets_through(instance))
            .collect();
        let (page, next) = page(&all, query)?;
        let items: Vec<Value> = page.iter().map(|instance| instance.json()).collect();
        let body = json!({"kind": "compute#instanceList", "items": items, "selfLink": link(&format!("zones/{zone}/instances"))});
        Ok((items.len(), with_token(body, next)))
    }

    fn list_all_zones(&self, query: &Query) -> Result<Good, Refused> {
        let filter = Filter::read(query)?;
        let listed = |instance: &&FakeInstance| {
            !self.unreachable_zones.contains(&instance.zone) && filter.lets_through(instance)
        };
        let all: Vec<&FakeInstance> = self.instances.values().filter(listed).collect();
        let (page, next) = page(&all, query)?;
        let mut scopes: BTreeMap<String, Value> = self
            .instances
            .values()
            .map(|instance| {
                let scope = format!("zones/{}", instance.zone);
                let code = if self.unreachable_zones.contains(&instance.zone) {
                    "UNREACHABLE"
                } else {
                    "NO_RESULTS_ON_PAGE"
                };
                let warning = json!({
                    "code": code, "message": format!("{code} for scope '{scope}'."),
                    "data": [{"key": "scope", "value": scope}],
                });
                (scope, json!({"warning": warning}))
            })
            .collect();
        let mut by_zone: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for instance in page {
            by_zone.entry(&instance.zone).or_default().push(instance.json());
        }
        for (zone, instances) in by_zone {
            scopes.insert(format!("zones/{zone}"), json!({"instances": instances}));
        }
        let unreachables: Vec<String> = self
            .unreachable_zones
            .iter()
            .map(|zone| format!("zones/{zone}"))
            .collect();
        let body = json!({
            "kind": "compute#instanceAggregatedList", "items": scopes, "unreachables": unreachables,
            "selfLink": link("aggregated/instances"),
        });
        Ok((page.len(), with_token(body, next)))
    }

    fn list_group(&self, place: &str, name: &str, query: &Query) -> Result<Good, Refused> {
        let group = self
            .groups
            .get(&(place.to_owned(), name.to_owned()))
            .ok_or_else(|| Refused::not_found(&format!("{place}/instanceGroupManagers/{name}")))?;
        let (rows, next) = if group.paginated {
            page(&group.rows, query)?
        } else {
            (group.rows.as_slice(), None)
        };
        // An empty group has no rows to write.
        let body = if rows.is_empty() {
            json!({})
        } else {
            json!({"managedInstances": rows.iter().map(Row::json).collect::<Vec<_>>()})
        };
        Ok((rows.len(), with_token(body, next)))
    }
}

/// The one form of filter that it knows: `labels.KEY=VALUE`.
struct Filter<'a>(Option<(&'a str, &'a str)>);

impl<'a> Filter<'a> {
    fn read(query: &'a Query) -> Result<Self, Refused> {
        let Some(text) = query.get("filter") else {
            return Ok(Self(None));
        };
        let parts = text.strip_prefix("labels.").and_then(|rest| rest.split_once('='));
        match parts {
            Some((key, value)) => Ok(Self(Some((key, value)))),
            None => Err(Refused::new(
                400,
                "invalid",
                format!("Invalid value for field 'filter': '{text}'."),
            )),
        }
    }

    fn lets_through(&self, instance: &FakeInstance) -> bool {
        self.0.is_none_or(|(key, value)| instance.has_label(key, value))
    }
}

/// The part of `all` that the query asks for, and the token of the next.
fn page<'a, T>(all: &'a [T], query: &Query) -> Result<(&'a [T], Option<usize>), Refused> {
    let invalid = |field: &str| Refused::new(400, "invalid", format!("Invalid value for field '{field}'."));
    let number = |field: &str, default: usize| match query.get(field) {
        Some(text) => text.parse().map_err(|_| invalid(field)),
        None => Ok(default),
    };
    let size: usize = number("maxResults", MAX_RESULTS)?;
    let start: usize = number("pageToken", 0)?;
    if size == 0 || size > MAX_RESULTS || start > all.len() {
        return Err(invalid("maxResults"));
    }
    let end = all.len().min(start + size);
    Ok((&all[start..end], (end < all.len()).then_some(end)))
}

fn with_token(mut body: Value, next: Option<usize>) -> Value {
    if let Some(next) = next {
        body["nextPageToken"] = next.to_string().into();
    }
    body
}
