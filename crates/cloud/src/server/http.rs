//! Handles a request: authentication, permission, limits, errors.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{RawPathParams, Request, State};
use axum::handler::Handler as _;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{RequestExt as _, Router};
use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, Method, StatusCode, Version};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::serve::{Peer, network};
use tidewaiter_kit::{Chain, Kit, admin, random};
use tracing::{debug, error};
use uuid::Uuid;

use super::Error;
use super::access::{Permission, allow, unknown};
use super::body;
use super::call::{Call, json, set, text};
use super::cloud::Cloud;
use super::endpoints::{ENDPOINTS, Endpoint, Output};
use super::identity::{self, Token};
use super::observed;
use super::old_paths;
use super::principal::Known;
use super::refusal::Refusal;
use super::remember::IDEMPOTENCY_KEY;
use super::store::{Origin, StoreError};
use super::stream::LAST_EVENT_ID;

/// The headers that a request has once: a proxy may have read another one than this server would.
const SINGLE: [HeaderName; 5] = [HOST, AUTHORIZATION, CONTENT_TYPE, IDEMPOTENCY_KEY, LAST_EVENT_ID];
/// The timeout of a response; a stream only has to start within it.
const LIMIT: Duration = Duration::from_secs(30);
/// `Retry-After` in seconds, while the database is unavailable.
const COME_AGAIN: u64 = 2;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The folder of the documents that a kube-apiserver reads of the issuer of tokens.
const WELL_KNOWN: &str = "/.well-known/";

/// Serves the table of endpoints, and `/healthz`, `/readyz` and `/metrics` of the process. The API is at the root of
/// the host, and the documents of the issuer are both there and below its path, where a kube-apiserver looks for them.
pub(super) fn router(cloud: Cloud, kit: Kit) -> Router {
    let below = cloud.parts.issuer.path().trim_end_matches('/').to_owned();
    let mut paths: BTreeMap<&str, MethodRouter<Cloud>> = BTreeMap::new();
    for endpoint in ENDPOINTS.iter() {
        let filter = MethodFilter::try_from(endpoint.method.clone()).unwrap_or(MethodFilter::TRACE);
        let handler = move |State(cloud): State<Cloud>, request: Request| handle(cloud, endpoint, request);
        let routes = paths.remove(&*endpoint.path).unwrap_or_default();
        paths.insert(&endpoint.path, routes.merge(on(filter, handler)));
    }
    // The path of a URL has no `{`, and what begins with `:` or `*` means itself.
    let mut router = Router::new().without_v07_checks();
    for (path, routes) in paths {
        if path.starts_with(WELL_KNOWN) && !below.is_empty() {
            router = router.route(&format!("{below}{path}"), routes.clone());
        }
        router = router.route(path, routes);
    }
    router
        .fallback_service(nowhere.with_state(()))
        .method_not_allowed_fallback(not_so)
        .with_state(cloud)
        .merge(admin::router(kit))
}

async fn nowhere(request: Request) -> Response {
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "there is no such path");
    elsewhere(&request, StatusCode::NOT_IMPLEMENTED, &refusal)
}

async fn not_so(request: Request) -> Response {
    let message = "the method is not allowed for this path";
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message);
    elsewhere(&request, StatusCode::METHOD_NOT_ALLOWED, &refusal)
}

/// The response outside the table, with `old` for what the original service served. The body is not read, so no further
/// request can follow it.
fn elsewhere(request: &Request, old: StatusCode, refusal: &Refusal) -> Response {
    let mut response = old_paths::response(request.uri().path(), old).unwrap_or_else(|| refused(refusal));
    if !request.body().is_end_stream() {
        set(response.headers_mut(), CONNECTION, "close");
    }
    finish(response, &request_id())
}

/// The id of a request. It only has to be unique, which needs no randomness from the system.
fn request_id() -> String {
    Uuid::from_u64_pair(random::u64(), random::u64()).to_string()
}

/// The request id from the caller, if it is safe in the audit log. It is never in the place of ours: a caller could
/// send that of another request.
fn client_id(headers: &HeaderMap) -> String {
    let sent = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let fits = |id: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=128).contains(&id.len()) && id.bytes().all(plain)
    };
    sent.filter(fits).unwrap_or_default().to_owned()
}

