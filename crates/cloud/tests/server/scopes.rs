//! Tokens with a scope, and service accounts, at every endpoint: a token has what its scope names and nothing else, and
//! neither gives anybody access.

use std::collections::BTreeSet;

use reqwest::Client;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_cloud::server::http::endpoint::Permission;
use tidewaiter_cloud::server::routes::ENDPOINTS;
use uuid::Uuid;

use crate::access::ask;
use crate::fixture::Fixture;
use crate::world::{World, on_both};

on_both!(
    a_token_has_what_its_scope_names_and_nothing_else,
    no_program_gives_access,
    credentials_are_only_for_a_scope_that_names_them,
    a_token_with_a_scope_revokes_itself_and_is_no_operator,
    no_program_has_a_session_of_the_console,
    a_scope_that_is_unreadable_gives_nothing,
    a_scope_that_names_nothing_is_refused,
);

/// What any program may do with its own token; it may also revoke it.
const OWN: [&str; 2] = ["GET /v3/account", "GET /v3/authenticate"];

/// What no service account and no token with a scope may do, whatever the role. `~` is the organization.
const ACCESS: [&str; 53] = [
    "PUT /v3/account",
    "PATCH /v3/account",
    "PUT /v3/account/password",
    "POST /v3/account/ssh_keys",
    "DELETE /v3/account/ssh_keys/{id}",
    "POST /v3/account/tokens",
    "DELETE /v3/account/tokens/{id}",
    "POST /v3/account/access_tokens",
    "DELETE /v3/account/access_tokens/{id}",
    "POST /v3/account/login-grants",
    "PUT /v3/account/login-grants/device",
    "POST /v3/account/invitations",
    "POST /v3/account/security-keys/challenge",
    "POST /v3/account/security-keys",
    "DELETE /v3/account/security-keys/{id}",
    "POST /v3/account/recovery-codes",
    "POST /v3/organizations",
    "PUT ~/locked",
    "PUT /v3/operators/{user_id}",
    "DELETE /v3/operators/{user_id}",
    "POST ~/users",
    "PUT ~/users/{user_id}",
    "PATCH ~/users/{user_id}",
    "DELETE ~/users/{user_id}",
    "PUT ~/users/{user_id}/role",
    "PUT ~/users/{user_id}/password",
    "DELETE ~/users/{user_id}/tokens",
    "DELETE ~/users/{user_id}/second-factor",
    "GET ~/invitations",
    "POST ~/invitations",
    "DELETE ~/invitations/{id}",
    "POST ~/users/{user_id}/ssh_keys",
    "PUT ~/users/{user_id}/ssh_keys/{id}",
    "PATCH ~/users/{user_id}/ssh_keys/{id}",
    "DELETE ~/users/{user_id}/ssh_keys/{id}",
    "POST ~/service-accounts",
    "PUT ~/service-accounts/{id}",
    "PATCH ~/service-accounts/{id}",
    "DELETE ~/service-accounts/{id}",
    "POST ~/service-accounts/{service_account_id}/tokens",
    "DELETE ~/service-accounts/{service_account_id}/tokens/{id}",
    "POST ~/clusters/{cluster_id}/token",
    "POST ~/clusters/{cluster_id}/api-keys",
    "POST ~/teams",
    "PUT ~/teams/{id}",
    "PATCH ~/teams/{id}",
    "DELETE ~/teams/{id}",
    "POST ~/role-bindings",
    "PUT ~/role-bindings/{id}",
    "PATCH ~/role-bindings/{id}",
    "DELETE ~/role-bindings/{id}",
    "PUT /v3/plugins/{type}/implementations/{implementation}/versions/{version}",
    "DELETE /v3/plugins/{type}/implementations/{implementation}/versions/{version}",
];

fn set<'a>(endpoints: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    endpoints.into_iter().map(str::to_owned).collect()
}

/// The endpoints that need a token, and do not refuse this one.
async fn granted(fixture: &Fixture, token: &str) -> BTreeSet<String> {
    let mut place = fixture.near.clone();
    for kept in ["api-keys", "tokens", "access_tokens"] {
        place.set(kept, Uuid::nil());
    }
    let mut granted = BTreeSet::new();
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.may != Permission::Anyone) {
        let answer = ask(&fixture.world, token, endpoint, &place, &place.path(&endpoint.path)).await;
        assert!(answer.status != 401 && answer.status.as_u16() < 500, "{answer:?}");
        if answer.status != 403 {
            let path = endpoint.path.replacen("/v3/organizations/{organization_id}", "~", 1);
            granted.insert(format!("{} {path}", endpoint.method));
        }
    }
    granted
}

