//! The clusters that have followed a change, on the page after it. The query of that page names the change.

use std::collections::HashMap;

use maud::{Markup, html};
use serde_json::Value;

use super::api::{Answer, Problem, if_found};
use super::directory::organization;
use super::fields::FormFields;
use super::parts::{DONE, done, live};
use super::session::Session;
use super::value::text;
use crate::client::Path;
use crate::models::Kind;
use crate::reports::{Made, Progress, progress};

/// The number of clusters that are named with the reason why they have not followed.
const MAX_NAMED: usize = 10;

/// The clusters that a change concerns, and what each has made of it.
pub(super) struct Followed(Vec<(Value, Progress)>);

/// The value of [`DONE`] after a change at `path`: its number, kind, object and cluster, if clusters follow it.
pub(super) fn name(path: &Path, answer: &Answer) -> String {
    let Some(made) = made(path, answer) else {
        return DONE.1.to_owned();
    };
    let cluster = made.cluster.unwrap_or_default();
    format!("{}.{}.{}.{cluster}", made.change, made.kind.word(), made.id)
}

fn made(path: &Path, answer: &Answer) -> Option<Made> {
    let (kind, id, cluster) = match path.segments() {
        [account] if account == "account" => (Kind::User, None, None),
        [account, below @ ..] if account == "account" => target(Kind::User, None, below)?,
        [_, _, below @ ..] => target(Kind::Organization, None, below)?,
        _ => return None,
    };
    kind.facts().event?;
    Some(Made {
        kind,
        id: id.unwrap_or_else(|| text(&answer.value, "id")).to_owned(),
        cluster: cluster.map(str::to_owned),
        change: answer.change?,
        at: None,
    })
}

/// The kind, the object and the cluster of a path below an object of the kind `parent`. `None` if clusters follow no
/// change there.
fn target<'a>(
    parent: Kind,
    cluster: Option<&'a str>,
    path: &'a [String],
) -> Option<(Kind, Option<&'a str>, Option<&'a str>)> {
    let (list, below) = path.split_first()?;
    let is_list = |kind: &Kind| kind.code().is_some() && kind.facts().segment == list;
    let kind = parent.children().find(is_list)?;
    let [id, below @ ..] = below else {
        return Some((kind, None, cluster));
    };
    let id = id.as_str();
    let cluster = if kind == Kind::Cluster { Some(id) } else { cluster };
    match below {
        [] => Some((kind, Some(id), cluster)),
        [role] if kind == Kind::User && role == "role" => Some((kind, Some(id), cluster)),
        below => target(kind, cluster, below),
    }
}

/// The change that the query of a page names.
fn named(value: &str) -> Option<Made> {
    let mut parts = value.split('.');
    let change = parts.next()?.parse().ok()?;
    let kind = Kind::of(parts.next()?)?;
    let (id, cluster) = (parts.next()?, parts.next()?);
    Some(Made {
        kind,
        id: id.to_owned(),
        cluster: (!cluster.is_empty()).then(|| cluster.to_owned()),
        change,
        at: None,
    })
}

/// The clusters that the change in `query` concerns. `None` without one, or if the reports cannot be read.
pub(super) async fn read(session: &Session, organization: &str, query: &FormFields) -> Option<Followed> {
    let made = named(query.get(DONE.0)?)?;
    by_cluster(session, organization, &made).await.ok().map(Followed)
}

/// The message after a change of the account, which the clusters of the person's organizations follow. They are named
/// if they are of few organizations.
pub(super) async fn after_account(session: &Session, query: &FormFields) -> Markup {
    let followed = of_account(session, query).await;
    followed.map_or_else(|| done(query), |followed| followed.section())
}

async fn of_account(session: &Session, query: &FormFields) -> Option<Followed> {
    let made = named(query.get(DONE.0)?)?;
    let organizations = session.api.uncounted().get(Path::new(["organizations"])).await.ok()?;
    let organizations = organizations.value.as_array()?;
    if organizations.len() > MAX_NAMED {
        return None;
    }
    let mut clusters = Vec::new();
    for organization in organizations {
        clusters.extend(by_cluster(session, text(organization, "id"), &made).await.ok()?);
    }
    Some(Followed(clusters))
}

