//! The meaning of each answer.

use std::pin::pin;

use http::Method;
use serde_json::json;
use tidewaiter_cloud::client::{ByteBudget, Client, ClientError, ClientSettings, Fetched, Listing, Path, Request};
use tidewaiter_cloud::models::{Cluster as ClusterObject, ClusterLabel};

use crate::clock::Hurried;
use crate::world::{LABEL, LIMIT, Server, TOKEN, cluster, failure, labels, ok, settings, whole};

/// The word for the variant.
fn name(error: &ClientError) -> &'static str {
    match error {
        ClientError::Refused { .. } => "refused",
        ClientError::NotOurs { .. } => "not ours",
        ClientError::Unavailable { .. } => "unavailable",
        ClientError::Invalid { .. } => "invalid",
        ClientError::Rejected { .. } => "rejected",
    }
}

#[tokio::test]
async fn what_is_no_whole_list_is_an_error_and_never_an_empty_list() {
    let list = format!("[{LABEL},{LABEL}]");
    let half = &list[..list.len() / 2];
    let cut = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{half}", list.len());
    let chunked = |end: &str| {
        let size = LABEL.len() + 2;
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{size:x}\r\n[{LABEL}]\r\n{end}")
    };
    let html = "<html>Please log in to the network</html>";
    let huge = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n[{}",
        " ".repeat(65 << 20)
    );
    for (answer, variant, words) in [
        (ok(""), "invalid", "is empty"),
        (ok("null"), "invalid", "null"),
        (ok("{}"), "invalid", "a list"),
        (ok("false"), "invalid", "a list"),
        (ok("[7]"), "invalid", "[0]"),
        (ok(r#"[{"id":"x"}]"#), "invalid", "[0].id"),
        (ok(half), "invalid", "not valid JSON"),
        (ok(html), "invalid", "HTML"),
        (whole("200 OK", "content-type: text/html\r\n", html), "invalid", "HTML"),
        // Nobody asked for it, so nobody unpacks it.
        (
            whole("200 OK", "content-encoding: gzip\r\n", "\u{1f}\u{8b}packed"),
            "invalid",
            "not valid JSON",
        ),
        (cut, "invalid", "truncated"),
        (chunked(""), "invalid", "truncated"),
        (huge, "invalid", "larger"),
        (whole("204 No Content", "", ""), "invalid", "204"),
        (whole("206 Partial Content", "", "[]"), "invalid", "206"),
        (whole("304 Not Modified", "", ""), "invalid", "304"),
    ] {
        let server = Server::always(answer.clone()).await;
        let found = labels(&server.client(Hurried::new(LIMIT).shared())).await;
        let (error, said) = found.expect_err(&answer[..answer.len().min(200)]);
        assert_eq!(name(&error), variant, "{said}");
        assert!(said.contains(words), "{words} in {said}");
    }
    for (answer, count) in [(chunked("0\r\n\r\n"), 1), (ok("[]"), 0), (ok(&list), 2)] {
        let server = Server::always(answer).await;
        assert_eq!(
            labels(&server.client(Hurried::new(LIMIT).shared())).await.unwrap(),
            count
        );
    }
}

#[tokio::test]
async fn each_refusal_is_told_apart() {
    let page = "<html>no such host</html>";
    for (answer, variant, words) in [
        (failure("401 Unauthorized", ""), "refused", "refused with 401: because"),
        (failure("403 Forbidden", ""), "refused", "403"),
        (whole("401 Unauthorized", "", page), "refused", "401"),
        (failure("404 Not Found", ""), "not ours", "because"),
        (
            whole("404 Not Found", "", page),
            "invalid",
            "does not come from the API",
        ),
        (whole("404 Not Found", "", ""), "invalid", "does not come from the API"),
        (
            whole("404 Not Found", "", r#"{"code":500,"message":"no"}"#),
            "invalid",
            "does not come from the API",
        ),
        (failure("408 Request Timeout", ""), "unavailable", "408"),
        (failure("429 Too Many Requests", ""), "unavailable", "429"),
        (failure("500 Internal Server Error", ""), "unavailable", "500: because"),
        (whole("502 Bad Gateway", "", page), "unavailable", "502"),
        (failure("503 Service Unavailable", ""), "unavailable", "503"),
        (failure("409 Conflict", ""), "rejected", "because"),
        (failure("412 Precondition Failed", ""), "rejected", "because"),
        (failure("422 Unprocessable Entity", ""), "rejected", "because"),
        (failure("501 Not Implemented", ""), "rejected", "because"),
        (whole("418 I'm a teapot", "", page), "rejected", "418"),
        (
            "HTTP/1.1 banana\r\n\r\n".to_owned(),
            "unavailable",
            "does not answer in plain HTTP",
        ),
        (String::new(), "unavailable", "connection was interrupted"),
    ] {
        let server = Server::always(answer.clone()).await;
        let (error, said) = labels(&server.client(Hurried::new(LIMIT).shared())).await.unwrap_err();
        assert_eq!(name(&error), variant, "{said}");
        assert!(said.contains(words), "{words} in {said}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_no_other_host_sees_the_token() {
    let other = Server::always(ok("[]")).await;
    for status in [
        "301 Moved Permanently",
        "302 Found",
        "307 Temporary Redirect",
        "308 Permanent Redirect",
    ] {
        let server = Server::always(whole(status, &format!("location: {}/v3/x\r\n", other.url()), "")).await;
        let (error, said) = labels(&server.client(Hurried::new(LIMIT).shared())).await.unwrap_err();
        assert_eq!(name(&error), "invalid", "{said}");
        assert!(said.contains("a redirect, which is not followed"), "{said}");
        assert_eq!(server.seen().len(), 1, "a retry gets the same answer");
    }
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn a_list_that_is_known_is_unchanged_or_whole() {
    let server = Server::start(|_, request| {
        let answer = match request.header("if-none-match") {
            Some("\"7\"") => whole("304 Not Modified", "etag: \"7\"\r\ntidewaiter-change: 17\r\n", ""),
            _ => ok(&format!("[{LABEL}]")),
        };
        crate::world::Reply::Bytes(answer.into_bytes())
    })
    .await;
    let client = server.client(Hurried::new(LIMIT).shared());
    let first: Listing<ClusterLabel> = client.list(cluster().labels(), None).await.unwrap();
    let Fetched::Complete { value, etag } = first else {
        panic!("nothing was known");
    };
    assert_eq!(value.len(), 1);
    let again: Listing<ClusterLabel> = client.list(cluster().labels(), etag.as_ref()).await.unwrap();
    assert_eq!(again, Fetched::Unchanged);
    let seen = server.seen();
    // Up to which change it is current; an older cloud does not say it.
    for (known, expected) in [(etag.as_ref(), Some(17)), (None, None)] {
        let list = client.list_each_as_of::<ClusterLabel>(cluster().labels(), known);
        assert_eq!(list.await.unwrap().1, expected);
    }
    assert_eq!(
        seen[0].line(),
        "GET /v3/organizations/11111111-1111-4111-8111-111111111111/clusters/22222222-2222-4222-8222-222222222222/labels HTTP/1.1"
    );
    assert_eq!(seen[0].header("authorization"), Some(format!("JWT {TOKEN}").as_str()));
    assert!(seen[0].header("user-agent").unwrap().starts_with("tidewaiter/"));
    assert_eq!(seen[1].header("if-none-match"), Some("\"7\""));
}

#[tokio::test]
async fn each_part_of_the_cloud_is_asked_what_is_its_own() {
    let servers = [
        Server::always(ok("{}")).await,
        Server::always(ok("{}")).await,
        Server::always(ok("{}")).await,
    ];
    let mut settings = servers[0].settings();
    settings.provision = servers[1].url().parse().unwrap();
    settings.auth = servers[2].url().parse().unwrap();
    let client = tidewaiter_cloud::client::Client::new(&settings, Hurried::new(LIMIT).shared()).unwrap();
    let c = cluster();
    let (node, version) = (LABEL[7..43].parse().unwrap(), "1.12.3".parse().unwrap());
    let paths = [
        (c.plugins(), 0),
        (c.labels(), 0),
        (c.organization().users(), 0),
        (c.organization().registries(), 0),
        (c.events(), 0),
        (Path::new(["plugins", "nodes"]), 0),
        (Path::new(["account"]), 0),
        (c.node_pools(), 1),
        (c.autoscaling_policies(), 1),
        (c.node_status(node), 1),
        (c.upgrade_script(node, &version), 1),
        (c.roles(), 2),
        (c.role_bindings(), 2),
        (Path::new(["authenticate"]), 2),
        (Path::new(["login", "password"]), 2),
    ];
    for (path, server) in paths {
        let before = servers[server].seen().len();
        client.request(&Request::new(Method::GET, path.clone())).await.unwrap();
        assert_eq!(servers[server].seen().len(), before + 1, "{path}");
    }
    let roles = servers[2].seen()[0].line().to_owned();
    assert!(
        roles.contains("/roles?side_load=rules&remove_empty=true&rule_type=kubernetes "),
        "{roles}"
    );
    let script = servers[1].seen().last().unwrap().line().to_owned();
    assert!(script.contains("/upgrade/kubernetes?version=1.12.3 "), "{script}");
}

#[tokio::test]
async fn a_segment_stays_one_segment() {
    let server = Server::always(ok("{}")).await;
    let client = server.client(Hurried::new(LIMIT).shared());
    let path = Path::new(["plugins", "a/../b?c#d %"]);
    client.request(&Request::new(Method::GET, path)).await.unwrap();
    assert_eq!(
        server.seen()[0].line(),
        "GET /v3/plugins/a%2F..%2Fb%3Fc%23d%20%25 HTTP/1.1"
    );
}

#[tokio::test]
async fn manifests_scripts_and_statuses() {
    let manifests = r#"{"manifests":[[{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}]],"jobs":{"pre_apply":[],"post_apply":[]},"type":"logs"}"#;
    let script = "#!/bin/sh\nexit 0\n";
    let server = Server::start(move |number, _| {
        let answer = match number {
            0 => ok(manifests),
            1 => whole("200 OK", "content-type: text/plain\r\n", script),
            2 => whole("200 OK", "content-type: text/plain\r\n", "<html>"),
            3 => whole("204 No Content", "", ""),
            _ => failure("403 Forbidden", ""),
        };
        crate::world::Reply::Bytes(answer.into_bytes())
    })
    .await;
    let client = server.client(Hurried::new(LIMIT).shared());
    let (plugin, node) = (LABEL[7..43].parse().unwrap(), LABEL[7..43].parse().unwrap());
    let version = "1.12.3".parse().unwrap();
    let budget = ByteBudget::new(1, 1_000_000);
    let found = client.manifests(cluster(), plugin, Some("1.0.0"), None, &budget).await;
    assert!(matches!(found.unwrap(), Fetched::Complete { value, .. } if value.text == manifests));
    assert_eq!(client.script(cluster(), node, &version).await.unwrap().as_str(), script);
    let error = client.script(cluster(), node, &version).await.unwrap_err();
    assert_eq!(name(&error), "invalid");
    let report = json!({"status": {"type": "RUNNING", "percent": "1"}});
    let put = Request::new(Method::PUT, cluster().node_status(node)).json(report.clone());
    client.request(&put).await.unwrap();
    let error = client.request(&put).await.unwrap_err();
    assert_eq!(name(&error), "refused");
    let seen = server.seen();
    assert!(
        seen[0].line().contains("?previous_version=1.0.0 "),
        "{}",
        seen[0].line()
    );
    assert!(seen[3].line().starts_with("PUT ") && seen[3].line().contains("/status "));
    assert_eq!(seen[3].body, report.to_string());
    assert_eq!(seen[3].header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn manifests_wait_until_there_is_room_for_them() {
    let manifests = format!(r#"{{"manifests":[["{}"]]}}"#, "x".repeat(1_000));
    let server = Server::always(ok(&manifests)).await;
    let client = server.client(Hurried::new(LIMIT).shared());
    let plugin = LABEL[7..43].parse().unwrap();
    let two = || ByteBudget::new(2, manifests.len().try_into().unwrap());
    let budget = two();
    let fetch = async |budget: &ByteBudget| {
        let fetched = client.manifests(cluster(), plugin, None, None, budget).await;
        let Ok(Fetched::Complete { value, .. }) = fetched else {
            panic!("{fetched:?}")
        };
        assert_eq!(value.text, manifests);
        value
    };
    let held = [fetch(&budget).await, fetch(&budget).await];
    let mut third = pin!(fetch(&budget));
    // Meanwhile it is answered, and no timeout runs for it.
    let others = async {
        for _ in 0..10 {
            fetch(&two()).await;
        }
    };
    tokio::select! {
        biased;
        _ = &mut third => panic!("there is no room for it"),
        () = others => {}
    }
    drop(held);
    third.await;
    // What is larger than the largest is not read to its end.
    let small = ByteBudget::new(1, 1_000);
    let error = client
        .manifests(cluster(), plugin, None, None, &small)
        .await
        .unwrap_err();
    assert_eq!(name(&error), "invalid");
}

#[tokio::test]
async fn a_cluster_that_a_newer_server_tells_more_of_is_read() {
    let body = r#"{"id":"22222222-2222-4222-8222-222222222222","created_at":"1551441600000","updated_at":"1551441600000","organization_id":"11111111-1111-4111-8111-111111111111","owner_id":"33333333-3333-4333-8333-333333333333","name":"a","moon":"full"}"#;
    let server = Server::always(ok(body)).await;
    let client = server.client(Hurried::new(LIMIT).shared());
    let found: Fetched<ClusterObject> = client.get(cluster().path(), None).await.unwrap();
    assert!(matches!(found, Fetched::Complete { value, .. } if value.id == cluster().id));
}

#[tokio::test]
async fn a_proxy_is_asked_for_secure_hosts_alone_and_sees_no_token() {
    let proxy = Server::always(whole("403 Forbidden", "", "")).await;
    let asked = async |mut settings: ClientSettings| {
        settings.proxy = Some(proxy.url().replace("http://", "http://me:hunter2@").parse().unwrap());
        labels(&Client::new(&settings, Hurried::new(LIMIT).shared()).unwrap()).await
    };
    let plain = Server::always(ok("[]")).await;
    assert_eq!(asked(plain.settings()).await.unwrap(), 0);
    assert!(proxy.seen().is_empty(), "it would see the token");
    let (error, said) = asked(settings("https://cloud.example.com")).await.unwrap_err();
    assert_eq!(name(&error), "unavailable", "{said}");
    let seen = proxy.seen();
    assert!(!seen.is_empty());
    for request in seen {
        assert!(
            request.line().starts_with("CONNECT cloud.example.com:443 "),
            "{request:?}"
        );
        assert_eq!(request.header("authorization"), None);
        assert!(request.header("proxy-authorization").is_some());
    }
}
