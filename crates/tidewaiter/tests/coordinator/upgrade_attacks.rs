//! Attacks on upgrades, with the coordinator, the agent and the host as processes. After each of them no script has
//! run, and a line says which check refused.
#![allow(clippy::disallowed_methods, reason = "files of the test")]

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::containership::UpgradeStatus;
use tidewaiter_api::node_report::UpgradeState;
use tidewaiter_api::{NodeReport, NodeUpgrade};
use tidewaiter_kit::SystemClock;
use tidewaiter_testkit::{Identity, eventually, issuer};
use tokio::net::TcpListener;

use crate::SOON;
use crate::cloud::beside;
use crate::upgrades::{AGENT, Host, TARGET, Upgrading};

/// The served script: for this upgrade, made of this script.
type Served = fn(&Upgrading, &str, &str) -> String;

/// A coordinator that answers with this script, no matter who asks for which. Returns its address.
async fn lying(script: &Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = async |State(script): State<Arc<Mutex<String>>>| script.lock().unwrap().clone();
    let router = Router::new().fallback(answer).with_state(Arc::clone(script));
    beside(async move { axum::serve(listener, router).await.unwrap() });
    url
}

/// That nothing is offered, and nothing runs when the host is told to look.
fn runs_nothing(host: &Host, ran: &Path) {
    assert!(!host.current().exists(), "it is offered");
    let output = host.run();
    assert!(!ran.exists(), "{output:?}");
}

