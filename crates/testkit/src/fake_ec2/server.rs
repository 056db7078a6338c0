//! Takes the calls, records them and decides what each gets.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::answer::{Reply, Scripted, error, not_found, reservations};
use super::instance::Listed;
use super::{Call, FakeInstance, NamedBy, Shared, State};
use crate::fake_http::{self, Body, Outcome, Port};

/// As EC2 limits them.
const MAX_IDS: usize = 1000;
const MAX_FILTER_VALUES: usize = 200;

/// How an answer begins that breaks off.
const BEGINNING: &str = "<DescribeInstancesResponse><reservationSet>";

const CONTENT_TYPE: &str = "text/xml;charset=UTF-8";

/// The parameters of one call.
#[derive(Debug, Default)]
struct Asked {
    ids: Vec<String>,
    filters: Vec<(String, Vec<String>)>,
}

/// Serves on a port of its own.
pub(super) async fn open(shared: &Arc<Shared>) -> Port {
    let shared = Arc::clone(shared);
    Port::open(move |request| handle(Arc::clone(&shared), request)).await
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, io::Error> {
    if request.uri().path().starts_with("/latest/") {
        return Ok(metadata(&shared, &request));
    }
    let signed = request
        .headers()
        .get(http::header::AUTHORIZATION)
        .is_some_and(|value| value.as_bytes().starts_with(b"AWS4-HMAC-SHA256 "));
    let form = request
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?
        .to_bytes();
    let (latency, outcome) = {
        let mut state = shared.lock();
        let outcome = state.take_call(signed, &form);
        (state.latency, outcome)
    };
    outcome.carry_out(latency, CONTENT_TYPE).await
}

/// The instance metadata service, version 2: a session token first, which every question has to bring.
fn metadata(shared: &Shared, request: &Request<Incoming>) -> Response<Body> {
    const TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
    const TOKEN: &str = "the-session-token";
    let has_token = request
        .headers()
        .get("x-aws-ec2-metadata-token")
        .is_some_and(|token| token == TOKEN);
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::PUT, "/latest/api/token") => (StatusCode::OK, TOKEN.to_owned()),
        (&Method::GET, _) if !has_token => (StatusCode::UNAUTHORIZED, String::new()),
        (&Method::GET, "/latest/meta-data/placement/region") => (StatusCode::OK, shared.lock().metadata_region.clone()),
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut response = fake_http::response(status, CONTENT_TYPE, text);
    response
        .headers_mut()
        .insert(TTL, http::HeaderValue::from_static("21600"));
    response
}

impl State {
    fn take_call(&mut self, signed: bool, form: &[u8]) -> Outcome {
        let asked = match Asked::read(form) {
            Ok(asked) => asked,
            Err(refusal) => return reply(refusal),
        };
        let (outcome, word) = match self.script.pop_front().or_else(|| self.always.clone()) {
            Some(scripted) => follow(scripted),
            None => self.decide(signed, &asked),
        };
        let by_filter = asked.filters.iter().find(|(name, _)| name == "instance-id");
        let (by, ids) = match by_filter {
            _ if !asked.ids.is_empty() => (NamedBy::Ids, asked.ids.clone()),
            Some((_, ids)) => (NamedBy::Filter, ids.clone()),
            None => (NamedBy::Nothing, Vec::new()),
        };
        self.calls.push(Call { by, ids, outcome: word });
        outcome
    }

