//! A real etcd and kube-apiserver of a test's own, and kube-controller-manager, kube-scheduler and real nodes on
//! request.
//!
//! Authorization is Node and RBAC, `NodeRestriction` is on, users are client certificates, every request is in the
//! audit log. Invariants: a control plane that was returned answers; its port and its data stay the same over
//! restarts; nothing of it is left when it is dropped or its process ends, however that ends.

mod audit;
mod builder;
mod clients;
mod etcd;
mod identity;
mod manifests;
mod pki;
mod reused;
mod servers;
mod tokens;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::OnceCell;

use self::audit::AuditLog;
pub use self::audit::{Audit, AuditEntry, AuditMark};
pub use self::builder::ControlPlaneBuilder;
use self::builder::ready;
use self::clients::Clients;
use self::etcd::Etcd;
pub use self::identity::Identity;
use self::pki::Pki;
pub(crate) use self::pki::write_private;
pub use self::reused::Reused;
pub(crate) use self::servers::SERVICES;
use crate::real_node::Network;
use crate::{Process, Scratch, assets, eventually, kubeconfig};

/// The time in which servers must start: 3 s on an idle machine, much more where many tests start theirs.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// The credentials for a client in another file system, as PEM.
pub(crate) struct Credentials {
    pub(crate) authority: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A running control plane. Dropped, it is gone.
#[derive(Debug)]
pub struct ControlPlane {
    etcd: Process,
    apiserver: Process,
    controller_manager: Option<Process>,
    scheduler: Option<Process>,
    pki: Pki,
    address: SocketAddr,
    /// The last number given: kubeconfig files, markers.
    numbers: AtomicU64,
    audit: Mutex<AuditLog>,
    clients: Clients,
    scratch: Scratch,
    /// Of its real nodes.
    network: Option<Arc<Network>>,
}

impl ControlPlane {
    /// etcd and kube-apiserver, ready.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// For more than [`start`](Self::start) gives.
    pub fn builder() -> ControlPlaneBuilder {
        ControlPlaneBuilder::default()
    }

    /// One control plane for all tests of this test binary that ask for it; names must keep them apart, and none may
    /// stop it.
    ///
    /// The trap: Rust drops no statics, so no destructor takes it away. The [`Scratch`]'s watchdog does, when the test
    /// process ends.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// Returns the address of the API server.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.address)
    }

    /// The same without `https://`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the configuration for a client of this identity.
    #[must_use]
    pub fn config(&self, identity: &Identity) -> Config {
        config(&self.pki, self.address, identity)
    }

    /// The client of this identity. It belongs to the runtime that it is made in, and each `#[tokio::test]` has its
    /// own: never keep one in a static.
    #[must_use]
    pub fn client(&self, identity: &Identity) -> Client {
        self.clients
            .get(identity, || Client::try_from(self.config(identity)).expect("a client"))
    }

    /// A new kubeconfig file of this identity, readable by its owner only, good while the control plane lives.
    #[must_use]
    pub fn kubeconfig(&self, identity: &Identity) -> PathBuf {
        self.kubeconfig_with(identity, &json!({"server": self.url()}))
    }

    /// The same with these fields of the cluster: another address, a proxy. The certificate is still checked against
    /// the name `kubernetes.default.svc`.
    #[must_use]
    pub fn kubeconfig_with(&self, identity: &Identity, fields: &serde_json::Value) -> PathBuf {
        let files = self.pki.client(identity);
        self.write_kubeconfig(
            &self.kubeconfig_cluster(fields),
            &json!({"client-certificate": files.certificate, "client-key": files.key}),
        )
    }

    /// The same with another user in it, by the fields of a kubeconfig's `user`: a token, a credential plugin.
    #[must_use]
    pub fn kubeconfig_of(&self, user: &serde_json::Value) -> PathBuf {
        self.write_kubeconfig(&self.kubeconfig_cluster(&json!({"server": self.url()})), user)
    }

    fn kubeconfig_cluster(&self, fields: &serde_json::Value) -> serde_json::Value {
        let mut cluster = json!({
            "certificate-authority": self.pki.path("ca.crt"),
            "tls-server-name": "kubernetes.default.svc",
        });
        let fields = fields.as_object().expect("fields").clone();
        cluster.as_object_mut().expect("fields").extend(fields);
        cluster
    }

