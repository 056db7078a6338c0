//! Nodes of two versions, images from both sources, Services, and what the API server asks of a kubelet.

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, LogParams};
use tidewaiter_testkit::{Identity, KubeletVersion, NodeOptions, RealNode, Registry, eventually};

use crate::{SOON, busybox, control_plane, pods, run_pod};

const SERVERS: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: server}
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      nodeSelector: {example.com/runs: server}
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: registry.invalid/server:1
        args: [httpd, -f, -h, /bin, -p, '8080']
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec:
  selector: {app: server}
  ports: [{port: 80, targetPort: 8080}]
";

#[tokio::test]
async fn two_versions_run_images_from_an_archive_and_from_a_registry() {
    let control_plane = control_plane().await;
    let options = NodeOptions::new("current")
        .label("node-role.kubernetes.io/control-plane", "")
        .taint("node-role.kubernetes.io/control-plane", "NoSchedule")
        .provider_id("aws:///us-test-1a/i-00000000000000001")
        .api_server_on_loopback();
    let current = RealNode::start(control_plane, KubeletVersion::Current, &options);
    let options = NodeOptions::new("previous").label("example.com/runs", "server");
    let previous = RealNode::start(control_plane, KubeletVersion::Previous, &options);
    let (current, previous) = tokio::join!(current, previous);
    for (node, version) in [
        (&current, KubeletVersion::Current),
        (&previous, KubeletVersion::Previous),
    ] {
        let info = node.node().await.status.unwrap().node_info.unwrap();
        assert_eq!(info.kubelet_version, version.as_str());
    }
    let node = current.node().await;
    assert!(
        node.metadata
            .labels
            .unwrap()
            .contains_key("node-role.kubernetes.io/control-plane")
    );
    let spec = node.spec.unwrap();
    assert_eq!(
        spec.provider_id.as_deref(),
        Some("aws:///us-test-1a/i-00000000000000001")
    );
    assert_eq!(spec.taints.unwrap()[0].key, "node-role.kubernetes.io/control-plane");
    current
        .run(["socat", "-u", "OPEN:/dev/null", "TCP:127.0.0.1:443"])
        .await;

    // From the registry, by way of the controllers and the scheduler.
    let registry = Registry::start(control_plane).await;
    registry.push(&busybox("registry.invalid/server:1").await).await;
    control_plane.apply(SERVERS).await;
    // From an archive, on the other node.
    let image = busybox("docker.io/library/client:1").await;
    current.load(&image).await;
    let service: Service = Api::default_namespaced(control_plane.client(&Identity::Admin))
        .get("server")
        .await
        .unwrap();
    let address = service.spec.unwrap().cluster_ip.unwrap();
    let fetch = format!(
        "until busybox wget -q -O /dev/null http://{address}/sh; do busybox usleep 100000; done; \
         echo fetched; busybox sleep 9999"
    );
    run_pod(&current, &image, &["sh", "-c", &fetch]).await;
    eventually("the pod to reach the Service", SOON, async || {
        match pods().await.logs("current", &LogParams::default()).await {
            Ok(log) if log.ends_with("fetched\n") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let ask = r"printf 'GET / HTTP/1.0\r\n\r\n' | busybox nc -w 30 10.96.0.1 443";
    let mut kubectl = control_plane.kubectl(&Identity::Admin);
    let output = kubectl
        .args(["exec", "current", "--", "sh", "-c", ask])
        .output()
        .unwrap();
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(
        answer.contains("Client sent an HTTP request to an HTTPS server"),
        "{output:?}"
    );

    previous
        .run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/root/key"])
        .await;
    let key = previous.run(["cat", "/root/key.pub"]).await;
    current
        .run(["install", "-D", "/dev/null", "/root/.ssh/authorized_keys"])
        .await;
    current
        .run(["sh", "-c", "echo \"$1\" >/root/.ssh/authorized_keys", "sh", &key])
        .await;
    let host = current.address().to_string();
    let login = [
        "ssh",
        "-i",
        "/root/key",
        "-o",
        "StrictHostKeyChecking=no",
        &host,
        "hostname",
    ];
    assert_eq!(previous.run(login).await, "current\n");
}
