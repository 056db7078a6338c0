//! kOps' own DaemonSet on a cluster without Tidewaiter, with our image in its place, as docs/takeover.md says; and
//! beside it that of `deploy/controller`, on the same network of the same node.

use kube::ResourceExt as _;
use tidewaiter_testkit::eventually;
use tidewaiter_testkit::images::VERSION;
use tidewaiter_testkit::site::{CONTROL_PLANE, SOON, Site, WORKERS};

const MANIFEST: &str = "crates/tidewaiter/tests/controller/takeover/kops-controller.yaml";
const KOPS: &str = "daemonset/kops-controller";
const OURS: &str = "daemonset/tidewaiter-controller";

/// Sets variables for the access that an instance has by its role.
async fn reaches_aws(site: &Site, daemonset: &str) {
    let endpoint = ("TIDEWAITER_STATE_ENDPOINT", site.moto.endpoint().to_owned());
    let variables = site.moto.environment().into_iter().chain([endpoint]);
    let variables: Vec<_> = variables.map(|(name, value)| format!("{name}={value}")).collect();
    let words = format!("-n kube-system set env {daemonset} {}", variables.join(" "));
    site.kubectl(&words).await;
}

/// Waits until the pod of kOps' DaemonSet on this cluster runs this image.
async fn kops_pod_runs(site: &Site, image: &str) {
    eventually(format!("the pod of kops-controller to run {image}"), SOON, async || {
        let pods = site.pods().await;
        let is_kops = |name: &str| name.starts_with("kops-controller-");
        let pods: Vec<_> = pods.iter().filter(|pod| is_kops(&pod.name_any())).collect();
        let [pod] = pods[..] else {
            return Err(format!("{} pods", pods.len()));
        };
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.clone())
            .unwrap_or_default();
        let runs = statuses.iter().any(|status| status.ready);
        let wanted = pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some(image);
        if runs && wanted {
            Ok(())
        } else {
            Err(format!("{statuses:?}"))
        }
    })
    .await;
}

/// Without what docs/takeover.md has applied before, the pod can do nothing. Kubernetes calls it ready all the same,
/// because kOps' DaemonSet has no probes; so it must not keep the Lease from a kops-controller that can.
async fn leaves_the_lease_to_others(site: &Site) {
    eventually("the log to say what is missing", SOON, async || {
        let log = site.try_kubectl(&format!("-n kube-system logs {KOPS}")).await?;
        let is_told = log.contains("the Lease is free, but this replica is not fit to lead");
        if is_told { Ok(()) } else { Err(log) }
    })
    .await;
    let holder =
        "-n kube-system get lease kops-controller-leader --ignore-not-found -o jsonpath={.spec.holderIdentity}";
    assert_eq!(site.kubectl(holder).await, "");
    let ready =
        "-n kube-system get pods -l k8s-app=kops-controller -o jsonpath={.items[*].status.containerStatuses[*].ready}";
    assert_eq!(site.kubectl(ready).await, "true");
}

/// The container of kops-controller runs our image.
pub async fn takes_over(site: &Site) {
    let [master, worker] = &site.nodes[..] else {
        unreachable!()
    };
    // As nodeup makes it.
    master.run(["mkdir", "-p", "/etc/kubernetes/kops-controller"]).await;
    site.kubectl(&format!("apply -f {MANIFEST}")).await;
    reaches_aws(site, KOPS).await;

    let image = site.images.kops_controller();
    let image = image.name();
    assert_eq!(image, format!("registry.invalid/kops-controller:{VERSION}"));
    site.kubectl(&format!("-n kube-system set image {KOPS} kops-controller={image}"))
        .await;
    site.kubectl("-n kube-system delete pods -l k8s-app=kops-controller")
        .await;
    kops_pod_runs(site, image).await;
    leaves_the_lease_to_others(site).await;

    site.kubectl("apply -f deploy/crds").await;
    site.kubectl("apply -f deploy/controller/rbac.yaml -f deploy/controller/admission.yaml -f deploy/takeover")
        .await;
    site.is_labelled(worker.name(), WORKERS).await;
    site.is_labelled(master.name(), CONTROL_PLANE).await;
    site.verdict_counts(worker, 2, 0).await;

    // Its pod has the addresses. Ours runs all the same, and stands by.
    site.kubectl("apply -f deploy/controller/daemonset.yaml").await;
    reaches_aws(site, OURS).await;
    site.rolled_out("kube-system", OURS).await;
    eventually("our pod to find all addresses in use", SOON, async || {
        let log = site.try_kubectl(&format!("-n kube-system logs {OURS}")).await?;
        match log.matches("another process uses this address").count() {
            3 => Ok(()),
            found => Err(format!("{found} of 3: {log}")),
        }
    })
    .await;
    site.nothing_was_restarted().await;

    // Ours has them, and the Lease, when kOps' pod is gone.
    site.kubectl(&format!("-n kube-system delete {KOPS} --cascade=foreground"))
        .await;
    let node = site.join(5).await;
    site.is_labelled(node.name(), WORKERS).await;
    let metrics = format!("http://{}:3987/metrics", master.address());
    let admin = format!("http://{}:3984/metrics", master.address());
    for url in [metrics, admin] {
        eventually(format!("{url} to be served"), SOON, async || {
            site.get(worker, &url).await.map(drop)
        })
        .await;
    }
    site.is_well().await;
    site.nothing_was_restarted().await;
}