fn finish(mut response: Response, request_id: &str) -> Response {
    set(response.headers_mut(), REQUEST_ID, request_id);
    response
}

async fn handle(cloud: Cloud, endpoint: &'static Endpoint, request: Request) -> Response {
    let began = cloud.clock.monotonic();
    let request_id = request_id();
    let has_body = !request.body().is_end_stream();
    let mut was_read = false;
    let answered = answer(&cloud, endpoint, request, &request_id, &mut was_read).await;
    let mut response = answered.unwrap_or_else(|error| failed(&error, &request_id));
    if has_body && !was_read {
        // The rest of the body is not read, so no further request can follow it.
        set(response.headers_mut(), CONNECTION, "close");
    }
    if endpoint.may != Permission::Anyone || endpoint.method != Method::GET {
        // Many responses contain credentials, so no cache stores any of them, except the public documents.
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().entry(CACHE_CONTROL).or_insert(no_store);
    }
    let took = cloud.clock.monotonic().saturating_sub(began);
    cloud.requests.count(endpoint, response.status(), took);
    finish(response, &request_id)
}

fn overloaded() -> Refusal {
    busy("the server is overloaded")
}

fn busy(message: &str) -> Refusal {
    Refusal {
        retry_after: Some(COME_AGAIN),
        ..Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("{message}; try again later"))
    }
}

/// The response for an error; details are only logged.
fn failed(failure: &Error, request_id: &str) -> Response {
    match failure {
        Error::Refused(refusal) => {
            debug!(request_id, status = refusal.status.as_u16(), "refused");
            refused(refusal)
        }
        Error::Store(error) if matches!(**error, StoreError::Full) => refused(&busy("too many writes are pending")),
        Error::Store(error) if !matches!(**error, StoreError::Rejected(_)) => {
            error!(request_id, error = %Chain(error), "the database");
            refused(&busy("the database is not available"))
        }
        Error::Store(_) | Error::Internal(_) => {
            error!(request_id, error = %Chain(failure), "a request failed");
            let message = format!("internal server error; the server's log has details of the request {request_id}");
            refused(&Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
    }
}

fn refused(refusal: &Refusal) -> Response {
    let mut response = json(refusal.status, Bytes::from(text(&refusal.failure())));
    if refusal.status == StatusCode::UNAUTHORIZED {
        set(response.headers_mut(), WWW_AUTHENTICATE, "Bearer");
    }
    if let Some(seconds) = refusal.retry_after {
        set(response.headers_mut(), RETRY_AFTER, &seconds.to_string());
    }
    response
}

/// Refuses a header that is there more than once, and HTTP/1.1 without `Host` (RFC 9112, section 3.2).
fn check_headers(request: &Request) -> Result<(), Refusal> {
    let count = |name: &HeaderName| request.headers().get_all(name).iter().count();
    if let Some(name) = SINGLE.iter().find(|name| count(name) > 1) {
        let message = format!("{name}: is there more than once; send it once");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    }
    if request.version() == Version::HTTP_11 && count(&HOST) == 0 {
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "host: is missing; HTTP/1.1 needs it",
        ));
    }
    Ok(())
}

