//! A request as a hook sees it, and as it is remembered.

use std::time::Instant;

use bytes::Bytes;
use http::Method;
use http::request::Parts;

/// A request that has come in whole and is not forwarded yet.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// The method.
    pub method: Method,
    /// The path, such as `/api/v1/nodes/a`.
    pub path: String,
    /// Without its question mark; empty when there is none.
    pub query: String,
    /// The body; empty when there is none.
    pub body: Bytes,
}

impl ApiRequest {
    pub(super) fn new(parts: &Parts, body: Bytes) -> Self {
        let query = parts.uri.query().unwrap_or_default().to_owned();
        Self {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            query,
            body,
        }
    }

    /// Returns true if it changes something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        is_write(&self.method)
    }

    /// Returns true if it asks for a stream of changes.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        is_watch(&self.query)
    }

    /// Returns the resource: plural and lower case, as `nodes`; empty for what is not a resource.
    #[must_use]
    pub fn resource(&self) -> &str {
        resource(&self.path)
    }

    /// The body as JSON, null when it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A request that came in, and what became of it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The method.
    pub method: Method,
    /// The path, such as `/api/v1/nodes/a`.
    pub path: String,
    /// Without its question mark; empty when there is none.
    pub query: String,
    /// When it had come in whole.
    pub at: Instant,
    /// The HTTP status that the API server, or a hook, gave; none yet, or none ever.
    pub status: Option<u16>,
}

impl Recorded {
    #[expect(clippy::disallowed_methods, reason = "tests measure the real rate of requests")]
    pub(super) fn now(request: &ApiRequest) -> Self {
        let ApiRequest {
            method, path, query, ..
        } = request.clone();
        Self {
            method,
            path,
            query,
            at: Instant::now(),
            status: None,
        }
    }

    /// Returns true if it changes something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        is_write(&self.method)
    }

    /// Returns true if it asks for a stream of changes.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        is_watch(&self.query)
    }

    /// Returns the resource: plural and lower case, as `nodes`; empty for what is not a resource.
    #[must_use]
    pub fn resource(&self) -> &str {
        resource(&self.path)
    }
}

fn is_write(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn is_watch(query: &str) -> bool {
    query
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
}

/// `/api/v1/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`, or `/apis/GROUP/VERSION/…`.
fn resource(path: &str) -> &str {
    let mut segments = path.split('/').skip(1);
    let rest: Vec<_> = match segments.next() {
        Some("api") => segments.skip(1).collect(),
        Some("apis") => segments.skip(2).collect(),
        _ => return "",
    };
    match rest[..] {
        ["namespaces", _, "status" | "finalize"] => "namespaces",
        ["namespaces", _, resource, ..] | [resource, ..] => resource,
        [] => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_is_found_in_any_path() {
        for (path, expected) in [
            ("/api/v1/nodes", "nodes"),
            ("/api/v1/nodes/a/status", "nodes"),
            ("/api/v1/namespaces/kube-system", "namespaces"),
            ("/api/v1/namespaces/kube-system/finalize", "namespaces"),
            ("/api/v1/namespaces/kube-system/events", "events"),
            ("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a", "leases"),
            ("/apis/tidewaiter.dev/v1alpha1/nodeidentities/a", "nodeidentities"),
            ("/apis/tidewaiter.dev", ""),
            ("/readyz", ""),
            ("/", ""),
        ] {
            assert_eq!(resource(path), expected, "{path}");
        }
    }

    #[test]
    fn a_watch_is_told_by_its_query() {
        assert!(is_watch("resourceVersion=1&watch=true") && is_watch("watch=1"));
        assert!(!is_watch("watch=false") && !is_watch("") && !is_watch("fieldSelector=watch%3Dtrue"));
    }
}
