//! The table of endpoints, with the required permission, the request body and the response of each. The router, the
//! permission check, the OpenAPI document, the page and the tests all iterate over this table.

mod collections;
mod table;

use std::sync::LazyLock;

use axum::response::Response;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use utoipa::ToSchema;

use super::Error;
use super::access::Permission;
use super::call::Call;
use super::cloud::Cloud;
use super::principal::OrgRole;
use super::store::Action;
use super::token::AcceptedUses;
use crate::models::{Body, Kind, Parameter, ParameterType};

/// A method of a path.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The method.
    pub method: Method,
    /// The path, with its parameters in braces: `/v3/organizations/{organization_id}`.
    pub path: String,
    /// A short summary.
    pub summary: String,
    /// The section in the description.
    pub tag: &'static str,
    /// The required permission.
    pub may: Permission,
    /// The kind of the objects, if its handler is shared by several kinds.
    pub kind: Option<Kind>,
    /// The function that responds to requests.
    pub(super) handler: Handler,
    /// The query parameters, besides shared ones.
    pub query: &'static [Parameter],
    /// The parameters that several endpoints share, in the query and in headers.
    pub shared: &'static [&'static str],
    /// The maximum size of the request body, in bytes.
    pub max_body: usize,
    /// The tokens that it accepts.
    pub(super) accepted: AcceptedUses,
    /// The status of a refusal that other endpoints do not have.
    pub refuses: Option<StatusCode>,
    /// The row in the audit log for responses with 200.
    pub(super) reveals: Option<(Action, Kind)>,
    /// True if no GET returns the body of its response.
    pub is_shown_once: bool,
    /// The request body.
    pub takes: Input,
    /// The body of a successful response.
    pub answers: Output,
}

/// The request body of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// No body.
    Nothing,
    /// JSON with this schema.
    Json(Body),
    /// A JSON merge patch (RFC 7386) of this schema.
    Patch(Body),
    /// Text.
    Text,
}

/// The successful response of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// 200 with a list of objects with this schema.
    List(Body),
    /// 200 with an object with this schema.
    One(Body),
    /// 201 with an object with this schema.
    Made(Body),
    /// 204.
    Nothing,
    /// 200 with text of this media type.
    Text(&'static str),
    /// 200 with a stream of events.
    Events,
    /// 200 with JSON that has no schema here.
    Json,
}

/// Handles a request whose caller has the required permission.
pub(super) type Handler = for<'a> fn(&'a Cloud, &'a Call) -> BoxFuture<'a, Result<Response, Error>>;

/// A function as a [`Handler`], with further arguments if it has any.
macro_rules! to {
    ($handler:path $(, $argument:expr)*) => {
        |cloud, call| Box::pin($handler(cloud, call $(, $argument)*))
    };
}
use to;

const ORGANIZATION: &str = "/v3/organizations/{organization_id}";
const CLUSTER: &str = "/v3/organizations/{organization_id}/clusters/{cluster_id}";
const POOL: &str = "/v3/organizations/{organization_id}/clusters/{cluster_id}/node-pools/{node_pool_id}";

const SCRIPT: &[Parameter] = &[Parameter {
    name: "version",
    description: "the target version, without v",
    form: ParameterType::Version,
    required: true,
}];
const AUDIT: &[Parameter] = &[
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
const PAGES: &[&str] = &["limit", "after", "If-None-Match"];
const IF_NONE_MATCH: &[&str] = &["If-None-Match"];
const IF_MATCH: &[&str] = &["If-Match"];
const LAST_EVENT: &[&str] = &["Last-Event-ID"];

/// The maximum size of a body that is an object, in bytes.
pub(super) const MAX_SPEC: usize = crate::models::MAX_SPEC;
/// The maximum size of a script and of the report of an upgrade, in bytes.
const MAX_BODY: usize = 1024 * 1024;
/// The maximum size of manifests, in bytes.
const MAX_MANIFESTS: usize = 16 * 1024 * 1024;
/// The maximum size of a body that anyone may send, in bytes: a login has an e-mail address and a password of 256
/// characters, each written as an escape.
const MAX_LOGIN: usize = 8 * 1024;

fn organization(role: OrgRole, cluster: bool, own: bool) -> Permission {
    Permission::Organization { role, cluster, own }
}

#[expect(clippy::too_many_arguments, reason = "each is a column of the table")]
fn entry(
    method: Method,
    path: impl Into<String>,
    tag: &'static str,
    may: Permission,
    handler: Handler,
    takes: Input,
    answers: Output,
    summary: impl Into<String>,
) -> Endpoint {
    let shared: &[&str] = match answers {
        Output::List(_) | Output::One(_) if method == Method::GET => IF_NONE_MATCH,
        Output::Made(_) => &["Idempotency-Key"],
        _ => &[],
    };
    Endpoint {
        method,
        path: path.into(),
        summary: summary.into(),
        tag,
        may,
        kind: None,
        handler,
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
    }
}

impl Endpoint {
    fn of(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    fn asked(mut self, query: &'static [Parameter]) -> Self {
        self.query = query;
        self
    }

    fn with(mut self, shared: &'static [&'static str]) -> Self {
        self.shared = shared;
        self
    }

    fn limited_to(mut self, max_body: usize) -> Self {
        self.max_body = max_body;
        self
    }

    fn accepting(mut self, accepted: AcceptedUses) -> Self {
        self.accepted = accepted;
        self
    }

    fn refusing(mut self, status: StatusCode) -> Self {
        self.refuses = Some(status);
        self
    }

    fn revealing(mut self, action: Action, kind: Kind) -> Self {
        self.reveals = Some((action, kind));
        self
    }

    fn shown_once(mut self) -> Self {
        self.is_shown_once = true;
        self
    }
}

fn json<T: ToSchema>() -> Input {
    Input::Json(Body::of::<T>())
}

fn patch<T: ToSchema>() -> Input {
    Input::Patch(Body::of::<T>())
}

fn list<T: ToSchema>() -> Output {
    Output::List(Body::of::<T>())
}

fn one<T: ToSchema>() -> Output {
    Output::One(Body::of::<T>())
}

fn made<T: ToSchema>() -> Output {
    Output::Made(Body::of::<T>())
}

/// Every endpoint.
pub static ENDPOINTS: LazyLock<Vec<Endpoint>> = LazyLock::new(|| {
    let mut all = Vec::new();
    all.extend(table::accounts());
    all.extend(table::organizations());
    all.extend(table::operators());
    all.extend(Kind::resources().flat_map(collections::endpoints));
    all.extend(table::clusters());
    all.extend(table::catalogue());
    all.extend(table::documents());
    all
});
