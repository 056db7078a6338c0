//! The parts of a request and of its response that do not depend on what it is about: the description of an endpoint,
//! limits, headers, conditions, bodies, errors, and the memory of responses.

pub(super) mod body;
mod body_budget;
pub(super) mod call;
pub(super) mod client_address;
pub(super) mod conditions;
pub mod endpoint;
pub(super) mod errors;
pub(super) mod headers;
pub(super) mod limits;
pub(super) mod list_cache;
pub(super) mod metrics;
pub(super) mod permits;
pub(super) mod request_id;
pub(super) mod response;
pub(super) mod response_budget;
mod unauthenticated_bodies;
