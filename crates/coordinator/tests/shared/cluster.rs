//! A cluster that is prepared for the coordinator, and controllers of it in this process, as its service account. The
//! tests of the mirror, of the labels and of RBAC include this file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::client::Clients;
use tidewaiter_kit::events::Reporter;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{ControllerContext, Events, Kit, Leadership, Pause, SystemClock, Tasks};
use tidewaiter_testkit::{
    Action, ApiProxy, ApiRequest, AuditMark, ControlPlane, Identity, Moment, Reused, eventually, leaks,
};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

/// Longer than anything takes, on a machine that does ten things at once.
pub const SOON: Duration = Duration::from_mins(3);

/// Writes more than there are on an idle machine: on a busy one, a pass may see a state between two.
pub const MORE: usize = 5;

pub fn coordinator() -> Identity {
    Identity::service_account(CONTAINERSHIP_NAMESPACE, "tidewaiter-coordinator")
}

/// A control plane with what `deploy/` has for the coordinator.
pub async fn prepared() -> Reused {
    ControlPlane::reused(prepare).await
}

/// Applies what `deploy/` has for the coordinator.
pub async fn prepare(cluster: &ControlPlane) {
    define(cluster).await;
    cluster.apply_manifests(deploy("coordinator")).await;
}

/// Applies the definitions of the custom resources.
pub async fn define(cluster: &ControlPlane) {
    cluster.apply_manifests(deploy("crds/coordinator")).await;
}

pub fn deploy(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(folder)
}

/// Waits for an Event of this reason on the object of this name, in the namespace; returns its note.
pub async fn event(cluster: &ControlPlane, namespace: &str, name: &str, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(cluster.client(&Identity::Admin), namespace);
    eventually(format!("the Event {reason} on {name}"), SOON, async || {
        let all = events.list(&ListParams::default()).await;
        let all = all.map_err(|error| error.to_string())?.items;
        let about = |event: &Event| {
            let object = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            event.reason.as_deref() == Some(reason) && object == Some(name)
        };
        let seen: Vec<_> = all.iter().filter_map(|event| event.reason.clone()).collect();
        let found = all.into_iter().find(about);
        found.and_then(|event| event.note).ok_or_else(|| format!("{seen:?}"))
    })
    .await
}

/// The writes of the coordinator since `mark`, except those to this resource, as `verb resource name`.
pub async fn written_since(cluster: &ControlPlane, mark: AuditMark, except: &str) -> Vec<String> {
    let writes = cluster.audit().await.since(mark).by(&coordinator()).writes();
    let writes = writes.iter().map(|entry| (entry.verb.as_str(), &entry.object_ref));
    writes
        .filter(|(_, object)| object.resource != except)
        .map(|(verb, object)| format!("{verb} {} {}", object.resource, object.name))
        .collect()
}

/// Kills the controllers at the nth of these requests; nothing of them arrives afterwards.
pub fn kills(
    proxy: &ApiProxy,
    running: &Running,
    nth: usize,
    moment: Moment,
    is_counted: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static,
) -> Arc<AtomicBool> {
    let (killed, seen, abort) = (
        Arc::new(AtomicBool::new(false)),
        AtomicUsize::new(0),
        running.abort.clone(),
    );
    let is_dead = Arc::clone(&killed);
    proxy.hook(move |request| {
        if is_dead.load(Ordering::SeqCst) {
            return Action::Drop;
        }
        if !is_counted(request) || seen.fetch_add(1, Ordering::SeqCst) + 1 != nth {
            return Action::Forward;
        }
        is_dead.store(true, Ordering::SeqCst);
        let abort = abort.clone();
        match moment {
            Moment::Before => {
                abort.abort();
                Action::Drop
            }
            Moment::After => Action::forward_then(move || abort.abort()),
        }
    });
    killed
}

/// Waits until it is killed, or is done without that, if there may be no such write any more. Says whether it is
/// killed.
pub async fn is_killed(killed: &AtomicBool, write: String, may_be_done: bool, is_done: impl AsyncFn() -> bool) -> bool {
    eventually(format!("it to be killed {write}"), SOON, async || {
        if killed.load(Ordering::SeqCst) {
            Ok(true)
        } else if may_be_done && is_done().await {
            Ok(false)
        } else {
            Err("it runs")
        }
    })
    .await
}

/// The coordinator's parts for its controllers. It leads at once.
pub struct Wiring {
    pub clients: Clients,
    pub context: ControllerContext,
    pub tasks: Tasks,
}

impl Wiring {
    /// Reaches the API server as `config` says.
    pub async fn new(config: &kube::Config, pause: Pause) -> Self {
        let clock = SystemClock::shared();
        let kit = Kit::new(clock.clone()).unwrap();
        let leadership = Leadership::always(clock.clone());
        let clients = Clients::new(config, &leadership, &kit).await.unwrap();
        let mut tasks = Tasks::new(clock.clone());
        let reporter = Reporter {
            controller: "tidewaiter-coordinator".to_owned(),
            instance: "test".to_owned(),
        };
        let context = ControllerContext {
            kit,
            leadership,
            events: Events::start(clients.for_events(), clock, reporter, &mut tasks),
            pause,
            shutdown: tasks.shutdown_token(),
        };
        Self {
            clients,
            context,
            tasks,
        }
    }

    /// The role as the process gets it.
    pub fn role(&mut self) -> Role<'_> {
        Role {
            context: self.context.clone(),
            clients: self.clients.clone(),
            unfenced: self.clients.clone(),
            tasks: &mut self.tasks,
        }
    }

    /// Runs what was started.
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    pub fn run(self) -> Running {
        let Self { context, tasks, .. } = self;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let ended = tokio::spawn(async move {
            let stopped = async move {
                stopped.cancelled().await;
                "the test ends"
            };
            tasks.run_until(stopped).await.unwrap();
        });
        Running {
            kit: context.kit,
            stop,
            abort: ended.abort_handle(),
            ended,
        }
    }
}

/// Controllers that run, until this is dropped.
pub struct Running {
    kit: Kit,
    stop: CancellationToken,
    /// Kills them.
    pub abort: AbortHandle,
    ended: JoinHandle<()>,
}

impl Running {
    /// The value of a metric, by its line without the value.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let text = self.kit.metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }

    /// True if it is ready, and the answer of each readiness check.
    pub fn readiness(&self) -> (bool, String) {
        self.kit.checks.report()
    }

    /// Waits until the metric has this value.
    pub async fn counts(&self, name: &str, value: impl Into<f64>) {
        let value = value.into();
        eventually(format!("{name} to be {value}"), SOON, async || {
            let found = self.metric(name);
            if found.is_some_and(|found| (found - value).abs() < 0.5) {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// Stops them, and waits until they have ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        (&mut self.ended).await.unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        leaks::shown(&self.kit.metrics.encode().unwrap());
        self.stop.cancel();
    }
}
