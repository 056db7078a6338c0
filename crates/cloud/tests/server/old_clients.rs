//! The clients of the original service, by their own types: what they read, and what they send.

use reqwest::Method;
use serde_json::{Value, json};

use crate::fixture::{Fixture, plugin_version, pool, provider, registry, role};
use crate::old_types::{
    AccessToken, AuthorizationRule, AutoscalingPolicy, CkeCluster, Label, Named, Node, NodePool, PluginDefinition,
    PluginSpec, PluginVersion, RegistrySpec, RoleBindingSpec, RoleSpec, UserSpec, decode, year,
};
use crate::requests::conditional;
use crate::world::{PASSWORD, World, on_both};

on_both!(
    the_command_line_logs_in_and_has_tokens_and_rules,
    the_command_line_shows_what_nobody_described_or_reported,
    every_time_that_the_command_line_shows_is_of_today,
    the_coordinator_gets_the_users_with_ssh_access_to_the_cluster,
    label_keys_are_whole_in_both_directions,
    a_percentage_is_a_number_whatever_was_sent,
    a_scaled_pool_has_limits_and_a_strategy,
    a_mirrored_rule_equals_the_one_that_is_read_next,
    types_in_the_catalogue_are_found_in_any_case,
    a_name_of_several_fields_is_told_whole,
    the_name_of_a_node_is_unique_in_its_cluster,
    an_upgrade_starts_at_a_time_that_go_reads,
);

const UPGRADE: &str = "/clusters/{cluster_id}/upgrades/{upgrade_id}/status";
const TOKENS: &str = "/v3/account/access_tokens";

/// The text at which an old client looks without a check.
#[track_caller]
fn followed<T>(pointer: Option<T>) -> T {
    pointer.expect("the old client follows a nil pointer and crashes")
}

