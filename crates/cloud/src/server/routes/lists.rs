//! Lists, complete or in pages, from the cache while they are valid.
//!
//! The database finds where a page begins, so a page costs what it has, not what the list has. An object is written as
//! text as soon as it is read. What a request leaves out of a list is left out before the page is full: a page that is
//! shorter than its limit, and has no next one, is the last.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::LINK;
use serde::Serialize;

use super::prelude::*;
use crate::server::http::list_cache::{CacheScope, CachedList};
use crate::server::http::response::{set, unless_known};
use crate::server::http::response_budget::{Held, Items, holding};
use crate::server::store::{Scope, membership_id};

/// The maximum number of items in a page.
const PART: u32 = 1_000;
/// The size in bytes after which a page has no further item, even if it has fewer than were requested.
pub(super) const PAGE: usize = 4 * 1024 * 1024;
/// The number of rows that are read at a time for a page, and not more than a page needs.
const BATCH: i64 = 100;

/// Responds with a list, from the cache while nothing changed that it depends on.
pub(super) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    let resource = ResourcePath::of(call)?;
    let secrets = kind == Kind::Registry && call.sees_secrets(uuid(&resource.organization));
    // A cluster sees only those bindings of its organization that concern it.
    let bound = bound_cluster(call, kind)?;
    let key = format!("{} {:?} {secrets} {bound:?} {}", call.path, call.query, resource.user);
    let cached_part = match kind {
        Kind::SshKey if resource.organization.is_empty() => CacheScope::Nothing,
        _ if secrets => CacheScope::Etag,
        _ => CacheScope::Everything,
    };
    let listed = Listed::Children(kind, resource.parent(kind));
    let bound = bound.as_deref();
    cached(app, call, &key, cached_part, || {
        computed(app, call, &resource, listed, secrets, bound)
    })
    .await
}

/// Responds with the nodes of all pools of a cluster.
pub(super) async fn nodes(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    let key = format!("{} {:?}", call.path, call.query);
    let listed = Listed::InCluster(Kind::Node, &resource.cluster);
    cached(app, call, &key, CacheScope::Everything, || {
        computed(app, call, &resource, listed, false, None)
    })
    .await
}

/// Responds with what is cached under `key`, or with what `compute` reads, which is then cached as `cached_part` says.
pub(super) async fn cached<F>(
    app: &AppState,
    call: &Call,
    key: &str,
    cached_part: CacheScope,
    compute: impl Fn() -> F,
) -> Result<Response, Error>
where
    F: Future<Output = Result<(CachedList, Held), Error>>,
{
    if let Some(answer) = app.lists.get(app.store.feed(), key).await
        && let Some(mut response) = answered(call, &answer)
    {
        if !call.has(&answer.etag) {
            let held = answer.held_by(&app.budget, call).await?;
            response.extensions_mut().insert(held);
        }
        return Ok(response);
    }
    let found = app.lists.get_or_compute(app.store.feed(), key, cached_part, compute);
    let (answer, held) = found.await?;
    let mut response = answered(call, &answer).ok_or_else(Refusal::not_found)?;
    response.extensions_mut().insert::<Arc<Held>>(held);
    Ok(response)
}

async fn computed(
    app: &AppState,
    call: &Call,
    resource: &ResourcePath,
    listed: Listed<'_>,
    secrets: bool,
    bound: Option<&str>,
) -> Result<(CachedList, Held), Error> {
    let (as_of, kind) = (app.store.feed().latest(), listed.kind());
    resource.check_parents(&mut &app.store, kind, false).await?;
    let mut page = Page::begin(app, call, listed).await?;
    page.fill(app, listed, |row| {
        let item = shown(app, row, secrets)?;
        Ok(match kind {
            Kind::Role => super::roles::narrowed(call, item),
            Kind::RoleBinding => Some(item).filter(|item| super::roles::is_of_cluster(bound, item)),
            _ => Some(item),
        })
    })
    .await?;
    page.end(as_of, scopes(resource, kind))
}

