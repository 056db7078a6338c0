//! Reads and answers the calls of Compute Engine.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::answer::{error, not_found, refused};
use super::group::Row;
use super::route::Route;
use super::{FakeGroup, FakeInstance, Gce, PROJECT, REGION, link};
use crate::fake_cloud::{Body, Call, Error, Protocol, Scripted, Words, has_bearer, query, response};

/// As the API limits and defaults `maxResults`.
const MAX_RESULTS: usize = 500;

/// The result of a successful call: the number of rows, and the body.
type Good = (usize, Value);

type Query = HashMap<String, String>;

/// A call, in one project.
#[derive(Debug)]
pub struct Parameters {
    project: String,
    route: Route,
    query: Query,
}

impl Protocol for Gce {
    type Parameters = Parameters;

    const CONTENT_TYPE: &'static str = "application/json; charset=UTF-8";
    const BEGINNING: &'static str = "{\"kind\": \"compute#instance\", ";
    const WORDS: Words = Words {
        throttled: (403, "rateLimitExceeded", "Rate Limit Exceeded"),
        failed: (503, "backendError", "Backend Error"),
        denied: (403, "forbidden", "Required permission"),
        unauthenticated: (401, "authError", "Invalid Credentials"),
    };

    fn error(_api: &str, words: Error<'_>) -> String {
        error(words)
    }

    /// The metadata server, which answers only those who say that they mean it.
    fn aside(&self, request: &Request<Bytes>) -> Option<Response<Body>> {
        const FLAVOR: &str = "metadata-flavor";
        let path = request.uri().path().strip_prefix("/computeMetadata/v1/")?;
        let asked_rightly = request.headers().get(FLAVOR).is_some_and(|flavor| flavor == "Google");
        let (status, text) = match (request.method(), path) {
            _ if !asked_rightly => (StatusCode::FORBIDDEN, String::new()),
            _ if self.metadata_away => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
            (&Method::GET, "project/project-id") => (StatusCode::OK, self.metadata_project.clone()),
            (&Method::GET, "universe/universe-domain") => (StatusCode::OK, "googleapis.com".to_owned()),
            (&Method::GET, "instance/service-accounts/default/token") => {
                let token = json!({"access_token": self.token, "expires_in": 3599, "token_type": "Bearer"});
                (StatusCode::OK, token.to_string())
            }
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        let mut response = response(status, "application/text", text);
        let flavor = HeaderValue::from_static("Google");
        response.headers_mut().insert(FLAVOR, flavor);
        Some(response)
    }

    fn read(request: &Request<Bytes>) -> Option<(Call, Parameters)> {
        let (project, route) = Route::read(request.method(), request.uri().path())?;
        let query = query(request);
        let call = Call {
            api: route.api(),
            names: route.what().into_iter().collect(),
            filter: query.get("filter").cloned(),
            ..Call::default()
        };
        Some((call, Parameters { project, route, query }))
    }

    fn knows(&self, request: &Request<Bytes>) -> bool {
        has_bearer(request, &self.token)
    }

    fn depends_on(&self, parameters: &Parameters, zones: &BTreeSet<String>) -> bool {
        match &parameters.route {
            Route::ListAllZones | Route::ListAllGroups => !zones.is_empty(),
            route => route.zone().is_some_and(|zone| zones.contains(zone)),
        }
    }

    fn answer(&self, parameters: &Parameters) -> Result<(usize, String), Scripted> {
        let Parameters { project, route, query } = parameters;
        if project != PROJECT {
            let message = format!("Required permission for 'projects/{project}'");
            return Err(refused(403, "forbidden", message));
        }
        if let Some(zone) = route.zone() {
            if !self.has_zone(zone) {
                let message = format!("Invalid value for field 'zone': '{zone}'. Unknown zone.");
                return Err(refused(400, "invalid", message));
            }
            if self.unreachable_zones.contains(zone) {
                return Err(Scripted::Failed);
            }
        }
        let (rows, body) = self.route(route, query)?;
        Ok((rows, body.to_string()))
    }
}

impl Gce {
    /// The zones of its region, and those where a test has put something.
    fn has_zone(&self, zone: &str) -> bool {
        zone.starts_with(REGION)
            || self
                .instances
                .keys()
                .chain(self.groups.keys())
                .any(|(known, _)| known == zone)
    }

