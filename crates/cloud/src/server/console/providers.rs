//! Signing in at a provider, and the providers that a signed-in person has linked.
//!
//! The cookie of a begun sign-in is that of one browser, and is deleted when the person returns: nobody ends the
//! sign-in of another one, and none is ended twice.

use std::net::{IpAddr, Ipv4Addr};

use axum::extract::{FromRequestParts as _, Path as Segments, RawQuery, State};
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode};
use maud::{Markup, html};
use tidewaiter_kit::serve::{Peer, network};
use tokio::sync::OwnedSemaphorePermit;

use super::Console;
use super::api::Problem;
use super::command_line::refusal;
use super::fields::FormFields;
use super::page::{Page, csrf, failed};
use super::see_other;
use super::session::{Posted, Session, add_cookie, begin as begin_session, cookie, cookie_of, own_path};
use crate::client::Path;
use crate::models::{Identity, Unknown, parse_list};
use crate::server::http::request_id::{client_id, request_id};
use crate::server::http::response::set;
use crate::server::routes::sign_in::{Linker, Returned, begin, begin_again, finish, open};
use crate::server::store::Origin;

/// The cookie of a begun sign-in.
const PENDING: &str = "__Host-sign-in";
/// The page of the linked providers.
pub(super) const LINKED: &str = "/account/identities";

/// The providers that a signed-in person has linked, and those that can be linked.
pub(super) struct Identities {
    linked: Vec<Identity>,
    /// The name and the title of each provider of the server.
    offered: Vec<(String, String)>,
}

impl Identities {
    /// Those of the signed-in person.
    pub(super) async fn of(console: &Console, session: &Session) -> Result<Self, Problem> {
        let answer = session.api.get(Path::new(["account", "identities"])).await?;
        let linked = parse_list(answer.value.to_string().as_bytes(), Unknown::Ignore);
        Ok(Self {
            linked: linked.map_err(|error| Problem::internal(&error))?,
            offered: offered(console),
        })
    }
}

/// The name and the title of each provider of the server.
fn offered(console: &Console) -> Vec<(String, String)> {
    let providers = console.app.oidc.providers.iter();
    providers
        .map(|provider| (provider.settings.name.clone(), provider.settings.title.clone()))
        .collect()
}

/// The links that begin a sign-in at each provider, which leads to the page `return_to`.
pub(super) fn buttons(console: &Console, return_to: &str) -> Markup {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let query = query.append_pair("return_to", return_to).finish();
    html! {
        @for (name, title) in offered(console) {
            p { a.button href={ "/sign-in/with/" (name) "?" (query) } { "Sign in with " (title) } }
        }
    }
}

/// The section of "My account" with the linked providers.
pub(super) fn identities_section(session: &Session, list: &Identities) -> Markup {
    let title = |name: &str| {
        let known = list.offered.iter().find(|(offered, _)| offered == name);
        known.map_or_else(|| name.to_owned(), |(_, title)| title.clone())
    };
    html! {
        section aria-labelledby="identities" {
            h2 id="identities" { "Sign-in providers" }
            @if list.linked.is_empty() { p { "No provider is linked with your account." } }
            ul {
                @for identity in &list.linked {
                    li {
                        (title(identity.provider.as_str())) " (" (identity.subject) ")"
                        form method="post" action="/account/identities/unlink" {
                            (csrf(session))
                            input type="hidden" name="id" value=(identity.id);
                            button type="submit" { "Unlink " (title(identity.provider.as_str())) }
                        }
                    }
                }
            }
            @for (name, title) in &list.offered {
                form method="post" action="/account/identities" {
                    (csrf(session))
                    input type="hidden" name="provider" value=(name);
                    button type="submit" { "Link " (title) }
                }
            }
        }
    }
}

/// The linked providers as a page.
pub(super) async fn show(State(console): State<Console>, session: Session) -> Response {
    let list = match Identities::of(&console, &session).await {
        Ok(list) => list,
        Err(problem) => return failed(Some(&session), &problem),
    };
    let page = Page {
        title: "My account",
        session: Some(&session),
        organization: None,
        status: StatusCode::OK,
    };
    page.with(&identities_section(&session, &list))
}

