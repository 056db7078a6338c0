//! All organizations of the server, with what they have of their limits, for operators. What is inside of one is shown
//! to its members alone.

use maud::{Markup, html};
use serde_json::Value;

use super::api::{Api, Problem, TOO_LARGE};
use super::cluster::number;
use super::controls::{ROWS, form, next, table, time};
use super::session::Session;
use super::value::{list, text};
use crate::client::Path;
use crate::models::Kind;

/// The organizations in the API of operators.
fn organizations() -> Path {
    Path::new(["operators", "organizations"])
}

/// The name of an organization; its id if there are too many organizations to find it.
pub(super) async fn name_of(api: &Api, id: &str) -> Result<String, Problem> {
    let all = match api.all(organizations()).await {
        Err(problem) if problem.status == TOO_LARGE => Vec::new(),
        all => all?,
    };
    let found = all.iter().find(|organization| text(organization, "id") == id);
    Ok(found.map_or(id, |organization| text(organization, "name")).to_owned())
}

/// A page of the organizations. Those of the operator lead to their pages.
pub(super) async fn section(session: &Session, after: Option<&str>) -> Result<Markup, Problem> {
    let page = organizations().query("limit", ROWS);
    let answer = session.api.get(match after {
        Some(after) => page.query("after", after),
        None => page,
    });
    let answer = answer.await?;
    let own = session.api.get(Path::new(["organizations"])).await?.value;
    let is_own = |id: &str| own.as_array().into_iter().flatten().any(|own| text(own, "id") == id);
    let rows = html! {
        @for organization in answer.value.as_array().into_iter().flatten() {
            @let id = text(organization, "id");
            tr {
                td title=(id) {
                    @if is_own(id) {
                        a href={ "/organizations/" (id) "/clusters" } { (text(organization, "name")) }
                    } @else { (text(organization, "name")) }
                }
                td { (time(text(organization, "created_at"))) }
                td { (count(organization, Kind::Cluster)) }
                td { (count(organization, Kind::Membership)) }
                td { (used(organization)) }
                td { (reached(organization)) }
                td { (lock(session, organization)) }
            }
        }
    };
    let headers = [
        "Name",
        "Created",
        "Clusters",
        "People",
        "Of its limits",
        "Limits reached",
        "State",
    ];
    Ok(html! {
        (table("Organizations", &headers, &rows))
        (next("/operators", answer.after.as_deref()))
    })
}

/// The number of objects of a kind that an organization has.
fn count(organization: &Value, kind: Kind) -> String {
    let used = list(organization, "objects").find(|used| text(used, "kind") == kind.word());
    used.map_or_else(|| "0".to_owned(), |used| number(used, "count"))
}

/// All numbers of an organization, with their limits.
fn used(organization: &Value) -> Markup {
    html! {
        details {
            summary { (mib(organization, "bytes")) " of " (mib(organization, "bytes_limit")) " MiB" }
            ul {
                @for used in list(organization, "objects") {
                    li { (number(used, "count")) " of " (number(used, "limit")) " " (text(used, "kind")) }
                }
            }
        }
    }
}

/// A number of bytes, in MiB.
fn mib(object: &Value, field: &str) -> u64 {
    object.get(field).and_then(Value::as_u64).unwrap_or_default() / (1024 * 1024)
}

/// The limits at which the server refuses more.
fn reached(organization: &Value) -> Markup {
    html! {
        @for used in list(organization, "objects").filter(|used| is_reached(used, "count", "limit")) {
            span.badge.bad { (text(used, "kind")) } " "
        }
        @if is_reached(organization, "bytes", "bytes_limit") { span.badge.bad { "storage" } }
    }
}

fn is_reached(object: &Value, count: &str, limit: &str) -> bool {
    let number = |field: &str| object.get(field).and_then(Value::as_u64);
    number(count) >= number(limit)
}

fn lock(session: &Session, organization: &Value) -> Markup {
    let is_locked = organization.get("locked") == Some(&Value::Bool(true));
    let (state, button, other) = if is_locked {
        ("locked", "Unlock", "false")
    } else {
        ("open", "Lock", "true")
    };
    html! {
        (state)
        (form(session, "/operators/lock", button, &html! {
            input type="hidden" name="id" value=(text(organization, "id"));
            input type="hidden" name="locked" value=(other);
        }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_is_reached_at_its_number() {
        let clusters = |count: u64| json!({"kind": "clusters", "count": count, "limit": 5});
        let of = |count, bytes: u64| json!({"objects": [clusters(count)], "bytes": bytes, "bytes_limit": 100});
        let shown = |count, bytes| reached(&of(count, bytes)).into_string();
        assert_eq!(shown(4, 99).trim(), "");
        assert!(shown(5, 99).contains("clusters"));
        assert!(shown(4, 100).contains("storage"));
        assert_eq!(count(&of(4, 1), Kind::Cluster), "4");
        assert_eq!(count(&of(4, 1), Kind::Membership), "0");
    }
}
