//! An API server with Nodes and records, as far as the controller's own writer needs one: preconditions, merge patches, and
//! connections that break because the process at their other end has died.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value, json};

/// A write that was accepted.
pub struct Written {
    pub name: String,
    /// The record of that name at that moment, as it was before.
    pub record: Option<Value>,
    /// The Node of that name at that moment, as it was before.
    pub node: Option<Value>,
    /// What was written.
    pub after: After,
}

pub enum After {
    Node(Value),
    Record(Value),
}

#[derive(Default)]
pub struct ApiServer(Mutex<State>);

#[derive(Default)]
pub struct State {
    pub nodes: BTreeMap<String, Value>,
    pub records: BTreeMap<String, Value>,
    version: u64,
    /// Every write that came, refused ones too.
    pub came: usize,
    pub accepted: Vec<Written>,
    /// So many more writes are sent before the process is dead. `None`: as many as it likes.
    pub lives_for: Option<u8>,
}

/// The status of an answer and its reason.
type Refused = (StatusCode, &'static str);

const CONFLICT: Refused = (StatusCode::CONFLICT, "Conflict");
const EXISTS: Refused = (StatusCode::CONFLICT, "AlreadyExists");
const NOT_FOUND: Refused = (StatusCode::NOT_FOUND, "NotFound");

impl ApiServer {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A client of it.
    pub fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = Arc::clone(&server);
            async move { server.take(request).await }
        });
        Client::new(service, "default")
    }

    async fn take(&self, request: Request<Body>) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(io::Error::other)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut state = self.lock();
        if let Some(left) = &mut state.lives_for {
            // Nothing is read from the other side either once it is dead.
            if *left == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            *left -= u8::from(parts.method != Method::GET);
        }
        let (status, answer) = match state.answer(&parts.method, parts.uri.path(), body) {
            Ok(object) => (StatusCode::OK, object),
            Err((status, reason)) => (
                status,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status.as_u16()}),
            ),
        };
        let response = Response::builder().status(status);
        Ok(response.body(answer.to_string().into_bytes().into()).unwrap())
    }
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: Value) -> Result<Value, Refused> {
        let last = path.rsplit('/').next().unwrap_or_default();
        if method == Method::GET {
            return self.records.get(last).cloned().ok_or(NOT_FOUND);
        }
        self.came += 1;
        let name = match method {
            &Method::POST => body["metadata"]["name"].as_str().unwrap_or_default(),
            _ => last,
        };
        let name = name.to_owned();
        let (record, node) = (self.records.get(&name).cloned(), self.nodes.get(&name).cloned());
        let after = match *method {
            Method::POST if record.is_some() => return Err(EXISTS),
            Method::POST => self.put_record(&name, body),
            Method::PUT => {
                let there = record.as_ref().ok_or(NOT_FOUND)?;
                matches(there, &body, "resourceVersion")?;
                self.put_record(&name, body)
            }
            _ => self.patch_node(&name, node.as_ref().ok_or(NOT_FOUND)?, body)?,
        };
        let (After::Node(object) | After::Record(object)) = &after;
        let object = object.clone();
        self.accepted.push(Written {
            name,
            record,
            node,
            after,
        });
        Ok(object)
    }

    fn put_record(&mut self, name: &str, mut record: Value) -> After {
        record["metadata"]["resourceVersion"] = self.next_version().into();
        self.records.insert(name.to_owned(), record.clone());
        After::Record(record)
    }

    /// What the patch says of uid and version it must find; without a word of them it is let through.
    fn patch_node(&mut self, name: &str, there: &Value, mut patch: Value) -> Result<After, Refused> {
        for field in ["uid", "resourceVersion"] {
            if patch["metadata"].get(field).is_some() {
                matches(there, &patch, field)?;
            }
        }
        if let Some(metadata) = patch["metadata"].as_object_mut() {
            metadata.retain(|field, _| field == "labels");
        }
        let mut node = there.clone();
        merge(&mut node, patch);
        if node != *there {
            node["metadata"]["resourceVersion"] = self.next_version().into();
        }
        self.nodes.insert(name.to_owned(), node.clone());
        Ok(After::Node(node))
    }

    pub fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }
}

fn matches(there: &Value, sent: &Value, field: &str) -> Result<(), Refused> {
    if there["metadata"][field] == sent["metadata"][field] {
        Ok(())
    } else {
        Err(CONFLICT)
    }
}

/// RFC 7396.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(fields) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (field, value) in fields {
        if !value.is_null() {
            merge(&mut target[&field], value);
        } else if let Some(target) = target.as_object_mut() {
            target.remove(&field);
        }
    }
}
