//! The server on a port, in real time, for a program that runs as a process of its own.

use std::path::PathBuf;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::json;

use super::process::Process;
use super::{ApiServer, BoxError};
use crate::fake_cloud::Port;
use crate::{Scratch, kubeconfig};

/// A server that listens. It does so no more when this is dropped.
#[derive(Debug)]
pub struct Served(Port);

impl ApiServer {
    /// Serves plain HTTP/1.1 on a free port of 127.0.0.1. Every client there is `process` to the log and to the
    /// faults.
    pub async fn serve_on_port(&self, process: &Process) -> Served {
        let (server, process) = (Arc::clone(&self.0), process.clone());
        let answer = move |request: Request<Incoming>| {
            let (server, process) = (Arc::clone(&server), process.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                server.serve(process, Request::from_parts(parts, body)).await
            }
        };
        Served(Port::open::<_, _, _, BoxError>(answer).await)
    }
}

impl Served {
    /// Writes a kubeconfig file for the program.
    #[must_use]
    pub fn kubeconfig(&self, scratch: &Scratch) -> PathBuf {
        let server = format!("http://{}", self.0.address());
        kubeconfig::write(scratch, "sim", &json!({"server": server}), &json!({}))
    }
}
