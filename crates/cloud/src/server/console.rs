//! The console: pages for people, rendered here. A page reads and changes nothing by itself: it sends the requests that
//! any client would send to the API of this server, in the same process and with the token of the signed-in person. So
//! permissions, limits, preconditions and the audit log are those of the API. Objects that the API has only in whole
//! lists are read from the store, for members, who may list them (`lookup`).
//!
//! Rules of all pages: no inline script or style, nothing from another host, no credential in the text; a form works
//! without JavaScript and carries the token of its session (`session`); a page that may be shown to nobody else is not
//! stored by a cache.

mod access;
mod account;
mod api;
mod assets;
mod audit;
mod catalogue;
mod change;
mod cluster;
mod clusters;
mod command_line;
mod controls;
mod decisions;
mod device;
mod directory;
mod effect;
mod fields;
mod followed;
mod home;
mod invitations;
mod keys;
mod labels;
mod lookup;
mod operators;
mod page;
mod pages;
mod parts;
mod people;
mod pool;
mod providers;
mod registries;
mod report;
mod roles;
mod rule;
mod second_factor;
mod service_accounts;
mod session;
mod settings;
mod sign_in;
mod teams;
mod upgrades;
mod usage;
mod value;
mod visit;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

use self::pages::Pages;
use super::state::AppState;

/// The state of all pages.
#[derive(Clone)]
pub(super) struct Console {
    pub(super) app: AppState,
    /// The API of this server.
    api: Router,
    pages: Arc<Pages>,
}

const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Nothing but what this server sends, and in nobody's frame. A page that needs more sends its own policy.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; form-action \
     'self'; frame-ancestors 'none'; base-uri 'none'",
);

/// Serves the pages, with `api` as the API that they use.
pub(super) fn router(app: AppState, api: Router) -> Router {
    Router::new()
        .route("/", get(home::show))
        .route("/sign-in", get(sign_in::show).post(sign_in::with_password))
        .route("/sign-in/second-factor", post(second_factor::sign_in))
        .route("/sign-in/cli", get(command_line::show).post(command_line::decide))
        .route("/device", get(device::show).post(device::decide))
        .route(invitations::PAGE, get(invitations::show).post(invitations::accept))
        .route(invitations::JOIN, get(invitations::show_join).post(invitations::join))
        .route("/sign-in/with/{provider}", get(providers::sign_in))
        .route("/sign-in/callback", get(providers::callback))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/account/identities", get(providers::show).post(providers::link))
        .route("/account/identities/unlink", post(providers::unlink))
        .route("/assets/{name}", get(assets::get))
        .merge(account_pages())
        .merge(operator_pages())
        .merge(below_organization(access_pages()))
        .merge(below_organization(service_account_pages()))
        .merge(below_organization(other_pages()))
        .merge(below_organization(cluster_pages()))
        .layer(from_fn_with_state(app.clone(), to_https))
        .layer(map_response(protect))
        .with_state(Console {
            app,
            api,
            pages: Arc::default(),
        })
}

/// Serves pages of an organization, whose paths begin with it.
fn below_organization(pages: Vec<(&str, MethodRouter<Console>)>) -> Router<Console> {
    pages.into_iter().fold(Router::new(), |router, (rest, page)| {
        router.route(&format!("/organizations/{{organization}}{rest}"), page)
    })
}

/// The pages of the signed-in person.
fn account_pages() -> Router<Console> {
    Router::new()
        .route("/account", get(account::show).post(account::change_profile))
        .route("/account/password", post(account::change_password))
        .route("/account/keys", post(account::add_key))
        .route("/account/keys/{id}/delete", post(account::delete_key))
        .route("/account/security-keys", post(second_factor::register))
        .route("/account/security-keys/new", post(second_factor::begin))
        .route("/account/security-keys/{id}/remove", post(second_factor::remove))
        .route("/account/recovery-codes", post(second_factor::renew_codes))
        .route("/account/tokens", post(account::create_token))
        .route("/account/tokens/{id}/revoke", post(account::revoke_token))
}

/// The pages of operators.
fn operator_pages() -> Router<Console> {
    Router::new()
        .route("/operators", get(operators::show).post(operators::add))
        .route("/operators/audit", get(audit::of_server))
        .route("/operators/lock", post(operators::lock))
        .route("/operators/organizations", post(operators::create_organization))
        .route("/operators/{id}/remove", post(operators::remove))
}