    pub(crate) fn write_kubeconfig(&self, cluster: &serde_json::Value, user: &serde_json::Value) -> PathBuf {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        kubeconfig::write(&self.scratch, &number.to_string(), cluster, user)
    }

    /// kubectl, as this identity; arguments are the caller's to add.
    #[must_use]
    pub fn kubectl(&self, identity: &Identity) -> Command {
        let mut command = Command::new(assets::binary("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig(identity));
        // Its discovery cache would be shared with other control planes that had the same port.
        command
            .arg("--cache-dir")
            .arg(self.scratch.path().join("kubectl-cache"));
        command
    }

    /// Applies the manifests of a file or of a folder (`*.yaml`, `*.yml`) as admin, and waits until definitions are
    /// Established.
    ///
    /// # Panics
    /// When one cannot be read or applied.
    pub async fn apply_manifests(&self, path: impl AsRef<Path>) {
        let mut objects = Vec::new();
        for file in manifests::files(path.as_ref()) {
            let origin = file.display().to_string();
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{origin}: {error}"));
            objects.extend(manifests::parse(&origin, &text));
        }
        manifests::apply(&self.client(&Identity::Admin), objects).await;
    }

    /// Applies the documents of a YAML text as admin, and waits until definitions are Established.
    ///
    /// # Panics
    /// When one cannot be read or applied.
    pub async fn apply(&self, yaml: &str) {
        manifests::apply(&self.client(&Identity::Admin), manifests::parse("the given YAML", yaml)).await;
    }

    /// Copies an object many times, past the API server: about a thousand in a second. `key` is where the API server
    /// stores it (`minions/<name>` for a Node, `<group>/<plural>/<name>` for a custom resource). In each copy and in
    /// its key, each of `texts` is replaced by another one of the same length: some kinds are stored in a binary form
    /// that counts bytes.
    ///
    /// # Panics
    /// When there is no such object, or a text has another length.
    pub async fn copy<const N: usize>(
        &self,
        key: &str,
        texts: [&str; N],
        copies: impl IntoIterator<Item = [String; N]>,
    ) {
        let etcd = Etcd::of(self.scratch.path());
        let key = format!("{}{key}", etcd::ROOT);
        let template = etcd::Template::new(&key, &etcd.value(&key).await, texts);
        etcd.commit(copies.into_iter().map(|copy| template.copy(&copy)).collect())
            .await;
    }

    /// Stores an object in JSON, past the API server: as another version of it would have stored the object. `key` as
    /// for [`copy`](Self::copy).
    pub async fn store(&self, key: &str, object: &serde_json::Value) {
        let key = format!("{}{key}", etcd::ROOT);
        let change = etcd::Change::put(
            &etcd::encode(key.as_bytes()),
            &etcd::encode(object.to_string().as_bytes()),
        );
        Etcd::of(self.scratch.path()).commit(vec![change]).await;
    }

    /// Every object of the API server as it is stored, with its key, past the API server.
    pub(crate) async fn objects(&self) -> Vec<(String, Vec<u8>)> {
        let objects = Etcd::of(self.scratch.path()).objects(true).await;
        let plain = objects
            .into_iter()
            .map(|(key, object)| (etcd::plain(&key), object.bytes()));
        plain.collect()
    }

    /// Returns the requests to the API server so far. Every request whose answer a client has seen is in it.
    ///
    /// # Panics
    /// When the API server does not run: stop counting before you stop it.
    pub async fn audit(&self) -> Audit {
        // An entry is written just after its answer, so a request of our own that comes later marks the end.
        let marker = format!("audit-marker-{}", self.numbers.fetch_add(1, Ordering::Relaxed));
        let api: Api<ServiceAccount> = Api::default_namespaced(self.client(&Identity::Admin));
        api.get_opt(&marker).await.expect("the API server answers");
        let is_marker = |entry: &AuditEntry| entry.object_ref.name.starts_with("audit-marker-");
        eventually("the audit log to tell of its marker", START_TIMEOUT, async || {
            let mut log = self.audit.lock();
            let entries = log.read(&servers::audit_log(self.scratch.path()));
            if entries.iter().rev().any(|entry| entry.object_ref.name == marker) {
                Ok(Audit(entries.to_vec()).filter(|entry| !is_marker(entry)))
            } else {
                Err(format!("{} entries", entries.len()))
            }
        })
        .await
    }

    /// The present end of the audit log, for [`Audit::since`].
    ///
    /// # Panics
    /// When the API server does not run.
    pub async fn audit_mark(&self) -> AuditMark {
        AuditMark(self.audit().await.count())
    }

    /// The etcd process: to stop, kill, pause and resume.
    #[must_use]
    pub fn etcd(&self) -> &Process {
        &self.etcd
    }

    /// The kube-apiserver process: to stop, kill, pause and resume.
    #[must_use]
    pub fn apiserver(&self) -> &Process {
        &self.apiserver
    }

    /// The kube-controller-manager process, when it was asked for.
    #[must_use]
    pub fn controller_manager(&self) -> Option<&Process> {
        self.controller_manager.as_ref()
    }

    /// The kube-scheduler process, when there are to be real nodes.
    #[must_use]
    pub fn scheduler(&self) -> Option<&Process> {
        self.scheduler.as_ref()
    }

    /// The network of its real nodes.
    ///
    /// # Panics
    /// When it was started without.
    pub(crate) fn network(&self) -> &Arc<Network> {
        let network = self.network.as_ref();
        network.expect("real nodes need a control plane of ControlPlane::builder().with_nodes()")
    }

    /// The certificate and the key of this identity, and the certificate of the authority, as PEM.
    pub(crate) fn credentials(&self, identity: &Identity) -> Credentials {
        let read = |path: &Path| std::fs::read_to_string(path).expect("our own file");
        let files = self.pki.client(identity);
        Credentials {
            authority: read(&self.pki.path("ca.crt")),
            certificate: read(&files.certificate),
            key: read(&files.key),
        }
    }

    /// The folder with its logs, keys and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.scratch.path()
    }

    /// Starts what does not run of etcd and kube-apiserver, on the same data and port, and waits until it answers.
    ///
    /// # Panics
    /// When it does not come up; with the end of its log.
    pub async fn recover(&self) {
        self.clients.forget();
        let config = self.config(&Identity::Admin);
        eventually("its own port to be free again", START_TIMEOUT, async || {
            self.etcd.start_again();
            self.apiserver.start_again();
            if ready(&config, &self.apiserver, &self.etcd).await {
                Ok(())
            } else {
                Err("another process holds it")
            }
        })
        .await;
    }

    /// A copy of what etcd stores now, as a crash at this moment would leave it.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn backup(&self) -> PathBuf {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let backup = self.folder().join(format!("backup-{number}"));
        self.etcd.pause();
        copy_folder(&self.folder().join("etcd"), &backup);
        self.etcd.resume();
        backup
    }