async fn by_cluster(session: &Session, id: &str, made: &Made) -> Result<Vec<(Value, Progress)>, Problem> {
    let api = session.api.uncounted();
    let list = organization(id).below("clusters");
    let (clusters, reports): (Vec<Value>, Vec<Value>) = if let Some(cluster) = &made.cluster {
        let path = list.below(cluster);
        let cluster = api.get(path.clone()).await?.value;
        let report = if_found(api.get(path.below("report")).await)?;
        (vec![cluster], report.into_iter().map(|answer| answer.value).collect())
    } else {
        let reports = organization(id).below("reports");
        futures::try_join!(api.all(list), api.all(reports))?
    };
    let reports: HashMap<&str, &Value> = reports
        .iter()
        .map(|report| (text(report, "cluster_id"), report))
        .collect();
    let clusters = clusters.into_iter().map(|cluster| {
        let report = reports.get(text(&cluster, "id")).copied();
        let progress = progress(report, &[made], session.now);
        (cluster, progress)
    });
    Ok(clusters.collect())
}

impl Followed {
    /// The number of clusters that have followed, and the others with the reasons. The script reads it again soon while
    /// one may still follow.
    pub(super) fn section(&self) -> Markup {
        let left = self.0.iter().filter_map(|(cluster, progress)| match progress {
            Progress::Followed => None,
            Progress::Behind(reason) => Some((cluster, reason.as_str(), true)),
            Progress::Refused(reason) => Some((cluster, reason.as_str(), false)),
        });
        let left: Vec<(&Value, &str, bool)> = left.collect();
        let (all, may_follow) = (self.0.len(), left.iter().any(|(.., may_follow)| *may_follow));
        let content = html! {
            p.done role="status" data-soon[may_follow] {
                "The change is made."
                @if all > 0 { " " (all - left.len()) " of " (all) " clusters have followed." }
            }
            @if !left.is_empty() {
                ul {
                    @for (cluster, reason, _) in left.iter().take(MAX_NAMED) {
                        @let id = text(cluster, "id");
                        li {
                            a href={ "/organizations/" (text(cluster, "organization_id")) "/clusters/" (id) } title=(id) {
                                (text(cluster, "name"))
                            }
                            ": " (reason)
                        }
                    }
                    @if left.len() > MAX_NAMED { li { "and " (left.len() - MAX_NAMED) " more" } }
                }
            }
        };
        live("followed", &content)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn after(path: &[&str]) -> String {
        let answer = Answer {
            value: json!({"id": "new"}),
            etag: None,
            after: None,
            change: Some(7),
        };
        name(&Path::new(path), &answer)
    }

    #[test]
    fn a_change_is_named_by_its_path() {
        for (path, expected) in [
            (&["organizations", "o", "roles"][..], "7.roles.new."),
            (&["organizations", "o", "roles", "r"][..], "7.roles.r."),
            (&["organizations", "o", "users", "u", "role"][..], "7.users.u."),
            (
                &["organizations", "o", "users", "u", "ssh_keys", "k"][..],
                "7.ssh-keys.k.",
            ),
            (&["account"], "7.users.new."),
            (&["account", "ssh_keys", "k"], "7.ssh-keys.k."),
            (&["organizations", "o", "clusters", "c"][..], "7.clusters.c.c"),
            (&["organizations", "o", "clusters", "c", "labels"][..], "7.labels.new.c"),
        ] {
            assert_eq!(after(path), expected);
            let made = named(expected).unwrap();
            assert_eq!(made.change, 7);
            assert_eq!(
                made.cluster.as_deref(),
                Some("c").filter(|_| path.contains(&"clusters"))
            );
        }
        let pool = ["organizations", "o", "clusters", "c", "node-pools", "p", "labels", "l"];
        assert_eq!(after(&pool), "7.node-pool-labels.l.c");
    }

    #[test]
    fn a_change_that_no_cluster_follows_names_nothing() {
        for path in [
            &["account", "tokens"][..],
            &["operators", "u"],
            &["organizations", "o"],
            &["organizations", "o", "locked"],
            &["organizations", "o", "users", "u", "tokens"],
            &["organizations", "o", "service-accounts"],
            &["organizations", "o", "clusters", "c", "releases"],
        ] {
            assert_eq!(after(path), "yes", "{path:?}");
        }
        for value in ["yes", "", "7", "7.none.a.", "x.roles.a.", "7.roles.a"] {
            assert_eq!(named(value), None, "{value}");
        }
    }
}
