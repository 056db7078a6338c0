//! Handles a request: authentication, permission, limits, errors.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::{RawPathParams, Request, State};
use axum::handler::Handler as _;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{RequestExt as _, Router};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, HeaderValue, SERVER};
use http::{HeaderMap, Method, StatusCode};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::serve::{Peer, network};
use tidewaiter_kit::{Kit, admin};

use super::Error;
use super::access::permission::allow;
use super::auth::authenticator::Token;
use super::console;
use super::http::body;
use super::http::call::{Call, OfPage};
use super::http::endpoint::{Endpoint, Output, Permission};
use super::http::errors::{busy, failed, overloaded, refused};
use super::http::headers::check_headers;
use super::http::request_id::{client_id, finish, request_id};
use super::http::response::{set, set_change};
use super::principal::Authenticated;
use super::refusal::Refusal;
use super::routes::{ROUTES, Route, observed, old_paths};
use super::state::AppState;
use super::store::Origin;

/// The program and its version, as the client of this workspace sends its own.
const SERVER_VERSION: &str = concat!("tidewaiter/", env!("CARGO_PKG_VERSION"));

/// The timeout of a response; a stream only has to start within it.
const LIMIT: Duration = Duration::from_secs(30);
/// The folder of the documents that a kube-apiserver reads of the issuer of tokens.
const WELL_KNOWN: &str = "/.well-known/";

/// Serves the table of endpoints, and what load balancers ask of the process. The API is at the root of the host, and
/// the documents of the issuer are both there and below its path, where a kube-apiserver looks for them.
pub(super) fn router(app: AppState, kit: Kit) -> Router {
    let below = app.parts.issuer.path().trim_end_matches('/').to_owned();
    let mut paths: BTreeMap<&str, MethodRouter<AppState>> = BTreeMap::new();
    for route in ROUTES.iter() {
        let endpoint = &route.endpoint;
        let filter = MethodFilter::try_from(endpoint.method.clone()).unwrap_or(MethodFilter::TRACE);
        let handler = move |State(app): State<AppState>, request: Request| handle(app, route, request);
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
    let router = router.fallback_service(not_found.with_state(()));
    let router = router.method_not_allowed_fallback(method_not_allowed);
    let api = router.with_state(app.clone());
    // No path of the console is one of the API.
    let router = api.clone().merge(console::router(app.clone(), api));
    let router = if app.limits.proxies.0.is_empty() {
        router
    } else {
        router.layer(from_fn_with_state(app, check_transport))
    };
    router.merge(admin::public(kit))
}

/// Refuses what must not travel in plain HTTP, whatever the path is.
async fn check_transport(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let checked = app.limits.proxies.check_transport(app.parts.is_open(), &request);
    match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => unread(refused(&refusal), &request),
    }
}

async fn not_found(request: Request) -> Response {
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "there is no such path");
    unknown_route_response(&request, StatusCode::NOT_IMPLEMENTED, &refusal)
}

async fn method_not_allowed(request: Request) -> Response {
    let message = "the method is not allowed for this path";
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message);
    unknown_route_response(&request, StatusCode::METHOD_NOT_ALLOWED, &refusal)
}

/// The response outside the table, with `old` for what the original service served.
fn unknown_route_response(request: &Request, old: StatusCode, refusal: &Refusal) -> Response {
    unread(
        old_paths::response(request.uri().path(), old).unwrap_or_else(|| refused(refusal)),
        request,
    )
}

/// Completes the response to a request whose body is not read, so that no further request can follow it.
fn unread(mut response: Response, request: &Request) -> Response {
    if !request.body().is_end_stream() {
        set(response.headers_mut(), CONNECTION, "close");
    }
    finish(response, &request_id())
}

async fn handle(app: AppState, route: &'static Route, request: Request) -> Response {
    let endpoint = &route.endpoint;
    let began = app.clock.monotonic();
    let request_id = request_id();
    let has_body = !request.body().is_end_stream();
    let mut was_read = false;
    // Before anything is read: whatever the response shows is at least as new.
    let latest = app.store.feed().latest();
    let answered = answer(&app, route, request, &request_id, &mut was_read).await;
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
    if endpoint.may != Permission::Anyone && response.status().is_success() {
        // Nobody else learns the version, which tells an attacker what to try.
        let server = HeaderValue::from_static(SERVER_VERSION);
        response.headers_mut().insert(SERVER, server);
    }
    let is_current = response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED;
    if matches!(endpoint.may, Permission::Organization { .. }) && endpoint.method == Method::GET && is_current {
        set_change(response.headers_mut(), latest);
    }
    let took = app.clock.monotonic().saturating_sub(began);
    app.requests.count(endpoint, response.status(), took);
    finish(response, &request_id)
}

