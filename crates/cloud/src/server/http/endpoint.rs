//! The description of an endpoint, without its handler: the required permission, the request body and the response.
//! The router, the permission check, the OpenAPI document, the page and the tests all read it.

use http::{Method, StatusCode};

use crate::models::{Body, Kind, Parameter};
use crate::server::keys::token::AcceptedUses;
use crate::server::principal::OrgRole;
use crate::server::store::Action;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// None: not even a token.
    Anyone,
    /// Any valid token.
    Known,
    /// Any user, for the own account.
    User,
    /// An operator, who administers all organizations.
    Operator,
    /// The cluster in the path.
    Cluster,
    /// A role in the organization in the path.
    Organization {
        /// The minimum role of a user.
        role: OrgRole,
        /// True if the cluster in the path, or any cluster of the organization if the path has none, is permitted.
        cluster: bool,
        /// True if the user in the path is permitted, whatever the user's role.
        own: bool,
    },
}

/// A method of a path.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub method: Method,
    /// The path, with its parameters in braces: `/v3/organizations/{organization_id}`.
    pub path: String,
    pub summary: String,
    /// The section in the description.
    pub tag: &'static str,
    pub may: Permission,
    /// The kind of the objects, if its handler is shared by several kinds, or the scope of a token can name it. Without
    /// one, a token whose scope names kinds is refused.
    pub kind: Option<Kind>,
    /// The query parameters, besides shared ones.
    pub query: &'static [Parameter],
    /// The parameters that several endpoints share, in the query and in headers.
    pub shared: &'static [&'static str],
    /// The maximum size of the request body, in bytes.
    pub max_body: usize,
    pub(crate) accepted: AcceptedUses,
    /// The status of a refusal that other endpoints do not have.
    pub refuses: Option<StatusCode>,
    /// The row in the audit log for responses with 200.
    pub(crate) reveals: Option<(Action, Kind)>,
    /// True if no GET returns the body of its response.
    pub is_shown_once: bool,
    pub takes: Input,
    pub answers: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Nothing,
    Json(Body),
    /// A JSON merge patch (RFC 7386) of this schema.
    Patch(Body),
    Text,
}

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
