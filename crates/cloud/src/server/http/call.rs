//! One request and its caller.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, Method};
use serde_json::Value;
use uuid::Uuid;

use super::conditions::{Condition, matches};
use super::endpoint::Endpoint;
use crate::models::{Kind, ParameterType};
use crate::server::principal::{Authenticated, Principal};
use crate::server::refusal::Refusal;
use crate::server::store::{Author, Origin};

/// The ids in a path that determine the permission.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathIds {
    pub organization: Option<Uuid>,
    pub cluster: Option<Uuid>,
    pub user: Option<Uuid>,
    /// The id of the item.
    pub item: Option<Uuid>,
}

/// A request whose caller has the required permission.
pub(crate) struct Call {
    pub(crate) endpoint: &'static Endpoint,
    pub(crate) path: String,
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) caller: Option<Arc<Authenticated>>,
    /// The network of the client.
    pub(crate) client: IpAddr,
    pub(crate) origin: Origin,
    /// True if a page of the console sent it.
    pub(crate) is_of_page: bool,
}

/// The extension of requests that a page of the console sends in this process. No page shows credentials of registries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfPage;

impl Call {
    /// A parameter of the path.
    pub(crate) fn word(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Returns true if the path has this parameter, even if it is empty.
    pub(crate) fn has_parameter(&self, name: &str) -> bool {
        self.parameters.iter().any(|(key, _)| key == name)
    }

    /// An id in the path. An invalid id gives 404.
    pub(crate) fn id(&self, name: &str) -> Result<Uuid, Refusal> {
        let text = self.word(name);
        let id = (text.len() == 36).then(|| Uuid::try_parse(text).ok()).flatten();
        id.ok_or_else(Refusal::not_found)
    }

    /// The id as in the store.
    pub(crate) fn key(&self, name: &str) -> Result<String, Refusal> {
        Ok(self.id(name)?.to_string())
    }

    pub(crate) fn path_ids(&self) -> PathIds {
        PathIds {
            organization: self.id("organization_id").ok(),
            cluster: self.id("cluster_id").ok(),
            user: self.id("user_id").ok(),
            item: self.id("id").ok(),
        }
    }

    /// The kind of the objects that the request is about.
    pub(crate) fn kind(&self) -> Result<Kind, Refusal> {
        self.endpoint.kind.ok_or_else(Refusal::not_found)
    }

    /// Returns true if the body is a merge patch, and not the whole object.
    pub(crate) fn is_patch(&self) -> bool {
        self.endpoint.method == Method::PATCH
    }

    pub(crate) fn query_value(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A number in the query, from 1 to `most`.
    pub(crate) fn number(&self, name: &str, most: u32) -> Result<Option<u32>, Refusal> {
        let Some(text) = self.query_value(name) else {
            return Ok(None);
        };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        let refusal = || Refusal::parameter(name, format!("must be a whole number from 1 to {most}"));
        number.map(Some).ok_or_else(refusal)
    }

    pub(crate) fn caller(&self) -> Result<&Arc<Authenticated>, Refusal> {
        self.caller.as_ref().ok_or_else(Refusal::unauthenticated)
    }

    /// Returns true if the response may have the credentials of registries of `organization`.
    pub(crate) fn sees_secrets(&self, organization: Uuid) -> bool {
        let sees = |caller: &Arc<Authenticated>| caller.principal.sees_secrets(organization);
        !self.is_of_page && self.caller.as_ref().is_some_and(sees)
    }

    /// Refuses a condition that the endpoint does not check: who sends one must not overwrite what they have not seen.
    pub(crate) fn refuse_unchecked_conditions(&self) -> Result<(), Refusal> {
        if self.endpoint.method == Method::GET {
            return Ok(());
        }
        let unchecked = |(header, name): &(HeaderName, &str)| {
            self.headers.contains_key(header) && !self.endpoint.shared.contains(name)
        };
        let conditions = [(IF_MATCH, "If-Match"), (IF_NONE_MATCH, "If-None-Match")];
        let reason = "is not supported for this request: leave it out";
        match conditions.iter().find(|condition| unchecked(condition)) {
            Some((_, name)) => Err(Refusal::parameter(*name, reason)),
            None => Ok(()),
        }
    }

    /// Refuses a value in the query that its parameter does not have: with a mistyped word, a list would look empty.
    pub(crate) fn check_query(&self) -> Result<(), Refusal> {
        for parameter in self.endpoint.query {
            let words = match parameter.form {
                ParameterType::Bool => &["true", "false"],
                ParameterType::Words(words) => words,
                // Read by the handlers.
                ParameterType::Id | ParameterType::Version | ParameterType::Number(_) => continue,
            };
            if self
                .query_value(parameter.name)
                .is_some_and(|asked| !words.contains(&asked))
            {
                let reason = format!("must be one of {}", words.join(", "));
                return Err(Refusal::parameter(parameter.name, reason));
            }
        }
        Ok(())
    }

    /// The calling user.
    pub(crate) fn user(&self) -> Result<Uuid, Refusal> {
        self.caller()?.principal.user().ok_or_else(Refusal::not_found)
    }

    /// The caller and the organization that share limits with the request; `None` without a known caller.
    pub(crate) fn share(&self) -> Option<(String, String)> {
        let principal = &self.caller.as_ref()?.principal;
        Some((principal.actor(), principal.organization().to_string()))
    }

    pub(crate) fn by(&self) -> Author {
        let actor = self.caller.as_ref().map(|caller| caller.principal.actor());
        let actor = actor.unwrap_or_default();
        Author {
            queue: self.key("organization_id").unwrap_or_else(|_| actor.clone()),
            actor,
            origin: self.origin.clone(),
        }
    }

    /// The id of the user or service account that creates an object; empty for a cluster.
    pub(crate) fn owner(&self) -> String {
        match self.caller.as_ref().map(|caller| &caller.principal) {
            Some(Principal::User { id, .. } | Principal::ServiceAccount { id, .. }) => id.to_string(),
            _ => String::new(),
        }
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns true if the caller already has the version with this ETag (RFC 9110, 13.1.2).
    pub(crate) fn has(&self, etag: &str) -> bool {
        self.header(&IF_NONE_MATCH)
            .is_some_and(|caller| matches(caller, etag, true))
    }

    /// The precondition of a change: the version that the caller has seen (RFC 9110, 13.1.1).
    pub(crate) fn condition(&self) -> Condition {
        Condition::new(self.header(&IF_MATCH))
    }
}

/// The body as a JSON object without duplicate keys.
pub(crate) fn object(body: &[u8]) -> Result<serde_json::Map<String, Value>, Refusal> {
    let crate::models::OpenObject(map) = crate::models::parse_open(body)?;
    Ok(map)
}

pub(crate) fn refuse_others(body: &serde_json::Map<String, Value>) -> Result<(), Refusal> {
    let other = body.keys().next();
    other.map_or(Ok(()), |field| {
        Err(Refusal::field(field.clone(), "is not a field of this body; omit it"))
    })
}
