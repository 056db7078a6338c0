use std::process::Command;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use serde_json::json;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_cloud::client::ClientSettings;
use tidewaiter_kit::{Key, SystemClock};
use tidewaiter_testkit::usage::Peak;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::controllers::plugin::desired::release::MOST_OBJECTS;

/// The memory of the container, in MiB, without that of the other controllers.
const MOST_MEMORY: f64 = 280.0;
const PLUGINS: usize = 6;

#[test]
fn manifests_are_of_the_plugin_and_of_its_version() {
    let plugin: PluginSpec = serde_json::from_value(json!({"id": "one", "version": "1.0.0"})).unwrap();
    for (sent, expected) in [
        (json!({"manifests": []}), Ok(true)),
        (json!({"id": "one", "version": "1.0.0"}), Ok(true)),
        (json!({"id": "one", "version": "1.0.1"}), Ok(false)),
        (json!({"id": "two"}), Err("is about the plugin \"two\"".to_owned())),
    ] {
        let found = is_of(&Sent::from(&sent), &plugin).map_err(|refused| refused.why);
        assert_eq!(found, expected, "{sent}");
    }
}

/// Manifests of the largest size: `Deployments` with many small fields, which take the most memory as values. They are
/// made as text.
fn large() -> String {
    let bytes_each = LARGEST as usize / MOST_OBJECTS - 250;
    let variable = r#"{"name":"A","value":"b"}"#;
    let variables = vec![variable; bytes_each / (variable.len() + 1)].join(",");
    let object = |number: usize| {
        format!(
            r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"one-of-many-{number:05}"}},"spec":{{"template":{{"spec":
            {{"containers":[{{"name":"a","image":"b","env":[{variables}]}}]}}}}}}}}"#
        )
    };
    let objects: Vec<String> = (0..MOST_OBJECTS).map(object).collect();
    format!(r#"{{"manifests":[[{}]]}}"#, objects.join(","))
}

/// A cloud that sends this text to everybody.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
async fn cloud(text: String) -> Client {
    let router = Router::new().fallback(async |State(text): State<Bytes>| text);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = router.with_state(Bytes::from(text));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Client::new(&ClientSettings::new(url.parse().unwrap()), SystemClock::shared()).unwrap()
}

/// In a process of its own, because the memory is the process's.
#[tokio::test]
async fn manifests_of_many_plugins_are_parsed_within_the_memory_of_the_container() {
    let own = std::env::current_exe().unwrap();
    let (_, inner) = concat!(module_path!(), "::alone_in_a_process")
        .split_once("::")
        .unwrap();
    let inner = Command::new(own)
        .args(["--ignored", "--nocapture", "--exact", inner])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inner.stdout);
    assert!(inner.status.success() && said.contains("1 passed"), "{said}");
    println!("{said}");
}

fn cluster() -> Cluster {
    Cluster {
        organization: "11111111-1111-4111-8111-111111111111".parse().unwrap(),
        id: "22222222-2222-4222-8222-222222222222".parse().unwrap(),
    }
}

/// Fetches the manifests of the plugin with this number.
async fn fetch(manifests: &Manifests, number: usize) -> Result<Option<Arc<Release>>, PluginError> {
    let id = format!("cccccccc-0000-4000-8000-{number:012}");
    let spec = json!({"id": id, "version": "1.0.0", "type": "logs", "implementation": "it"});
    let plugin = Plugin::new(&id, serde_json::from_value(spec).unwrap());
    let mut pass = Pass::by_hand(Key::namespaced(CONTAINERSHIP_NAMESPACE, &id));
    manifests
        .fetch(&mut pass, id.parse().unwrap(), &plugin, &Record::default())
        .await
}

#[tokio::test]
async fn manifests_that_do_not_fit_beside_those_of_others_are_refused() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let text = json!({"manifests": [[object]]}).to_string();
    let settings = PluginSettings::default();
    let mut manifests = Manifests::new(cloud(text).await, cluster(), &settings, SystemClock::shared());
    let size = {
        fetch(&manifests, 1).await.unwrap().unwrap();
        manifests.held.lock().values().map(Held::size).sum::<usize>()
    };
    manifests.most_held = 2 * size;
    fetch(&manifests, 2).await.unwrap().unwrap();
    let refused = fetch(&manifests, 3).await.unwrap_err().to_string();
    assert!(refused.contains("of all plugins may take"), "{refused}");
    manifests.forget("cccccccc-0000-4000-8000-000000000001");
    fetch(&manifests, 3).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the test above starts it"]
async fn alone_in_a_process() {
    let text = large();
    assert!(
        text.len() <= LARGEST as usize && text.len() > LARGEST as usize / 10 * 9,
        "{}",
        text.len()
    );
    let settings = PluginSettings::default();
    let manifests = Manifests::new(cloud(text).await, cluster(), &settings, SystemClock::shared());
    let manifests = Arc::new(manifests);
    let mut peak = Peak::begin(std::process::id());
    let mut tasks = JoinSet::new();
    for number in 0..PLUGINS {
        let manifests = Arc::clone(&manifests);
        tasks.spawn(async move {
            let fetched = fetch(&manifests, number).await;
            assert_eq!(fetched.unwrap().unwrap().all().count(), MOST_OBJECTS);
        });
    }
    while let Some(fetched) = tasks.join_next().await {
        fetched.unwrap();
        peak.look();
    }
    let memory = peak.end();
    println!("{PLUGINS} plugins with {} MiB each: {memory:?}", LARGEST / 1024 / 1024);
    assert!(memory.anonymous < MOST_MEMORY, "{memory:?}");
}
