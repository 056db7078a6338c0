//! A programmable proxy in front of the API server, for faults that a real one does not show on request.
//!
//! It speaks plain HTTP/1.1 on 127.0.0.1 and asks the API server as one given identity, so a program under test needs
//! nothing but its kubeconfig. Answers are passed on as they come, watches event by event. It has a runtime of its own:
//! a test that blocks does not stop it. Requests that upgrade the connection (exec, attach, port-forward) are not
//! supported.

mod action;
mod request;
mod server;
mod watches;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use parking_lot::Mutex;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::action::{Action, Gate, Moment};
pub use self::request::{ApiRequest, Recorded};
use self::server::Proxy;
use crate::{ControlPlane, Identity, Process, eventually, free_port};

/// A running proxy. Dropped, it is gone.
#[derive(Debug)]
pub struct ApiProxy {
    proxy: Arc<Proxy>,
    address: SocketAddr,
    kubeconfig: PathBuf,
    listening: Mutex<Option<Listening>>,
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct Listening {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl ApiProxy {
    /// Starts to forward to this control plane as this identity.
    #[must_use]
    pub fn start(control_plane: &ControlPlane, identity: &Identity) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let client = {
            let _inside = runtime.enter();
            let mut config = control_plane.config(identity);
            // The program under test is to see each answer as it is.
            config.default_retry = false;
            Client::try_from(config).expect("a client")
        };
        let listener = std::iter::repeat_with(|| TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())))
            .find_map(Result::ok)
            .expect("an endless iterator");
        let address = listener.local_addr().expect("a bound address");
        let kubeconfig = control_plane.write_kubeconfig(&json!({"server": format!("http://{address}")}), &json!({}));
        let proxy = Arc::new(Proxy::new(client));
        let listening = Mutex::new(Some(listen(&runtime, &proxy, listener)));
        Self {
            proxy,
            address,
            kubeconfig,
            listening,
            runtime: Some(runtime),
        }
    }

    /// Returns its address, as `http://127.0.0.1:20123`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig file for the program under test.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Calls `hook` for the action on each request from now on, in place of the hook before. It runs before the request
    /// is forwarded.
    pub fn hook(&self, hook: impl Fn(&ApiRequest) -> Action + Send + Sync + 'static) {
        self.proxy.set_hook(Arc::new(hook));
    }

    /// From now on does this with each request for which `which` is true, and forwards the others.
    pub fn on(
        &self,
        which: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static,
        action: impl Fn() -> Action + Send + Sync + 'static,
    ) {
        self.hook(move |request| if which(request) { action() } else { Action::Forward });
    }

    /// Forwards every request from now on.
    pub fn clear_hook(&self) {
        self.hook(|_| Action::Forward);
    }

    /// Kills the process (SIGKILL) at the `nth` request (from 1) for which `which` is true: before the API server sees
    /// that request, or after it has answered but before the process learns the answer. All other requests are
    /// forwarded. Replaces the hook.
    pub fn kill_at(
        &self,
        process: &Arc<Process>,
        nth: usize,
        moment: Moment,
        which: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static,
    ) {
        let process = Arc::clone(process);
        let seen = AtomicUsize::new(0);
        self.hook(move |request| {
            if !which(request) || seen.fetch_add(1, Ordering::Relaxed) + 1 != nth {
                return Action::Forward;
            }
            let process = Arc::clone(&process);
            match moment {
                Moment::Before => {
                    process.kill();
                    Action::Drop
                }
                Moment::After => Action::forward_then(move || process.kill()),
            }
        });
    }

    /// All requests so far, in the order in which they came.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.proxy.requests()
    }

    /// Returns the number of such requests so far.
    #[must_use]
    pub fn count(&self, which: impl Fn(&Recorded) -> bool) -> usize {
        self.requests().iter().filter(|request| which(request)).count()
    }

    /// The paths of the watches that are open now.
    #[must_use]
    pub fn open_watches(&self) -> Vec<String> {
        self.proxy.watches.open()
    }

    /// Ends all open watches, as the API server does when their time is over.
    pub fn cut_watches(&self) {
        self.proxy.watches.cut();
    }

    /// Ends all open watches and answers the next watch on each of their paths with an ERROR event 410 `Expired`, as
    /// the API server does when the resource version is too old to go on from.
    pub fn expire_watches(&self) {
        self.proxy.watches.expire();
    }

    /// Closes all connections and refuses new ones. When this returns it is so.
    pub async fn down(&self) {
        let listening = self.listening.lock().take();
        if let Some(Listening { stop, task }) = listening {
            stop.cancel();
            task.await.expect("the listener ends without a panic");
        }
    }

    /// Accepts connections again, on the same port.
    pub async fn up(&self) {
        let listener = eventually(
            "the proxy's own port to be free again",
            Duration::from_secs(30),
            async || TcpListener::bind(self.address),
        )
        .await;
        let runtime = self.runtime.as_ref().expect("the runtime lives as long as this");
        self.listening
            .lock()
            .get_or_insert_with(|| listen(runtime, &self.proxy, listener));
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Without waiting: a runtime may not be waited for inside another one.
            runtime.shutdown_background();
        }
    }
}

fn listen(runtime: &Runtime, proxy: &Arc<Proxy>, listener: TcpListener) -> Listening {
    let stop = CancellationToken::new();
    let task = runtime.spawn(server::listen(Arc::clone(proxy), listener, stop.clone()));
    Listening { stop, task }
}