    fn route(&self, route: &Route, query: &Query) -> Result<Good, Scripted> {
        match route {
            Route::GetInstance { zone, name } => match self.instances.get(&(zone.clone(), name.clone())) {
                Some(instance) => Ok((1, instance.json())),
                None => Err(not_found(&format!("zones/{zone}/instances/{name}"))),
            },
            Route::ListZone { zone } => self.list_zone(zone, query),
            Route::ListAllZones => self.list_all_zones(query),
            Route::ListAllGroups => self.list_all_groups(query),
            Route::ListZonalGroup { zone: place, name } | Route::ListRegionalGroup { region: place, name } => {
                self.list_group(place, name, query)
            }
            Route::GetGlobalTemplate { name } => self.template("global", name),
            Route::GetRegionalTemplate { region, name } => self.template(region, name),
        }
    }

    fn template(&self, place: &str, name: &str) -> Result<Good, Scripted> {
        match self.templates.get(&(place.to_owned(), name.to_owned())) {
            Some(template) => Ok((1, template.json())),
            None => Err(not_found(&format!("{place}/instanceTemplates/{name}"))),
        }
    }

    fn list_zone(&self, zone: &str, query: &Query) -> Result<Good, Scripted> {
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

    fn list_all_zones(&self, query: &Query) -> Result<Good, Scripted> {
        let filter = Filter::read(query)?;
        let listed = |instance: &&FakeInstance| {
            !self.unreachable_zones.contains(&instance.zone) && filter.lets_through(instance)
        };
        let all: Vec<&FakeInstance> = self.instances.values().filter(listed).collect();
        let (page, next) = page(&all, query)?;
        let scopes = self
            .instances
            .values()
            .map(|instance| format!("zones/{}", instance.zone));
        let rows = page
            .iter()
            .map(|instance| (format!("zones/{}", instance.zone), instance.json()));
        let body = self.aggregated("instances", "compute#instanceAggregatedList", scopes, rows);
        Ok((page.len(), with_token(body, next)))
    }

    fn list_all_groups(&self, query: &Query) -> Result<Good, Scripted> {
        let listed = |group: &&FakeGroup| !self.unreachable_zones.contains(group.place());
        let all: Vec<&FakeGroup> = self.groups.values().filter(listed).collect();
        let (page, next) = page(&all, query)?;
        let kind = "compute#instanceGroupManagerAggregatedList";
        let scopes = self.groups.values().map(FakeGroup::scope);
        let rows = page.iter().map(|group| (group.scope(), group.json()));
        let body = self.aggregated("instanceGroupManagers", kind, scopes, rows);
        Ok((page.len(), with_token(body, next)))
    }

    /// A listing by scope. Each of `scopes` is in it, if only to say that it has nothing, or cannot be reached.
    fn aggregated(
        &self,
        what: &str,
        kind: &str,
        scopes: impl Iterator<Item = String>,
        rows: impl Iterator<Item = (String, Value)>,
    ) -> Value {
        let unreachables: Vec<String> = self
            .unreachable_zones
            .iter()
            .map(|zone| format!("zones/{zone}"))
            .collect();
        let mut items: BTreeMap<String, Value> = scopes
            .map(|scope| {
                let code = if unreachables.contains(&scope) {
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
        let mut by_scope: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (scope, row) in rows {
            by_scope.entry(scope).or_default().push(row);
        }
        for (scope, rows) in by_scope {
            items.insert(scope, json!({what: rows}));
        }
        json!({
            "kind": kind, "items": items, "unreachables": unreachables, "selfLink": link(&format!("aggregated/{what}")),
        })
    }

    fn list_group(&self, place: &str, name: &str, query: &Query) -> Result<Good, Scripted> {
        let group = self
            .groups
            .get(&(place.to_owned(), name.to_owned()))
            .ok_or_else(|| not_found(&format!("{place}/instanceGroupManagers/{name}")))?;
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
    fn read(query: &'a Query) -> Result<Self, Scripted> {
        let Some(text) = query.get("filter") else {
            return Ok(Self(None));
        };
        let parts = text.strip_prefix("labels.").and_then(|rest| rest.split_once('='));
        match parts {
            Some((key, value)) => Ok(Self(Some((key, value)))),
            None => Err(refused(
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

/// The page of `all` that the query requests, and the token of the next.
fn page<'a, T>(all: &'a [T], query: &Query) -> Result<(&'a [T], Option<usize>), Scripted> {
    let invalid = |field: &str| refused(400, "invalid", format!("Invalid value for field '{field}'."));
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
