//! The session of a signed-in person: a cookie with the token of a login, which the API checks as everywhere. A token
//! with a scope, or of a service account, opens none.
//!
//! A form is accepted only from a page of this server: by the headers with which a browser says where a request begins,
//! and by a token in the form that only a page of the same session has.

use std::net::{IpAddr, Ipv4Addr};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cookie::{Cookie, SameSite};
use http::header::{COOKIE, HOST, HeaderMap, ORIGIN, SET_COOKIE};
use http::request::Parts;
use http::{Method, StatusCode};
use jiff::Timestamp;
use tidewaiter_kit::serve::{Peer, network};
use tokio::sync::OwnedSemaphorePermit;

use super::Console;
use super::api::{Api, Problem};
use super::fields::{FormFields, SIGNED_IN, UNAUTHENTICATED, read};
use super::page::failed;
use crate::client::Path;
use crate::models::Account;
use crate::models::{Unknown, parse};
use crate::server::Error;
use crate::server::digest::head;
use crate::server::http::errors::busy;
use crate::server::keys::token::AcceptedUses;
use crate::server::principal::Principal;

/// A browser sends a cookie of this prefix only to this host and only over TLS, or to the own machine, and no other
/// host can have set it.
const SESSION: &str = "__Host-session";
/// The field of the token of the session in each form.
pub(super) const CSRF: &str = "csrf";

/// A signed-in person.
pub(super) struct Session {
    pub(super) api: Api,
    pub(super) account: Account,
    /// The id of the token in the cookie.
    pub(super) token: String,
    /// The token in the forms of this session.
    pub(super) csrf: String,
    /// The time of the request, for ends of access.
    pub(super) now: Timestamp,
    /// The person administers the server.
    pub(super) is_operator: bool,
    /// The permits to make the page.
    pub(super) permits: Vec<OwnedSemaphorePermit>,
}

/// The form that a signed-in person sent, from a page of this session.
pub(super) struct Posted {
    pub(super) session: Session,
    pub(super) form: FormFields,
}

/// The form of somebody who is not signed in, from a page of this server.
pub(super) struct UnauthenticatedForm {
    pub(super) api: Api,
    pub(super) form: FormFields,
}

impl FromRequestParts<Console> for Session {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let mut session = Self::open(parts, console).await?;
        session.begin_page(console).await?;
        Ok(session)
    }
}

impl Session {
    /// The session of a request, with the permit for one page of the person.
    async fn open(parts: &Parts, console: &Console) -> Result<Self, Response> {
        let again = || super::see_other(&sign_in_path(parts));
        let token = cookie(&parts.headers, SESSION).ok_or_else(again)?;
        let api = Api::new(&console.api, parts.extensions.get::<Peer>().copied(), &parts.headers).with_token(&token);
        let account = match api.get(Path::new(["account"])).await {
            Ok(answer) => parse(answer.value.to_string().as_bytes(), Unknown::Ignore),
            Err(problem) if problem.status == StatusCode::UNAUTHORIZED => {
                let mut response = again();
                end(&mut response);
                return Err(response);
            }
            Err(problem) => return Err(failed(None, &problem)),
        };
        let account: Account = account.map_err(|error| failed(None, &Problem::internal(&error)))?;
        let id = check_unscoped(console, &token).await?;
        let csrf = URL_SAFE_NO_PAD.encode(head::<32>(format!("csrf {token}").as_bytes()));
        let (clock, person) = (&*console.app.clock, account.id.to_string());
        let permit = console.pages.of_person(clock, &person).await;
        let permits = vec![permit.map_err(|refusal| failed(None, &Problem::from(refusal)))?];
        let now = clock.now();
        // The list is refused to everybody else.
        let is_operator = api.get(Path::new(["operators"])).await.is_ok();
        Ok(Self {
            api,
            account,
            token: id,
            csrf,
            now,
            is_operator,
            permits,
        })
    }

    /// Waits for a permit among all people. A form is read before it, so that a slow one takes nothing from others.
    async fn begin_page(&mut self, console: &Console) -> Result<(), Response> {
        let permit = console.pages.of_all(&*console.app.clock).await;
        let permit = permit.map_err(|refusal| failed(Some(&*self), &refusal.into()))?;
        self.permits.push(permit);
        Ok(())
    }
}

/// Checks that the token of a session is one of a user, without a scope: a page shows and does what a person may.
/// Returns the id of the token.
async fn check_unscoped(console: &Console, token: &str) -> Result<String, Response> {
    let authorization = format!("JWT {token}");
    let authenticator = &console.app.authenticator;
    match authenticator.authenticate(&authorization, AcceptedUses::Api).await {
        Ok(Some(caller)) if matches!(caller.principal, Principal::User { scope: None, .. }) => {
            let claims = caller.claims.as_ref();
            Ok(claims.map_or_else(String::new, |claims| claims.id.to_string()))
        }
        Ok(_) => {
            let problem = Problem::forbidden("the console is for people: sign in, without a token that has a scope");
            let mut response = failed(None, &problem);
            end(&mut response);
            Err(response)
        }
        Err(Error::Refused(refusal)) => Err(failed(None, &refusal.into())),
        Err(_) => Err(failed(None, &busy("the database is not available").into())),
    }
}

