//! A cluster with the coordinator, and registries that the tests script.

use std::path::Path;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::Registry;
use tidewaiter_testkit::{
    AuditMark, ControlPlane, FakeRegistries, Identity, Process, Program, Reused, Scratch, eventually, free_port, leaks,
};

use super::super::{SOON, coordinator, prepare, settings};
use crate::terminate::DEFAULT_ACCOUNTS;

const CORE: &str = "containership-core";

/// Dropped, it searches what it showed for the secrets of the tests. Whatever writes to its cluster must have ended
/// before: the next test gets it.
pub(crate) struct RegistryWorld {
    pub(crate) cluster: Reused,
    pub(crate) registries: FakeRegistries,
    scratch: Scratch,
    /// The admin address of the last process.
    admin_address: Mutex<String>,
}

impl Drop for RegistryWorld {
    fn drop(&mut self) {
        leaks::search(&self.cluster, Some(&self.scratch));
    }
}

/// Nothing may show these, but for names and regions.
fn hand_out(credentials: &Value) {
    const SHOWN: [&str; 4] = ["username", "region", "access_key_id", "AWS_ACCESS_KEY_ID"];
    for (field, value) in credentials.as_object().into_iter().flatten() {
        if let Some(text) = value.as_str().filter(|_| !SHOWN.contains(&field.as_str())) {
            leaks::secret(text);
        }
    }
}

/// Returns the entry of a pull secret for this account.
pub(crate) fn auth(username: &str, password: &str) -> String {
    STANDARD.encode(format!("{username}:{password}"))
}

/// The content of a pull secret.
pub(crate) fn config(secret: &Secret) -> Value {
    let data = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
    data.and_then(|data| serde_json::from_slice(&data.0).ok())
        .unwrap_or_default()
}

impl RegistryWorld {
    /// With the kube-controller-manager, which ends the deletion of namespaces, or without.
    pub(crate) async fn start(controller_manager: bool) -> Self {
        if !controller_manager {
            return Self::on(ControlPlane::reused(prepare).await).await;
        }
        let cluster = ControlPlane::builder().with_controller_manager().start().await;
        prepare(&cluster).await;
        Self::on(cluster.into()).await
    }

    pub(crate) async fn on(cluster: Reused) -> Self {
        cluster.apply(DEFAULT_ACCOUNTS).await;
        Self {
            cluster,
            registries: FakeRegistries::start().await,
            scratch: Scratch::new("registry-world"),
            admin_address: Mutex::default(),
        }
    }

    pub(crate) fn admin(&self) -> Client {
        self.cluster.client(&Identity::Admin)
    }

    pub(crate) fn coordinator(&self, environment: &[(&str, &str)]) -> Process {
        self.coordinator_through(&self.cluster.kubeconfig(&coordinator()), environment)
    }

    /// The same over a proxy that fails.
    pub(crate) fn coordinator_through(&self, kubeconfig: &Path, environment: &[(&str, &str)]) -> Process {
        let address = || format!("127.0.0.1:{}", free_port());
        let admin = address();
        let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
            .arg("coordinator")
            .metrics(&admin)
            .env("TIDEWAITER_KUBECONFIG", kubeconfig)
            .env("TIDEWAITER_ADMIN_ADDRESS", &admin)
            .env("TIDEWAITER_HEALTH_ADDRESS", address())
            .env("TIDEWAITER_ENDPOINTS__ADDRESS", address())
            .env("TIDEWAITER_LOG__FILTER", "debug");
        *self.admin_address.lock().unwrap() = admin;
        // Its cloud is away: the tests write what the mirror would.
        let away = settings::away();
        let program = away
            .iter()
            .fold(program, |program, (key, value)| program.env(key, value));
        let program = self
            .registries
            .environment()
            .into_iter()
            .fold(program, |program, (key, value)| program.env(key, value));
        let program = environment
            .iter()
            .fold(program, |program, (key, value)| program.env(key, value));
        Process::start(&self.scratch, program)
    }

