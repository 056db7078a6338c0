//! Handles a request: authentication, permission, limits, errors.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::handler::Handler as _;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{RequestExt as _, Router};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, StatusCode};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::serve::Peer;
use tidewaiter_kit::{Chain, Kit, admin, random};
use tokio::sync::SemaphorePermit;
use tracing::{debug, error};
use uuid::Uuid;

use super::Error;
use super::access::{Permission, allow, unknown};
use super::accounts;
use super::call::{Call, json, set, text};
use super::catalogue;
use super::cloud::Cloud;
use super::clusters;
use super::documents;
use super::endpoints::{Action, ENDPOINTS, Endpoint, Input};
use super::identity;
use super::keys;
use super::lists;
use super::login;
use super::members;
use super::metrics::Requests;
use super::operators;
use super::organizations;
use super::refusal::Refusal;
use super::resources;
use super::store::StoreError;
use super::stream;
use super::token::AcceptedUses;

/// The timeout of a response; a stream only has to start within it.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a request waits until others end. After a change of an organization all of its clusters ask at once, and
/// nobody's next change is to be refused because of that.
const PLACE_WAIT: Duration = Duration::from_secs(1);
/// The maximum size of a body, in bytes.
const MAX_BODY: usize = 1024 * 1024;
/// The maximum size of manifests, in bytes.
const MAX_MANIFESTS: usize = 16 * 1024 * 1024;
/// `Retry-After` in seconds, while the database is unavailable.
const COME_AGAIN: u64 = 2;
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The state of all handlers.
#[derive(Clone)]
struct Shared {
    cloud: Cloud,
    requests: Requests,
}

/// Serves the table of endpoints, and `/healthz`, `/readyz` and `/metrics` of the process.
pub(super) fn router(cloud: Cloud, requests: Requests, kit: Kit) -> Router {
    let mut paths: BTreeMap<&str, MethodRouter<Shared>> = BTreeMap::new();
    for endpoint in ENDPOINTS.iter() {
        let filter = MethodFilter::try_from(endpoint.method.clone()).unwrap_or(MethodFilter::TRACE);
        let handler = move |State(shared): State<Shared>, request: Request| handle(shared, endpoint, request);
        let routes = paths.remove(&*endpoint.path).unwrap_or_default();
        paths.insert(&endpoint.path, routes.merge(on(filter, handler)));
    }
    let shared = Shared { cloud, requests };
    let mut router = Router::new();
    for (path, routes) in paths {
        router = router.route(path, routes);
    }
    router
        .fallback_service(nowhere.with_state(()))
        .method_not_allowed_fallback(not_so)
        .with_state(shared)
        .merge(admin::router(kit))
}

async fn nowhere(request: Request) -> Response {
    let refusal = Refusal::new(StatusCode::NOT_FOUND, "there is no such path");
    finish(refused(&refusal), &request_id(request.headers()))
}

async fn not_so(request: Request) -> Response {
    let message = "the method is not allowed for this path";
    let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, message);
    finish(refused(&refusal), &request_id(request.headers()))
}

/// The request id from the caller, if it is safe in a log line.
fn request_id(headers: &HeaderMap) -> String {
    let own = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let fits = |id: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=128).contains(&id.len()) && id.bytes().all(plain)
    };
    // It only has to be unique, which needs no randomness from the system.
    let new = || {
        Uuid::from_u64_pair(random::u64(), random::u64())
            .hyphenated()
            .to_string()
    };
    own.filter(fits).map_or_else(new, str::to_owned)
}

fn finish(mut response: Response, request_id: &str) -> Response {
    set(response.headers_mut(), REQUEST_ID, request_id);
    response
}

async fn handle(shared: Shared, endpoint: &'static Endpoint, request: Request) -> Response {
    let began = shared.cloud.clock.monotonic();
    let request_id = request_id(request.headers());
    let answered = match place(&shared.cloud).await {
        Some(_place) => {
            let answered = timeout(
                &*shared.cloud.clock,
                LIMIT,
                answer(&shared.cloud, endpoint, request, &request_id),
            );
            answered
                .await
                .unwrap_or_else(|_| Err(busy("the request took too long").into()))
        }
        None => Err(busy("the server is overloaded").into()),
    };
    let response = answered.unwrap_or_else(|error| failed(&error, &request_id));
    let took = shared.cloud.clock.monotonic().saturating_sub(began);
    shared.requests.count(endpoint, response.status(), took);
    finish(response, &request_id)
}

/// The permit for one request, if there is one within [`PLACE_WAIT`].
async fn place(cloud: &Cloud) -> Option<SemaphorePermit<'_>> {
    let places = &cloud.limits.places;
    if let Ok(place) = places.try_acquire() {
        return Some(place);
    }
    timeout(&*cloud.clock, PLACE_WAIT, places.acquire()).await.ok()?.ok()
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
        Error::Store(StoreError::Full) => refused(&busy("too many writes are pending")),
        Error::Store(error) => {
            error!(request_id, error = %Chain(error), "the database");
            refused(&busy("the database is not available"))
        }
        Error::Internal(_) => {
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

async fn answer(
    cloud: &Cloud,
    endpoint: &'static Endpoint,
    mut request: Request,
    request_id: &str,
) -> Result<Response, Error> {
    let accepted = if endpoint.action == Action::Authenticate {
        AcceptedUses::Any
    } else {
        AcceptedUses::Api
    };
    let peer = request
        .extensions()
        .get::<Peer>()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(peer)| peer.ip());
    let known = match endpoint.may {
        Permission::Anyone => None,
        _ => identity::of(cloud, request.headers(), accepted).await?,
    };
    match &known {
        Some(known) => cloud.limits.caller(&known.principal.actor()).map_err(Refusal::from)?,
        None if endpoint.action.reads() && endpoint.may == Permission::Anyone => {}
        None => cloud.limits.stranger(peer).map_err(Refusal::from)?,
    }
    let parameters: Result<RawPathParams, _> = request.extract_parts().await;
    let parameters = parameters.map_err(|_| Refusal::not_found())?;
    let parameters = parameters
        .iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let query = request.uri().query().unwrap_or_default();
    let query = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let (parts, body) = request.into_parts();
    let mut call = Call {
        endpoint,
        path: parts.uri.path().to_owned(),
        parameters,
        query,
        headers: parts.headers,
        body: Bytes::new(),
        known,
        request_id: request_id.to_owned(),
    };
    if call.known.is_none() && endpoint.may != Permission::Anyone {
        return Err(unknown().into());
    }
    allow(
        endpoint.may,
        call.known.as_ref().map(|known| &known.principal),
        call.place(),
    )?;
    call.body = whole(&call, body).await?;
    dispatch(cloud, &call).await
}