/// A token of the owner with this scope.
async fn scoped(fixture: &Fixture, scope: Value) -> String {
    let body = json!({"name": "ci", "expires_in_seconds": 3600, "scope": scope});
    let made = fixture
        .world
        .post(fixture.token("owner"), "/v3/account/tokens", body)
        .await
        .is(201);
    assert_eq!(made.json()["scope"], scope);
    made.field("token")
}

/// A token of a new service account with this role.
async fn account(fixture: &Fixture, role: &str) -> String {
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let accounts = fixture.near("/service-accounts");
    let made = world.post(owner, &accounts, json!({"name": role, "role": role})).await;
    let tokens = format!("{accounts}/{}/tokens", made.is(201).field("id"));
    let token = json!({"name": "ci", "expires_in_seconds": 3600});
    world.post(owner, &tokens, token).await.is(201).field("token")
}

async fn a_token_has_what_its_scope_names_and_nothing_else(world: World) {
    let fixture = Fixture::new(world).await;
    let registries = ["GET ~/registries", "GET ~/registries/{id}"];
    let token = scoped(&fixture, json!({"kinds": ["registries"], "verbs": ["read"]})).await;
    assert_eq!(granted(&fixture, &token).await, set(OWN.into_iter().chain(registries)));

    let clusters = [
        "GET ~/clusters",
        "POST ~/clusters",
        "GET ~/clusters/{cluster_id}",
        "PUT ~/clusters/{cluster_id}",
        "PATCH ~/clusters/{cluster_id}",
        "DELETE ~/clusters/{cluster_id}",
        "PUT ~/clusters/{cluster_id}/status",
    ];
    let token = scoped(&fixture, json!({"kinds": ["clusters"]})).await;
    assert_eq!(granted(&fixture, &token).await, set(OWN.into_iter().chain(clusters)));

    let cluster = fixture.near.of("cluster");
    let token = scoped(&fixture, json!({"clusters": [cluster], "verbs": ["read"]})).await;
    let is_script = |path: &str| path.ends_with("/upgrade/kubernetes") || path.ends_with("/script-templates/{target}");
    let reads = ENDPOINTS
        .iter()
        .map(|endpoint| format!("{} {}", endpoint.method, endpoint.path));
    let reads = reads.map(|endpoint| endpoint.replacen("/v3/organizations/{organization_id}", "~", 1));
    let inside: BTreeSet<String> = reads
        .filter(|endpoint| endpoint.starts_with("GET ~/clusters/{cluster_id}") && !is_script(endpoint))
        .collect();
    assert!(inside.len() > 20, "{inside:?}");
    assert_eq!(granted(&fixture, &token).await, &set(OWN) | &inside);
    let other = fixture.near(&format!("/clusters/{}", fixture.beside));
    let refused = fixture.world.get(&token, &other).await.is(403);
    assert!(refused.body.contains("scope"), "{refused:?}");
}

async fn no_program_gives_access(world: World) {
    let fixture = Fixture::new(world).await;
    let kinds = [
        "organizations",
        "users",
        "teams",
        "role-bindings",
        "ssh-keys",
        "service-accounts",
        "clusters",
    ];
    let kinds = json!({ "kinds": kinds });
    let verbs = json!({"verbs": ["read", "write"]});
    let (named, whole) = (scoped(&fixture, kinds).await, scoped(&fixture, verbs).await);
    let (admin, reader) = (account(&fixture, "admin").await, account(&fixture, "read_only").await);
    let access = set(ACCESS);
    // A new cluster has an API key.
    for (token, clusters, roles, writes) in [
        (&named, true, false, true),
        (&whole, false, true, true),
        (&admin, false, true, true),
        (&reader, false, false, false),
    ] {
        let found = granted(&fixture, token).await;
        assert_eq!(&found & &access, BTreeSet::new());
        assert!(found.contains("GET ~/users"), "{found:?}");
        let has = |endpoint: &str| found.contains(endpoint);
        assert_eq!(has("POST ~/clusters"), clusters, "{found:?}");
        assert_eq!(has("POST ~/roles"), roles, "{found:?}");
        let is_write = |endpoint: &String| !endpoint.starts_with("GET ");
        assert_eq!(found.iter().any(is_write), writes, "{found:?}");
    }
}