/// Sends a person to a provider, to sign in there.
pub(super) async fn sign_in(
    State(console): State<Console>,
    Segments(provider): Segments<String>,
    RawQuery(query): RawQuery,
    parts: Parts,
) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    let return_to = own_path(query.get("return_to").unwrap_or("/"));
    let begun = match admit(&console, &parts).await {
        Ok((_, _permit)) => begin(&console.app, &provider, return_to, None)
            .await
            .map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    match begun {
        Ok((url, sealed)) => {
            let mut response = see_other(url.as_str());
            add_cookie(&mut response, &cookie_of(PENDING, &sealed));
            response
        }
        Err(problem) => failed(None, &problem),
    }
}

/// Sends the signed-in person to a provider, to link it.
pub(super) async fn link(State(console): State<Console>, mut sent: Posted) -> Response {
    // A provider that is silent holds no page of others.
    sent.session.permits.clear();
    let session = &sent.session;
    let provider = sent.form.get("provider").unwrap_or_default();
    let linker = Linker {
        user: session.account.id.to_string(),
        login: session.token.clone(),
    };
    let page = |status| Page {
        title: "Link a provider",
        session: Some(session),
        organization: None,
        status,
    };
    let (url, sealed) = match begin(&console.app, provider, LINKED, Some(linker)).await {
        Ok(begun) => begun,
        Err(error) => {
            let refused = Problem::from(error);
            return page(refused.status).with(&refusal(&refused, LINKED));
        }
    };
    let mut response = page(StatusCode::OK).with(&html! { p { a href=(url) { "Continue to the provider" } } });
    // A page and not a redirect: browsers apply form-action of the policy to what a form redirects to.
    set(response.headers_mut(), http::header::REFRESH, &format!("0; url={url}"));
    add_cookie(&mut response, &cookie_of(PENDING, &sealed));
    response
}

/// Unlinks a provider.
pub(super) async fn unlink(sent: Posted) -> Response {
    let id = sent.form.get("id").unwrap_or_default();
    let path = Path::new(["account", "identities", id]);
    match sent.session.api.send(Method::DELETE, path, None, None).await {
        Ok(_) => see_other(LINKED),
        Err(problem) => failed(Some(&sent.session), &problem),
    }
}

/// Ends a sign-in or a link, when the provider sends the person back. The cookie goes, whatever comes of it.
pub(super) async fn callback(State(console): State<Console>, mut parts: Parts) -> Response {
    let returned = returned(&console, &mut parts).await;
    let mut response = returned.unwrap_or_else(|problem| failed(None, &problem));
    let mut pending = cookie_of(PENDING, "");
    pending.make_removal();
    add_cookie(&mut response, &pending);
    response
}

async fn returned(console: &Console, parts: &mut Parts) -> Result<Response, Problem> {
    let (address, _permit) = admit(console, parts).await?;
    let sealed = cookie(&parts.headers, PENDING).ok_or_else(begin_again)?;
    let pending = open(&console.app, &sealed)?;
    if let Some(linker) = &pending.linker {
        // In the session that began it, and in no other one.
        let session = Session::from_request_parts(parts, console).await;
        if !session.is_ok_and(|session| session.token == linker.login) {
            return Err(begin_again().into());
        }
    }
    let query = FormFields::parse(parts.uri.query().unwrap_or_default().as_bytes());
    let returned = Returned {
        state: query.get("state").unwrap_or_default(),
        code: query.get("code").unwrap_or_default(),
        issuer: query.get("iss"),
        error: query.get("error"),
    };
    let origin = Origin {
        id: request_id(),
        address: address.to_string(),
        client_id: client_id(&parts.headers),
    };
    let mut response = see_other(own_path(&pending.return_to));
    if let Some(token) = finish(&console.app, pending, returned, origin).await? {
        begin_session(&mut response, &token);
    }
    Ok(response)
}

/// Counts a request of a person who is not signed in, as the API counts logins, and waits until its address has few
/// enough others in progress: one address cannot take all places at a provider. Returns the address, and the permit for
/// the time of the request. It is none of those that all addresses share: a silent provider delays nobody else.
async fn admit(console: &Console, parts: &Parts) -> Result<(IpAddr, OwnedSemaphorePermit), Problem> {
    let peer = parts.extensions.get::<Peer>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |Peer(peer)| peer.ip());
    let (limits, clock) = (&console.app.limits, &*console.app.clock);
    let address = limits.proxies.client(peer, &parts.headers);
    let permit = limits.wait_for_unauthenticated_quota(clock, network(address)).await?;
    Ok((address, permit))
}