    /// Has etcd store what is in this backup, as an administrator who restores it: kube-apiserver and etcd are stopped
    /// meanwhile.
    ///
    /// # Panics
    /// When it cannot be copied, or the servers do not come up.
    pub async fn restore(&self, backup: &Path) {
        self.apiserver.kill();
        self.etcd.kill();
        let data = self.folder().join("etcd");
        std::fs::remove_dir_all(&data).expect("the data of etcd");
        copy_folder(backup, &data);
        self.recover().await;
    }

    /// Stops kube-apiserver with SIGTERM, which ends all watches, and starts it again on the same data and port.
    ///
    /// # Panics
    /// When it does not come up; with the end of its log.
    pub async fn restart_apiserver(&self) {
        self.apiserver.stop(START_TIMEOUT).await;
        self.recover().await;
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp").success(), "{} is not copied", from.display());
}

fn url(address: SocketAddr) -> String {
    format!("https://{address}")
}

fn config(pki: &Pki, address: SocketAddr, identity: &Identity) -> Config {
    let files = pki.client(identity);
    let mut config = Config::new(url(address).parse().expect("an URL"));
    config.root_cert = Some(vec![pki.authority()]);
    config.auth_info.client_certificate = Some(files.certificate.display().to_string());
    config.auth_info.client_key = Some(files.key.display().to_string());
    config
}
