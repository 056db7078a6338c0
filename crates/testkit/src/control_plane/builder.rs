//! Starts a control plane: on a port that nobody else has taken meanwhile, and with what else it is to have.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;
use kube::{Client, Config};
use parking_lot::Mutex;

use super::clients::Clients;
use super::pki::{Pki, write_private};
use super::{ControlPlane, Identity, START_TIMEOUT, config, servers};
use crate::real_node::Network;
use crate::{Process, Scratch, assets, eventually, free_port};

/// The number of ports that are tried when a server finds its own taken.
const MAX_PORT_ATTEMPTS: usize = 10;

/// Concurrent starts on this machine, over all test processes. A start is CPU-bound: of a dozen on two slow cores, none
/// is ready in time.
const MAX_CONCURRENT_STARTS: usize = 2;
const START_PERMIT_TIMEOUT: Duration = Duration::from_mins(15);

/// The parts of a control plane besides etcd and kube-apiserver.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ControlPlaneBuilder {
    controller_manager: bool,
    nodes: bool,
    authentication: Option<PathBuf>,
}

impl ControlPlaneBuilder {
    /// Runs kube-controller-manager too: for garbage collection, namespaces, service accounts, node lifecycle.
    pub fn with_controller_manager(mut self) -> Self {
        self.controller_manager = true;
        self
    }

    /// Makes a network for [`RealNode`](crate::RealNode)s, in which the API server listens, and runs
    /// kube-controller-manager and kube-scheduler.
    pub fn with_nodes(mut self) -> Self {
        self.nodes = true;
        self.with_controller_manager()
    }

    /// Trusts the issuers of tokens that this file names: an `AuthenticationConfiguration` of
    /// `apiserver.config.k8s.io`.
    pub fn with_authentication(mut self, file: PathBuf) -> Self {
        self.authentication = Some(file);
        self
    }

    /// Starts it and waits until all of it answers.
    ///
    /// # Panics
    /// When a component is not installed or does not come up; with the end of its log.
    pub async fn start(self) -> ControlPlane {
        let scratch = Scratch::new("control-plane");
        let folder = scratch.path();
        let network = self.nodes.then(|| Arc::new(Network::claim()));
        let ip = network
            .as_ref()
            .map_or(Ipv4Addr::LOCALHOST, |network| network.address());
        let pki = Pki::create(folder.join("pki"), ip);
        write_private(&folder.join("audit-policy.yaml"), servers::AUDIT_POLICY);
        let _permit = start_permit().await;
        let etcd = Process::start(&scratch, servers::etcd(folder));
        for _ in 0..MAX_PORT_ATTEMPTS {
            let address = SocketAddr::from((ip, free_port()));
            let apiserver = Process::start(
                &scratch,
                servers::apiserver(folder, &pki, address, self.nodes, self.authentication.as_deref()),
            );
            if ready(&config(&pki, address, &Identity::Admin), &apiserver, &etcd).await {
                let mut control_plane = ControlPlane {
                    etcd,
                    apiserver,
                    controller_manager: None,
                    scheduler: None,
                    pki,
                    address,
                    numbers: AtomicU64::default(),
                    audit: Mutex::default(),
                    clients: Clients::default(),
                    scratch,
                    network,
                };
                if self.controller_manager {
                    control_plane.start_controller_manager().await;
                }
                if self.nodes {
                    control_plane.start_scheduler();
                }
                return control_plane;
            }
        }
        panic!("kube-apiserver found {MAX_PORT_ATTEMPTS} ports taken that were free a moment before");
    }
}

impl ControlPlane {
    fn start_scheduler(&mut self) {
        let identity = Identity::user("system:kube-scheduler", &[]);
        let program = servers::scheduler(&self.kubeconfig(&identity));
        self.scheduler = Some(Process::start(&self.scratch, program));
    }

    async fn start_controller_manager(&mut self) {
        let identity = Identity::user("system:kube-controller-manager", &[]);
        let program = servers::controller_manager(&self.kubeconfig(&identity), &self.pki, self.network.as_deref());
        let process = self.controller_manager.insert(Process::start(&self.scratch, program));
        let accounts: Api<ServiceAccount> = Api::default_namespaced(
            Client::try_from(config(&self.pki, self.address, &Identity::Admin)).expect("a client"),
        );
        eventually(
            "kube-controller-manager to create the default service account",
            START_TIMEOUT,
            async || {
                assert!(
                    process.is_running(),
                    "kube-controller-manager ended:\n{}",
                    process.log_tail()
                );
                accounts.get("default").await
            },
        )
        .await;
    }
}

/// Waits for one of the permits to start servers: a file lock, released when the file is closed, also by the end of
/// this process.
async fn start_permit() -> File {
    let folder = assets::cache_folder().join("starts");
    fs::create_dir_all(&folder).expect("the folder of the cache");
    let mut files: Vec<_> = (0..MAX_CONCURRENT_STARTS)
        .map(|number| File::create(folder.join(number.to_string())).expect("a file to lock"))
        .collect();
    let locked = eventually("a permit to start a control plane", START_PERMIT_TIMEOUT, async || {
        let locked = files.iter().position(|file| file.try_lock().is_ok());
        locked.ok_or("others start theirs")
    })
    .await;
    files.swap_remove(locked)
}

/// Waits until the API server is ready: false when it ended because its port is taken.
pub(super) async fn ready(config: &Config, apiserver: &Process, etcd: &Process) -> bool {
    let mut config = config.clone();
    config.default_retry = false;
    let client = Client::try_from(config).expect("a client");
    eventually("kube-apiserver to be ready", START_TIMEOUT, async || {
        assert!(etcd.is_running(), "etcd ended:\n{}", etcd.log_tail());
        if !apiserver.is_running() {
            let log = apiserver.log_tail();
            assert!(log.contains("address already in use"), "kube-apiserver ended:\n{log}");
            return Ok(false);
        }
        let readyz = http::Request::get("/readyz").body(Vec::new()).expect("a request");
        match client.request_text(readyz).await {
            Ok(_) => Ok(true),
            Err(error) => Err(format!("{error}; the end of its log:\n{}", apiserver.log_tail())),
        }
    })
    .await
}