/// Waits until the script has run.
async fn runs_it(host: &Host, ran: &Path) {
    eventually("the script to run", SOON, async || {
        let output = host.run();
        if ran.exists() {
            Ok(())
        } else {
            Err(format!("{output:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_coordinator_that_lies_or_is_not_reached_alone_serves_does_not_run() {
    let upgrading = Upgrading::start().await;
    let host = Host::new(&upgrading, "w1");
    let token = upgrading.node("w1").await;
    let ran = host.folder.join("ran");
    let script = format!("#!/bin/sh\necho $TIDEWAITER_VERSION >> {}\n", ran.display());
    let served = Arc::new(Mutex::new(String::new()));
    let url = lying(&served).await;
    // Each ends its upgrade: what the agent or the host refuses is final.
    let rows: [(&str, Served, &str); 5] = [
        (
            "of another node",
            |upgrading, upgrade, script| upgrading.signed(upgrade, script, &["w2"]),
            "is signed for the node w2, and this is w1",
        ),
        (
            "without its last line",
            |upgrading, upgrade, script| {
                let good = upgrading.signed(upgrade, script, &["w1"]);
                let end = good.trim_end().rfind('\n').unwrap();
                good[..=end].to_owned()
            },
            "truncated or malformed",
        ),
        ("without signatures", |_, _, script| script.to_owned(), "is not signed"),
        (
            "altered on its way over plain HTTP",
            |upgrading, upgrade, script| {
                let good = upgrading.signed(upgrade, script, &["w1"]);
                good.replacen("echo ", "echo evil ", 1)
            },
            "is not the one that was signed",
        ),
        (
            "of a downgrade",
            |upgrading, upgrade, script| upgrading.signed_to("v1.34.0", upgrade, script, &["w1"]),
            "is signed for the version v1.34.0",
        ),
    ];
    for (name, text, words) in rows {
        println!("{name}");
        let upgrade = upgrading.upgrade().await;
        *served.lock().unwrap() = text(&upgrading, &upgrade, &script);
        // Another process begins without a pause.
        let agent = host.agent_of(&upgrading, &token, &url, None).await;
        host.reports(&upgrading, UpgradeState::Refused, words).await;
        runs_nothing(&host, &ran);
        upgrading.ends(&upgrade, UpgradeStatus::Failed).await;
        drop(agent);
    }
    // The cloud may serve the script of another upgrade until its cluster has reported: the right one follows.
    let upgrade = upgrading.upgrade().await;
    let other = "0b8e4a52-13f7-4f0e-9d3c-7a6b5c4d3e2f";
    *served.lock().unwrap() = upgrading.signed(other, &script, &["w1"]);
    let agent = host.agent_of(&upgrading, &token, &url, None).await;
    let words = "is signed for the upgrade 0b8e4a52";
    host.reports(&upgrading, UpgradeState::Blocked, words).await;
    runs_nothing(&host, &ran);
    drop(agent);
    *served.lock().unwrap() = upgrading.signed(&upgrade, &script, &["w1"]);
    let _agent = host.agent_of(&upgrading, &token, &url, None).await;
    runs_it(&host, &ran).await;
}

#[tokio::test]
async fn a_coordinator_with_a_certificate_of_another_authority_is_not_asked() {
    let scratch = tidewaiter_testkit::Scratch::new("upgrade-authorities");
    let [ours, others] = ["ours", "others"].map(|name| {
        let folder = scratch.path().join(name);
        fs::create_dir(&folder).unwrap();
        let _ = issuer::certificate(&folder);
        folder
    });
    let setting = |name: &str| ours.join(name).display().to_string();
    let upgrading = Upgrading::start_with(&[
        ("TIDEWAITER_ENDPOINTS__TLS_CERTIFICATE", setting("tls.crt")),
        ("TIDEWAITER_ENDPOINTS__TLS_KEY", setting("tls.key")),
    ])
    .await;
    let host = Host::new(&upgrading, "w1");
    let token = upgrading.node("w1").await;
    let upgrade = upgrading.upgrade().await;
    let ran = host.folder.join("ran");
    upgrading
        .script(&upgrade, &format!("#!/bin/sh\ntouch {}\n", ran.display()), &["w1"])
        .await;
    let url = format!("https://{}", upgrading.replica.endpoints);
    for authority in [Some(others.join("ca.crt")), None] {
        let agent = host.agent_of(&upgrading, &token, &url, authority.as_deref()).await;
        host.reports(
            &upgrading,
            UpgradeState::Blocked,
            "the coordinator does not answer at https",
        )
        .await;
        host.reports(&upgrading, UpgradeState::Blocked, "certificate").await;
        runs_nothing(&host, &ran);
        drop(agent);
    }
    let _agent = host
        .agent_of(&upgrading, &token, &url, Some(&ours.join("ca.crt")))
        .await;
    runs_it(&host, &ran).await;
}

/// The coordinator deletes it, and a finalizer that keeps it does not keep the agent at it.
#[tokio::test]
async fn an_order_that_nobody_has_given_is_taken_back_whatever_keeps_it() {
    let upgrading = Upgrading::start().await;
    let host = Host::new(&upgrading, "w1");
    let token = upgrading.node("w1").await;
    let client = || upgrading.world.cluster.client(&Identity::Admin);
    let orders: Api<NodeUpgrade> = Api::namespaced(client(), "containership-core");
    let spec = json!({"upgrade": {"name": "evil", "uid": "evil", "generation": 1}, "id": "evil", "targetVersion": TARGET,
        "nodeTimeoutSeconds": 900, "since": SystemClock::shared().now()});
    let mut forged = NodeUpgrade::of_node("w1", serde_json::from_value(spec).unwrap());
    forged.metadata.owner_references = None;
    forged.metadata.finalizers = Some(vec!["example.com/kept".to_owned()]);
    orders.create(&PostParams::default(), &forged).await.unwrap();
    eventually("the order to be deleted", SOON, async || {
        let order = orders.get("w1").await.map_err(|error| error.to_string())?;
        order
            .metadata
            .deletion_timestamp
            .map(drop)
            .ok_or("it stands".to_owned())
    })
    .await;
    let agent = host.agent(&upgrading, &token).await;
    let reports: Api<NodeReport> = Api::all(client());
    let report = eventually("what the agent has found", SOON, async || {
        let report = reports.get("w1").await.map_err(|error| error.to_string())?;
        let upgrade = report.status.and_then(|status| status.upgrade);
        let found = upgrade.filter(|upgrade| upgrade.follows_own_status);
        found.ok_or_else(|| agent.log_tail())
    })
    .await;
    assert_eq!(
        (report.state, report.id.as_str()),
        (UpgradeState::None, ""),
        "{report:?}"
    );
    runs_nothing(&host, &host.folder.join("ran"));
}

#[tokio::test]
async fn a_writer_of_upgrades_or_a_stolen_token_runs_nothing() {
    let upgrading = Upgrading::start().await;
    let (first, second) = (Host::new(&upgrading, "w1"), Host::new(&upgrading, "w2"));
    let token = upgrading.node("w1").await;
    upgrading.node("w2").await;
    let selector = |node: &str| json!([{"label": "kubernetes.io/hostname", "operator": "=", "value": [node]}]);
    let of_writer = |name: &str, id: &str, node: &str| {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"containership.io/managed": "true"}},
            "spec": {"id": id, "type": "kubernetes", "targetVersion": TARGET, "labelSelector": selector(node), "nodeTimeoutSeconds": 900}}))
        .unwrap()
    };
    // An upgrade that nobody has signed a script for.
    let agent = first.agent(&upgrading, &token).await;
    let ran = first.folder.join("ran");
    upgrading
        .upgrades()
        .create(&PostParams::default(), &of_writer("evil", "evil", "w1"))
        .await
        .unwrap();
    first
        .reports(&upgrading, UpgradeState::Blocked, "the coordinator has no script: 404")
        .await;
    runs_nothing(&first, &ran);
    let over =
        json!({"spec": {"status": {"clusterStatus": "Failed", "currentNode": "", "nodeStatuses": {"w1": "Failed"}}}});
    let ends = async |name: &str| {
        upgrading
            .upgrades()
            .patch(name, &PatchParams::default(), &Patch::Merge(over.clone()))
            .await
            .unwrap();
    };
    ends("evil").await;

    // The script of the cloud's upgrade runs once.
    let upgrade = upgrading.upgrade().await;
    let script = format!("#!/bin/sh\necho ran >> {}\n", ran.display());
    upgrading.script(&upgrade, &script, &["w1"]).await;
    let runs = || fs::read_to_string(&ran).map_or(0, |text| text.lines().count());
    eventually("the script to run", SOON, async || {
        let output = first.run();
        if runs() == 1 {
            Ok(())
        } else {
            Err(format!("{output:?}"))
        }
    })
    .await;
    // A second object with its id, after the first one was declared over: the script is served and offered again, and
    // does not run again.
    ends(&upgrade).await;
    upgrading
        .upgrades()
        .create(&PostParams::default(), &of_writer("again", &upgrade, "w1"))
        .await
        .unwrap();
    eventually("the second one to begin", SOON, async || {
        let object = upgrading
            .upgrades()
            .get("again")
            .await
            .map_err(|error| error.to_string())?;
        match object.spec.status {
            Some(status) if status.cluster_status == UpgradeStatus::InProgress && status.current_node == "w1" => Ok(()),
            status => Err(format!("{status:?}")),
        }
    })
    .await;
    eventually("the second one to be offered", SOON, async || {
        first.current().exists().then_some(()).ok_or_else(|| agent.log_tail())
    })
    .await;
    let current = fs::read(first.current()).unwrap();
    let result = first.shared().join("scripts/upgrade/result.json");
    let output = first.run();
    assert_eq!(runs(), 1, "{output:?}");
    // Anyone who has the files of the agent removes the result: the record of the host, which nobody else has, says how
    // it ended.
    fs::remove_file(&result).unwrap();
    let output = first.run();
    assert_eq!(runs(), 1, "{output:?}");
    assert!(fs::read_to_string(&result).unwrap().contains("Succeeded"), "{output:?}");
    drop(agent);

    // `current` of another user. Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        fs::remove_file(&result).unwrap();
        fs::write(first.current(), current).unwrap();
        std::os::unix::fs::chown(first.current(), Some(12_345), None).unwrap();
        let output = first.run();
        let said = fs::read_to_string(&result).unwrap();
        assert!(said.contains("current belongs to another user"), "{output:?} {said}");
        assert_eq!(runs(), 1);
    }

    stolen_token(&upgrading, &second, &upgrade).await;
    assert_eq!(runs(), 1);
}

