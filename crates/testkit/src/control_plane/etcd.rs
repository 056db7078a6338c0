//! etcd's own API, as JSON (its gRPC gateway): what lies under the API server. Keys and values stay in base64, as they
//! come.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt as _, stream};
use reqwest::Client;
use serde_json::{Value, json};

use super::servers;

/// The prefix of all keys of the API server.
pub(super) const ROOT: &str = "/registry/";
/// The first key after them: etcd's ranges exclude their end.
const ROOT_END: &str = "/registry0";

/// The maximum number of changes in flight.
const MAX_IN_FLIGHT: usize = 16;

/// A client of a control plane's etcd, for the runtime that it was made in.
pub(super) struct Etcd(Client);

/// A key with its value, if that was requested.
#[derive(Debug)]
pub(super) struct Object {
    /// The revision of its last write.
    pub(super) modified: String,
    /// Base64.
    pub(super) value: String,
}

impl Object {
    /// The value in plain form.
    pub(super) fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.value).expect("etcd sends base64")
    }
}

/// One operation of a transaction.
pub(super) struct Change(Value);

impl Change {
    /// Writes this value under this key, both in base64.
    pub(super) fn put(key: &str, value: &str) -> Self {
        Self(json!({"requestPut": {"key": key, "value": value}}))
    }

    /// Deletes this key, which is in base64.
    pub(super) fn delete(key: &str) -> Self {
        Self(json!({"requestDeleteRange": {"key": key}}))
    }
}

/// An object to be copied, and where in it the texts are that each copy replaces.
pub(super) struct Template<const N: usize> {
    /// The key, then the value.
    bytes: Vec<u8>,
    key: usize,
    places: [(usize, Vec<usize>); N],
}

impl<const N: usize> Template<N> {
    pub(super) fn new(key: &str, value: &[u8], texts: [&str; N]) -> Self {
        let bytes = [key.as_bytes(), value].concat();
        let places = texts.map(|text| {
            let windows = bytes.windows(text.len()).enumerate();
            let found = windows.filter(|(_, window)| *window == text.as_bytes());
            (text.len(), found.map(|(place, _)| place).collect())
        });
        Self {
            key: key.len(),
            places,
            bytes,
        }
    }

    /// The copy with these in the place of the texts.
    pub(super) fn copy(&self, texts: &[String; N]) -> Change {
        let mut bytes = self.bytes.clone();
        for (text, (length, places)) in texts.iter().zip(&self.places) {
            assert_eq!(text.len(), *length, "{text}");
            for place in places {
                bytes[*place..place + length].copy_from_slice(text.as_bytes());
            }
        }
        let (key, value) = bytes.split_at(self.key);
        Change::put(&encode(key), &encode(value))
    }
}

impl Etcd {
    /// The etcd of the control plane in this folder.
    pub(super) fn of(folder: &Path) -> Self {
        let client = Client::builder().unix_socket(servers::etcd_socket(folder));
        Self(client.build().expect("a client"))
    }

    /// Every object of the API server, by its key in base64; the value only where it is requested.
    pub(super) async fn objects(&self, values: bool) -> HashMap<String, Object> {
        let range = json!({"key": STANDARD.encode(ROOT), "range_end": STANDARD.encode(ROOT_END), "keys_only": !values});
        let mut answer = self.ask("range", &range).await;
        let objects = answer["kvs"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
        objects
            .iter()
            .map(|object| {
                let (modified, value) = (text(object, "mod_revision"), text(object, "value"));
                (text(object, "key"), Object { modified, value })
            })
            .collect()
    }

    /// The value under a key, both in plain form.
    pub(super) async fn value(&self, key: &str) -> Vec<u8> {
        let answer = self.ask("range", &json!({"key": STANDARD.encode(key)})).await;
        let value = answer["kvs"][0]["value"].as_str();
        STANDARD
            .decode(value.unwrap_or_else(|| panic!("etcd has no {key}")))
            .expect("etcd sends base64")
    }

    /// Makes the changes, each with a revision of its own, as the API server does. A watch that breaks between two
    /// changes of one revision goes on behind that revision, and never shows the rest of them.
    pub(super) async fn commit(&self, changes: Vec<Change>) {
        let changes = stream::iter(changes).map(|Change(change)| async move {
            let answer = self.ask("txn", &json!({"success": [change]})).await;
            assert_eq!(answer["succeeded"], true, "{answer}");
        });
        changes.buffer_unordered(MAX_IN_FLIGHT).collect::<()>().await;
    }

    async fn ask(&self, what: &str, question: &Value) -> Value {
        let request = self
            .0
            .post(format!("http://etcd/v3/kv/{what}"))
            .body(question.to_string());
        let answer = request.send().await.expect("etcd answers");
        let status = answer.status();
        let answer = answer.bytes().await.expect("the whole answer");
        assert!(status.is_success(), "etcd: {}", String::from_utf8_lossy(&answer));
        serde_json::from_slice(&answer).expect("etcd answers in JSON")
    }
}

/// In base64, as etcd takes keys and values.
pub(super) fn encode(plain: &[u8]) -> String {
    STANDARD.encode(plain)
}

/// The key in plain text.
pub(super) fn plain(key: &str) -> String {
    let bytes = STANDARD.decode(key).expect("etcd sends base64");
    String::from_utf8(bytes).expect("the API server's keys are text")
}
