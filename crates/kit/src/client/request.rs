//! The kind of a request, from its method and path, in the terms of RBAC.

use std::collections::BTreeSet;

use http::{Method, Uri};
use parking_lot::Mutex;

/// The most resources that are labels of metrics. Tidewaiter's own are fewer, but plugins have objects of any kind.
const MAX_RESOURCE_LABELS: usize = 64;

/// The kind of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A watch, named by the part of its query that stays the same when it is started again.
    Watch(String),
    /// A read whose response may go on until it is closed: a followed log, or whatever a proxy subresource leads to.
    Stream,
    /// Any other read.
    Read,
    /// A write.
    Write { verb: &'static str, resource: String },
}

/// The resources that were labels of metrics so far.
#[derive(Debug, Default)]
pub(super) struct Resources(Mutex<BTreeSet<String>>);

impl Resources {
    /// The label of the resource: its name if it is among the first that are written, or `other`.
    pub(super) fn label(&self, resource: String) -> String {
        let mut known = self.0.lock();
        if known.len() < MAX_RESOURCE_LABELS {
            known.insert(resource.clone());
        }
        if known.contains(&resource) {
            resource
        } else {
            "other".to_owned()
        }
    }
}

pub(super) fn kind(method: &Method, uri: &Uri) -> Kind {
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        let query: Vec<&str> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.starts_with("resourceVersion="))
            .collect();
        let asks = |what: &str| {
            query.iter().any(|pair| {
                pair.strip_prefix(what)
                    .is_some_and(|value| matches!(value, "=true" | "=1"))
            })
        };
        let (resource, _) = resource(uri.path());
        return match resource.split_once('/') {
            Some((_, "log")) if asks("follow") => Kind::Stream,
            Some((_, "proxy")) => Kind::Stream,
            _ if asks("watch") => Kind::Watch(format!("{}?{}", uri.path(), query.join("&"))),
            _ => Kind::Read,
        };
    }
    let (resource, named) = resource(uri.path());
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "other",
    };
    Kind::Write { verb, resource }
}

/// The resource, with its subresource, and whether one object is named.
fn resource(path: &str) -> (String, bool) {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    // The API server may be behind a path prefix (a proxy of clusters).
    let rest = segments
        .iter()
        .position(|segment| matches!(*segment, "api" | "apis"))
        .and_then(|at| {
            let skip = if segments[at] == "api" { 2 } else { 3 };
            segments.get(at + skip..)
        });
    let rest = match rest.unwrap_or_default() {
        ["namespaces", _, "status" | "finalize"] | ["namespaces", _] | ["namespaces"] => rest.unwrap_or_default(),
        ["namespaces", _, rest @ ..] | rest => rest,
    };
    match rest {
        [] => ("other".to_owned(), false),
        [resource] => ((*resource).to_owned(), false),
        [resource, _] => ((*resource).to_owned(), true),
        [resource, _, subresource, ..] => (format!("{resource}/{subresource}"), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(method: &Method, path: &str) -> (&'static str, String) {
        match kind(method, &path.parse().unwrap()) {
            Kind::Write { verb, resource } => (verb, resource),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_writes_as_rbac_does() {
        for (method, path, verb, resource) in [
            (Method::PATCH, "/api/v1/nodes/a?fieldManager=x", "patch", "nodes"),
            (Method::PATCH, "/api/v1/nodes/a/status", "patch", "nodes/status"),
            (
                Method::POST,
                "/api/v1/namespaces/b/pods/p/eviction?",
                "create",
                "pods/eviction",
            ),
            (
                Method::POST,
                "/apis/events.k8s.io/v1/namespaces/default/events?",
                "create",
                "events",
            ),
            (
                Method::PUT,
                "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l",
                "update",
                "leases",
            ),
            (
                Method::PATCH,
                "/apis/tidewaiter.dev/v1alpha1/nodeidentities/n",
                "patch",
                "nodeidentities",
            ),
            (
                Method::DELETE,
                "/apis/tidewaiter.dev/v1alpha1/nodeidentities",
                "deletecollection",
                "nodeidentities",
            ),
            (Method::DELETE, "/api/v1/namespaces/b", "delete", "namespaces"),
            (
                Method::PUT,
                "/api/v1/namespaces/b/finalize",
                "update",
                "namespaces/finalize",
            ),
            (
                Method::POST,
                "/k8s/clusters/c-1/api/v1/namespaces",
                "create",
                "namespaces",
            ),
            (Method::POST, "/metrics", "create", "other"),
            (Method::POST, "/api", "create", "other"),
        ] {
            assert_eq!(write(&method, path), (verb, resource.to_owned()), "{path}");
        }
    }

    #[test]
    fn labels_are_bounded_whatever_plugins_write() {
        let resources = Resources::default();
        let label = |number: usize| resources.label(format!("kinds{number}"));
        let labels: BTreeSet<String> = (0..1000).map(label).collect();
        assert_eq!(labels.len(), MAX_RESOURCE_LABELS + 1);
        assert_eq!((label(0), label(999)), ("kinds0".to_owned(), "other".to_owned()));
    }

    #[test]
    fn tells_a_watch_from_a_read() {
        let of = |uri: &str| kind(&Method::GET, &uri.parse().unwrap());
        assert_eq!(of("/api/v1/nodes?&limit=100"), Kind::Read);
        assert_eq!(of("/api/v1/nodes?fieldSelector=watch%3Dtrue"), Kind::Read);
        assert_eq!(
            of("/api/v1/nodes?watch=true&resourceVersion=5"),
            of("/api/v1/nodes?watch=true&resourceVersion=6")
        );
        assert_ne!(of("/api/v1/nodes?watch=true"), of("/api/v1/pods?watch=true"));
        assert_ne!(of("/api/v1/nodes?watch=true"), Kind::Read);
    }

    #[test]
    fn tells_a_stream_from_a_read() {
        let of = |uri: &str| kind(&Method::GET, &uri.parse().unwrap());
        let pod = "/api/v1/namespaces/a/pods/b";
        assert_eq!(of(&format!("{pod}/log?&follow=true&container=c")), Kind::Stream);
        assert_eq!(of(&format!("{pod}/proxy/metrics")), Kind::Stream);
        assert_eq!(of("/api/v1/nodes/a/proxy/logs/"), Kind::Stream);
        assert_eq!(of(&format!("{pod}/log?&container=c")), Kind::Read);
        assert_eq!(of(&format!("{pod}?follow=true")), Kind::Read);
    }
}