/// The scopes whose changes make the list of a `kind` outdated.
pub(super) fn scopes(resource: &ResourcePath, kind: Kind) -> Vec<Scope> {
    let scope = |kind, cluster| Scope {
        kind,
        organization: uuid(&resource.organization),
        cluster: uuid(cluster),
    };
    let mut scopes = vec![scope(kind, resource.concerned(kind)), scope(Kind::Membership, "")];
    if !resource.cluster.is_empty() {
        // The parent may be deleted, and a list that no longer exists is not an empty one.
        scopes.extend([Kind::Cluster, Kind::NodePool].map(|kind| scope(kind, &resource.cluster)));
    }
    scopes
}

/// Responds with all of a list that has no pages and is not cached. What `show` returns none for is left out.
pub(super) async fn all<T: Serialize>(
    app: &AppState,
    call: &Call,
    listed: Listed<'_>,
    show: impl FnMut(&Row) -> Result<T, Error> + Send,
) -> Result<Response, Error> {
    let mut items = Items::begin(&app.budget, call).await?;
    extend(app, &mut items, listed, show).await?;
    complete(call, items)
}

/// Adds all of a list to `items`.
pub(super) async fn extend<T: Serialize>(
    app: &AppState,
    items: &mut Items,
    listed: Listed<'_>,
    mut show: impl FnMut(&Row) -> Result<T, Error> + Send,
) -> Result<(), Error> {
    let each = app.store.each(listed, i64::MIN, i64::MAX, |row| {
        app.requests.rows.inc();
        items.push(&show(&row)?)?;
        Ok(ControlFlow::Continue(()))
    });
    each.await
}

/// Responds with `items`.
pub(super) fn complete(call: &Call, items: Items) -> Result<Response, Error> {
    let ((body, etag), held) = items.end()?;
    Ok(holding(unless_known(call, &etag, body), held))
}

/// Responds with a page that is not cached.
pub(super) fn uncached(call: &Call, (answer, held): (CachedList, Held)) -> Result<Response, Error> {
    let response = answered(call, &answer).ok_or_else(Refusal::not_found)?;
    Ok(holding(response, held))
}

/// The response, unless its body is needed and was not cached.
fn answered(call: &Call, answer: &CachedList) -> Option<Response> {
    let body = match &answer.body {
        Some(body) => body.clone(),
        None if call.has(&answer.etag) => Bytes::new(),
        None => return None,
    };
    let mut response = unless_known(call, &answer.etag, body);
    if let Some(next) = &answer.next {
        link(&mut response, next);
    }
    Some(response)
}

/// Adds the location of the next page.
pub(super) fn link(response: &mut Response, next: &str) {
    set(response.headers_mut(), LINK, &format!("<{next}>; rel=\"next\""));
}

/// The path and query of `call` with another value of `parameter`.
pub(super) fn again(call: &Call, parameter: &str, value: &str) -> String {
    let rest = call.query.iter().filter(|(key, _)| key != parameter);
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(rest).append_pair(parameter, value);
    format!("{}?{}", call.path, query.finish())
}

/// The requested page of a list while it is read. Without `limit` it has everything after `after`.
pub(super) struct Page<'a> {
    call: &'a Call,
    limit: Option<usize>,
    /// The position of the last row that was read.
    after: i64,
    items: Items,
    count: usize,
    /// The cursor of the last item.
    last: String,
    /// True if there is an item that does not fit.
    is_full: bool,
}

impl<'a> Page<'a> {
    pub(super) async fn begin(app: &AppState, call: &'a Call, listed: Listed<'_>) -> Result<Self, Error> {
        Self::begin_after(app, call, after(app, call, listed).await?).await
    }

    /// The page after the object at the position `after`.
    pub(super) async fn begin_after(app: &AppState, call: &'a Call, after: i64) -> Result<Self, Error> {
        let limit = call.number("limit", PART)?;
        Ok(Self {
            call,
            limit: limit.and_then(|limit| limit.try_into().ok()),
            after,
            items: Items::begin(&app.budget, call).await?,
            count: 0,
            last: String::new(),
            is_full: false,
        })
    }

    /// The number of rows to read next, `most` of a complete list: those that fit into the page, and the one after it.
    fn batch(&self, most: i64) -> i64 {
        let fits = |limit: usize| i64::try_from(limit + 1).unwrap_or(BATCH).min(BATCH);
        self.limit.map_or(most, fits)
    }

