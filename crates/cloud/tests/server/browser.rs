//! A browser without JavaScript, for the pages of the console.

use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use url::form_urlencoded::Serializer;

use crate::world::{Answer, World};

/// The cookie of a session.
pub const COOKIE: &str = "__Host-session";

/// A browser with the cookie of a session, or without one. It follows no redirect.
pub struct Browser<'a> {
    pub world: &'a World,
    http: Client,
    pub token: String,
}

impl<'a> Browser<'a> {
    pub fn of(world: &'a World, token: &str) -> Self {
        Self {
            world,
            http: Client::builder().redirect(Policy::none()).build().unwrap(),
            token: token.to_owned(),
        }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.world.base));
        if self.token.is_empty() {
            return request;
        }
        request.header("cookie", format!("{COOKIE}={}", self.token))
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.world.send(self.request(Method::GET, path)).await
    }

    /// Sends a form as a page of `origin` does.
    pub async fn send(&self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.request(Method::POST, path).header("origin", origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        self.world.send(request.body(body)).await
    }
}
