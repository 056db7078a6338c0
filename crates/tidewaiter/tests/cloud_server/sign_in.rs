//! Signing in at a certified provider that others have written, with the requests of a browser without JavaScript.

use reqwest::header::{COOKIE, HeaderName, LOCATION, SET_COOKIE};
use reqwest::{Client, redirect};
use serde_json::{Value, json};
use tidewaiter_testkit::OidcProvider;
use tidewaiter_testkit::oidc_provider::{CLIENT_ID, CLIENT_SECRET};
use url::Url;

use crate::world::{On, Place, SOON, Server};

/// The public URL of a place, at which nothing listens: a browser is sent there, and asks the server itself.
const PUBLIC: &str = "https://cloud.example.org";

/// Requests a page, and returns where it leads and the first cookie that it sets, as it is sent back.
async fn visit(server: &Server, path: &str, cookie: &str) -> (String, String) {
    let http = Client::builder()
        .timeout(SOON)
        .no_proxy()
        .redirect(redirect::Policy::none());
    let request = http.build().unwrap().get(format!("{}{path}", server.base));
    let answer = request.header(COOKIE, cookie).send().await.unwrap();
    let header = |name: HeaderName| {
        let value = answer.headers().get(&name);
        let value = value.unwrap_or_else(|| panic!("no {name} in {answer:?}"));
        value.to_str().unwrap().to_owned()
    };
    let cookie = header(SET_COOKIE);
    let cookie = cookie.split(';').next().unwrap();
    (header(LOCATION), cookie.to_owned())
}

/// Signs a person in, and returns the token of the session.
async fn sign_in(server: &Server, provider: &OidcProvider, login: &str) -> String {
    let path = "/sign-in/with/certified?return_to=%2Faccount%2Fidentities";
    let (url, pending) = visit(server, path, "").await;
    assert!(pending.starts_with("__Host-sign-in="), "{pending}");
    let back = provider.sign_in(&url.parse().unwrap(), login).await;
    let path = back.as_str().strip_prefix(PUBLIC).unwrap();
    let (page, session) = visit(server, path, &pending).await;
    assert_eq!(page, "/account/identities");
    session.strip_prefix("__Host-session=").unwrap().to_owned()
}

#[tokio::test]
async fn a_person_signs_in_at_a_certified_provider() {
    let callback: Url = format!("{PUBLIC}/sign-in/callback").parse().unwrap();
    let provider = OidcProvider::start(callback.as_str()).await;
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.serve().await;
    let owner = server.log_in().await;
    let organizations = server.get(&owner, "/v3/organizations").await.is(200).json();
    let organization = organizations[0]["id"].as_str().unwrap().to_owned();
    let inside = format!("/v3/organizations/{organization}");
    let team = json!({"name": "Operations", "description": ""});
    let team = server
        .post(&owner, &format!("{inside}/teams"), &team)
        .await
        .is(201)
        .field("id");
    server.process.stop(SOON).await;
    let secret = place.secret_file("client-secret", CLIENT_SECRET);
    let settings = json!({"providers": [{
        "name": "certified", "title": "Certified", "issuer": provider.issuer(), "clientId": CLIENT_ID,
        "clientSecretFile": secret, "scopes": ["openid", "email", "profile", "groups"], "organization": organization,
        "groupsClaim": "groups", "provision": {"role": "member"}, "teams": {"operations": "Operations"},
    }]});
    place.add_setting("signIn", &settings.to_string());
    let server = place.serve().await;
    let (first, again) = (
        sign_in(&server, &provider, "alice").await,
        sign_in(&server, &provider, "alice").await,
    );
    let account = server.get(&first, "/v3/account").await.is(200);
    assert_eq!(account.field("email"), "alice@example.net");
    assert_eq!(
        server.get(&again, "/v3/account").await.is(200).field("id"),
        account.field("id")
    );
    let linked = server.get(&first, "/v3/account/identities").await.is(200).json();
    assert_eq!(
        (&linked[0]["subject"], &linked[0]["issuer"]),
        (&json!("alice"), &json!(provider.issuer()))
    );
    let team = server
        .get(&first, &format!("{inside}/teams/{team}"))
        .await
        .is(200)
        .json();
    assert_eq!(team["user_ids"], json!([account.field("id")]));
    let audit = server.get(&owner, &format!("{inside}/audit")).await;
    // The owner's login is of the same database, and outlives the restart.
    let audit = audit.is(200).json();
    let is_made = |row: &Value| row["kind"] == "users" && row["after"]["email"] == "alice@example.net";
    assert!(audit.as_array().unwrap().iter().any(is_made), "{audit}");
}