/// The pages of an organization about access.
fn access_pages() -> Vec<(&'static str, MethodRouter<Console>)> {
    vec![
        ("/access", get(access::show_all)),
        ("/access/logins", get(access::logins)),
        ("/access/grant", get(access::grant_form).post(access::grant)),
        ("/access/{id}", get(access::show)),
        ("/access/{id}/end", post(access::set_end)),
        ("/access/{id}/withdraw", post(access::withdraw)),
        ("/people", get(people::show_all).post(people::create)),
        ("/people/new", get(people::create_form)),
        ("/people/{id}", get(people::show)),
        ("/invitations", post(invitations::create)),
        ("/invitations/{id}/revoke", post(invitations::revoke)),
        ("/people/{id}/role", post(people::set_role)),
        ("/people/{id}/end", post(people::set_end)),
        ("/people/{id}/logins", post(people::end_logins)),
        ("/people/{id}/second-factor", post(people::reset_second_factor)),
        ("/people/{id}/remove", post(people::remove)),
        ("/people/{id}/keys/{key}/delete", post(people::delete_key)),
        ("/teams", post(teams::create)),
        ("/teams/{id}", get(teams::show).post(teams::rename)),
        ("/teams/{id}/members", post(teams::add_member)),
        ("/teams/{id}/members/{user}/remove", post(teams::remove_member)),
        ("/teams/{id}/delete", post(teams::delete)),
        ("/roles", get(roles::show_all).post(roles::create)),
        ("/roles/new", get(roles::create_form)),
        ("/roles/{id}", get(roles::show).post(roles::update)),
        ("/roles/{id}/delete", post(roles::delete)),
    ]
}

/// The pages of programs, which are no people.
fn service_account_pages() -> Vec<(&'static str, MethodRouter<Console>)> {
    vec![
        (
            "/service-accounts",
            get(service_accounts::show_all).post(service_accounts::create),
        ),
        ("/service-accounts/{id}", get(service_accounts::show)),
        ("/service-accounts/{id}/end", post(service_accounts::set_end)),
        ("/service-accounts/{id}/delete", post(service_accounts::delete)),
        ("/service-accounts/{id}/tokens", post(service_accounts::create_token)),
        (
            "/service-accounts/{id}/tokens/{token}/revoke",
            post(service_accounts::revoke_token),
        ),
    ]
}

/// The other pages of an organization.
fn other_pages() -> Vec<(&'static str, MethodRouter<Console>)> {
    vec![
        ("/registries", get(registries::show_all).post(registries::create)),
        ("/registries/new", get(registries::create_form)),
        ("/registries/{id}", get(registries::show).post(registries::update)),
        ("/registries/{id}/delete", post(registries::delete)),
        ("/catalogue", get(catalogue::show_all)),
        ("/catalogue/{type}/{implementation}", get(catalogue::show)),
        (
            "/catalogue/{type}/{implementation}/{version}",
            get(catalogue::show_version),
        ),
        ("/audit", get(audit::show)),
        ("/settings", get(settings::show).post(settings::change)),
    ]
}

/// The pages of clusters.
fn cluster_pages() -> Vec<(&'static str, MethodRouter<Console>)> {
    vec![
        ("/clusters", get(clusters::show)),
        ("/events", get(clusters::events)),
        ("/attach", get(clusters::attach)),
        ("/clusters/{cluster}", get(cluster::show)),
        ("/clusters/{cluster}/events", get(cluster::events)),
        ("/clusters/{cluster}/releases", post(decisions::release)),
        ("/clusters/{cluster}/approvals", post(decisions::approve)),
        ("/clusters/{cluster}/keys", post(keys::create)),
        ("/clusters/{cluster}/keys/{id}/delete", post(keys::delete)),
        ("/clusters/{cluster}/labels", post(labels::create)),
        ("/clusters/{cluster}/labels/{id}", post(labels::update)),
        ("/clusters/{cluster}/labels/{id}/delete", post(labels::delete)),
        ("/clusters/{cluster}/pools/{pool}", get(pool::show)),
        ("/clusters/{cluster}/pools/{pool}/labels", post(labels::create)),
        ("/clusters/{cluster}/pools/{pool}/labels/{id}", post(labels::update)),
        (
            "/clusters/{cluster}/pools/{pool}/labels/{id}/delete",
            post(labels::delete),
        ),
        ("/clusters/{cluster}/upgrades", post(upgrades::create)),
        ("/clusters/{cluster}/upgrades/{id}", get(upgrades::show)),
        ("/clusters/{cluster}/upgrades/{id}/pause", post(upgrades::pause)),
        ("/clusters/{cluster}/upgrades/{id}/resume", post(upgrades::resume)),
        ("/clusters/{cluster}/upgrades/{id}/abort", post(upgrades::abort)),
    ]
}

/// Redirects a browser that reached the proxy in plain HTTP, before a password is typed.
async fn to_https(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let mut url = app.parts.issuer.clone();
    if url.scheme() != "https" || !app.limits.proxies.is_plain(&request) {
        return next.run(request).await;
    }
    url.set_path(request.uri().path());
    url.set_query(request.uri().query());
    redirect(StatusCode::PERMANENT_REDIRECT, url.as_str())
}

/// Adds the headers by which a browser keeps others out of a page.
async fn protect(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(OPENER, HeaderValue::from_static("same-origin"));
    response
}

/// 303 to `location`, which is a path of this server, or was checked.
fn see_other(location: &str) -> Response {
    redirect(StatusCode::SEE_OTHER, location)
}

fn redirect(status: StatusCode, location: &str) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    super::http::response::set(response.headers_mut(), http::header::LOCATION, location);
    response
}
