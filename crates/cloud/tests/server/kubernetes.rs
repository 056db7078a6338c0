//! A real kube-apiserver that trusts the issuer: whom it believes, and whom not.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use reqwest::{Certificate, Client, StatusCode};
use serde_json::{Value, json};
use tidewaiter_cloud::models::values::{ClusterId, UserId};
use tidewaiter_cloud::server::keys::hash::Password;
use tidewaiter_cloud::server::keys::signing::KeyRing;
use tidewaiter_cloud::server::keys::token::{Claims, TokenUse, Tokens};
use tidewaiter_cloud::server::store::{Retention, StorageLimits};
use tidewaiter_cloud::server::{
    CertificateSource, InitOptions, LimitSettings, ServerParts, SignInSettings, TokenLifetimes, TrustedProxies,
    create_organization, make_keys, start,
};
use tidewaiter_kit::{Kit, SystemClock, Tasks};
use tidewaiter_testkit::{ControlPlane, Identity, eventually, free_port, issuer};
use tokio_util::sync::CancellationToken;

use crate::stream::SOON;
use crate::world::PASSWORD;

/// The lifetime of the tokens for the kube-apiserver here: long enough for the requests with one.
const LIFE: SignedDuration = SignedDuration::from_secs(45);

/// A cloud on HTTPS, whose signing keys were rotated once: the second one signs.
struct Cloud {
    base: String,
    issuer: String,
    http: Client,
    organization: String,
    /// The tokens that the first key signs.
    before: Tokens,
    ca: String,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Cloud {
    /// The URL of the issuer has this path.
    async fn start(path: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let ca = issuer::certificate(folder.path());
        let clock = SystemClock::shared();
        let address: SocketAddr = ([127, 0, 0, 1], free_port()).into();
        let base = format!("https://{address}");
        let hours_ago = |hours| clock.now() - SignedDuration::from_hours(hours);
        let issuer = format!("{base}{path}");
        let before = Tokens::new(
            issuer.trim_end_matches('/'),
            KeyRing::create(&at("keys"), hours_ago(9)).unwrap(),
        );
        KeyRing::rotate(&at("keys"), hours_ago(5)).unwrap();
        make_keys(&at("keys"), &at("sealing"), &clock).unwrap();
        let database: url::Url = format!("sqlite://{}", at("cloud.db").display()).parse().unwrap();
        let founder = InitOptions {
            organization: "Acme",
            name: "Olivia",
            email: "olivia@example.org",
            password: Password::new(PASSWORD).unwrap(),
        };
        let begun = create_organization(&database, clock.clone(), founder).await.unwrap();
        let kit = Kit::new(clock).unwrap();
        let parts = ServerParts {
            database,
            address,
            tls: Some((at("tls.crt"), at("tls.key"))),
            certificate: CertificateSource::default(),
            proxy_protocol: false,
            issuer: issuer.parse().unwrap(),
            keys: at("keys"),
            sealing: at("sealing"),
            script_keys: Vec::new(),
            limits: LimitSettings {
                requests_a_second: NonZeroU32::new(1_000).unwrap(),
                requests_at_once: 64,
                streams: 64,
                proxies: TrustedProxies::default(),
            },
            connections: 64,
            quotas: BTreeMap::new(),
            audit: Retention::default(),
            storage: StorageLimits::default(),
            sign_in: SignInSettings::default(),
            lives: TokenLifetimes {
                kubernetes: LIFE,
                ..TokenLifetimes::default()
            },
        };
        let mut tasks = Tasks::new(SystemClock::shared());
        start(parts, &mut tasks, &kit).await.unwrap();
        let stop = tasks.shutdown_token();
        crate::world::beside(async move { tasks.run_until(std::future::pending()).await.unwrap() });
        let authority = Certificate::from_pem(ca.as_bytes()).unwrap();
        let http = Client::builder()
            .no_proxy()
            .tls_certs_only([authority])
            .build()
            .unwrap();
        Self {
            base,
            issuer: issuer.trim_end_matches('/').to_owned(),
            http,
            organization: begun.organization.to_string(),
            before,
            ca,
            stop,
            _folder: folder,
        }
    }

    async fn post(&self, token: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let path = path.replace('~', &format!("/v3/organizations/{}", self.organization));
        let request = self.http.post(format!("{}{path}", self.base)).json(&body);
        let request = if token.is_empty() {
            request
        } else {
            request.bearer_auth(token)
        };
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    async fn log_in(&self, email: &str) -> String {
        let (_, answer) = self
            .post("", "/v3/login/password", json!({"email": email, "password": PASSWORD}))
            .await;
        answer["token"].as_str().unwrap().to_owned()
    }

    /// The file by which a kube-apiserver trusts the tokens for `cluster`.
    fn authentication(&self, folder: &Path, cluster: &str) -> std::path::PathBuf {
        let configuration = issuer::authentication(&self.issuer, &self.ca, cluster);
        let path = folder.join("authentication.json");
        serde_json::to_writer(fs::File::create(&path).unwrap(), &configuration).unwrap();
        path
    }
}

/// A kube-apiserver as `token`'s holder sees it.
struct Asks<'a> {
    plane: &'a ControlPlane,
    http: Client,
}

impl Asks<'_> {
    async fn get(&self, token: &str, path: &str) -> u16 {
        let request = self.http.get(format!("{}{path}", self.plane.url())).bearer_auth(token);
        request.send().await.unwrap().status().as_u16()
    }
}

