//! One request and its caller.

use std::net::IpAddr;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH, LOCATION};
use http::{HeaderName, Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::access::PathIds;
use super::digest::etag;
use super::endpoints::Endpoint;
use super::principal::Known;
use super::refusal::Refusal;
use super::store::{Author, Origin, Row};
use crate::models::{Kind, ParameterType};

/// A request whose caller has the required permission.
pub(super) struct Call {
    pub(super) endpoint: &'static Endpoint,
    pub(super) path: String,
    pub(super) parameters: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) known: Option<Arc<Known>>,
    /// The network of the client.
    pub(super) client: IpAddr,
    pub(super) origin: Origin,
}

impl Call {
    /// A parameter of the path.
    pub(super) fn word(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Returns true if the path has this parameter, even if it is empty.
    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.parameters.iter().any(|(key, _)| key == name)
    }

    /// An id in the path. An invalid id gives 404.
    pub(super) fn id(&self, name: &str) -> Result<Uuid, Refusal> {
        let text = self.word(name);
        let id = (text.len() == 36).then(|| Uuid::try_parse(text).ok()).flatten();
        id.ok_or_else(Refusal::not_found)
    }

    /// The id as in the store.
    pub(super) fn key(&self, name: &str) -> Result<String, Refusal> {
        Ok(self.id(name)?.to_string())
    }

    pub(super) fn place(&self) -> PathIds {
        PathIds {
            organization: self.id("organization_id").ok(),
            cluster: self.id("cluster_id").ok(),
            user: self.id("user_id").ok(),
        }
    }

    /// The kind of the objects that the request is about.
    pub(super) fn kind(&self) -> Result<Kind, Refusal> {
        self.endpoint.kind.ok_or_else(Refusal::not_found)
    }

    /// Returns true if the body is a merge patch, and not the whole object.
    pub(super) fn is_patch(&self) -> bool {
        self.endpoint.method == Method::PATCH
    }

    pub(super) fn asked(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// A number in the query, from 1 to `most`.
    pub(super) fn number(&self, name: &str, most: u32) -> Result<Option<u32>, Refusal> {
        let Some(text) = self.asked(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        let refusal = || Refusal::parameter(name, format!("must be a whole number from 1 to {most}"));
        number.map(Some).ok_or_else(refusal)
    }

    pub(super) fn known(&self) -> Result<&Arc<Known>, Refusal> {
        self.known.as_ref().ok_or_else(super::access::unknown)
    }

    /// Refuses a condition that the endpoint does not check: who sends one must not overwrite what they have not seen.
    pub(super) fn refuse_unchecked_conditions(&self) -> Result<(), Refusal> {
        if self.endpoint.method == Method::GET {
            return Ok(());
        }
        let unchecked = |(header, name): &(HeaderName, &str)| {
            self.headers.contains_key(header) && !self.endpoint.shared.contains(name)
        };
        let conditions = [(IF_MATCH, "If-Match"), (IF_NONE_MATCH, "If-None-Match")];
        match conditions.iter().find(|condition| unchecked(condition)) {
            Some((_, name)) => Err(Refusal::parameter(
                *name,
                "is not supported for this request: leave it out",
            )),
            None => Ok(()),
        }
    }

    /// Refuses a value in the query that its parameter does not have: with a mistyped word, a list would look empty.
    pub(super) fn check_query(&self) -> Result<(), Refusal> {
        for parameter in self.endpoint.query {
            let words = match parameter.form {
                ParameterType::Bool => &["true", "false"],
                ParameterType::Words(words) => words,
                // Read by the handlers.
                ParameterType::Id | ParameterType::Version | ParameterType::Number(_) => continue,
            };
            if self.asked(parameter.name).is_some_and(|asked| !words.contains(&asked)) {
                let reason = format!("must be one of {}", words.join(", "));
                return Err(Refusal::parameter(parameter.name, reason));
            }
        }
        Ok(())
    }

    /// The calling user.
    pub(super) fn user(&self) -> Result<Uuid, Refusal> {
        self.known()?.principal.user().ok_or_else(Refusal::not_found)
    }

    /// The caller and the organization that share limits with the request; `None` without a known caller.
    pub(super) fn share(&self) -> Option<(String, String)> {
        let principal = &self.known.as_ref()?.principal;
        Some((principal.actor(), principal.organization().to_string()))
    }

    pub(super) fn by(&self) -> Author {
        let actor = self.known.as_ref().map(|known| known.principal.actor());
        let actor = actor.unwrap_or_default();
        Author {
            queue: self.key("organization_id").unwrap_or_else(|_| actor.clone()),
            actor,
            origin: self.origin.clone(),
        }
    }

    /// The id of the user who creates an object; empty for a cluster.
    pub(super) fn owner(&self) -> String {
        self.user().map_or_else(|_| String::new(), |user| user.to_string())
    }

    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns true if the caller already has the version with this ETag (RFC 9110, 13.1.2).
    pub(super) fn has(&self, etag: &str) -> bool {
        self.header(&IF_NONE_MATCH)
            .is_some_and(|known| matches(known, etag, true))
    }

    /// The precondition of a change: the version that the caller has seen (RFC 9110, 13.1.1).
    pub(super) fn condition(&self) -> Condition {
        Condition(self.header(&IF_MATCH).map(str::to_owned))
    }
}

/// The value of `If-Match`.
pub(super) struct Condition(Option<String>);

impl Condition {
    /// Returns true if the caller said which version it has seen.
    pub(super) fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// Checks that the caller has seen no version of an object that does not exist.
    pub(super) fn check_absent(&self) -> Result<(), Refusal> {
        if self.is_given() {
            return Err(Refusal::changed());
        }
        Ok(())
    }

    /// Checks that an object whose representation is `body` is the version that the caller has seen.
    pub(super) fn check(&self, body: &[u8]) -> Result<(), Refusal> {
        match &self.0 {
            Some(wanted) if !matches(wanted, &etag(body), false) => Err(Refusal::changed()),
            _ => Ok(()),
        }
    }
}

/// A compressing proxy turns a strong tag into a weak one, which is sufficient to see that nothing changed.
fn matches(list: &str, etag: &str, weak: bool) -> bool {
    list.split(',').map(str::trim).any(|one| {
        let one = if weak {
            one.strip_prefix("W/").unwrap_or(one)
        } else {
            one
        };
        one == "*" || one == etag
    })
}

/// A successful response, which can be stored for a repeated request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    /// The value for `If-Match`; `None` if no GET returns this body.
    pub(super) etag: Option<String>,
    pub(super) body: String,
    /// The kind and the id of the API key or token that the body contains: it is not shown again after it was deleted.
    #[serde(default)]
    pub(super) secret_of: Option<(String, String)>,
    /// Of a plugin, the body without manifests, which have megabytes: only this is stored, and a repeated request reads
    /// them again.
    #[serde(skip)]
    pub(super) bare: Option<String>,
}

impl Reply {
    /// 201 with the created object, as a GET returns it, and its location.
    pub(super) fn made(location: String, body: &impl Serialize) -> Self {
        Self {
            status: StatusCode::CREATED.as_u16(),
            location: Some(location),
            ..Self::ok(body)
        }
    }

