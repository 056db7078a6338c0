//! The six endpoints of a kind whose objects are listed, created, read, replaced, changed and deleted by common code.

use http::{Method, StatusCode};

use super::route::{CLUSTER, IF_MATCH, ORGANIZATION, PAGES, POOL, Route, entry, organization, to};
use super::{collection, lists};
use crate::models::{Code, Facts, Kind};
use crate::server::http::endpoint::{Input, Output};
use crate::server::principal::OrgRole;
use crate::server::store::Action;

/// The routes of `kind`; none if it has endpoints of its own.
pub(super) fn routes(kind: Kind) -> Vec<Route> {
    match kind.code() {
        Some(code) if !kind.facts().has_own_endpoints => common(kind, kind.facts(), code),
        _ => Vec::new(),
    }
}

fn common(kind: Kind, facts: &'static Facts, code: &Code) -> Vec<Route> {
    // Users may read and change what belongs to themselves, whatever their role.
    let own = kind.parent() == Some(Kind::User);
    let (one, tag) = (facts.singular, facts.tag);
    let reads = organization(OrgRole::ReadOnly, facts.is_for_clusters, own);
    let writes = organization(facts.writers, false, own);
    // A cluster may read itself, but no list of clusters.
    let item_reads = organization(OrgRole::ReadOnly, facts.is_for_clusters || kind == Kind::Cluster, own);
    let list = format!("{}/{}", parent(kind), facts.segment);
    let item = match kind {
        Kind::Cluster => CLUSTER.to_owned(),
        Kind::NodePool => POOL.to_owned(),
        _ => format!("{list}/{{id}}"),
    };
    let (spec, shown) = ((code.spec)(), Output::One((code.shown)()));
    let endpoint = |method, path: &str, may, handler, takes, answers, verb| {
        let summary = format!("{verb} {one}");
        let entry = entry(method, path, tag, may, handler, takes, answers, summary).of(kind);
        match kind {
            // Only these are shown with their credentials, also by a change that changes nothing.
            Kind::Registry => entry.revealing(Action::Read, kind),
            _ => entry,
        }
    };
    let read = |path, may, handler, answers, verb| {
        let (method, takes) = (Method::GET, Input::Nothing);
        endpoint(method, path, may, handler, takes, answers, verb)
    };
    let change = |method, handler, takes, answers, verb| {
        let change = endpoint(method, &item, writes, handler, takes, answers, verb);
        change.with(IF_MATCH)
    };
    let (post, json, created) = (Method::POST, Input::Json(spec), Output::Made((code.created)()));
    let mut create = endpoint(post, &list, writes, to!(collection::create), json, created, "Create");
    if kind == Kind::Cluster {
        create = create.refusing(StatusCode::NOT_IMPLEMENTED);
    }
    let (listed, verb) = (Output::List((code.listed)()), "List all objects of the kind:");
    let list = read(&list, reads, to!(lists::list), listed, verb);
    let patch = Input::Patch(spec);
    let (nothing, none) = (Input::Nothing, Output::Nothing);
    vec![
        list.with_query(facts.list_query).with(PAGES),
        create,
        read(&item, item_reads, to!(collection::get), shown, "Get").with_query(facts.item_query),
        change(Method::PUT, to!(collection::change), json, shown, "Replace"),
        change(Method::PATCH, to!(collection::change), patch, shown, "Change"),
        change(Method::DELETE, to!(collection::delete), nothing, none, "Delete"),
    ]
}

/// The path of the objects that own objects of `kind`.
fn parent(kind: Kind) -> String {
    match kind.parent() {
        Some(Kind::User) => format!("{ORGANIZATION}/users/{{user_id}}"),
        Some(Kind::Cluster) => CLUSTER.to_owned(),
        Some(Kind::NodePool) => POOL.to_owned(),
        _ => ORGANIZATION.to_owned(),
    }
}