impl FromRequest<Console> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let mut session = Session::open(&parts, console).await?;
        check_origin(&parts.headers).map_err(|problem| failed(Some(&session), &problem))?;
        let form = read(console, body, SIGNED_IN).await;
        let form = form.map_err(|problem| failed(Some(&session), &problem))?;
        let sent = form.get(CSRF).unwrap_or_default();
        if verify_slices_are_equal(sent.as_bytes(), session.csrf.as_bytes()).is_err() {
            let problem = Problem::forbidden("the form is of a session that has ended: open the page again");
            return Err(failed(Some(&session), &problem));
        }
        session.begin_page(console).await?;
        Ok(Self { session, form })
    }
}

impl FromRequest<Console> for UnauthenticatedForm {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Peer>().copied();
        let form = read_unauthenticated(console, peer, &parts.headers, body).await;
        let form = form.map_err(|problem| failed(None, &problem))?;
        let api = Api::new(&console.api, peer, &parts.headers);
        Ok(Self { api, form })
    }
}

/// Reads the form of somebody who is not signed in, whose address is counted first. The permit of the address is held
/// only meanwhile: the request to the API takes one, too.
async fn read_unauthenticated(
    console: &Console,
    peer: Option<Peer>,
    headers: &HeaderMap,
    body: Body,
) -> Result<FormFields, Problem> {
    let (limits, clock) = (&console.app.limits, &*console.app.clock);
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(peer)| peer.ip());
    let client = network(limits.proxies.client(peer, headers));
    let _permit = limits.wait_for_unauthenticated_quota(clock, client).await?;
    check_origin(headers)?;
    read(console, body, UNAUTHENTICATED).await
}

/// Returns true if the browser has the cookie of a session, which may have ended.
pub(super) fn signed_in(headers: &HeaderMap) -> bool {
    cookie(headers, SESSION).is_some()
}

/// Begins a session with the token of a login.
pub(super) fn begin(response: &mut Response, token: &str) {
    add_cookie(response, &cookie_of(SESSION, token));
}

/// Ends the session in this browser.
pub(super) fn end(response: &mut Response) {
    let mut cookie = cookie_of(SESSION, "");
    cookie.make_removal();
    add_cookie(response, &cookie);
}

/// A cookie that only this server reads. It is sent when a link of another page leads here, as after signing in
/// elsewhere, and not with forms of others.
pub(super) fn cookie_of<'a>(name: &'a str, value: &'a str) -> Cookie<'a> {
    Cookie::build((name, value))
        .path("/")
        .secure(true)
        .http_only(true)
        .same_site(SameSite::Lax)
        .build()
}

pub(super) fn add_cookie(response: &mut Response, cookie: &Cookie<'_>) {
    if let Ok(value) = cookie.to_string().parse() {
        response.headers_mut().append(SET_COOKIE, value);
    }
}

/// The value of a cookie; `None` if it is missing or there are several.
pub(super) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let sent = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies = sent.flat_map(Cookie::split_parse).filter_map(Result::ok);
    let mut found = cookies.filter(|cookie| cookie.name() == name);
    let first = found.next()?;
    (found.next().is_none() && !first.value().is_empty()).then(|| first.value().to_owned())
}

/// Refuses a form that a page of another origin sends. Each browser of today sends one of these two headers.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_own = match (header("sec-fetch-site"), header(ORIGIN.as_str())) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => {
            let host = origin.split_once("://").map(|(_, host)| host);
            host.is_some() && host == header(HOST.as_str())
        }
        (None, None) => false,
    };
    if is_own {
        return Ok(());
    }
    Err(Problem::forbidden(
        "the form was not sent by a page of this server: open the page here and send it again",
    ))
}

/// The page to sign in, which leads back to `path`.
pub(super) fn sign_in_and_return_to(path: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    format!("/sign-in?{}", query.append_pair("return_to", path).finish())
}

/// The page to sign in, which leads back to the page of the request if that one can be opened again.
fn sign_in_path(parts: &Parts) -> String {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    if parts.method != Method::GET || path == "/" {
        return "/sign-in".to_owned();
    }
    sign_in_and_return_to(path)
}

/// The path, if it is one of this server and no other host's in disguise (`//host`, `/\host`).
pub(super) fn own_path(path: &str) -> &str {
    let is_own = path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && byte != b'\\');
    if is_own { path } else { "/" }
}