/// Limits come first, then the body, and then the permit: a client that sends nothing holds no permit.
async fn answer(
    cloud: &Cloud,
    endpoint: &'static Endpoint,
    mut request: Request,
    request_id: &str,
    was_read: &mut bool,
) -> Result<Response, Error> {
    let clock = &*cloud.clock;
    check_headers(&request)?;
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(peer)| peer.ip());
    let address = cloud.limits.proxies.client(peer, request.headers());
    let client = network(address);
    // With a body, it is handled as a login.
    let is_public =
        endpoint.may == Permission::Anyone && endpoint.method == Method::GET && request.body().is_end_stream();
    let known = if endpoint.may == Permission::Anyone {
        None
    } else {
        Some(known(cloud, endpoint, request.headers(), client).await?)
    };
    let _share = match &known {
        Some(known) => Some(cloud.limits.caller(clock, &known.principal.actor()).await?),
        None if is_public => None,
        None => Some(cloud.limits.anyone(clock, client).await?),
    };
    let parameters: Result<RawPathParams, _> = request.extract_parts().await;
    let parameters = parameters.map_err(|_| Refusal::not_found())?;
    let (parts, body) = request.into_parts();
    let mut call = Call {
        endpoint,
        path: parts.uri.path().to_owned(),
        parameters: parameters
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        query: url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect(),
        body: Bytes::new(),
        known,
        client,
        origin: Origin {
            id: request_id.to_owned(),
            address: address.to_string(),
            client_id: client_id(&parts.headers),
        },
        headers: parts.headers,
    };
    allow(
        endpoint.may,
        call.known.as_ref().map(|known| &known.principal),
        call.place(),
    )?;
    call.refuse_unchecked_conditions()?;
    call.check_query()?;
    let share = call.share();
    let is_stream = endpoint.answers == Output::Events;
    let _memory = match (&share, body::announced(&call, &body)?) {
        (None, _) | (_, 0) => None,
        (Some(share), bytes) => Some(cloud.limits.budget.reserve(clock, share, bytes).await?),
    };
    let read = body::read(clock, &call, body);
    call.body = if share.is_some() || is_public {
        read.await?
    } else {
        cloud.limits.stranger_bodies.read(read).await?
    };
    *was_read = true;
    // A permit of all is never held while the organization's own are waited for: none makes others wait.
    let _of_organization = match &share {
        Some((_, organization)) => {
            let turn = if is_stream {
                Some(cloud.limits.turn(clock, organization).await?)
            } else {
                None
            };
            Some((turn, cloud.limits.organization(clock, organization).await?))
        }
        None => None,
    };
    let _opening = if is_stream {
        Some(cloud.limits.opening(clock).await.ok_or_else(overloaded)?)
    } else {
        None
    };
    // Public documents are in memory once for all who read them.
    let held = if is_public {
        None
    } else {
        Some(cloud.hold_first(&call).await?)
    };
    let _permit = match &call.known {
        Some(_) => Some(cloud.limits.permit(clock).await),
        // From memory, for every API server that trusts this issuer.
        None if is_public => None,
        None => Some(cloud.limits.stranger_permit(clock).await),
    }
    .map(|permit| permit.ok_or_else(overloaded))
    .transpose()?;
    let answered = timeout(clock, LIMIT, (endpoint.handler)(cloud, &call)).await;
    let response = answered.unwrap_or_else(|_| Err(busy("the request took too long").into()))?;
    let response = match held {
        Some(held) => cloud.sent(&call, response, held).await?,
        None => response,
    };
    observed::reveal(cloud, &call, response.status());
    Ok(response)
}

/// The caller. One that is not cached is looked up with a permit, so that many who connect at once leave connections of
/// the database to others. A token that proves nothing by itself is counted by address before that, because anybody can
/// invent one, and has the permits of strangers; so invented tokens take nothing from clients with a valid one. The
/// same applies beyond the limit of what a token proves, which others can use up who have the id of a key or a revoked
/// token.
async fn known(cloud: &Cloud, endpoint: &Endpoint, headers: &HeaderMap, client: IpAddr) -> Result<Arc<Known>, Error> {
    let accepted = endpoint.accepted;
    let limits = &cloud.limits;
    let Some(token) = Token::sent(headers) else {
        limits.stranger(client)?;
        return Err(unknown().into());
    };
    if let Some(known) = identity::cached(cloud, &token, accepted).await {
        return Ok(known);
    }
    let Some(credential) = token.read(cloud, accepted) else {
        limits.stranger(client)?;
        return Err(unknown().into());
    };
    let clock = &*cloud.clock;
    let share = match cloud.keys.share(&token, &credential) {
        Some(share) => limits.caller(clock, &share).await.ok(),
        None => None,
    };
    let is_proven = share.is_some();
    let (_share, permit) = match share {
        Some(share) => (share, limits.lookup(clock).await),
        None => (limits.anyone(clock, client).await?, limits.stranger_permit(clock).await),
    };
    let _permit = permit.ok_or_else(overloaded)?;
    // Another request of the same caller may have looked it up meanwhile.
    if let Some(known) = identity::cached(cloud, &token, accepted).await {
        return Ok(known);
    }
    if let Some(known) = identity::looked_up(cloud, &token, credential).await? {
        return Ok(known);
    }
    if is_proven {
        limits.stranger(client)?;
    }
    Err(unknown().into())
}
