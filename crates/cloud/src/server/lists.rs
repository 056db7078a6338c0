//! Lists, complete or in pages, from the cache while they are valid.

use axum::response::Response;
use bytes::Bytes;
use http::header::LINK;
use uuid::Uuid;

use super::Error;
use super::call::{Call, set, text, unless_known};
use super::cloud::{Answer, Cloud, Kept};
use super::digest::uuid;
use super::principal::Principal;
use super::refusal::Refusal;
use super::source::Spot;
use super::store::{Row, Scope};
use super::view::all_shown;
use crate::models::Kind;

/// The maximum number of items in a page.
const PART: u32 = 1_000;

/// Responds with a list, from the cache while nothing changed that it depends on.
pub(super) async fn list(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    let spot = Spot::of(call)?;
    let secrets = kind == Kind::Registry && call.known()?.principal.sees_secrets(uuid(&spot.organization));
    // A cluster sees only those bindings of its organization that concern it.
    let bound = bound_cluster(call, kind)?;
    let key = format!("{} {:?} {secrets} {bound:?} {}", call.path, call.query, spot.user);
    let kept = match kind {
        Kind::SshKey if spot.organization.is_empty() => Kept::Nothing,
        _ if secrets => Kept::Etag,
        _ => Kept::Everything,
    };
    let bound = bound.as_deref();
    cached(cloud, call, &key, kept, || {
        computed(cloud, call, kind, &spot, secrets, bound)
    })
    .await
}

/// Responds with what is cached under `key`, or with what `compute` reads, which is then cached as `kept` says.
pub(super) async fn cached<F>(
    cloud: &Cloud,
    call: &Call,
    key: &str,
    kept: Kept,
    compute: impl Fn() -> F,
) -> Result<Response, Error>
where
    F: Future<Output = Result<Answer, Error>>,
{
    if let Some(answer) = cloud.kept(key).await
        && let Some(response) = answered(call, &answer)
    {
        return Ok(response);
    }
    let answer = cloud.computed(key, kept, compute).await?;
    answered(call, &answer).ok_or_else(|| Refusal::not_found().into())
}

async fn computed(
    cloud: &Cloud,
    call: &Call,
    kind: Kind,
    spot: &Spot,
    secrets: bool,
    bound: Option<&str>,
) -> Result<Answer, Error> {
    let as_of = cloud.store.feed().latest();
    let mut source = &cloud.store;
    spot.check(&mut source, kind, false).await?;
    let rows = source.children(kind, spot.parent(kind)).await?;
    let (rows, next) = part(call, rows)?;
    let mut items = all_shown(cloud, &rows, secrets)?;
    match kind {
        Kind::Role => super::roles::narrow(call, &mut items),
        Kind::RoleBinding => super::roles::of_cluster(bound, &mut items),
        _ => {}
    }
    let scope = |kind, cluster| Scope {
        kind,
        organization: uuid(&spot.organization),
        cluster: uuid(cluster),
    };
    let mut scopes = vec![scope(kind, spot.concerned(kind)), scope(Kind::Membership, "")];
    if !spot.cluster.is_empty() {
        // The parent may be deleted, and a list that no longer exists is not an empty one.
        scopes.extend([Kind::Cluster, Kind::NodePool].map(|kind| scope(kind, &spot.cluster)));
    }
    Ok(Answer::new(as_of, scopes, Bytes::from(text(&items)), next))
}

/// The response, unless its body is needed and was not cached.
pub(super) fn answered(call: &Call, answer: &Answer) -> Option<Response> {
    let body = match &answer.body {
        Some(body) => body.clone(),
        None if call.has(&answer.etag) => Bytes::new(),
        None => return None,
    };
    let mut response = unless_known(call, &answer.etag, body);
    if let Some(next) = &answer.next {
        set(response.headers_mut(), LINK, &format!("<{next}>; rel=\"next\""));
    }
    Some(response)
}

/// The requested page of a list, and the location of the next one. Without `limit` and `after`, the complete list.
pub(super) fn part(call: &Call, mut rows: Vec<Row>) -> Result<(Vec<Row>, Option<String>), Refusal> {
    if let Some(after) = call.asked("after") {
        // The item may have been deleted: then the page begins after its position.
        let (id, position) = after.split_once('.').unwrap_or((after, ""));
        let passed = || {
            let position: i64 = position.parse().ok()?;
            Some(rows.iter().take_while(|row| row.position <= position).count())
        };
        let place = rows.iter().position(|row| row.id == id);
        let passed = place.map(|place| place + 1).or_else(passed);
        let unknown = || Refusal::parameter("after", "is not the id of an item of this list; restart without it");
        rows.drain(..passed.ok_or_else(unknown)?);
    }
    let Some(limit) = call.number("limit", PART)? else {
        return Ok((rows, None));
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if rows.len() <= limit {
        return Ok((rows, None));
    }
    rows.truncate(limit);
    let last = rows.last().map(|row| format!("{}.{}", row.id, row.position));
    let last = last.unwrap_or_default();
    let rest = call.query.iter().filter(|(key, _)| key != "after");
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(rest).append_pair("after", &last);
    Ok((rows, Some(format!("{}?{}", call.path, query.finish()))))
}

/// The cluster in the query of role bindings.
fn bound_cluster(call: &Call, kind: Kind) -> Result<Option<String>, Refusal> {
    if kind != Kind::RoleBinding {
        return Ok(None);
    }
    let asked = call.asked("cluster_id").map(Uuid::try_parse).transpose();
    let asked = asked.map_err(|_| Refusal::parameter("cluster_id", "must be the id of a cluster: a UUID"))?;
    let bound = match call.known()?.principal {
        Principal::Cluster { id, .. } if asked.is_some_and(|asked| asked != id) => {
            return Err(Refusal::not_found());
        }
        Principal::Cluster { id, .. } => Some(id),
        Principal::User { .. } => asked,
    };
    Ok(bound.map(|id| id.to_string()))
}
