//! The endpoints of the original service that this server does not have: its clients get a message that says what to do
//! instead.

use bytes::Bytes;

use super::prelude::*;
use crate::server::http::response::json;

const TEMPLATES: &str = "templates: machines are not provisioned here; create the cluster with kOps or another tool, and attach it with \
    `tidewaiter cloud create cluster`";
const PROXY: &str = "k8sapi/proxy: this server does not forward requests to clusters; set the address of the kube-apiserver in the kubeconfig, \
    and get tokens with `tidewaiter credential`";

/// The response for a path, or with `status` 405 for a method of it, that only the original service served.
pub(crate) fn response(path: &str, status: StatusCode) -> Option<Response> {
    let below = path.strip_prefix("/v3/organizations/")?;
    let mut segments = below.split('/').skip(1);
    match (segments.next()?, segments.nth(1), segments.next()) {
        ("templates", ..) => {
            let refusal = Refusal::new(status, TEMPLATES);
            Some(json(refusal.status, Bytes::from(text(&refusal.failure()))))
        }
        // kubectl shows the message of a Status, whose other fields are those of our errors.
        ("clusters", Some("k8sapi"), Some("proxy")) => {
            let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status.as_u16(), "message": PROXY});
            Some(json(status, Bytes::from(body.to_string())))
        }
        _ => None,
    }
}
