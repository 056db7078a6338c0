//! The console in Chromium: journeys of people through its pages, and what keeps nobody from using them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests"
)]

mod accessible;
mod browser;
mod clusters;
#[allow(dead_code, reason = "the tests of the server use the rest")]
#[path = "../cloud_server/world.rs"]
mod world;

use serde_json::json;

use crate::browser::Browser;
use crate::world::{Land, On, PASSWORD, Place, Server};

/// A server with a cluster, and the people of its organization.
struct Scene {
    server: Server,
    land: Land,
    place: Place,
}

impl Scene {
    async fn new(on: On) -> Self {
        let place = Place::new(on).await;
        place.init().await;
        let server = place.serve().await;
        let land = Land::make(&server).await;
        Self { server, land, place }
    }

    /// Creates a user with this role, and returns the e-mail address.
    async fn person(&self, role: &str) -> String {
        let email = format!("{role}@example.org");
        let person = json!({"name": role, "email": email, "role": role, "password": PASSWORD});
        let users = format!("{}/users", self.land.organization);
        self.server.post(&self.land.token, &users, &person).await.is(201);
        email
    }

    /// Runs `journey` in a browser of its own, which ends with it.
    async fn browse(&self, journey: impl AsyncFnOnce(&Browser)) {
        Browser::browse(&self.place.scratch, &self.server.base, journey).await;
    }
}

/// The page of an object of the API.
fn page(path: &str) -> String {
    path.trim_start_matches("/v3").to_owned()
}
