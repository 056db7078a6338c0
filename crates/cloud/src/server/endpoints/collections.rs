//! The six endpoints of a kind whose objects are listed, created, read, replaced, changed and deleted by common code.

use http::{Method, StatusCode};

use super::{CLUSTER, Endpoint, IF_MATCH, Input, ORGANIZATION, Output, PAGES, POOL, entry, organization, to};
use crate::models::{Code, Facts, Kind};
use crate::server::principal::OrgRole;
use crate::server::{lists, resources};

/// The endpoints of `kind`; none if it has endpoints of its own.
pub(super) fn endpoints(kind: Kind) -> Vec<Endpoint> {
    match kind.code() {
        Some(code) if !kind.facts().has_own_endpoints => common(kind, kind.facts(), code),
        _ => Vec::new(),
    }
}

fn common(kind: Kind, facts: &'static Facts, code: &Code) -> Vec<Endpoint> {
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
    let (spec, shown) = ((code.spec)(), (code.shown)());
    let (get, post, put) = (Method::GET, Method::POST, Method::PUT);
    let (nothing, made) = (Input::Nothing, Output::Made((code.created)()));
    let mut create = entry(
        post,
        &*list,
        tag,
        writes,
        to!(resources::create),
        Input::Json(spec),
        made,
        format!("Create {one}"),
    );
    if kind == Kind::Cluster {
        create = create.refusing(StatusCode::NOT_IMPLEMENTED);
    }
    let list = entry(
        get.clone(),
        &*list,
        tag,
        reads,
        to!(lists::list),
        nothing,
        Output::List((code.listed)()),
        format!("List all objects of the kind: {one}"),
    );
    let read = entry(
        get,
        &*item,
        tag,
        item_reads,
        to!(resources::get),
        nothing,
        Output::One(shown),
        format!("Get {one}"),
    );
    let change = |method, takes, verb: &str| {
        let summary = format!("{verb} {one}");
        entry(
            method,
            &*item,
            tag,
            writes,
            to!(resources::change),
            takes,
            Output::One(shown),
            summary,
        )
        .with(IF_MATCH)
    };
    let (replace, patch) = (
        change(put, Input::Json(spec), "Replace"),
        change(Method::PATCH, Input::Patch(spec), "Change"),
    );
    let delete = entry(
        Method::DELETE,
        &*item,
        tag,
        writes,
        to!(resources::delete),
        nothing,
        Output::Nothing,
        format!("Delete {one}"),
    );
    let list = list.asked(facts.list_query).with(PAGES);
    let read = read.asked(facts.item_query);
    let all = [list, create, read, replace, patch, delete.with(IF_MATCH)];
    all.map(|endpoint| endpoint.of(kind)).to_vec()
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
