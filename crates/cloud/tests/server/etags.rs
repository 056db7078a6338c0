//! Entity tags: they change exactly when the answer does, and a condition that does not hold stops a change.

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::server::http::endpoint::Output;
use tidewaiter_cloud::server::routes::ENDPOINTS;

use crate::fixture::Fixture;
use crate::requests::conditional;
use crate::stream::{Listening, kinds};
use crate::world::{World, on_both};

on_both!(an_etag_changes_exactly_when_the_answer_does);

/// A change of an item of this kind.
fn edit(kind: Kind) -> Value {
    match kind {
        Kind::Team | Kind::Registry | Kind::Provider | Kind::Plugin | Kind::Upgrade | Kind::Role => {
            json!({"description": "edited"})
        }
        Kind::ClusterLabel | Kind::NodePoolLabel => json!({"value": "edited"}),
        Kind::NodePool => json!({"count": 7}),
        Kind::AutoscalingPolicy => json!({"poll_interval": 30}),
        Kind::RoleBinding => json!({"namespace": "edited"}),
        _ => json!({"name": "edited"}),
    }
}

async fn an_etag_changes_exactly_when_the_answer_does(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let cluster = fixture.near("/clusters/{cluster_id}");
    let mut items = Vec::new();
    for endpoint in ENDPOINTS.iter() {
        let list = endpoint.path.rsplit_once('/').unwrap().0;
        let kind = match endpoint.answers {
            Output::One(user) if user.name == "User" => Some(Kind::User),
            Output::One(_) => endpoint.kind,
            _ => None,
        };
        if let (Some(kind), &Method::GET) = (kind, &endpoint.method) {
            items.push((kind, fixture.near.path(&endpoint.path), fixture.near.path(list)));
        }
    }
    assert_eq!(items.len(), Kind::resources().count());
    for (kind, path, list) in &items {
        let seen = world.get(owner, path).await.is(200);
        let etag = seen.header("etag");
        assert!(etag.starts_with('"') && etag.len() > 10, "{etag}");
        let lists = *kind != Kind::Organization;
        let listed = if lists {
            world.get(owner, list).await.is(200).header("etag")
        } else {
            String::new()
        };
        for known in [&*etag, "*", &format!("W/{etag}"), &format!("\"other\", {etag}")] {
            let same = conditional(world, owner, Method::GET, path, ("if-none-match", known), &Value::Null)
                .await
                .is(304);
            assert_eq!((same.header("etag"), &*same.body), (etag.clone(), ""));
        }
        let audit = world.changes(owner, &fixture.near("/audit?limit=1000")).await;
        let mut listening = Listening::to(world, owner, &cluster, None).await;
        listening.heard().await;
        // What was read is sent back as it is: nothing happens.
        let again = conditional(world, owner, Method::PUT, path, ("if-match", &etag), &seen.json())
            .await
            .is(200);
        assert_eq!(
            (again.json(), again.header("etag")),
            (seen.json(), etag.clone()),
            "{path}"
        );
        let again = conditional(world, owner, Method::PATCH, path, ("if-match", &etag), &json!({}))
            .await
            .is(200);
        assert_eq!(again.header("etag"), etag);
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            for other in ["\"other\"", &format!("W/{etag}")] {
                let refused = conditional(world, owner, method.clone(), path, ("if-match", other), &edit(*kind)).await;
                assert_eq!(refused.is(412).json()["code"], 412);
            }
        }
        assert_eq!(
            world.changes(owner, &fixture.near("/audit?limit=1000")).await,
            audit,
            "{path}"
        );
        assert_eq!(world.get(owner, path).await.is(200).header("etag"), etag);
        let edited = conditional(world, owner, Method::PATCH, path, ("if-match", &etag), &edit(*kind))
            .await
            .is(200);
        let after = world.get(owner, path).await.is(200);
        assert_eq!(
            (edited.json(), edited.header("etag")),
            (after.json(), after.header("etag")),
            "{path}"
        );
        assert_ne!(after.header("etag"), etag);
        for (field, value) in edit(*kind).as_object().unwrap() {
            assert_eq!(after.json()[field], *value, "{path}");
        }
        if lists {
            assert_ne!(world.get(owner, list).await.is(200).header("etag"), listed, "{list}");
        }
        assert_ne!(world.changes(owner, &fixture.near("/audit?limit=1000")).await, audit);
        conditional(world, owner, Method::PATCH, path, ("if-match", &etag), &edit(*kind))
            .await
            .is(412);
        // The first that is heard is the edit.
        if kind.facts().event.is_some() {
            assert_eq!(kinds(&listening.heard().await).len(), 1, "{path}");
        }
        // The server's own fields may be sent, and not changed.
        let mut whole = after.json();
        let (first, _) = whole
            .as_object()
            .unwrap()
            .iter()
            .find(|(field, _)| *field == "id")
            .unwrap();
        let first = first.clone();
        whole[&first] = json!("9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e");
        for (method, body) in [
            (Method::PUT, whole.clone()),
            (Method::PATCH, json!({ &*first: whole[&first] })),
        ] {
            let refused = world.send(world.request(owner, method, path).json(&body)).await.is(422);
            assert_eq!(refused.json()["field"], *first, "{path}");
        }
    }
    // Credentials that were never shown are still there.
    let audit = world.get(owner, &fixture.near("/audit?limit=1000")).await.is(200).body;
    assert!(!audit.contains("hunter2"), "{audit}");
    for (kind, path, _) in items
        .iter()
        .rev()
        .filter(|(kind, ..)| !matches!(kind, Kind::Organization | Kind::Role | Kind::Provider))
    {
        let seen = world.get(owner, path).await;
        // A binding goes with its user or its cluster, and a cluster with all that is in it.
        if seen.status == 200 {
            let gone = conditional(
                world,
                owner,
                Method::DELETE,
                path,
                ("if-match", &seen.header("etag")),
                &Value::Null,
            )
            .await;
            assert_eq!(gone.is(204).body, "", "{kind:?}");
        }
        world.get(owner, path).await.is(404);
    }
}
