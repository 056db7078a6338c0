//! The handlers of requests, and the table of routes: which handler serves which endpoint. A handler runs when its
//! caller has the required permission.

mod accounts;
mod api_keys;
mod catalogue;
pub(super) mod clusters;
mod collection;
pub(super) mod decisions;
mod documents;
mod idempotency;
mod identities;
mod invitations;
mod kinds;
mod lists;
mod login;
mod login_grants;
mod manifests;
mod members;
pub(super) mod observed;
pub(super) mod old_paths;
mod operators;
pub(super) mod organizations;
mod prelude;
mod references;
pub(super) mod representation;
mod roles;
mod route;
mod rules;
mod script_templates;
mod scripts;
pub(super) mod second_factor;
pub(super) mod sign_in;
mod stored_scripts;
mod stream;
mod table;
mod tokens;
pub(super) mod users;

use std::sync::LazyLock;

use super::http::endpoint::Endpoint;
use crate::models::Kind;
pub(super) use route::Route;
pub use tokens::LONGEST_TOKEN;

/// Every endpoint, with its handler.
pub(super) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let mut all = Vec::new();
    all.extend(table::accounts());
    all.extend(table::organizations());
    all.extend(table::operators());
    all.extend(Kind::resources().flat_map(kinds::routes));
    all.extend(table::service_accounts());
    all.extend(table::clusters());
    all.extend(table::catalogue());
    all.extend(table::documents());
    all
});

/// Every endpoint.
pub static ENDPOINTS: LazyLock<Vec<Endpoint>> =
    LazyLock::new(|| ROUTES.iter().map(|route| route.endpoint.clone()).collect());
