//! The server conforms to its own description: the examples of its own description are sent, and every answer is held
//! against the schema, the status and the headers that stand there.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World};

/// A server and its description.
struct Witness {
    world: World,
    token: String,
    document: Value,
}

impl Witness {
    async fn new() -> Self {
        let world = World::sqlite().await;
        let token = world.owner().await;
        let document = world.get("", "/openapi.json").await.is(200).json();
        Self { world, token, document }
    }

    /// The operation that a path is one of: a word of its own goes before a parameter.
    fn operation(&self, method: &Method, path: &str) -> &Value {
        let path = path.replacen('~', &format!("/v3/organizations/{}", self.world.organization), 1);
        let words: Vec<&str> = path.split(['/', '?']).filter(|word| !word.contains('=')).collect();
        let fits = |template: &str| {
            let template: Vec<&str> = template.split('/').collect();
            let same = |(wanted, word): (&&str, &&str)| wanted == word || wanted.starts_with('{');
            template.len() == words.len() && template.iter().zip(&words).all(same)
        };
        let paths = self.document["paths"].as_object().unwrap();
        let fitting = paths.iter().filter(|(template, _)| fits(template));
        let (_, methods) = fitting
            .min_by_key(|(template, _)| template.matches('{').count())
            .unwrap();
        &methods[method.as_str().to_lowercase()]
    }

    fn followed<'a>(&'a self, value: &'a Value) -> &'a Value {
        let place = value["$ref"].as_str().map(|place| place.trim_start_matches('#'));
        place.map_or(value, |place| self.document.pointer(place).unwrap())
    }