    fn decide(&mut self, signed: bool, asked: &Asked) -> (Outcome, String) {
        let refuse = |status, code: &str, message: &str| (reply(error(status, code, message)), code.to_owned());
        if !signed {
            return refuse(
                400,
                "MissingAuthenticationToken",
                "Request is missing Authentication Token",
            );
        }
        if self.bucket.as_mut().is_some_and(|bucket| !bucket.take()) {
            return refuse(503, "RequestLimitExceeded", "Request limit exceeded.");
        }
        let named: Vec<&String> = asked.named().collect();
        if asked.ids.len() > MAX_IDS || asked.filters.iter().any(|(_, values)| values.len() > MAX_FILTER_VALUES) {
            return refuse(
                400,
                "FilterLimitExceeded",
                "The maximum number of values specified on a single call is exceeded",
            );
        }
        if named
            .iter()
            .any(|id| self.zone_of(id).is_some_and(|zone| self.slow_zones.contains(zone)))
        {
            return (Outcome::Hang, "hang".to_owned());
        }
        let in_trouble = |id: &&String| {
            self.bad_ids.contains(*id) || self.zone_of(id).is_some_and(|zone| self.bad_zones.contains(zone))
        };
        if named.iter().any(in_trouble) || asked.ids.is_empty() && !self.bad_zones.is_empty() {
            return refuse(500, "InternalError", "An internal error has occurred");
        }
        let known = |id: &&str| self.instances.contains_key(*id);
        let unknown: Vec<&str> = asked.ids.iter().map(String::as_str).filter(|id| !known(id)).collect();
        if !unknown.is_empty() {
            return refuse(400, "InvalidInstanceID.NotFound", &not_found(&unknown));
        }
        // A thousand ids are looked up, not compared with everything that is listed.
        let named: BTreeSet<&String> = asked.named().collect();
        let candidates: Vec<&Listed> = if named.is_empty() {
            self.instances.values().collect()
        } else {
            named.into_iter().filter_map(|id| self.instances.get(id)).collect()
        };
        let items = candidates.into_iter().filter(|listed| asked.matches(&listed.instance));
        (
            reply(reservations(items.map(|listed| listed.xml.as_str()), None)),
            "ok".to_owned(),
        )
    }

    fn zone_of(&self, id: &str) -> Option<&str> {
        self.instances.get(id)?.instance.zone.as_deref()
    }
}

impl Asked {
    fn read(form: &[u8]) -> Result<Self, Reply> {
        let mut asked = Self::default();
        let mut action = String::new();
        // In the order of the form: `Filter.N.Name` comes before its values, as the SDK writes them.
        for (key, value) in url::form_urlencoded::parse(form) {
            let parts: Vec<&str> = key.split('.').collect();
            match parts.as_slice() {
                ["Action"] => action = value.into_owned(),
                ["InstanceId", _] => asked.ids.push(value.into_owned()),
                ["Filter", _, "Name"] => asked.filters.push((value.into_owned(), Vec::new())),
                ["Filter", _, "Value", _] => {
                    if let Some((_, values)) = asked.filters.last_mut() {
                        values.push(value.into_owned());
                    }
                }
                _ => {}
            }
        }
        if action == "DescribeInstances" {
            Ok(asked)
        } else {
            Err(error(
                400,
                "InvalidAction",
                &format!("The action {action} is not valid for this web service."),
            ))
        }
    }

    fn named(&self) -> impl Iterator<Item = &String> {
        let by_filter = self.filters.iter().filter(|(name, _)| name == "instance-id");
        self.ids.iter().chain(by_filter.flat_map(|(_, ids)| ids))
    }

    /// Whether the filters other than `instance-id` let it through.
    fn matches(&self, instance: &FakeInstance) -> bool {
        self.filters
            .iter()
            .all(|(name, values)| match (name.as_str(), name.strip_prefix("tag:")) {
                ("instance-id", _) => true,
                ("instance-state-name", _) => instance.state.as_ref().is_some_and(|state| values.contains(state)),
                (_, Some(key)) => instance.has_tag(key, values),
                _ => false,
            })
    }
}

fn reply((status, body): Reply) -> Outcome {
    Outcome::Reply(status, body)
}

fn follow(scripted: Scripted) -> (Outcome, String) {
    match scripted {
        Scripted::Error { status, code, message } => (reply(error(status, code, &message)), code.to_owned()),
        Scripted::Raw { status, body } => {
            let status = StatusCode::from_u16(status).expect("a status");
            (Outcome::Reply(status, body), "raw".to_owned())
        }
        Scripted::Instances(instances) => {
            let items: Vec<String> = instances.iter().map(FakeInstance::xml).collect();
            (
                reply(reservations(items.iter().map(String::as_str), None)),
                "ok".to_owned(),
            )
        }
        Scripted::Page(instances) => {
            let items: Vec<String> = instances.iter().map(FakeInstance::xml).collect();
            (
                reply(reservations(items.iter().map(String::as_str), Some("page-2"))),
                "ok".to_owned(),
            )
        }
        Scripted::Drop => (Outcome::Drop, "drop".to_owned()),
        Scripted::BreakOff => (Outcome::BreakOff(BEGINNING), "break-off".to_owned()),
        Scripted::Hang => (Outcome::Hang, "hang".to_owned()),
    }
}