/// The token of the agent on w1 gets the script of w1 alone, which the host of w2 refuses, also for anyone who has its
/// files.
async fn stolen_token(upgrading: &Upgrading, second: &Host, upgrade: &str) {
    let stolen = upgrading.coordinator_token(AGENT, AGENT, "w1").await;
    let (status, script) = upgrading.asks(&stolen).await;
    assert!(
        status == 200 && script.contains("node w1") && !script.contains("node w2"),
        "{status} {script}"
    );
    let folder = second.shared().join("scripts/upgrade");
    fs::create_dir_all(&folder).unwrap();
    let name = format!("upgrade-kubernetes-{TARGET}-{upgrade}");
    let order = upgrading.upgrades().get("again").await.unwrap();
    let order = serde_json::to_string(&order).unwrap().replace("\"w1\"", "\"w2\"");
    let script_file = folder.join(format!("{name}.sh"));
    for (path, text) in [
        (script_file.clone(), script),
        (folder.join(format!("{name}.json")), order),
        (folder.join("current"), format!("{}\n", script_file.display())),
    ] {
        fs::write(path, text).unwrap();
    }
    let output = second.run();
    let said = fs::read_to_string(folder.join("result.json")).unwrap_or_default();
    assert!(
        said.contains("is signed for the node w1, and this is w2"),
        "{output:?} {said}"
    );
}
