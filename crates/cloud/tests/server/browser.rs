//! A browser without JavaScript, for the pages of the console.

use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder};
use url::form_urlencoded::Serializer;

use crate::world::{Answer, World};

/// The cookie of a session.
pub const COOKIE: &str = "__Host-session";
/// A page of nobody, which has the forms of its head all the same.
pub const NOWHERE: &str = "/organizations/00000000-0000-4000-8000-000000000000/clusters";

/// The value of the first hidden field with this name; empty if there is none.
pub fn hidden(body: &str, name: &str) -> String {
    let field = body.split(&format!("name=\"{name}\" value=\"")).nth(1);
    let value = field.map_or("", |field| field.split('"').next().unwrap());
    value.replace("&quot;", "\"").replace("&amp;", "&")
}

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

    /// `~` is the organization.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let path = path.replacen('~', &format!("/organizations/{}", self.world.organization), 1);
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

    /// Sends a form of this session.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let csrf = hidden(&self.get(NOWHERE).await.body, "csrf");
        self.send(&self.world.base, path, &[fields, &[("csrf", csrf.as_str())]].concat())
            .await
    }

    /// Sends the second step of a change, as `page` shows it.
    pub async fn confirm(&self, path: &str, page: &Answer, fields: &[(&str, &str)]) -> Answer {
        let etag = hidden(&page.body, "etag");
        let second = [("confirmed", "yes"), ("etag", etag.as_str())];
        self.post(path, &[fields, &second].concat()).await
    }
}