async fn credentials_are_only_for_a_scope_that_names_them(world: World) {
    let fixture = Fixture::new(world).await;
    let registry = fixture
        .near("/registries/{id}")
        .replace("{id}", fixture.near.of("registries"));
    let list = fixture.near("/registries");
    for (scope, shows) in [
        (json!({"verbs": ["read"]}), false),
        (json!({"kinds": ["registries"]}), true),
    ] {
        let token = scoped(&fixture, scope).await;
        let one = fixture.world.get(&token, &registry).await.is(200).json();
        let all = fixture.world.get(&token, &list).await.is(200).json();
        for shown in [&one, &all[0]] {
            let credentials = shown["credentials"].as_object().unwrap();
            assert_eq!(!credentials.is_empty(), shows, "{shown}");
        }
    }
}

async fn a_token_with_a_scope_revokes_itself_and_is_no_operator(world: World) {
    let olivia = world.owner().await;
    let body = json!({"name": "ci", "expires_in_seconds": 3600, "scope": {"verbs": ["read", "write"]}});
    let made = world.post(&olivia, "/v3/account/tokens", body).await.is(201);
    let token = made.field("token");
    world.get(&olivia, "/v3/operators").await.is(200);
    world.get(&token, "/v3/operators").await.is(403);
    world.get(&token, "/v3/account/tokens").await.is(200);
    let own = format!("/v3/account/tokens/{}", made.field("id"));
    world.delete(&token, &own).await.is(403);
    world.delete(&token, "/v3/account/tokens/current").await.is(204);
    world.get(&token, "/v3/account").await.is(401);
}

async fn no_program_has_a_session_of_the_console(world: World) {
    let fixture = Fixture::new(world).await;
    let page = fixture
        .near
        .path("/organizations/{organization_id}/clusters/{cluster_id}");
    let url = format!("{}{page}", fixture.world.base);
    let opened = async |token: &str| {
        let request = Client::new()
            .get(&url)
            .header("cookie", format!("__Host-session={token}"));
        fixture.world.send(request).await
    };
    opened(fixture.token("owner")).await.is(200);
    let reader = scoped(&fixture, json!({"verbs": ["read", "write"]})).await;
    for token in [reader, account(&fixture, "admin").await] {
        opened(&token).await.is(403);
    }
}

/// As a newer version may have written it.
async fn a_scope_that_is_unreadable_gives_nothing(world: World) {
    let olivia = world.owner().await;
    let create = async |scope: Value| {
        let body = json!({"name": "ci", "expires_in_seconds": 3600, "scope": scope});
        let made = world.post(&olivia, "/v3/account/tokens", body).await;
        made.is(201).field("token")
    };
    let (newer, own) = (
        create(json!({"verbs": ["read"]})).await,
        create(json!({"kinds": ["teams"]})).await,
    );
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let change = "UPDATE objects SET spec = REPLACE(spec, '\"verbs\"', '\"moods\"') WHERE kind = 'tokens'";
    sqlx::query(change).execute(&mut database).await.unwrap();
    world.get(&newer, "/v3/account").await.is(401);
    world.get(&own, "/v3/account").await.is(200);
}

async fn a_scope_that_names_nothing_is_refused(world: World) {
    let olivia = world.owner().await;
    for (scope, field) in [
        (json!({}), "scope.kinds"),
        (json!({"kinds": []}), "scope.kinds"),
        (json!({"kinds": ["registry"]}), "scope.kinds[0]"),
        (json!({"clusters": ["prod"]}), "scope.clusters[0]"),
        (json!({"verbs": ["read", "read"]}), "scope.verbs[1]"),
        (json!({"verb": ["read"]}), "scope.verb"),
        (json!("read"), "scope"),
    ] {
        let body = json!({"name": "ci", "expires_in_seconds": 3600, "scope": scope});
        let refused = world.post(&olivia, "/v3/account/tokens", body).await.is(422);
        assert_eq!(refused.json()["field"], field, "{refused:?}");
    }
}