/// Limits come first, then the body, and then the permit: a client that sends nothing holds no permit.
async fn answer(
    app: &AppState,
    route: &'static Route,
    mut request: Request,
    request_id: &str,
    was_read: &mut bool,
) -> Result<Response, Error> {
    let (clock, endpoint) = (&*app.clock, &route.endpoint);
    check_headers(&request)?;
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(peer)| peer.ip());
    let address = app.limits.proxies.client(peer, request.headers());
    let client = network(address);
    // With a body, it is handled as a login.
    let is_public =
        endpoint.may == Permission::Anyone && endpoint.method == Method::GET && request.body().is_end_stream();
    let caller = if endpoint.may == Permission::Anyone {
        None
    } else {
        Some(authenticate(app, endpoint, request.headers(), client).await?)
    };
    let _share = match &caller {
        Some(caller) => Some(app.limits.caller(clock, &caller.principal.actor()).await?),
        None if is_public => None,
        None => Some(app.limits.wait_for_unauthenticated_quota(clock, client).await?),
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
        is_of_page: parts.extensions.get::<OfPage>().is_some(),
        caller,
        client,
        origin: Origin {
            id: request_id.to_owned(),
            address: address.to_string(),
            client_id: client_id(&parts.headers),
        },
        headers: parts.headers,
    };
    let principal = call.caller.as_ref().map(|caller| &caller.principal);
    allow(endpoint, principal, call.path_ids())?;
    call.refuse_unchecked_conditions()?;
    call.check_query()?;
    let share = call.share();
    let is_stream = endpoint.answers == Output::Events;
    let _memory = match (&share, body::announced(&call, &body)?) {
        (None, _) | (_, 0) => None,
        (Some(share), bytes) => Some(app.limits.budget.reserve(clock, share, bytes).await?),
    };
    let read = body::read(clock, &call, body);
    call.body = if share.is_some() || is_public {
        read.await?
    } else {
        app.limits.unauthenticated_bodies.read(read).await?
    };
    *was_read = true;
    // A permit of all is never held while the organization's own are waited for: none makes others wait.
    let _of_organization = match &share {
        Some((_, organization)) => {
            let turn = if is_stream {
                Some(app.limits.turn(clock, organization).await?)
            } else {
                None
            };
            Some((turn, app.limits.organization(clock, organization).await?))
        }
        None => None,
    };
    let _opening = if is_stream {
        Some(app.limits.opening(clock).await.ok_or_else(overloaded)?)
    } else {
        None
    };
    // Public documents are in memory once for all who read them.
    let held = if is_public {
        None
    } else {
        Some(app.budget.hold_first(&call).await?)
    };
    let _permit = match &call.caller {
        Some(_) => Some(app.limits.permit(clock).await),
        // From memory, for every API server that trusts this issuer.
        None if is_public => None,
        None => Some(app.limits.unauthenticated_permit(clock).await),
    }
    .map(|permit| permit.ok_or_else(overloaded))
    .transpose()?;
    let answered = timeout(clock, LIMIT, (route.handler)(app, &call)).await;
    let response = answered.unwrap_or_else(|_| Err(busy("the request took too long").into()))?;
    let response = match held {
        Some(held) => app.budget.sent(&call, response, held).await?,
        None => response,
    };
    observed::reveal(app, &call, response.status());
    Ok(response)
}

/// The caller. One that is not cached is looked up with a permit, so that many who connect at once leave connections of
/// the database to others. A token that proves nothing by itself is counted by address before that, because anybody can
/// invent one, and has the permits of unauthenticated clients; so invented tokens take nothing from clients with a
/// valid one. The same applies beyond the limit of what a token proves, which others can use up who have the id of a
/// key or a revoked token.
async fn authenticate(
    app: &AppState,
    endpoint: &Endpoint,
    headers: &HeaderMap,
    client: IpAddr,
) -> Result<Arc<Authenticated>, Error> {
    let accepted = endpoint.accepted;
    let (authenticator, limits) = (&app.authenticator, &app.limits);
    let Some(token) = Token::sent(headers) else {
        limits.count_failed_token(client)?;
        return Err(Refusal::unauthenticated().into());
    };
    if let Some(caller) = authenticator.cached(&token, accepted).await {
        return Ok(caller);
    }
    let Some(credential) = token.read(authenticator, accepted) else {
        limits.count_failed_token(client)?;
        return Err(Refusal::unauthenticated().into());
    };
    let clock = &*app.clock;
    let share = match authenticator.proven_keys.share(&token, &credential) {
        Some(share) => limits.caller(clock, &share).await.ok(),
        None => None,
    };
    let is_proven = share.is_some();
    let (_share, permit) = match share {
        Some(share) => (share, limits.lookup(clock).await),
        None => (
            limits.wait_for_unauthenticated_quota(clock, client).await?,
            limits.unauthenticated_permit(clock).await,
        ),
    };
    let _permit = permit.ok_or_else(overloaded)?;
    // Another request of the same caller may have looked it up meanwhile.
    if let Some(caller) = authenticator.cached(&token, accepted).await {
        return Ok(caller);
    }
    if let Some(caller) = authenticator.look_up(&token, credential).await? {
        return Ok(caller);
    }
    if is_proven {
        limits.count_failed_token(client)?;
    }
    Err(Refusal::unauthenticated().into())
}