async fn the_command_line_logs_in_and_has_tokens_and_rules(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let login = json!({"email": "olivia@example.org", "password": PASSWORD});
    let token = world.post("", "/v3/login/email", login).await.is(200).field("token");
    let wrong = json!({"email": "olivia@example.org", "password": "not this one at all"});
    world.post("", "/v3/login/email", wrong).await.is(401);

    let made = world.post(&token, TOKENS, json!({"name": "ci"})).await.is(201).body;
    let made: AccessToken = decode(&made);
    let shown: AccessToken = decode(
        &world
            .get(&made.token, &format!("{TOKENS}/{}", made.id))
            .await
            .is(200)
            .body,
    );
    let listed: Vec<AccessToken> = decode(&world.get(&made.token, TOKENS).await.is(200).body);
    for seen in listed.iter().filter(|seen| seen.id == made.id).chain([&shown]) {
        assert_eq!(
            (seen.name.as_deref(), &*seen.user_id, &*seen.token),
            (Some("ci"), &*world.owner, "")
        );
        assert!(year(seen.created_at.as_ref().unwrap()) >= 2024 && year(seen.updated_at.as_ref().unwrap()) >= 2024);
    }
    let of_another = fixture.token("owner");
    world.get(of_another, &format!("{TOKENS}/{}", made.id)).await.is(404);
    world.delete(of_another, &format!("{TOKENS}/{}", made.id)).await.is(404);
    world.delete(&token, &format!("{TOKENS}/{}", made.id)).await.is(204);
    world.get(&made.token, TOKENS).await.is(401);

    let rules = async |path: &str| -> Vec<AuthorizationRule> {
        decode(&world.get(of_another, &fixture.near(path)).await.is(200).body)
    };
    let all = rules("/rules").await;
    let of_role = rules("/roles/{id}/rules").await;
    assert!(!of_role.is_empty() && of_role.iter().all(|rule| all.contains(rule)));
    for rule in &all {
        let path = fixture.near("/rules/{id}").replace(fixture.near.of("rules"), &rule.id);
        assert_eq!(
            *rule,
            decode::<AuthorizationRule>(&world.get(of_another, &path).await.is(200).body)
        );
        assert!(rule.name.is_some() && rule.rule_type.is_some() && !rule.verbs.is_empty());
        assert!(year(rule.created_at.as_ref().unwrap()) >= 2024);
    }
    let [of_stranger, of_member] = ["stranger", "member"].map(|name| fixture.token(name));
    world.get(of_stranger, &fixture.near("/rules/{id}")).await.is(404);

    // One that is deleted is gone from its role, which a cluster hears of.
    let mut role = world.get(of_another, &fixture.near("/roles/{id}")).await.is(200).json();
    let pods = role["rules"][0].clone();
    let more = ["services", "nodes"].map(|resource| {
        let mut other = pods.clone();
        other["resources"] = json!([resource]);
        other
    });
    let changed = json!({"rules": [more[0], pods, more[1]]});
    world
        .patch(of_another, &fixture.near("/roles/{id}"), changed)
        .await
        .is(200);
    let path = async |place: usize| {
        format!(
            "{}/{}",
            fixture.near("/rules"),
            rules("/roles/{id}/rules").await[place].id
        )
    };
    let second = path(1).await;
    world.delete(of_member, &second).await.is(403);
    world.delete(of_stranger, &second).await.is(404);
    let unseen = ("if-match", "\"another\"");
    conditional(world, of_another, Method::DELETE, &second, unseen, &Value::Null)
        .await
        .is(412);
    world.delete(of_another, &second).await.is(204);
    world.delete(of_another, &second).await.is(404);
    role = world.get(of_another, &fixture.near("/roles/{id}")).await.is(200).json();
    let left: Vec<&Value> = role["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["resources"][0])
        .collect();
    assert_eq!(left, ["services", "nodes"]);
    let audit = world
        .get(of_another, &fixture.near("/audit?limit=1"))
        .await
        .is(200)
        .json();
    assert_eq!(audit[0]["object_id"], role["id"], "{audit}");
    for _ in 0..2 {
        world.delete(of_another, &path(0).await).await.is(204);
    }
    assert!(rules("/roles/{id}/rules").await.is_empty());
}

async fn the_command_line_shows_what_nobody_described_or_reported(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let get = async |rest: &str| world.get(owner, &fixture.near(rest)).await.is(200).body;
    let cluster: CkeCluster = decode(&get("/clusters/{cluster_id}").await);
    let clusters: Vec<CkeCluster> = decode(&get("/clusters").await);
    for cluster in clusters.into_iter().chain([cluster]) {
        let status = followed(cluster.status);
        assert_eq!(
            (&*followed(cluster.provider_name), &*followed(status.kind)),
            ("", "UNKNOWN")
        );
        assert_eq!(followed(status.percent).to_string(), "0");
        assert!(!cluster.owner_id.is_empty() && year(&followed(cluster.created_at)) >= 2024);
    }
    for pool in decode::<Vec<NodePool>>(&get("/clusters/{cluster_id}/node-pools").await) {
        let texts = [
            pool.name,
            pool.kubernetes_mode,
            pool.kubernetes_version,
            pool.docker_version,
            pool.etcd_version,
            pool.os,
        ];
        assert_eq!(texts.map(followed), ["workers", "worker", "1.30.1", "", "", ""]);
        assert_eq!(followed(followed(pool.status).kind), "UNKNOWN");
    }
    for node in decode::<Vec<Node>>(&get("/clusters/{cluster_id}/node-pools/{node_pool_id}/nodes").await) {
        assert_eq!(followed(followed(node.status).kind), "UNKNOWN");
        assert_eq!(followed(node.addresses).external_ip, "");
    }
    for policy in decode::<Vec<AutoscalingPolicy>>(&get("/clusters/{cluster_id}/autoscaling-policies").await) {
        followed(policy.metric_configuration);
        followed(policy.metric);
        assert_eq!(
            (followed(policy.poll_interval), followed(policy.sample_period)),
            (15, 600)
        );
    }
    // A version that says nothing of what it is compatible with.
    let version = "/v3/plugins/metrics/implementations/bare/versions/1.0.0";
    let operator = fixture.token("operator");
    let put = world.put(operator, version, json!({"version": "1.0.0"})).await.is(200);
    let got = world.get(owner, version).await.is(200);
    assert_eq!(put.json(), got.json());
    let listed: Vec<PluginDefinition> = decode(&world.get(owner, "/v3/plugins/metrics").await.is(200).body);
    assert_eq!(listed.len(), 2);
    let versions = listed.into_iter().flat_map(|definition| {
        followed(definition.implementation);
        definition.versions
    });
    for version in versions.chain([decode::<PluginVersion>(&got.body)]) {
        followed(version.version);
        let kubernetes = followed(followed(version.compatibility).kubernetes);
        assert_eq!(followed(kubernetes.min) + &followed(kubernetes.max), "");
    }
    // And it sends all of this back as it is.
    for path in [
        "/clusters/{cluster_id}",
        "/clusters/{cluster_id}/node-pools/{node_pool_id}",
    ] {
        let seen = world.get(owner, &fixture.near(path)).await.is(200);
        let again = world.put(owner, &fixture.near(path), seen.json()).await.is(200);
        assert_eq!(again.header("etag"), seen.header("etag"));
    }
}

async fn every_time_that_the_command_line_shows_is_of_today(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let get = async |path: String| world.get(owner, &path).await.is(200).body;
    let near = |rest: &str| fixture.near(rest);
    let mut times = Vec::new();
    for path in ["/v3/account".to_owned(), near("")] {
        let one: Named = decode(&get(path).await);
        followed(one.name);
        times.push(followed(one.created_at));
    }
    for path in [
        "/v3/organizations".to_owned(),
        near("/registries"),
        near("/providers"),
        near("/clusters"),
        near("/roles"),
        near("/role-bindings"),
        near("/clusters/{cluster_id}/plugins"),
        near("/users/{user_id}/ssh_keys"),
    ] {
        let all: Vec<Named> = decode(&get(path).await);
        times.extend(all.into_iter().map(|one| {
            assert!(!one.id.is_empty());
            followed(one.created_at)
        }));
    }
    let labels = [
        "/clusters/{cluster_id}/labels",
        "/clusters/{cluster_id}/node-pools/{node_pool_id}/labels",
    ];
    for path in labels {
        let all: Vec<Label> = decode(&get(near(path)).await);
        times.extend(all.into_iter().flat_map(|label| [label.created_at, label.updated_at]));
    }
    let nodes: Vec<Node> = decode(&get(near("/clusters/{cluster_id}/nodes")).await);
    times.extend(
        nodes
            .into_iter()
            .flat_map(|node| [followed(node.created_at), followed(node.updated_at)]),
    );
    let users: Vec<UserSpec> = decode(&get(near("/users")).await);
    times.extend(users.into_iter().map(|user| user.added_at));
    let registries: Vec<RegistrySpec> = decode(&get(near("/registries")).await);
    assert_eq!(registries[0].credentials["username"], "puller");
    times.extend(registries.into_iter().map(|registry| registry.added_at));
    let plugins: Vec<PluginSpec> = decode(&get(near("/clusters/{cluster_id}/plugins")).await);
    assert_eq!((&*plugins[0].plugin_type, &*plugins[0].version), ("metrics", "1.0.0"));
    times.extend(plugins.into_iter().map(|plugin| plugin.added_at));
    let bindings: Vec<RoleBindingSpec> = decode(&get(near("/role-bindings")).await);
    assert_eq!(
        (&*bindings[0].binding_type, &*bindings[0].user_id),
        ("UserBinding", fixture.near.of("user"))
    );
    times.extend(bindings.into_iter().map(|binding| binding.created_at));
    assert!(times.len() > 20, "{times:?}");
    assert!(times.iter().all(|time| year(time) >= 2024), "{times:?}");
    // A time that a client of ours sends in RFC 3339 is no other time.
    let label = near("/clusters/{cluster_id}/labels/{id}");
    let mut seen = world.get(owner, &label).await.is(200).json();
    seen["created_at"] = json!("1970-01-01T00:00:00Z");
    let refused = world.put(owner, &label, seen).await.is(422);
    assert_eq!(refused.json()["field"], "created_at");
}

async fn the_coordinator_gets_the_users_with_ssh_access_to_the_cluster(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    let path = fixture.near("/clusters/{cluster_id}/ssh-users");
    let seen = world.get(cluster, &path).await.is(200);
    let users: Vec<UserSpec> = decode(&seen.body);
    let names: Vec<&str> = users.iter().map(|user| &*user.name).collect();
    assert_eq!(
        names,
        ["Near-owner", "Alice", "admin", "member"],
        "all but those who may only read"
    );
    let [key] = &users[1].ssh_keys[..] else {
        panic!("{users:?}");
    };
    assert!(key.key.starts_with("ssh-ed25519 ") && key.fingerprint.starts_with("SHA256:") && key.name == "laptop");
    assert_eq!(users[1].id, fixture.near.of("user"));
    // Those of /users, and everybody of these who is there.
    let all: Vec<UserSpec> = decode(&world.get(cluster, &fixture.near("/users")).await.is(200).body);
    assert!(users.iter().all(|user| all.contains(user)) && all.len() == users.len() + 1);
    let etag = seen.header("etag");
    let known = ("if-none-match", &*etag);
    let same = conditional(world, cluster, reqwest::Method::GET, &path, known, &Value::Null);
    same.await.is(304);
    let part = world.get(cluster, &format!("{path}?limit=2")).await.is(200);
    assert_eq!(decode::<Vec<UserSpec>>(&part.body), users[..2]);
    assert!(part.header("link").contains("/ssh-users?limit=2&after="));
    // Who loses the role is gone at once.
    let role = fixture.near("/users/{user_id}/role");
    world.put(owner, &role, json!({"role": "read_only"})).await.is(200);
    let users: Vec<UserSpec> = decode(&world.get(cluster, &path).await.is(200).body);
    assert_eq!(users.len(), 3);
    // A cluster that is gone, and one of another organization, have no list, rather than an empty one.
    world.get(owner, &path).await.is(200);
    let elsewhere = path.replace(fixture.near.of("cluster"), fixture.far.of("cluster"));
    world.get(owner, &elsewhere).await.is(404);
    world
        .delete(owner, &fixture.near("/clusters/{cluster_id}"))
        .await
        .is(204);
    world.get(owner, &path).await.is(404);
}

async fn label_keys_are_whole_in_both_directions(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    for (list, prefix) in [
        ("/clusters/{cluster_id}/labels", "cluster.containership.io/"),
        (
            "/clusters/{cluster_id}/node-pools/{node_pool_id}/labels",
            "nodepool.containership.io/",
        ),
    ] {
        let path = fixture.near(list);
        let whole = format!("{prefix}tier");
        for wrong in ["tier", "example.com/tier", "containership.io/tier"] {
            let refused = world
                .post(owner, &path, json!({"key": wrong, "value": "gold"}))
                .await
                .is(422)
                .json();
            assert_eq!(refused["field"], "key");
            assert!(
                refused["message"].as_str().unwrap().contains(&format!("write {whole}")),
                "{refused}"
            );
        }
        // The command line reads no more of the answer than the id.
        let made: Label = decode(
            &world
                .post(owner, &path, json!({"key": whole, "value": "gold"}))
                .await
                .is(201)
                .body,
        );
        let listed: Vec<Label> = decode(&world.get(fixture.token("cluster"), &path).await.is(200).body);
        let found = listed.into_iter().find(|label| label.id == made.id).unwrap();
        assert_eq!(
            (followed(found.key), followed(found.value)),
            (whole.clone(), "gold".to_owned())
        );
        let item = format!("{path}/{}", made.id);
        world.patch(owner, &item, json!({"key": "bare"})).await.is(422);
        world.patch(owner, &item, json!({"value": "silver"})).await.is(200);
        world
            .post(owner, &path, json!({"key": whole, "value": ""}))
            .await
            .is(409);
    }
}

async fn a_percentage_is_a_number_whatever_was_sent(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    // As coordinators up to v5.0.0 sent it.
    let report = json!({"status": {"type": "RUNNING", "percent": "1"}});
    let (inside, node) = ("/clusters/{cluster_id}", "/clusters/{cluster_id}/nodes/{id}");
    let pool = "/clusters/{cluster_id}/node-pools/{node_pool_id}";
    for (put, shown) in [
        (
            "/clusters/{cluster_id}/nodes/{id}/status",
            vec![node, "/clusters/{cluster_id}/node-pools/{node_pool_id}/nodes/{id}"],
        ),
        ("/clusters/{cluster_id}/status", vec![inside]),
        ("/clusters/{cluster_id}/node-pools/{node_pool_id}/status", vec![pool]),
    ] {
        for (sent, percent) in [
            (report.clone(), 1.0),
            (json!({"status": {"type": "RUNNING", "percent": 50}}), 50.0),
        ] {
            let answer = world.put(cluster, &fixture.near(put), sent).await.is(200).body;
            let mut bodies = vec![answer];
            for path in &shown {
                bodies.push(world.get(owner, &fixture.near(path)).await.is(200).body);
            }
            for body in bodies {
                // The status is that of each of the three types.
                let status = followed(decode::<Node>(&body).status);
                assert_eq!(
                    (followed(status.percent).to_string(), &*followed(status.kind)),
                    (percent.to_string(), "RUNNING")
                );
            }
        }
    }
    for list in [
        "/clusters",
        "/clusters/{cluster_id}/nodes",
        "/clusters/{cluster_id}/node-pools",
    ] {
        let all: Vec<Node> = decode(&world.get(owner, &fixture.near(list)).await.is(200).body);
        assert_eq!(
            followed(followed(all.into_iter().next().unwrap().status).percent).to_string(),
            "50"
        );
    }
    for bad in [json!("101"), json!(101), json!("1%"), json!(-1), json!([1])] {
        let body = json!({"status": {"type": "RUNNING", "percent": bad}});
        let refused = world
            .put(cluster, &fixture.near("/clusters/{cluster_id}/status"), body)
            .await
            .is(422);
        assert_eq!(refused.json()["field"], "status.percent");
    }
}

async fn a_scaled_pool_has_limits_and_a_strategy(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let pools = fixture.near("/clusters/{cluster_id}/node-pools");
    for (name, given) in [
        ("none", json!({"enabled": true})),
        (
            "null",
            json!({"enabled": true, "scaling_strategy": null, "max_nodes": null, "suspended": null}),
        ),
        ("empty", json!({"enabled": true, "scaling_strategy": {"scale_up": ""}})),
    ] {
        let mut body = pool(name);
        body["autoscaling"] = given;
        let made: NodePool = decode(&world.post(owner, &pools, body).await.is(201).body);
        let group = made.autoscaling;
        let strategy = followed(group.scaling_strategy);
        assert_eq!((&*strategy.scale_up, &*strategy.scale_down), ("random", "random"));
        assert!(group.enabled && !group.suspended);
        // No limit is not a limit of 0.
        assert_eq!(
            (group.min_nodes, group.max_nodes, group.cooldown_period),
            (0, 5_000, 600)
        );
    }
    let mut body = pool("all");
    body["autoscaling"] = json!({"enabled": true, "suspended": true, "min_nodes": 1, "max_nodes": 4, "cooldown_period": 60,
        "scaling_strategy": {"scale_up": "random", "scale_down": "oldest"}});
    let made = world.post(owner, &pools, body.clone()).await.is(201);
    assert_eq!(made.json()["autoscaling"], body["autoscaling"]);
    let group = decode::<NodePool>(&made.body).autoscaling;
    assert_eq!(
        (group.suspended, group.min_nodes, group.max_nodes, group.cooldown_period),
        (true, 1, 4, 60)
    );
    for (field, value) in [
        ("enabled", json!("true")),
        ("suspended", json!(1)),
        ("min_nodes", json!("1")),
        ("max_nodes", json!(1.5)),
        ("cooldown_period", json!("10m")),
        ("scaling_strategy", json!("random")),
        ("engine", json!({"any": 1})),
    ] {
        let mut wrong = body.clone();
        wrong["name"] = json!("wrong");
        wrong["autoscaling"][field] = value;
        let refused = world.post(owner, &pools, wrong).await.is(422).json();
        assert_eq!(refused["field"], format!("autoscaling.{field}"));
    }
}

async fn a_mirrored_rule_equals_the_one_that_is_read_next(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let mut paths = role("Paths");
    let urls = json!({"type": "kubernetes", "api_groups": [], "verbs": ["get"], "non_resource_urls": ["/healthz"]});
    paths["rules"].as_array_mut().unwrap().push(urls);
    world.post(owner, &fixture.near("/roles"), paths).await.is(201);
    let list = "/clusters/{cluster_id}/roles?side_load=rules&remove_empty=true&rule_type=kubernetes";
    let roles: Vec<RoleSpec> = decode(
        &world
            .get(fixture.token("cluster"), &fixture.near(list))
            .await
            .is(200)
            .body,
    );
    let all: Vec<_> = roles.iter().flat_map(|role| &role.rules).collect();
    assert!(roles.iter().all(|role| year(&role.created_at) >= 2024));
    assert_eq!(all.len(), 3);
    assert_eq!(all.iter().filter(|rule| rule.api_groups.is_none()).count(), 1);
    for rule in all {
        assert_eq!(
            *rule,
            rule.mirrored(),
            "the coordinator would write {} at every sync",
            rule.id
        );
    }
}

async fn types_in_the_catalogue_are_found_in_any_case(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, operator) = (&fixture.world, fixture.token("owner"), fixture.token("operator"));
    let version = |plugin_type: &str| format!("/v3/plugins/{plugin_type}/implementations/calico/versions/1.0.0");
    world
        .put(operator, &version("CNI"), plugin_version("1.0.0"))
        .await
        .is(200);
    for asked in ["cni", "CNI", "Cni"] {
        let listed: Vec<PluginDefinition> =
            decode(&world.get(owner, &format!("/v3/plugins/{asked}")).await.is(200).body);
        assert_eq!(followed(listed.into_iter().next().unwrap().implementation), "calico");
        let definition = format!("/v3/plugins/{asked}/implementations/calico");
        assert_eq!(world.get(owner, &definition).await.is(200).field("type"), "CNI");
        world.get(owner, &version(asked)).await.is(200);
    }
    // What is written in another case is the same type.
    let mut disabled = plugin_version("1.0.0");
    disabled["disabled"] = json!(true);
    world.put(operator, &version("cni"), disabled).await.is(200);
    world
        .put(
            operator,
            &format!("{}/manifests", version("cni")),
            crate::fixture::manifests(),
        )
        .await
        .is(204);
    assert_eq!(world.get(owner, &version("CNI")).await.is(200).json()["disabled"], true);
    world
        .put(operator, &version("cni"), plugin_version("1.0.0"))
        .await
        .is(200);
    let types = world.get(owner, "/v3/plugins").await.is(200).json();
    assert_eq!(
        types.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["CNI", "metrics"]
    );
    let plugins = fixture.near("/clusters/{cluster_id}/plugins");
    let plugin = json!({"type": "cni", "implementation": "calico", "version": "1.0.0"});
    let made = world.post(owner, &plugins, plugin.clone()).await.is(201);
    assert_eq!(made.field("type"), "CNI");
    assert!(made.json()["manifests"].is_array(), "{made:?}");
    world.post(owner, &plugins, plugin.clone()).await.is(409);
    let item = format!("{plugins}/{}", made.field("id"));
    let etag = world.get(owner, &item).await.is(200).header("etag");
    assert_eq!(world.patch(owner, &item, plugin).await.is(200).header("etag"), etag);
    world.delete(owner, &item).await.is(204);
    world.delete(operator, &version("cNI")).await.is(204);
    world.get(owner, &version("CNI")).await.is(404);
}

