//! The request of a signed-in person for a page of an organization.

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::Value;

use super::Console;
use super::api::{Answer, Api, Problem};
use super::controls::{is_soon, time};
use super::directory::organization;
use super::fields::FormFields;
use super::followed::{self, Followed};
use super::page::{Page, failed};
use super::parts::done;
use super::session::{Posted, Session};
use super::value::text;
use crate::client::Path;
use crate::models::OrgRole;
use crate::server::state::AppState;

/// An organization, and the role of the person in it.
pub(super) struct Place {
    pub(super) id: String,
    pub(super) name: String,
    role: Option<OrgRole>,
    /// The end of the person's membership; empty without one.
    end: String,
}

/// A person on a page of an organization of theirs.
pub(super) struct Visit {
    pub(super) app: AppState,
    pub(super) session: Session,
    pub(super) place: Place,
    pub(super) query: FormFields,
    parameters: Vec<(String, String)>,
    /// The clusters that have followed the change that was made before.
    followed: Option<Followed>,
}

/// A form of a page of an organization.
pub(super) struct Sent {
    pub(super) visit: Visit,
    pub(super) form: FormFields,
}

impl FromRequestParts<Console> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Response> {
        let session = Session::from_request_parts(parts, console).await?;
        Self::of(parts, console, session).await
    }
}

impl FromRequest<Console> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let copy = parts.clone();
        let Posted { session, form } = Posted::from_request(Request::from_parts(copy, body), console).await?;
        let visit = Visit::of(&mut parts, console, session).await?;
        Ok(Self { visit, form })
    }
}

impl Visit {
    async fn of(parts: &mut Parts, console: &Console, session: Session) -> Result<Self, Response> {
        let parameters = RawPathParams::from_request_parts(parts, &()).await;
        let parameters = parameters.iter().flatten();
        let parameters: Vec<(String, String)> = parameters.map(|(name, id)| (name.to_owned(), id.to_owned())).collect();
        let id = value(&parameters, "organization");
        let place = Place::read(&session, id).await;
        let place = place.map_err(|problem| failed(Some(&session), &problem))?;
        let query = FormFields::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let followed = followed::read(&session, &place.id, &query).await;
        Ok(Self {
            app: console.app.clone(),
            session,
            place,
            query,
            parameters,
            followed,
        })
    }

    pub(super) fn api(&self) -> &Api {
        &self.session.api
    }

    /// A parameter of the path of the page.
    pub(super) fn parameter(&self, name: &str) -> &str {
        value(&self.parameters, name)
    }

    /// The path of a list of the organization in the API.
    pub(super) fn list(&self, segment: &str) -> Path {
        organization(&self.place.id).below(segment)
    }

    /// The path of a page of the organization.
    pub(super) fn page_path(&self, rest: &str) -> String {
        format!("/organizations/{}/{rest}", self.place.id)
    }

    /// The name of an object of the organization, which leads to its page.
    pub(super) fn link(&self, section: &str, object: &Value) -> Markup {
        let id = text(object, "id");
        html! { a href=(self.page_path(&format!("{section}/{id}"))) title=(id) { (text(object, "name")) } }
    }

    /// At most `rows` objects of a list of the API, after the one that the query of the page names in `after`.
    pub(super) async fn part(&self, list: Path, rows: usize) -> Result<Answer, Problem> {
        let list = list.query("limit", rows);
        let part = match self.query.filled("after") {
            Some(after) => list.query("after", after),
            None => list,
        };
        self.api().get(part).await
    }

    /// A change stream, which ends with the session. It is no page, and opens without a permit of one.
    pub(super) async fn follow(mut self, stream: Path) -> Response {
        self.session.permits.clear();
        self.api().response(Method::GET, &stream, String::new(), None).await
    }

    /// Returns true if the person may do what takes `role`. The API decides; a page only leaves out what it would
    /// refuse.
    pub(super) fn may(&self, role: OrgRole) -> bool {
        self.place.role >= Some(role)
    }

    pub(super) fn is_admin(&self) -> bool {
        self.may(OrgRole::Admin)
    }

    /// The page with a form that the API would refuse from anybody but an admin.
    pub(super) fn admin_page(&self, title: &str, content: Result<Markup, Problem>) -> Response {
        if self.is_admin() {
            return self.page(title, content);
        }
        self.page(
            title,
            Err(Problem::forbidden("only an admin of the organization can do this")),
        )
    }

    /// The page with this content, or why it cannot be shown.
    pub(super) fn page(&self, title: &str, content: Result<Markup, Problem>) -> Response {
        let page = Page {
            title,
            session: Some(&self.session),
            organization: Some((&self.place.id, &self.place.name)),
            status: StatusCode::OK,
        };
        match content {
            Ok(content) => page.with(&html! { (self.notice()) (self.done()) (content) }),
            Err(problem) => failed(Some(&self.session), &problem),
        }
    }

    /// The notice before the end of the person's membership.
    fn notice(&self) -> Markup {
        let end = &*self.place.end;
        html! {
            @if is_soon(end, self.session.now) {
                p {
                    span.badge.active { "soon" } " Your membership of the organization ends at " (time(end))
                    ": ask an admin for a later end."
                }
            }
        }
    }

    /// The message after a change.
    fn done(&self) -> Markup {
        let followed = self.followed.as_ref();
        followed.map_or_else(|| done(&self.query), Followed::section)
    }

    /// The page with this status.
    pub(super) fn page_with(&self, status: StatusCode, title: &str, content: &Markup) -> Response {
        let page = Page {
            title,
            session: Some(&self.session),
            organization: Some((&self.place.id, &self.place.name)),
            status,
        };
        page.with(content)
    }
}

impl Place {
    async fn read(session: &Session, id: &str) -> Result<Self, Problem> {
        let found = session.api.get(organization(id)).await?.value;
        let own = organization(id).below("users").below(session.account.id);
        let member = session.api.get(own).await?.value;
        Ok(Self {
            id: text(&found, "id").to_owned(),
            name: text(&found, "name").to_owned(),
            role: OrgRole::of(text(&member, "role")),
            end: text(&member, "role_expires_at").to_owned(),
        })
    }
}

fn value<'a>(parameters: &'a [(String, String)], name: &str) -> &'a str {
    let found = parameters.iter().find(|(known, _)| known == name);
    found.map_or("", |(_, value)| value)
}
