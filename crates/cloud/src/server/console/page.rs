//! The frame of all pages, and what they share: errors, forms, tables, times.

use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use maud::{DOCTYPE, Markup, html};

use super::api::{Problem, TOO_LARGE};
use super::session::{CSRF, Session};

/// A page of the organization with this id, or of none.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    pub(super) session: Option<&'a Session>,
    /// The id and the name of the organization whose pages are beside it.
    pub(super) organization: Option<(&'a str, &'a str)>,
    pub(super) status: StatusCode,
}

/// The pages of an organization: the last segment of the path, and the title.
const SECTIONS: [(&str, &str); 7] = [
    ("clusters", "Clusters"),
    ("access", "Access"),
    ("people", "People and teams"),
    ("registries", "Registries"),
    ("roles", "Roles"),
    ("catalogue", "Catalogue"),
    ("audit", "Audit"),
];

impl Page<'_> {
    /// The page with this content.
    pub(super) fn with(&self, content: &Markup) -> Response {
        let markup = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Tidewaiter" }
                    link rel="stylesheet" href="/assets/console.css";
                    script src="/assets/console.js" defer {}
                }
                body {
                    a.skip href="#content" { "Skip to the content" }
                    header {
                        a.brand href="/" { "Tidewaiter" }
                        @if let Some((_, name)) = self.organization { span.organization { (name) } }
                        @if let Some(session) = self.session { (account(session)) }
                    }
                    @if let Some((id, _)) = self.organization { (sections(id, self.title)) }
                    main id="content" tabindex="-1" {
                        h1 { (self.title) }
                        p #stale role="status" {}
                        (content)
                    }
                }
            }
        };
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        (self.status, [(CONTENT_TYPE, html)], markup.into_string()).into_response()
    }
}

fn account(session: &Session) -> Markup {
    html! {
        nav.account aria-label="Account" {
            @if session.is_operator { a href="/operators" { "Operators" } }
            a href="/account" { (session.account.name) }
            form method="post" action="/sign-out" {
                (csrf(session))
                button.link type="submit" { "Sign out" }
            }
        }
    }
}

fn sections(organization: &str, title: &str) -> Markup {
    html! {
        nav.sections aria-label="Organization" {
            @for (segment, section) in SECTIONS {
                a href={ "/organizations/" (organization) "/" (segment) }
                    aria-current=[(section == title).then_some("page")] { (section) }
            }
        }
    }
}

/// The hidden field that each form of a session has.
pub(super) fn csrf(session: &Session) -> Markup {
    html! { input type="hidden" name=(CSRF) value=(session.csrf); }
}

/// The refusal of a request, where the form or the content would be.
pub(super) fn problem(problem: &Problem) -> Markup {
    html! { p.problem role="alert" { (problem.message) } }
}

/// A page that cannot be shown, with the reason.
pub(super) fn failed(session: Option<&Session>, refused: &Problem) -> Response {
    let title = match refused.status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not permitted",
        TOO_LARGE => "Too large",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "Try again later",
        status if status.is_client_error() => "Refused",
        _ => "Something failed",
    };
    let page = Page {
        title,
        session,
        organization: None,
        status: refused.status,
    };
    page.with(&problem(refused))
}