    pub(crate) fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.admin())
    }

    pub(crate) fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.admin(), namespace)
    }

    pub(crate) async fn namespace(&self, name: &str) {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.namespaces()
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }

    /// Writes a registry with a password, as the mirror of the cloud does.
    pub(crate) async fn registry(&self, id: &str, host: &str, username: &str, password: &str) {
        let credentials = json!({"username": username, "password": password});
        self.stored(id, "private", host, &credentials).await;
    }

    /// The same with any credentials.
    pub(crate) async fn stored(&self, id: &str, provider: &str, address: &str, credentials: &Value) {
        self.credentials(id, provider, address, credentials).await;
        self.registry_object(id, &json!({"provider": provider, "serveraddress": address}))
            .await;
    }

    /// Only the Secret.
    pub(crate) async fn credentials(&self, id: &str, provider: &str, address: &str, credentials: &Value) {
        hand_out(credentials);
        let name = format!("registry-{id}");
        let text = |text: &str| STANDARD.encode(text);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "labels": {"tidewaiter.dev/registry": id, "containership.io/managed": "true"}},
            "type": "Opaque",
            "data": {"provider": text(provider), "serveraddress": text(address), "email": "",
                "credentials.json": text(&credentials.to_string())},
        });
        let params = PatchParams::apply("tidewaiter/sync-registry-credentials").force();
        self.secrets(CORE)
            .patch(&name, &params, &Patch::Apply(secret))
            .await
            .unwrap();
    }

    /// A Registry with these fields in its spec.
    pub(crate) async fn registry_object(&self, id: &str, fields: &Value) {
        hand_out(&fields["credentials"]);
        let mut spec = fields.clone();
        spec["id"] = json!(id);
        let registry =
            json!({"apiVersion": "containership.io/v3", "kind": "Registry", "metadata": {"name": id}, "spec": spec});
        let api: Api<Registry> = Api::namespaced(self.admin(), CORE);
        // An address that its definition refuses is not what is under test.
        let params = PatchParams::apply("tidewaiter/sync-registries").force();
        api.patch(id, &params, &Patch::Apply(registry)).await.unwrap();
    }

    /// The registry is removed from the cloud.
    pub(crate) async fn unregister(&self, id: &str) {
        let api: Api<Registry> = Api::namespaced(self.admin(), CORE);
        api.delete(id, &DeleteParams::default()).await.unwrap();
        self.secrets(CORE)
            .delete(&format!("registry-{id}"), &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Adds an entry to the pull secrets of a service account, which exists afterwards.
    pub(crate) async fn entries_of_admin(&self, namespace: &str, account: &str, entry: &str) {
        let object = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account},
            "imagePullSecrets": [{"name": entry}]});
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin(), namespace);
        let params = PatchParams::apply("an-admin").force();
        accounts.patch(account, &params, &Patch::Apply(object)).await.unwrap();
    }

    pub(crate) async fn secret(&self, namespace: &str, name: &str) -> Option<Secret> {
        self.secrets(namespace).get_opt(name).await.unwrap()
    }

    /// Waits until the pull secret in this namespace has this password for this host, and our labels.
    pub(crate) async fn has_secret(&self, namespace: &str, id: &str, host: &str, password: &str) {
        eventually(format!("{id} in {namespace} with {password}"), SOON, async || {
            let secret = self.secret(namespace, id).await.ok_or("none")?;
            let labels = secret.metadata.labels.clone().unwrap_or_default();
            let label = |key: &str| labels.get(key).map(String::as_str);
            if label("containership.io/managed") != Some("true") || label("controller") != Some(id) {
                return Err("other labels");
            }
            if config(&secret)["auths"][host]["auth"] == auth("u", password) {
                Ok(())
            } else {
                Err("another content")
            }
        })
        .await;
    }

    /// Waits until the pull secret `r` in this namespace has this token of ECR.
    pub(crate) async fn has_token(&self, namespace: &str, token: &str) {
        eventually(format!("{token} in {namespace}"), SOON, async || {
            let secret = self.secret(namespace, "r").await.ok_or_else(|| "none".to_owned())?;
            let config = config(&secret);
            let entry = &config["auths"]["https://123456789012.dkr.ecr.us-east-1.amazonaws.com"];
            if entry["auth"] == auth("AWS", token) {
                return Ok(());
            }
            Err(config.to_string())
        })
        .await;
    }

    /// The Lease of a process that was killed has expired.
    pub(crate) async fn expire_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.admin(), CORE);
        leases
            .delete("tidewaiter-coordinator", &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Waits until the pull secret is gone.
    pub(crate) async fn gone(&self, namespace: &str, id: &str) {
        eventually(format!("no {id} in {namespace}"), SOON, async || {
            match self.secret(namespace, id).await {
                None => Ok(()),
                Some(_) => Err("it is there"),
            }
        })
        .await;
    }

    /// Waits until the service account has exactly these pull secrets.
    pub(crate) async fn attached(&self, namespace: &str, account: &str, names: &[&str]) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin(), namespace);
        eventually(format!("{names:?} at {account} in {namespace}"), SOON, async || {
            let account = accounts.get(account).await.map_err(|error| error.to_string())?;
            let entries = account.image_pull_secrets.into_iter().flatten();
            let mut entries: Vec<String> = entries.map(|entry| entry.name).collect();
            entries.sort_unstable();
            if entries == names {
                Ok(())
            } else {
                Err(format!("{entries:?}"))
            }
        })
        .await;
    }

    /// Waits for an Event with this reason on the object; returns its note.
    pub(crate) async fn event(&self, namespace: &str, about: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.admin(), namespace);
        eventually(format!("{reason} on {about}"), SOON, async || {
            let all = events
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let regarding = |event: &Event| event.regarding.as_ref().and_then(|object| object.name.clone());
            let said: Vec<_> = all
                .items
                .iter()
                .filter(|event| regarding(event).as_deref() == Some(about))
                .collect();
            if let Some(event) = said.iter().find(|event| event.reason.as_deref() == Some(reason)) {
                return Ok(event.note.clone().unwrap_or_default());
            }
            Err(format!(
                "{:?}",
                said.iter()
                    .map(|event| (&event.reason, &event.note))
                    .collect::<Vec<_>>()
            ))
        })
        .await
    }

    /// Returns `/metrics` of the last process.
    pub(crate) async fn metrics(&self) -> String {
        let url = format!("http://{}/metrics", self.admin_address.lock().unwrap());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.get(url).send().await.unwrap().text().await.unwrap()
    }

    /// Waits until the last process shows this line at `/metrics`.
    pub(crate) async fn has_metric(&self, line: &str) {
        eventually(format!("the metric {line}"), SOON, async || {
            let metrics = self.metrics().await;
            let ours: Vec<&str> = metrics
                .lines()
                .filter(|line| line.starts_with("tidewaiter_registr"))
                .collect();
            if ours.contains(&line) {
                Ok(())
            } else {
                Err(ours.join("\n"))
            }
        })
        .await;
    }

    /// The writes of the coordinator since `mark`, except those of its Lease and of `CloudSync`, as
    /// `verb resource namespace`.
    pub(crate) async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        let writes = self.cluster.audit().await.since(mark).by(&coordinator()).writes();
        let writes = writes.iter().map(|entry| (entry.verb.as_str(), &entry.object_ref));
        // Events of CloudSync are in the namespace of objects without one.
        writes
            .filter(|(_, object)| !["leases", "cloudsyncs"].contains(&object.resource.as_str()))
            .filter(|(_, object)| (object.resource.as_str(), object.namespace.as_str()) != ("events", "default"))
            .map(|(verb, object)| format!("{verb} {} {}", object.resource, object.namespace))
            .collect()
    }
}
