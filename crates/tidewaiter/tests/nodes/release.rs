//! A newer image, and back, on two nodes of the control plane: nobody misses labels, the Lease, a scrape, an answer of
//! the cloud or a key.

use std::time::Duration;

use serde_json::{Value, json};
use tidewaiter_testkit::command::printed;
use tidewaiter_testkit::images::VERSION;
use tidewaiter_testkit::site::{CONTROL_PLANE, Cloud, NEWER, REPOSITORY, Site, WORKERS, client, cloud, plain};
use tidewaiter_testkit::{Identity, Kubelet};

use crate::agents;
use crate::install::{install, is_mirrored, merged};
use crate::observer::{Observer, longest_silence};
use crate::{now, site, took};

/// The longest time without a leader: one that ends and finds no time to release its Lease leaves it for 15 seconds,
/// and the next one looks every two.
const LEADERLESS: Duration = Duration::from_secs(20);

async fn rolled_out(site: &Site) {
    tokio::join!(
        site.rolled_out("kube-system", "daemonset/tidewaiter-controller"),
        site.rolled_out("containership-core", "deployment/tidewaiter-coordinator"),
        site.rolled_out(cloud::NAMESPACE, "deployment/tidewaiter-cloud"),
        site.rolled_out("tidewaiter-agent", "daemonset/tidewaiter-agent"),
    );
}

/// An agent on a Node without a machine would never be rolled out.
async fn leaves(site: &Site, node: &Kubelet) {
    site.kubectl(&format!("delete node {}", node.name())).await;
}

/// Every pod of ours has this tag.
async fn runs(site: &Site, tag: &str) {
    let image = format!("{REPOSITORY}:{tag}");
    for pod in site.pods().await {
        let spec = pod.spec.unwrap();
        assert_eq!(spec.containers[0].image.as_deref(), Some(image.as_str()));
    }
}

#[tokio::test]
async fn an_upgrade_and_its_rollback_are_not_noticed() {
    let site = site([CONTROL_PLANE; 2]).await;
    let newer = format!("{REPOSITORY}:{NEWER}");
    tokio::join!(site.nodes[0].pull(&newer), site.nodes[1].pull(&newer));
    let cloud = Cloud::install(&site).await;
    let values = merged(install(&site, &cloud).await, json!({"agent": {"enabled": true}}));
    agents::are_installed(&site).await;
    agents::keys_are_watched(&site, &cloud).await;
    for node in &site.nodes {
        site.is_labelled(node.name(), CONTROL_PLANE).await;
    }
    is_mirrored(&site, &cloud, &site.nodes[0], "before").await;

    let metrics = format!(
        "http://{}:3987/metrics",
        site.service("kube-system", "kops-controller").await
    );
    let scrapes: Vec<_> = site
        .nodes
        .iter()
        .map(|node| Observer::start(node, metrics.clone(), plain))
        .collect();
    let authority = cloud.authority.clone();
    let health = format!("https://{}/healthz", cloud.address);
    let requests = Observer::start(&site.nodes[0], health, move || client(&authority));
    let mark = site.control_plane.audit_mark().await;

    let start = now();
    let tag = |values: Value| merged(values, json!({"image": {"repository": REPOSITORY, "tag": NEWER}}));
    site.helm("upgrade tidewaiter deploy/chart", &tag(values)).await;
    let of_the_cloud = json!({"image": {"repository": REPOSITORY, "tag": NEWER}});
    site.helm(
        &format!(
            "upgrade cloud deploy/chart --reuse-values --namespace {}",
            cloud::NAMESPACE
        ),
        &of_the_cloud,
    )
    .await;
    let node = site.join(3).await;
    site.is_labelled(node.name(), WORKERS).await;
    took("from helm upgrade to the labels of a new Node", start);
    leaves(&site, &node).await;
    rolled_out(&site).await;
    took("helm upgrade", start);
    runs(&site, NEWER).await;
    is_mirrored(&site, &cloud, &site.nodes[1], "upgraded").await;

    let start = now();
    for release in [
        "rollback tidewaiter",
        &format!("rollback cloud --namespace {}", cloud::NAMESPACE),
    ] {
        printed(&mut site.helm_alone(release)).await;
    }
    let node = site.join(4).await;
    site.is_labelled(node.name(), WORKERS).await;
    leaves(&site, &node).await;
    rolled_out(&site).await;
    took("helm rollback", start);
    runs(&site, VERSION).await;
    is_mirrored(&site, &cloud, &site.nodes[0], "rolled-back").await;
    site.is_well().await;
    agents::keys_were_always_there(&site).await;
    site.nothing_was_restarted().await;

    for lease in ["kops-controller-leader", "tidewaiter-coordinator"] {
        let silence = longest_silence(&site.control_plane, mark, lease).await;
        println!("the Lease {lease} was silent for {silence:?} at most");
        assert!(silence < LEADERLESS, "{silence:?}");
    }
    // Nobody took a label of the real nodes away, or wrote one again.
    let controller = Identity::service_account("kube-system", "tidewaiter-controller");
    let audit = site.control_plane.audit().await.since(mark).by(&controller).writes();
    let is_ours = |name: &str| site.nodes.iter().any(|node| node.name() == name);
    let written = audit
        .iter()
        .filter(|entry| entry.object_ref.resource == "nodes" && is_ours(&entry.object_ref.name));
    assert_eq!(written.count(), 0);
    for observer in scrapes {
        observer.end().await.is_complete("scrapes");
    }
    requests.end().await.is_complete("requests of the cloud");
}