    fn assert_described(&self, method: &Method, path: &str, answer: &Answer) {
        let status = answer.status.as_str();
        let told = format!("{method} {path}: {answer:?}");
        let response = &self.operation(method, path)["responses"][status];
        assert!(response.is_object(), "this status is not described: {told}");
        let response = self.followed(response);
        // Whether there is a next part or an earlier answer depends.
        for header in response["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
        {
            let may_lack = ["Link", "Idempotency-Replayed"].contains(&header.as_str());
            assert!(may_lack || !answer.header(header).is_empty(), "no {header}: {told}");
        }
        let Some(content) = response["content"].as_object() else {
            assert_eq!(answer.body, "", "{told}");
            return;
        };
        let media_type = answer.header("content-type");
        let essence = media_type.split(';').next().unwrap();
        let content = content.iter().find(|(name, _)| name.split(';').next() == Some(essence));
        let (_, content) = content.unwrap_or_else(|| panic!("another type: {told}"));
        if essence == "application/json" {
            let mut schema = content["schema"].clone();
            schema["components"] = self.document["components"].clone();
            let options = jsonschema::draft202012::options().should_validate_formats(true);
            let errors = options
                .build(&schema)
                .unwrap()
                .iter_errors(&answer.json())
                .map(|error| error.to_string())
                .collect::<Vec<_>>();
            assert!(errors.is_empty(), "{errors:?}: {told}");
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let mut request = self.world.request(&self.token, method.clone(), path);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = self.world.send(request).await;
        self.assert_described(&method, path, &answer);
        answer
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, None).await.is(200)
    }

    /// Sends the example of the description, with these fields in place of its own.
    async fn send_example(&self, method: Method, path: &str, fields: Value) -> Answer {
        let content = &self.operation(&method, path)["requestBody"]["content"]["application/json"];
        let mut body = content["example"].clone();
        json_patch::merge(&mut body, &fields);
        self.ask(method, path, Some(body)).await
    }

    /// Makes one, lists it, gets it, sends it back as it is and as the example of a change, and gives its path.
    async fn round(&self, list: &str, fields: Value) -> String {
        let made = self.send_example(Method::POST, list, fields.clone()).await.is(201);
        let path = made
            .header("location")
            .replacen(&format!("/v3/organizations/{}", self.world.organization), "~", 1);
        self.get(list).await;
        let shown = self.get(&path).await.json();
        let mut sent = shown.clone();
        for once in ["api_key", "manifests", "jobs"] {
            sent.as_object_mut().unwrap().remove(once);
        }
        let same = self.ask(Method::PUT, &path, Some(sent)).await.is(200).json();
        assert_eq!(same["id"], shown["id"]);
        self.send_example(Method::PUT, &path, fields.clone()).await.is(200);
        self.send_example(Method::PATCH, &path, fields).await.is(200);
        path
    }
}

#[tokio::test]
async fn every_kind_is_taken_and_answered_as_described() {
    let mut witness = Witness::new().await;
    let owner = witness.world.owner.clone();
    let team = witness.round("~/teams", json!({"user_ids": [owner]})).await;
    witness.round("~/registries", json!({})).await;
    witness.round("~/providers", json!({})).await;
    let role = witness.round("~/roles", json!({})).await;
    let role = role.rsplit('/').next().unwrap();
    witness
        .round(
            "~/role-bindings",
            json!({"user_id": owner, "authorization_role_id": role, "cluster_id": null}),
        )
        .await;
    witness.round(&format!("~/users/{owner}/ssh_keys"), json!({})).await;
    let account = witness.round("~/service-accounts", json!({})).await;
    let tokens = format!("{account}/tokens");
    witness.send_example(Method::POST, &tokens, json!({})).await.is(201);
    witness.get(&tokens).await;

    let cluster = witness.round("~/clusters", json!({"provider_id": null})).await;
    witness.round(&format!("{cluster}/labels"), json!({})).await;
    witness.get(&format!("{cluster}/deletions")).await;
    witness
        .round(&format!("{cluster}/autoscaling-policies"), json!({}))
        .await;
    let upgrade = witness.round(&format!("{cluster}/upgrades"), json!({})).await;
    let pool = witness.round(&format!("{cluster}/node-pools"), json!({})).await;
    witness.round(&format!("{pool}/labels"), json!({})).await;
    let node = witness.round(&format!("{pool}/nodes"), json!({})).await;
    let node = node.rsplit('/').next().unwrap();

    for status in [&cluster, &pool, &format!("{cluster}/nodes/{node}"), &upgrade] {
        witness
            .send_example(Method::PUT, &format!("{status}/status"), json!({}))
            .await
            .is(200);
    }
    let keys = format!("{cluster}/api-keys");
    let key = witness.ask(Method::POST, &keys, None).await.is(201).field("api_key");
    let owner_token = std::mem::replace(&mut witness.token, key);
    witness
        .send_example(Method::PUT, &format!("{cluster}/report"), json!({}))
        .await
        .is(200);
    witness.token = owner_token;
    witness.get("~/reports").await;
    for path in ["report", "nodes", "roles", "api-keys", &format!("nodes/{node}")] {
        witness.get(&format!("{cluster}/{path}")).await;
    }
    witness
        .ask(Method::POST, &format!("{cluster}/token"), None)
        .await
        .is(200);
    witness.ask(Method::DELETE, &team, None).await.is(204);
    witness.ask(Method::GET, &team, None).await.is(404);
}

#[tokio::test]
async fn accounts_documents_and_refusals_are_as_described() {
    let witness = Witness::new().await;
    for path in [
        "/v3/account",
        "/v3/account/tokens",
        "/v3/account/access_tokens",
        "/v3/account/ssh_keys",
        "/v3/authenticate",
        "/v3/organizations",
        "~",
        "~/users",
        "~/audit",
        "/v3/operators",
        "/v3/operators/organizations",
        "~/templates",
        "/v3/plugins",
        "/openapi.json",
        "/docs",
        "/.well-known/openid-configuration",
        "/.well-known/jwks.json",
    ] {
        witness.get(path).await;
    }
    witness
        .send_example(Method::POST, "/v3/account/tokens", json!({}))
        .await
        .is(201);
    let made = witness
        .send_example(
            Method::POST,
            "~/users",
            json!({"email": "bob@example.org", "expires_at": null}),
        )
        .await
        .is(201);
    let user = format!("~/users/{}", made.field("id"));
    witness.get(&user).await;
    witness
        .send_example(
            Method::PATCH,
            &user,
            json!({"email": "bob@example.org", "expires_at": null}),
        )
        .await
        .is(200);
    witness
        .send_example(Method::PUT, &format!("{user}/role"), json!({}))
        .await
        .is(200);
    witness
        .send_example(Method::PUT, &format!("{user}/password"), json!({}))
        .await
        .is(204);
    let invited = json!({"email": "ivy@example.org", "team_ids": null, "expires_at": null});
    let invitation = witness.send_example(Method::POST, "~/invitations", invited).await;
    let invitation = format!("~/invitations/{}", invitation.is(201).field("id"));
    witness.get("~/invitations").await;
    for path in ["/v3/account/invitations", "/v3/invitations/accept"] {
        witness.send_example(Method::POST, path, json!({})).await.is(422);
    }
    witness.ask(Method::DELETE, &invitation, None).await.is(204);
    let operator = format!("/v3/operators/{}", made.field("id"));
    witness.ask(Method::PUT, &operator, None).await.is(200);
    witness.ask(Method::DELETE, &operator, None).await.is(204);
    witness.ask(Method::DELETE, &operator, None).await.is(404);
    witness
        .send_example(Method::PATCH, "/v3/account", json!({"email": "olivia@example.org"}))
        .await
        .is(200);
    witness
        .ask(Method::PATCH, "~", Some(json!({"names": "a"})))
        .await
        .is(422);
    witness
        .ask(Method::POST, "~/clusters", Some(json!({"template_id": "a"})))
        .await
        .is(501);
    witness.ask(Method::POST, "~/teams", Some(json!([]))).await;
    witness.ask(Method::GET, "~/teams?limit=0", None).await.is(400);
    let stranger = witness.world.get("", "/v3/account").await.is(401);
    witness.assert_described(&Method::GET, "/v3/account", &stranger);
}
