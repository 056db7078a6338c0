//! A provider of OpenID Connect that sends whatever a test wants: forged tokens, nothing, or too much.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use parking_lot::Mutex;
use rcgen::KeyPair;
use serde_json::{Value, json};
use tidewaiter_kit::{Clock as _, SystemClock};
use tokio::net::TcpListener;
use url::Url;
use uuid::Uuid;

use crate::world::beside;

pub const CLIENT: &str = "tidewaiter";
pub const SECRET: &str = "not-a-real-secret";
const ACCESS_TOKEN: &str = "an access token";

/// How an ID token is signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signed {
    #[default]
    Well,
    /// `alg` is none.
    Not,
    /// With HS256, and the public key as the secret.
    WithPublicKey,
    /// With HS256, and the secret of the client.
    WithClientSecret,
    /// With a key that the provider does not publish, under the id of its own.
    WithOtherKey,
}

/// How a provider answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Well,
    /// The answer never comes.
    Silent,
    /// The answer has no end.
    Huge,
    /// The answer is a redirect.
    Redirects,
}

/// What a provider does.
#[derive(Clone, Debug, Default)]
pub struct Conduct {
    /// Claims in place of the right ones; `null` leaves one out.
    pub claims: Value,
    pub signed: Signed,
    pub document: Mood,
    pub token: Mood,
}

struct Shared {
    issuer: String,
    key: Mutex<(String, KeyPair)>,
    conduct: Mutex<Conduct>,
    /// The nonce and the challenge of each code. A code is accepted again: the client must not rely on the provider.
    codes: Mutex<HashMap<String, (String, String)>>,
    /// The number of times that the keys were read.
    reads: Mutex<usize>,
}

/// A provider that runs until the test ends.
#[derive(Clone)]
pub struct FakeProvider(Arc<Shared>);

fn new_key() -> (String, KeyPair) {
    (Uuid::new_v4().to_string(), KeyPair::generate().unwrap())
}

fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

impl FakeProvider {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let provider = Self(Arc::new(Shared {
            issuer: format!("http://{}", listener.local_addr().unwrap()),
            key: Mutex::new(new_key()),
            conduct: Mutex::default(),
            codes: Mutex::default(),
            reads: Mutex::default(),
        }));
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(document))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .with_state(provider.clone());
        beside(async move { axum::serve(listener, router).await.unwrap() });
        provider
    }

    pub fn issuer(&self) -> &str {
        &self.0.issuer
    }

    pub fn set(&self, conduct: Conduct) {
        *self.0.conduct.lock() = conduct;
    }

    /// Sets the claims of the next tokens that differ from the right ones.
    pub fn set_claims(&self, claims: Value) {
        self.set(Conduct {
            claims,
            ..Conduct::default()
        });
    }

    /// Replaces the key that signs.
    pub fn rotate(&self) {
        *self.0.key.lock() = new_key();
    }

    pub fn reads(&self) -> usize {
        *self.0.reads.lock()
    }

    /// The person signs in with the request `url`: where the provider sends the browser back to.
    pub fn authorize(&self, url: &Url) -> Url {
        let query: HashMap<_, _> = url.query_pairs().into_owned().collect();
        assert_eq!(query["code_challenge_method"], "S256", "{url}");
        assert_eq!(query["client_id"], CLIENT, "{url}");
        let code = Uuid::new_v4().to_string();
        let grant = (query["nonce"].clone(), query["code_challenge"].clone());
        self.0.codes.lock().insert(code.clone(), grant);
        let mut back: Url = query["redirect_uri"].parse().unwrap();
        back.query_pairs_mut()
            .append_pair("code", &code)
            .append_pair("state", &query["state"])
            .append_pair("iss", self.issuer());
        back
    }

    fn id_token(&self, nonce: &str) -> String {
        let now = SystemClock.now().as_second();
        let at_hash = URL_SAFE_NO_PAD.encode(&digest(&SHA256, ACCESS_TOKEN.as_bytes()).as_ref()[..16]);
        let mut claims = json!({"iss": self.issuer(), "sub": "person-1", "aud": CLIENT, "exp": now + 300, "iat": now,
            "nonce": nonce, "at_hash": at_hash, "name": "Alice", "email": "alice@example.net", "email_verified": true});
        let conduct = self.0.conduct.lock().clone();
        if conduct.claims.is_object() {
            json_patch::merge(&mut claims, &conduct.claims);
        }
        let (id, key) = &*self.0.key.lock();
        let other = KeyPair::generate().unwrap();
        let (algorithm, secret) = match conduct.signed {
            Signed::Well => (Algorithm::ES256, of_pair(key)),
            Signed::WithOtherKey => (Algorithm::ES256, of_pair(&other)),
            Signed::WithPublicKey => (
                Algorithm::HS256,
                EncodingKey::from_secret(key.public_key_pem().as_bytes()),
            ),
            Signed::WithClientSecret => (Algorithm::HS256, EncodingKey::from_secret(SECRET.as_bytes())),
            Signed::Not => {
                let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
                return format!("{}.{}.", part(json!({"alg": "none", "typ": "JWT"})), part(claims));
            }
        };
        let mut header = Header::new(algorithm);
        header.kid = Some(id.clone());
        encode(&header, &claims, &secret).unwrap()
    }
}

fn of_pair(key: &KeyPair) -> EncodingKey {
    EncodingKey::from_ec_pem(key.serialize_pem().as_bytes()).unwrap()
}

/// `value`, or what the mood makes of it.
async fn answer(mood: Mood, value: Value) -> Response {
    match mood {
        Mood::Well => Json(value).into_response(),
        Mood::Silent => std::future::pending().await,
        Mood::Huge => Json(json!({"much": "a".repeat(4 * 1024 * 1024)})).into_response(),
        Mood::Redirects => axum::response::Redirect::temporary("/keys").into_response(),
    }
}

async fn document(State(provider): State<FakeProvider>) -> Response {
    let issuer = provider.issuer();
    let document = json!({"issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
        "authorization_response_iss_parameter_supported": true});
    let mood = provider.0.conduct.lock().document;
    answer(mood, document).await
}

async fn keys(State(provider): State<FakeProvider>) -> Json<Value> {
    *provider.0.reads.lock() += 1;
    let (id, key) = &*provider.0.key.lock();
    // An uncompressed point: 4, and both coordinates.
    let (x, y) = key.public_key_raw()[1..].split_at(32);
    let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
    Json(json!({"keys": [{"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": x, "y": y}]}))
}

async fn token(State(provider): State<FakeProvider>, body: String) -> Response {
    let form: HashMap<_, _> = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let grant = provider.0.codes.lock().get(&form["code"]).cloned();
    let Some((nonce, _)) = grant.filter(|(_, challenge)| hash(&form["code_verifier"]) == *challenge) else {
        let refused = json!({"error": "invalid_grant"});
        return (axum::http::StatusCode::BAD_REQUEST, Json(refused)).into_response();
    };
    let value = json!({"access_token": ACCESS_TOKEN, "token_type": "Bearer", "id_token": provider.id_token(&nonce)});
    let mood = provider.0.conduct.lock().token;
    answer(mood, value).await
}