/// The body, if its content type and size are accepted by the endpoint.
async fn whole(call: &Call, body: Body) -> Result<Bytes, Refusal> {
    let most = if call.endpoint.action == Action::SetManifests {
        MAX_MANIFESTS
    } else {
        MAX_BODY
    };
    let json = matches!(call.endpoint.takes, Input::Json(_) | Input::Patch(_));
    if let (true, Some(said)) = (json, call.header(&CONTENT_TYPE)) {
        let essence = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !["application/json", "application/merge-patch+json"].contains(&&*essence) {
            let message = format!(
                "content-type: is {:.64}, must be application/json",
                essence.escape_default().to_string()
            );
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    }
    axum::body::to_bytes(body, most).await.map_err(|_| {
        let message = format!("the body is unreadable or larger than {} KiB", most / 1024);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    })
}

async fn dispatch(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    use Action as A;
    use catalogue::Part;
    match call.endpoint.action {
        A::List(kind) => lists::list(cloud, call, kind).await,
        A::Create(kind) => resources::create(cloud, call, kind).await,
        A::Get(kind) => resources::get(cloud, call, kind).await,
        A::Replace(kind) => resources::change(cloud, call, kind, false).await,
        A::Patch(kind) => resources::change(cloud, call, kind, true).await,
        A::Delete(kind) => resources::delete(cloud, call, kind).await,
        A::SetStatus(kind) => clusters::set_status(cloud, call, kind).await,
        A::LogIn => login::log_in(cloud, call).await,
        A::Authenticate => accounts::authenticate(cloud, call),
        A::GetAccount => accounts::get(cloud, call).await,
        A::ReplaceAccount => accounts::change(cloud, call, false).await,
        A::PatchAccount => accounts::change(cloud, call, true).await,
        A::ChangePassword => accounts::change_password(cloud, call).await,
        A::ListTokens => accounts::list_tokens(cloud, call).await,
        A::CreateToken => accounts::create_token(cloud, call).await,
        A::RevokeToken => accounts::revoke_token(cloud, call).await,
        A::ListOrganizations => organizations::organizations(cloud, call).await,
        A::CreateOrganization => organizations::create_organization(cloud, call).await,
        A::ListMembers => members::list(cloud, call, false).await,
        A::ListSshUsers => members::list(cloud, call, true).await,
        A::CreateMember => members::create(cloud, call).await,
        A::GetMember => members::get(cloud, call).await,
        A::ReplaceMember => members::change(cloud, call, false).await,
        A::PatchMember => members::change(cloud, call, true).await,
        A::DeleteMember => members::delete(cloud, call).await,
        A::SetRole => members::set_role(cloud, call).await,
        A::SetPassword => members::set_password(cloud, call).await,
        A::ListOperators => operators::list(cloud, call).await,
        A::AddOperator => operators::add(cloud, call).await,
        A::RemoveOperator => operators::remove(cloud, call).await,
        A::SetLocked => organizations::lock(cloud, call).await,
        A::Audit => organizations::audit(cloud, call).await,
        A::ListKeys => keys::list_keys(cloud, call).await,
        A::CreateKey => keys::create_key(cloud, call).await,
        A::DeleteKey => keys::delete_key(cloud, call).await,
        A::ClusterToken => clusters::token(cloud, call).await,
        A::Events => stream::events(cloud, call).await,
        A::ListAssigned => clusters::list_assigned(cloud, call).await,
        A::Assign => clusters::assign(cloud, call).await,
        A::Unassign => clusters::unassign(cloud, call).await,
        A::NodeInCluster => clusters::node(cloud, call).await,
        A::NodesInCluster => clusters::nodes(cloud, call).await,
        A::SetScript => clusters::set_script(cloud, call).await,
        A::GetScript => clusters::script(cloud, call).await,
        A::Catalogue => catalogue::get(cloud, call, Part::All).await,
        A::CatalogueType => catalogue::get(cloud, call, Part::Type).await,
        A::CatalogueDefinition => catalogue::get(cloud, call, Part::Definition).await,
        A::CatalogueVersion => catalogue::get(cloud, call, Part::Version).await,
        A::SetVersion => catalogue::set_version(cloud, call).await,
        A::SetManifests => catalogue::set_manifests(cloud, call).await,
        A::DeleteVersion => catalogue::delete_version(cloud, call).await,
        A::Templates => Ok(json(StatusCode::OK, Bytes::from_static(b"[]"))),
        A::Discovery => Ok(documents::discovery(cloud, call)),
        A::Jwks => Ok(documents::jwks(cloud, call)),
        A::OpenApi => Ok(documents::openapi(call)),
        A::Docs => Ok(documents::page(call)),
    }
}
