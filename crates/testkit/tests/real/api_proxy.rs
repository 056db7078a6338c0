//! The faults that the proxy injects, as a client sees them and as the API server does.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use futures::StreamExt;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tidewaiter_testkit::{
    Action, ApiProxy, ApiRequest, ControlPlane, Gate, Identity, Moment, Process, Program, Scratch, assets, eventually,
};

use crate::SOON;

async fn through(proxy: &ApiProxy) -> Api<ConfigMap> {
    let kubeconfig = Kubeconfig::read_from(proxy.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Api::default_namespaced(Client::try_from(config).unwrap())
}

fn directly(control_plane: &ControlPlane) -> Api<ConfigMap> {
    Api::default_namespaced(control_plane.client(&Identity::Admin))
}

fn named(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn creates(request: &ApiRequest) -> bool {
    request.is_write() && request.resource() == "configmaps"
}

#[tokio::test]
async fn requests_are_sent_as_the_identity_and_recorded() {
    let control_plane = ControlPlane::shared().await;
    let identity = Identity::user("proxied", &["system:masters"]);
    let proxy = ApiProxy::start(control_plane, &identity);
    let configs = through(&proxy).await;
    configs.create(&PostParams::default(), &named("proxied")).await.unwrap();
    configs.get("proxied").await.unwrap();
    configs.get("proxied-missing").await.unwrap_err();

    assert_eq!(control_plane.audit().await.by(&identity).of("configmaps").count(), 3);
    assert_eq!(
        proxy.count(|request| request.is_write() && request.resource() == "configmaps"),
        1
    );
    let requests = proxy.requests();
    let seen: Vec<_> = requests
        .iter()
        .map(|request| (&request.method, request.status))
        .collect();
    assert_eq!(
        seen,
        [
            (&Method::POST, Some(201)),
            (&Method::GET, Some(200)),
            (&Method::GET, Some(404))
        ]
    );
    assert!(requests.is_sorted_by_key(|request| request.at));
}

#[tokio::test]
async fn a_hook_may_reply_drop_or_lose_the_answer() {
    let control_plane = ControlPlane::shared().await;
    let proxy = ApiProxy::start(control_plane, &Identity::Admin);
    let configs = through(&proxy).await;
    let real = directly(control_plane);

    proxy.on(creates, || Action::refuse(429, "TooManyRequests", "slowly"));
    let refused = configs
        .create(&PostParams::default(), &named("hook"))
        .await
        .unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 429 && status.message == "slowly"));

    proxy.on(creates, || Action::Drop);
    configs
        .create(&PostParams::default(), &named("hook"))
        .await
        .unwrap_err();
    assert!(real.get_opt("hook").await.unwrap().is_none());

    proxy.on(creates, || Action::LoseAnswer);
    configs
        .create(&PostParams::default(), &named("hook"))
        .await
        .unwrap_err();
    real.get("hook").await.unwrap();
}

#[tokio::test]
async fn a_held_request_waits_for_its_gate() {
    let control_plane = ControlPlane::shared().await;
    let proxy = ApiProxy::start(control_plane, &Identity::Admin);
    let configs = through(&proxy).await;
    let real = directly(control_plane);

    let gate = Gate::new();
    let held = gate.clone();
    proxy.on(creates, move || Action::Hold(held.clone()));
    let (params, object) = (PostParams::default(), named("held"));
    let create = configs.create(&params, &object);
    let release = async {
        eventually("the request to be held", SOON, async || {
            if gate.held() == 1 { Ok(()) } else { Err("none is") }
        })
        .await;
        assert!(real.get_opt("held").await.unwrap().is_none());
        gate.open();
    };
    tokio::join!(async { create.await.unwrap() }, release);
    assert_eq!(gate.held(), 0);
}

#[tokio::test]
async fn watches_stream_can_be_cut_and_can_expire() {
    let control_plane = ControlPlane::shared().await;
    let proxy = ApiProxy::start(control_plane, &Identity::Admin);
    let configs = through(&proxy).await;
    let real = directly(control_plane);
    let version = real
        .create(&PostParams::default(), &named("watched"))
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let params = WatchParams::default().fields("metadata.name=watched-too");

    let mut events = configs.watch(&params, &version).await.unwrap().boxed();
    real.create(&PostParams::default(), &named("watched-too"))
        .await
        .unwrap();
    assert!(
        matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))),
        "an event comes while the watch goes on"
    );
    assert_eq!(proxy.open_watches(), ["/api/v1/namespaces/default/configmaps"]);
    proxy.cut_watches();
    assert!(events.next().await.is_none(), "the stream ends cleanly");
    eventually("no watch to be open", SOON, async || {
        if proxy.open_watches().is_empty() {
            Ok(())
        } else {
            Err("one is")
        }
    })
    .await;

    let mut events = configs.watch(&params, &version).await.unwrap().boxed();
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));
    proxy.expire_watches();
    assert!(events.next().await.is_none());
    let mut events = configs.watch(&params, &version).await.unwrap().boxed();
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Error(status))) if status.code == 410));
    let mut events = configs.watch(&params, &version).await.unwrap().boxed();
    assert!(
        matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))),
        "only the next one is told so"
    );
    drop(events);
    eventually("a watch that nobody reads to be closed", SOON, async || {
        if proxy.open_watches().is_empty() {
            Ok(())
        } else {
            Err("it is open")
        }
    })
    .await;
}

#[tokio::test]
async fn down_ends_open_watches_and_refuses_until_up() {
    let control_plane = ControlPlane::shared().await;
    let proxy = ApiProxy::start(control_plane, &Identity::Admin);
    let configs = through(&proxy).await;
    let mut events = configs.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    while proxy.open_watches().is_empty() {
        tokio::task::yield_now().await;
    }
    proxy.down().await;
    while let Some(Ok(_)) = events.next().await {}
    assert!(std::net::TcpStream::connect(proxy.url().trim_start_matches("http://")).is_err());
    configs.get("any").await.unwrap_err();
    proxy.up().await;
    assert!(configs.get_opt("any").await.unwrap().is_none());
}

#[tokio::test]
async fn a_process_is_killed_before_or_after_its_nth_write() {
    let control_plane = ControlPlane::shared().await;
    let real = directly(control_plane);
    let scratch = Scratch::new("kill-at");
    for (moment, names) in [
        (Moment::Before, ["before-1", "before-2"]),
        (Moment::After, ["after-1", "after-2"]),
    ] {
        let proxy = ApiProxy::start(control_plane, &Identity::Admin);
        // It writes nothing before it is let go, so that the proxy can be told of it first.
        let gate = Gate::new();
        let held = gate.clone();
        proxy.hook(move |_| Action::Hold(held.clone()));
        let script = r#"for name; do "$KUBECTL" --kubeconfig "$CONFIG" create configmap "$name" || exit; done"#;
        let program = Program::new("/bin/sh")
            .name(names[0])
            .args(["-c", script, "writer"])
            .args(names)
            .env("KUBECTL", assets::binary("kubectl"))
            .env("CONFIG", proxy.kubeconfig());
        let process = Arc::new(Process::start(&scratch, program));
        proxy.kill_at(&process, 2, moment, creates);
        gate.open();
        assert_eq!(process.exited(SOON).await.signal(), Some(9), "{}", process.log());
        real.get(names[0]).await.unwrap();
        assert_eq!(real.get_opt(names[1]).await.unwrap().is_some(), moment == Moment::After);
        assert!(
            !process.log().contains(&format!("{} created", names[1])),
            "it never learned"
        );
    }
}
