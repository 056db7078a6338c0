//! The parts of the table of routes: an endpoint with its handler, and the functions that build one.

use axum::response::Response;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use utoipa::ToSchema;

use crate::models::{Body, Kind, MAX_SPEC, Parameter, ParameterType};
use crate::server::Error;
use crate::server::http::call::Call;
use crate::server::http::endpoint::{Endpoint, Input, Output, Permission};
use crate::server::keys::token::AcceptedUses;
use crate::server::principal::OrgRole;
use crate::server::state::AppState;
use crate::server::store::Action;

pub(crate) struct Route {
    pub(crate) endpoint: Endpoint,
    pub(crate) handler: Handler,
}

/// Handles a request whose caller has the required permission.
pub(crate) type Handler = for<'a> fn(&'a AppState, &'a Call) -> BoxFuture<'a, Result<Response, Error>>;

/// A function as a [`Handler`], with further arguments if it has any.
macro_rules! to {
    ($handler:path $(, $argument:expr)*) => {
        |app, call| Box::pin($handler(app, call $(, $argument)*))
    };
}
pub(super) use to;

pub(super) const ORGANIZATION: &str = "/v3/organizations/{organization_id}";
pub(super) const CLUSTER: &str = "/v3/organizations/{organization_id}/clusters/{cluster_id}";
pub(super) const POOL: &str = "/v3/organizations/{organization_id}/clusters/{cluster_id}/node-pools/{node_pool_id}";

pub(super) const SCRIPT: &[Parameter] = &[Parameter {
    name: "version",
    description: "the target version, without v",
    form: ParameterType::Version,
    required: true,
}];
pub(super) const AUDIT: &[Parameter] = &[
    Parameter {
        name: "limit",
        description: "the maximum number of changes, newest first",
        form: ParameterType::Number(1_000),
        required: false,
    },
    Parameter {
        name: "before",
        description: "only changes with a smaller number",
        form: ParameterType::Number(u32::MAX),
        required: false,
    },
];

/// The shared parameters of complete lists.
pub(super) const PAGES: &[&str] = &["limit", "after", "If-None-Match"];
pub(super) const IF_NONE_MATCH: &[&str] = &["If-None-Match"];
pub(super) const IF_MATCH: &[&str] = &["If-Match"];
pub(super) const LAST_EVENT: &[&str] = &["Last-Event-ID"];

/// The maximum size of a script and of the report of an upgrade, in bytes.
pub(super) const MAX_BODY: usize = 1024 * 1024;
/// The maximum size of manifests, in bytes.
pub(super) const MAX_MANIFESTS: usize = 16 * 1024 * 1024;
/// The maximum size of a body that anyone may send, in bytes: a login has an e-mail address and a password of 256
/// characters, each written as an escape.
const MAX_LOGIN: usize = 8 * 1024;

pub(super) fn organization(role: OrgRole, cluster: bool, own: bool) -> Permission {
    Permission::Organization { role, cluster, own }
}

#[expect(clippy::too_many_arguments, reason = "each is a column of the table")]
pub(super) fn entry(
    method: Method,
    path: impl Into<String>,
    tag: &'static str,
    may: Permission,
    handler: Handler,
    takes: Input,
    answers: Output,
    summary: impl Into<String>,
) -> Route {
    let shared: &[&str] = match answers {
        Output::List(_) | Output::One(_) if method == Method::GET => IF_NONE_MATCH,
        Output::Made(_) => &["Idempotency-Key"],
        _ => &[],
    };
    let endpoint = Endpoint {
        method,
        path: path.into(),
        summary: summary.into(),
        tag,
        may,
        kind: None,
        query: &[],
        shared,
        max_body: match takes {
            _ if may == Permission::Anyone => MAX_LOGIN,
            Input::Text => MAX_BODY,
            _ => MAX_SPEC,
        },
        accepted: AcceptedUses::Api,
        refuses: None,
        reveals: None,
        is_shown_once: false,
        takes,
        answers,
    };
    Route { endpoint, handler }
}

impl Route {
    pub(super) fn of(mut self, kind: Kind) -> Self {
        self.endpoint.kind = Some(kind);
        self
    }

    pub(super) fn with_query(mut self, query: &'static [Parameter]) -> Self {
        self.endpoint.query = query;
        self
    }

    pub(super) fn with(mut self, shared: &'static [&'static str]) -> Self {
        self.endpoint.shared = shared;
        self
    }

    pub(super) fn limited_to(mut self, max_body: usize) -> Self {
        self.endpoint.max_body = max_body;
        self
    }

    pub(super) fn accepting(mut self, accepted: AcceptedUses) -> Self {
        self.endpoint.accepted = accepted;
        self
    }

    pub(super) fn refusing(mut self, status: StatusCode) -> Self {
        self.endpoint.refuses = Some(status);
        self
    }

    pub(super) fn revealing(mut self, action: Action, kind: Kind) -> Self {
        self.endpoint.reveals = Some((action, kind));
        self
    }

    pub(super) fn shown_once(mut self) -> Self {
        self.endpoint.is_shown_once = true;
        self
    }
}

pub(super) fn json<T: ToSchema>() -> Input {
    Input::Json(Body::of::<T>())
}

pub(super) fn patch<T: ToSchema>() -> Input {
    Input::Patch(Body::of::<T>())
}

pub(super) fn list<T: ToSchema>() -> Output {
    Output::List(Body::of::<T>())
}

pub(super) fn one<T: ToSchema>() -> Output {
    Output::One(Body::of::<T>())
}

pub(super) fn created<T: ToSchema>() -> Output {
    Output::Made(Body::of::<T>())
}
