//! Schemathesis finds what is not as described, and asks the same again for the same seed.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tidewaiter_testkit::Schemathesis;
use tidewaiter_testkit::schemathesis::{Operations, Report};

/// An API with one operation, which answers everything with this thing, and records its requests.
struct Api {
    description: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Api {
    fn answering(thing: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let description = format!("http://{}/openapi.json", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&requests);
        // It ends with the process.
        #[expect(clippy::disallowed_methods, reason = "a server for one test")]
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                answer(connection.unwrap(), thing, &record);
            }
        });
        Self { description, requests }
    }

    async fn examine(&self, seed: u32) -> Report {
        let schemathesis = Schemathesis {
            description: &self.description,
            token: "a-token",
            settings: "",
            checks: &["not_a_server_error", "response_schema_conformance"],
            seed,
            examples: 5,
            deadline: Duration::from_mins(10),
        };
        schemathesis.run().await
    }

    fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }
}

fn answer(mut connection: TcpStream, thing: &str, requests: &Mutex<Vec<String>>) {
    let head: Vec<_> = BufReader::new(&connection)
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty())
        .collect();
    let description = json!({
        "openapi": "3.1.0",
        "info": {"title": "things", "version": "1"},
        "paths": {"/things": {"get": {
            "parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer"}}],
            "responses": {"200": {"description": "one", "content": {"application/json": {"schema": {
                "type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}},
            }}}}},
        }}},
    });
    let first = head.first().map_or("", String::as_str);
    let body = if first.contains("/openapi.json") {
        description.to_string()
    } else {
        assert!(
            head.iter().any(|line| line == "Authorization: Bearer a-token"),
            "{head:?}"
        );
        requests.lock().unwrap().push(first.to_owned());
        thing.to_owned()
    };
    let length = body.len();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
    // The client may have gone.
    let _ = write!(connection, "{head}\r\ncontent-length: {length}\r\n\r\n{body}");
}

#[tokio::test]
async fn it_tells_what_is_as_described_from_what_is_not() {
    let good = Api::answering(r#"{"id": 7}"#).examine(1).await;
    good.assert_clean();
    assert_eq!(good.operations, Operations { total: 1, tested: 1 });
    assert!(good.test_cases.generated > 0);

    let bad = Api::answering(r#"{"id": "seven"}"#).examine(1).await;
    assert_eq!(bad.failures.len(), 1, "{}", bad.text);
    assert_eq!(bad.failures[0].operations, ["GET /things"]);
    assert!(bad.text.contains("is not of type"), "{}", bad.text);
}

#[tokio::test]
async fn a_seed_makes_the_same_requests() {
    let api = Api::answering(r#"{"id": 7}"#);
    let mut runs = Vec::new();
    for seed in [1, 1, 2] {
        api.examine(seed).await.assert_clean();
        runs.push(api.take_requests());
    }
    assert!(!runs[0].is_empty());
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}