const PODS: &str = "/api/v1/namespaces/dev/pods";

#[tokio::test]
async fn it_believes_what_is_for_it_and_nothing_else() {
    let cloud = Cloud::start("").await;
    let owner = cloud.log_in("olivia@example.org").await;
    let id = |answer: (StatusCode, Value)| {
        assert_eq!(answer.0, 201, "{answer:?}");
        answer.1["id"].as_str().unwrap().to_owned()
    };
    let alice = json!({"name": "Alice", "email": "alice@example.org", "password": PASSWORD});
    let alice = id(cloud.post(&owner, "~/users", alice).await);
    let team = json!({"name": "Developers", "user_ids": [alice]});
    let team = id(cloud.post(&owner, "~/teams", team).await);
    let cluster = id(cloud.post(&owner, "~/clusters", json!({"name": "prod"})).await);
    let other = id(cloud.post(&owner, "~/clusters", json!({"name": "other"})).await);

    let folder = tempfile::tempdir().unwrap();
    let plane = ControlPlane::builder()
        .with_authentication(cloud.authentication(folder.path(), &cluster))
        .start()
        .await;
    grant(&plane, &alice, &team).await;
    let http = Client::builder()
        .no_proxy()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    let asks = Asks { plane: &plane, http };

    let session = cloud.log_in("alice@example.org").await;
    let granted = async || {
        let (_, answer) = cloud
            .post(&session, &format!("~/clusters/{cluster}/token"), json!({}))
            .await;
        let expires: Timestamp = answer["expires_at"].as_str().unwrap().parse().unwrap();
        (answer["token"].as_str().unwrap().to_owned(), expires)
    };
    // One token may expire before the API server has read the keys.
    let (token, expires) = eventually("the issuer's keys are known", SOON, async || {
        let (token, expires) = granted().await;
        match asks.get(&token, PODS).await {
            200 => Ok((token, expires)),
            other => Err(other),
        }
    })
    .await;
    // By her team she may see one ConfigMap's namespace, by herself pods in dev, and nothing else.
    assert_eq!(asks.get(&token, "/api/v1/namespaces/dev/configmaps").await, 200);
    for path in [
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/dev/secrets",
        "/api/v1/nodes",
    ] {
        assert_eq!(asks.get(&token, path).await, 403, "{path}");
    }

    // A key that does not sign any more still verifies.
    let of_alice = |cluster: &str| TokenUse::Kubernetes {
        user: alice.parse::<UserId>().unwrap(),
        cluster: cluster.parse::<ClusterId>().unwrap(),
        teams: Vec::new(),
    };
    let now = Timestamp::from_second(expires.as_second() - LIFE.as_secs()).unwrap();
    let older = cloud
        .before
        .sign(&Claims::new(of_alice(&cluster), now, SignedDuration::from_mins(5)))
        .unwrap();
    assert_eq!(asks.get(&older, PODS).await, 200);

    // Another cluster's, one for the cloud itself, one that nobody signed, one that was changed, one of a stranger's
    // key.
    let (_, elsewhere) = cloud
        .post(&session, &format!("~/clusters/{other}/token"), json!({}))
        .await;
    let [header, claims, signature] = token.split('.').collect::<Vec<_>>()[..] else {
        panic!("{token}")
    };
    let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none", "typ": "JWT"}).to_string());
    let mut changed: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    changed["groups"] = json!(["system:masters"]);
    let changed = URL_SAFE_NO_PAD.encode(changed.to_string());
    let strangers = KeyRing::create(&folder.path().join("keys"), now - SignedDuration::from_hours(9)).unwrap();
    let strangers = Tokens::new(cloud.base.clone(), strangers);
    for (what, wrong) in [
        ("another cluster's", elsewhere["token"].as_str().unwrap().to_owned()),
        ("the cloud's", session.clone()),
        ("alg none", format!("{none}.{claims}.")),
        ("changed", format!("{header}.{changed}.{signature}")),
        (
            "a stranger's",
            strangers.sign(&Claims::new(of_alice(&cluster), now, LIFE)).unwrap(),
        ),
    ] {
        assert_eq!(asks.get(&wrong, PODS).await, 401, "{what}");
    }
    // The cloud in turn takes none that is for a kube-apiserver.
    assert_eq!(
        cloud
            .post(&token, &format!("~/clusters/{cluster}/token"), json!({}))
            .await
            .0,
        401
    );

    // A user who is gone gets no other token, and the last one ends.
    let gone = cloud.http.delete(format!(
        "{}/v3/organizations/{}/users/{alice}",
        cloud.base, cloud.organization
    ));
    assert_eq!(gone.bearer_auth(&owner).send().await.unwrap().status(), 204);
    assert_eq!(
        cloud
            .post(&session, &format!("~/clusters/{cluster}/token"), json!({}))
            .await
            .0,
        401
    );
    eventually("the token has expired", 2 * SOON, async || {
        match asks.get(&token, PODS).await {
            401 => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

/// An API server looks for the documents below the path, and compares the issuer as a text.
#[tokio::test]
async fn it_believes_an_issuer_whose_url_has_a_path() {
    let cloud = Cloud::start("/team/:a/v3/*b/").await;
    let owner = cloud.log_in("olivia@example.org").await;
    let (made, cluster) = cloud.post(&owner, "~/clusters", json!({"name": "prod"})).await;
    assert_eq!(made, 201, "{cluster}");
    let cluster = cluster["id"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let plane = ControlPlane::builder()
        .with_authentication(cloud.authentication(folder.path(), cluster))
        .start()
        .await;
    let http = Client::builder()
        .no_proxy()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    let asks = Asks { plane: &plane, http };
    eventually("the issuer's keys are known", SOON, async || {
        let (_, answer) = cloud
            .post(&owner, &format!("~/clusters/{cluster}/token"), json!({}))
            .await;
        // Known, and without a role.
        match asks.get(answer["token"].as_str().unwrap(), PODS).await {
            403 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    assert_eq!(asks.get(&owner, PODS).await, 401);
    let get = async |path: &str| {
        let answer = cloud.http.get(format!("{}{path}", cloud.base)).send().await.unwrap();
        answer.status().as_u16()
    };
    // Behind a proxy that takes the path off, they are at the root.
    assert_eq!(get("/.well-known/openid-configuration").await, 200);
    assert_eq!(get("/team/.well-known/openid-configuration").await, 404);
}

/// Creates by hand the roles and bindings that the coordinator will create.
async fn grant(plane: &ControlPlane, alice: &str, team: &str) {
    use k8s_openapi::api::core::v1::Namespace;
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    use kube::api::{Api, PostParams};

    let client = plane.client(&Identity::Admin);
    let make = PostParams::default();
    let dev = serde_json::from_value(json!({"metadata": {"name": "dev"}})).unwrap();
    Api::<Namespace>::all(client.clone()).create(&make, &dev).await.unwrap();
    let user = format!("containership.io/user_id#{alice}");
    let group = format!("containership.io/team_id#{team}");
    for (name, resource, kind, subject) in [("pods", "pods", "User", user), ("maps", "configmaps", "Group", group)] {
        let role = json!({
            "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]}],
        });
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
        });
        let roles = Api::<Role>::namespaced(client.clone(), "dev");
        roles
            .create(&make, &serde_json::from_value(role).unwrap())
            .await
            .unwrap();
        let bindings = Api::<RoleBinding>::namespaced(client.clone(), "dev");
        bindings
            .create(&make, &serde_json::from_value(binding).unwrap())
            .await
            .unwrap();
    }
}
