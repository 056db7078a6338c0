//! A plugin on real nodes: its jobs run, its Deployment is rolled out, a job that fails says why, and everything goes
//! with it.

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_testkit::site::{Cloud, SOON, Site};
use tidewaiter_testkit::{Image, assets, eventually};

/// A program that ends: crane, which fails when it is not told enough.
const TOOL: &str = "registry.invalid/tool:1";
const FAILS: &str = "accepts 1 arg(s), received 0";

const NAMESPACE: &str = "containership-core";

/// The end of the job after the objects.
#[derive(Clone, Copy)]
enum After {
    Nothing,
    Fails,
    Succeeds,
}

impl After {
    fn jobs(self) -> Value {
        let after = match self {
            Self::Nothing => json!([]),
            Self::Fails => json!([job("after", "manifest")]),
            Self::Succeeds => json!([job("after", "version")]),
        };
        json!({"pre_apply": [job("before", "version")], "post_apply": after})
    }
}

fn job(name: &str, command: &str) -> Value {
    let container = json!({"name": "main", "image": TOOL, "args": [command]});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"activeDeadlineSeconds": 300, "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}})
}

/// Pods that count as available after a moment, so a rollout takes its time.
fn deployment(version: &str) -> Value {
    let labels = json!({"app": "status"});
    let container =
        json!({"name": "main", "image": "testkit.invalid/pause:1", "env": [{"name": "VERSION", "value": version}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "status", "namespace": "default"},
        "spec": {"replicas": 2, "minReadySeconds": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}}})
}

struct Plugin<'a> {
    site: &'a Site,
    cloud: &'a Cloud,
    id: String,
}

impl Plugin<'_> {
    async fn send(&self, method: Method, path: &str, body: Value) -> Value {
        self.cloud.must(&self.site.nodes[0], method, path, body).await
    }

    /// Adds a version to the catalogue, and has the cluster want it.
    async fn wants(&mut self, version: &str, after: After) {
        let path = format!("/v3/plugins/status/implementations/page/versions/{version}");
        self.send(Method::PUT, &path, json!({ "version": version })).await;
        let manifests = json!({"manifests": [[deployment(version)]], "jobs": after.jobs()});
        self.send(Method::PUT, &format!("{path}/manifests"), manifests).await;
        let spec = json!({"type": "status", "implementation": "page", "version": version});
        if self.id.is_empty() {
            let made = self.send(Method::POST, "^/plugins", spec).await;
            made["id"].as_str().unwrap().clone_into(&mut self.id);
        } else {
            self.send(Method::PUT, &format!("^/plugins/{}", self.id), spec).await;
        }
    }

    /// Waits until the version is ready. Then its Deployment is rolled out.
    async fn is_ready(&self, version: &str) {
        let status = format!("-n {NAMESPACE} get plugin {} -o json", self.id);
        let what = format!("version {version} of the plugin to be ready");
        eventually(what, SOON, async || {
            let plugin: Value = serde_json::from_str(&self.site.try_kubectl(&status).await?).unwrap();
            let status = &plugin["status"];
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            let is_ready = conditions
                .iter()
                .any(|it| it["type"] == "Ready" && it["status"] == "True");
            if is_ready && status["appliedVersion"] == version {
                Ok(())
            } else {
                Err(status.to_string())
            }
        })
        .await;
        let get = "-n default get deployment status -o json";
        let deployment: Value = serde_json::from_str(&self.site.kubectl(get).await).unwrap();
        let status = &deployment["status"];
        let counts = ["updatedReplicas", "availableReplicas", "replicas"].map(|field| status[field].as_u64());
        assert_eq!(counts, [Some(2); 3], "it is rolled out: {status}");
        let template = &deployment["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"];
        assert_eq!(template, version);
    }
}

pub async fn is_applied_and_goes(site: &Site, cloud: &Cloud) {
    let crane = assets::node_programs().join("crane");
    let image = Image::build(site.scratch.path(), TOOL, &[(crane.as_path(), "crane")], &["/crane"]).await;
    site.registry.push(&image).await;
    let mut plugin = Plugin {
        site,
        cloud,
        id: String::new(),
    };
    plugin.wants("1.0.0", After::Nothing).await;
    plugin.is_ready("1.0.0").await;
    let jobs = "-n default get jobs -o jsonpath={.items[*].status.succeeded}";
    assert_eq!(site.kubectl(jobs).await, "1");

    plugin.wants("1.1.0", After::Fails).await;
    let events =
        format!("-n {NAMESPACE} get events.events.k8s.io -o jsonpath={{.items[?(@.reason==\"JobFailed\")].note}}");
    eventually("the Event to have the end of the log", SOON, async || {
        let told = site.try_kubectl(&events).await?;
        if told.contains(FAILS) { Ok(()) } else { Err(told) }
    })
    .await;
    let stalled = format!(
        "-n {NAMESPACE} wait --for=condition=Stalled --timeout=4m plugin/{}",
        plugin.id
    );
    site.kubectl(&stalled).await;

    plugin.wants("1.2.0", After::Succeeds).await;
    plugin.is_ready("1.2.0").await;

    plugin
        .send(Method::DELETE, &format!("^/plugins/{}", plugin.id), Value::Null)
        .await;
    eventually("nothing of the plugin to be left", SOON, async || {
        let left = site.try_kubectl("-n default get deployments,jobs,pods -o name").await?;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}