    /// Reads the page, with what `show` returns of each object.
    async fn fill<T: Serialize>(
        &mut self,
        app: &AppState,
        listed: Listed<'_>,
        mut show: impl FnMut(&Row) -> Result<Option<T>, Error> + Send,
    ) -> Result<(), Error> {
        let push = |page: &mut Self, row: &Row| match show(row)? {
            Some(item) => page.push(&row.id, row.position, &item),
            None => Ok(()),
        };
        self.fill_with(app, listed, push).await
    }

    /// Reads the page, with what `push` adds to it of each object.
    pub(super) async fn fill_with(
        &mut self,
        app: &AppState,
        listed: Listed<'_>,
        mut push: impl FnMut(&mut Self, &Row) -> Result<(), Error> + Send,
    ) -> Result<(), Error> {
        loop {
            let (after, batch, mut read) = (self.after, self.batch(i64::MAX), 0);
            let each = app.store.each(listed, after, batch, |row| {
                read += 1;
                app.requests.rows.inc();
                self.after = row.position;
                push(self, &row)?;
                Ok(if self.is_full {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            });
            each.await?;
            if self.is_full || read < batch {
                return Ok(());
            }
        }
    }

    /// The next rows of the list, which the caller pushes, in their order; none when the page is read.
    pub(super) async fn next(&mut self, app: &AppState, listed: Listed<'_>) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        if self.is_full {
            return Ok(rows);
        }
        let each = app.store.each(listed, self.after, self.batch(PART.into()), |row| {
            app.requests.rows.inc();
            rows.push(row);
            Ok(ControlFlow::Continue(()))
        });
        each.await?;
        self.after = rows.last().map_or(self.after, |row| row.position);
        Ok(rows)
    }

    /// Adds an item, if it has a place.
    pub(super) fn push(&mut self, id: &str, position: i64, item: &impl Serialize) -> Result<(), Error> {
        let has_place = |limit| self.count < limit && (self.count == 0 || self.items.bytes() < PAGE);
        if !self.limit.is_none_or(has_place) {
            self.is_full = true;
        }
        if self.is_full {
            return Ok(());
        }
        self.items.push(item)?;
        self.count += 1;
        self.last = format!("{id}.{position}");
        Ok(())
    }

    pub(super) fn end(self, as_of: i64, scopes: Vec<Scope>) -> Result<(CachedList, Held), Error> {
        let next = self.is_full.then(|| again(self.call, "after", &self.last));
        let (text, held) = self.items.end()?;
        Ok((CachedList::new(as_of, scopes, text, next), held))
    }
}

/// The position after which the requested page begins. A cursor is the id of an item, and in a `Link` its position too,
/// with which it stays valid when the item is deleted.
async fn after(app: &AppState, call: &Call, listed: Listed<'_>) -> Result<i64, Error> {
    let Some(after) = call.query_value("after") else {
        return Ok(i64::MIN);
    };
    let (id, position) = after.split_once('.').unwrap_or((after, ""));
    if let Ok(position) = position.parse() {
        return Ok(position);
    }
    let id = match listed {
        Listed::Children(Kind::Membership, organization) => membership_id(organization, id),
        _ => id.to_owned(),
    };
    Ok(app.store.position(listed, &id).await?.ok_or_else(unknown_cursor)?)
}

pub(super) fn unknown_cursor() -> Refusal {
    Refusal::parameter("after", "is not the id of an item of this list; restart without it")
}

/// The cluster in the query of role bindings.
fn bound_cluster(call: &Call, kind: Kind) -> Result<Option<String>, Refusal> {
    if kind != Kind::RoleBinding {
        return Ok(None);
    }
    let asked = call.query_value("cluster_id").map(Uuid::try_parse).transpose();
    let asked = asked.map_err(|_| Refusal::parameter("cluster_id", "must be the id of a cluster: a UUID"))?;
    let bound = match call.caller()?.principal {
        Principal::Cluster { id, .. } if asked.is_some_and(|asked| asked != id) => {
            return Err(Refusal::not_found());
        }
        Principal::Cluster { id, .. } => Some(id),
        Principal::User { .. } | Principal::ServiceAccount { .. } => asked,
    };
    Ok(bound.map(|id| id.to_string()))
}