async fn a_name_of_several_fields_is_told_whole(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, place) = (&fixture.world, fixture.token("owner"), &fixture.near);
    let (user, role_id, cluster) = (place.of("user"), place.of("roles"), place.of("cluster"));
    let binding = json!({"type": "UserBinding", "user_id": user, "authorization_role_id": role_id, "cluster_id": cluster,
        "namespace": "dev"});
    let same = [user, role_id, cluster].map(|id| format!("\"{id}\""));
    let same = format!(
        "authorization_role_id: a role binding with user_id {} and authorization_role_id {} and cluster_id {} and namespace \"dev\" already exists",
        same[0], same[1], same[2]
    );
    for (path, body, message) in [
        (
            "/registries",
            registry("ours"),
            "description: a registry with serveraddress \"registry.example.org\" and description \"ours\" already exists",
        ),
        (
            "/providers",
            provider(),
            "description: a provider with provider \"digital_ocean\" and description \"ours\" already exists",
        ),
        (
            "/clusters/{cluster_id}/plugins",
            crate::fixture::plugin(),
            "implementation: a plugin with type \"metrics\" and implementation \"prometheus\" already exists",
        ),
        ("/role-bindings", binding, &same),
        (
            "/roles",
            role("Reader"),
            "name: a role with name \"Reader\" already exists",
        ),
    ] {
        let refused = world.post(owner, &fixture.near(path), body).await.is(409).json();
        assert_eq!(refused["message"], message);
    }
}