    /// Replaces the body by one that is shown only once.
    pub(super) fn showing_once(self, body: &impl Serialize) -> Self {
        Self {
            body: text(body),
            ..self
        }
    }

    /// Names the object whose secret the body contains.
    pub(super) fn with_secret_of(self, row: &Row) -> Self {
        Self {
            secret_of: Some((row.kind.word().to_owned(), row.id.clone())),
            ..self
        }
    }

    /// Removes the ETag, for objects without a GET.
    pub(super) fn without_etag(self) -> Self {
        Self { etag: None, ..self }
    }

    /// 200 with `body`.
    pub(super) fn ok(body: &impl Serialize) -> Self {
        let body = text(body);
        Self {
            status: StatusCode::OK.as_u16(),
            location: None,
            etag: Some(etag(body.as_bytes())),
            body,
            secret_of: None,
            bare: None,
        }
    }

    /// 204.
    pub(super) fn nothing() -> Self {
        Self {
            status: StatusCode::NO_CONTENT.as_u16(),
            location: None,
            etag: None,
            body: String::new(),
            secret_of: None,
            bare: None,
        }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        if self.body.is_empty() {
            return status.into_response();
        }
        let mut response = json(status, self.body.into());
        if let Some(etag) = self.etag {
            set(response.headers_mut(), ETAG, &etag);
        }
        if let Some(location) = self.location {
            set(response.headers_mut(), LOCATION, &location);
        }
        response
    }
}

/// 200 with `value` as JSON, or 304 if the caller has this version.
pub(super) fn respond(call: &Call, value: &impl Serialize) -> Response {
    respond_with(call, text(value))
}

/// 200 with this JSON, or 304 if the caller has this version.
pub(super) fn respond_with(call: &Call, text: String) -> Response {
    let body = Bytes::from(text);
    unless_known(call, &etag(&body), body)
}

/// 200 with `body`, or 304 if the caller has this version.
pub(super) fn unless_known(call: &Call, tag: &str, body: Bytes) -> Response {
    let mut response = if call.has(tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        json(StatusCode::OK, body)
    };
    set(response.headers_mut(), ETAG, tag);
    response
}

pub(super) fn json(status: StatusCode, body: Bytes) -> Response {
    let mut response = (status, body).into_response();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Serializes maps, lists and strings, which cannot fail.
pub(super) fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The body as a JSON object without duplicate keys.
pub(super) fn object(body: &[u8]) -> Result<serde_json::Map<String, Value>, Refusal> {
    let crate::models::OpenObject(map) = crate::models::parse_open(body)?;
    Ok(map)
}

pub(super) fn refuse_others(body: &serde_json::Map<String, Value>) -> Result<(), Refusal> {
    let other = body.keys().next();
    other.map_or(Ok(()), |field| {
        Err(Refusal::field(field.clone(), "is not a field of this body; omit it"))
    })
}
