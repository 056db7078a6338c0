//! The console in Chromium: journeys of people through its pages, on both databases, as the role that may and as one
//! that may not; and what keeps nobody from using them. One browser makes the journeys of a test, one person after the
//! other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

/// Makes a test of each journey on each database.
macro_rules! on_both {
    ($($journey:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $journey() {
                super::$journey(crate::world::On::Sqlite).await;
            })+
        }
        mod postgres {
            $(#[tokio::test]
            async fn $journey() {
                super::$journey(crate::world::On::Postgres).await;
            })+
        }
    };
}

mod access;
mod accessible;
mod account;
mod browser;
mod clusters;
mod decisions;
mod demonstration;
mod keyboard;
mod operators;
mod second_factor;
mod sign_in;
#[allow(dead_code, reason = "the tests of the server use the rest")]
#[path = "../cloud_server/world.rs"]
mod world;

use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{Ask, Land, On, PASSWORD, Place, Server};

/// A server with a cluster, and the people of its organization.
struct Scene {
    server: Server,
    land: Land,
    place: Place,
}

impl Scene {
    async fn new(on: On) -> Self {
        Self::at(Self::place(on).await).await
    }

    /// A place whose links lead to its own address.
    async fn place(on: On) -> Place {
        let place = Place::new(on).await;
        place.without_public_url();
        place.add_setting("publicUrl", &base(&place));
        place
    }

    async fn at(place: Place) -> Self {
        place.init().await;
        let server = place.serve().await;
        let land = Land::make(&server).await;
        Self { server, land, place }
    }

    /// Creates a user with this role and the role as name, and returns the e-mail address.
    async fn person(&self, role: &str) -> String {
        let email = format!("{role}@example.org");
        let person = json!({"name": role, "email": email, "role": role, "password": PASSWORD});
        self.make("users", person).await;
        email
    }

    /// Creates an object in a list of the organization, and returns its id.
    async fn make(&self, list: &str, body: Value) -> String {
        let list = format!("{}/{list}", self.land.organization);
        let made = self.server.post(&self.land.token, &list, &body).await;
        made.is(201).field("id")
    }

    /// The objects of a list of the organization.
    async fn list(&self, list: &str) -> Vec<Value> {
        let list = format!("{}/{list}", self.land.organization);
        let listed = self.server.get(&self.land.token, &list).await.is(200).json();
        listed.as_array().unwrap().clone()
    }

    /// The id of the object in a list of the organization with this value of a field.
    async fn id(&self, list: &str, field: &str, value: &str) -> String {
        let objects = self.list(list).await;
        let found = objects.iter().find(|object| object[field] == value);
        found.unwrap()["id"].as_str().unwrap().to_owned()
    }

    /// The path of a page of the organization.
    fn page(&self, rest: &str) -> String {
        format!("{}/{rest}", page(&self.land.organization))
    }

    /// Logs a person in besides the browser, and returns the token.
    async fn log_in(&self, email: &str) -> String {
        let login = json!({"email": email, "password": PASSWORD});
        let made = self.server.post("", "/v3/login/password", &login).await;
        made.is(200).field("token")
    }

    async fn delete(&self, path: &str) {
        let sent = self.server.send(&self.land.token, Method::DELETE, path, Ask::default());
        let answer = sent.await.unwrap();
        assert!(answer.status.is_success(), "{answer:?}");
    }

    /// Sends a report with the API key of the cluster.
    async fn report(&self, path: &str, report: &Value) {
        let sent = self
            .server
            .send(&self.land.api_key, Method::PUT, path, Ask::body(report));
        sent.await.unwrap().is(200);
    }

    /// Runs `journey` in a browser of its own, which ends with it.
    async fn browse(&self, journey: impl AsyncFnOnce(&Browser)) {
        Browser::browse(&self.place.scratch, &self.server.base, journey).await;
    }
}

fn base(place: &Place) -> String {
    format!("http://127.0.0.1:{}", place.port)
}

/// The page of an object of the API.
fn page(path: &str) -> String {
    path.trim_start_matches("/v3").to_owned()
}
