//! A change in two steps: the first shows its effect, and the second makes it, if the object is still as it was shown.
//!
//! A credential is in no page: it is entered in the second step, into a field whose name begins with [`SECRET`].

use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::Value;

use super::api::Problem;
use super::controls::with_query;
use super::fields::FormFields;
use super::followed;
use super::page::{Page, csrf, failed, problem};
use super::parts::DONE;
use super::see_other;
use super::session::{CSRF, Session};
use super::visit::Place;
use crate::client::Path;

/// The beginning of the names of fields with credentials.
pub(super) const SECRET: &str = "secret.";
const CONFIRMED: &str = "confirmed";
const ETAG: &str = "etag";

/// A request that changes something, and the page after it.
pub(super) struct Change {
    pub(super) method: Method,
    pub(super) path: Path,
    pub(super) body: Option<Value>,
    pub(super) then: String,
}

/// The effect of a change, for the first step.
pub(super) struct Review {
    pub(super) title: String,
    pub(super) effect: Markup,
    /// Fields that only the second step has.
    pub(super) asks: Markup,
    /// The version of the object that is shown; `None` if the API checks none.
    pub(super) etag: Option<String>,
}

impl Review {
    pub(super) fn new(title: impl Into<String>, effect: Markup) -> Self {
        Self {
            title: title.into(),
            effect,
            asks: Markup::default(),
            etag: None,
        }
    }

    #[must_use]
    pub(super) fn of_version(self, etag: Option<String>) -> Self {
        Self { etag, ..self }
    }

    #[must_use]
    pub(super) fn asking(self, asks: Markup) -> Self {
        Self { asks, ..self }
    }
}

/// Makes the change if `form` is the second step, and shows the review otherwise, or if the change is refused.
pub(super) async fn submit(
    (session, place): (&Session, Option<&Place>),
    form: &FormFields,
    change: Change,
    review: impl Future<Output = Result<Review, Problem>> + Send,
) -> Response {
    let mut refused = None;
    if form.get(CONFIRMED).is_some() {
        let path = change.path.clone();
        let sent = session
            .api
            .send(change.method, change.path, change.body.as_ref(), form.filled(ETAG));
        match sent.await {
            Ok(answer) => {
                let done = followed::name(&path, &answer);
                return see_other(&with_query(&change.then, &[(DONE.0, &*done)]));
            }
            Err(problem) => refused = Some(problem),
        }
    }
    match review.await {
        Ok(review) => confirm((session, place), form, &change.then, &review, refused.as_ref()),
        Err(problem) => failed(Some(session), refused.as_ref().unwrap_or(&problem)),
    }
}

fn confirm(
    (session, place): (&Session, Option<&Place>),
    form: &FormFields,
    back: &str,
    review: &Review,
    refused: Option<&Problem>,
) -> Response {
    let repeated = form
        .pairs()
        .filter(|(name, _)| ![CSRF, CONFIRMED, ETAG].contains(name) && !name.starts_with(SECRET));
    let page = Page {
        title: &review.title,
        session: Some(session),
        organization: place.map(|place| (&*place.id, &*place.name)),
        status: refused.map_or(StatusCode::OK, |refused| refused.status),
    };
    page.with(&html! {
        @if let Some(refused) = refused { (problem(refused)) }
        p { "This is what will change. Nothing has changed so far." }
        (review.effect)
        form method="post" {
            (csrf(session))
            input type="hidden" name=(CONFIRMED) value="yes";
            @if let Some(etag) = &review.etag { input type="hidden" name=(ETAG) value=(etag); }
            @for (name, value) in repeated { input type="hidden" name=(name) value=(value); }
            (review.asks)
            button type="submit" { (review.title) }
            " "
            a href=(back) { "Cancel" }
        }
    })
}