async fn the_name_of_a_node_is_unique_in_its_cluster(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    let pools = fixture.near("/clusters/{cluster_id}/node-pools");
    let other_id = world.post(owner, &pools, pool("others")).await.is(201).field("id");
    let (near, other) = (
        fixture.near("/clusters/{cluster_id}/node-pools/{node_pool_id}/nodes"),
        format!("{pools}/{other_id}/nodes"),
    );
    for path in [&near, &other] {
        let refused = world.post(owner, path, json!({"name": "node-1"})).await.is(409).json();
        assert_eq!(refused["message"], "name: a node with name \"node-1\" already exists");
    }
    // Any number may be without a name.
    let bare = world.post(owner, &other, json!({})).await.is(201);
    world.post(owner, &other, json!({"name": null})).await.is(201);
    assert_eq!(
        (&bare.json()["name"], &bare.json()["provider_id"]),
        (&Value::Null, &Value::Null)
    );
    let item = format!("{other}/{}", bare.field("id"));
    let second = json!({"name": "node-2.example.org", "provider_id": "aws:///us-east-1a/i-0123456789abcdef0"});
    let seen = world.patch(owner, &item, second.clone()).await.is(200).json();
    assert_eq!(
        (&seen["name"], &seen["provider_id"]),
        (&second["name"], &second["provider_id"])
    );
    // A cluster reads all of its nodes with their names and pools, and changes none.
    let listed = world
        .get(cluster, &fixture.near("/clusters/{cluster_id}/nodes"))
        .await
        .is(200)
        .json();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let named: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|node| Some((text(&node["name"])?, text(&node["node_pool_id"])?)))
        .collect();
    let near_id = fixture.near.of("pool").to_owned();
    assert_eq!(
        named,
        [
            ("node-1".to_owned(), near_id),
            ("node-2.example.org".to_owned(), other_id)
        ]
    );
    world.patch(cluster, &item, json!({"name": "mine"})).await.is(403);
    // In another cluster it is another node, and a name that was given up is free.
    let beside = fixture.near(&format!("/clusters/{}/node-pools", fixture.beside));
    let elsewhere = world.post(owner, &beside, pool("workers")).await.is(201).field("id");
    world
        .post(owner, &format!("{beside}/{elsewhere}/nodes"), json!({"name": "node-1"}))
        .await
        .is(201);
    world
        .delete(owner, &format!("{near}/{}", fixture.near.of("nodes")))
        .await
        .is(204);
    world.patch(owner, &item, json!({"name": "node-1"})).await.is(200);
}

async fn an_upgrade_starts_at_a_time_that_go_reads(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, cluster) = (&fixture.world, fixture.token("cluster"));
    let status = |start: Value| {
        json!({"status": {"clusterStatus": "InProgress", "nodeStatuses": {"node-1": "InProgress"}, "currentNode": "node-1",
            "currentStartTime": start}})
    };
    for (start, written) in [
        (json!("Sun Nov 22 05:29:17 UTC 2026"), "Sun Nov 22 05:29:17 UTC 2026"),
        (json!("1551441600"), "Fri Mar  1 12:00:00 UTC 2019"),
    ] {
        let path = fixture
            .near
            .path(&format!("/v3/organizations/{{organization_id}}{UPGRADE}"));
        let answer = world.put(cluster, &path, status(start)).await.is(200).json();
        assert_eq!(answer["status"]["currentStartTime"], written);
        let listed = world
            .get(cluster, &fixture.near("/clusters/{cluster_id}/upgrades"))
            .await
            .is(200)
            .json();
        assert_eq!(listed[0]["status"]["currentStartTime"], written);
        assert!(
            listed[0]["addedAt"].as_str().unwrap().len() == 10,
            "in seconds: {listed}"
        );
    }
}
