//! Terminate: removes from the cluster everything that the coordinator manages, and nothing else.
//!
//! The request is an object, the marker: ConfigMap [`MARKER`]. While it exists, no other controller starts a pass, on
//! any replica and after any restart, and the leader removes what `terminate/table.rs` lists. Sweeps are repeated until
//! one finds nothing, and then every minute, so what a pass under way has still written is removed, too. The marker
//! shows the progress. Deleting it ends the termination: everything is synced again. An installation that finds the
//! marker of one before it says so (`terminate/leftover.rs`).
//!
//! Any replica creates the marker, which is why it has a client that is not fenced; only the leader deletes anything.

mod leftover;
mod marker;
mod sweep;
mod table;

use std::future::pending;
use std::sync::Arc;

use kube::api::{Api, ListParams};
use kube::core::ObjectMeta;
use kube::{Client, ResourceExt as _};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, TERMINATE_MARKER};
use tidewaiter_kit::client::{DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{
    Cache, Change, Controller, ControllerContext, Key, Pause, PauseSwitch, Queue, Reconciler as _, SharedClock,
    Trigger, WriteError, Writer,
};

use crate::controllers::{ByPlugin, PluginAccount, PluginRemoval};
use crate::loops;
use crate::meta;
use leftover::Leftover;
pub use marker::Progress;
use marker::{Marker, requested};
use sweep::Terminator;

/// The name of the marker. Its namespace is that of the coordinator.
pub const MARKER: &str = TERMINATE_MARKER;

/// The request to terminate, and its progress. Clones share it.
#[derive(Clone, Debug)]
pub struct Termination {
    markers: Cache<Marker>,
    writer: Arc<Writer>,
    clock: SharedClock,
}

impl Termination {
    /// Starts the watch of the marker and the controller that removes everything. Returns what the other controllers
    /// pause by: it pauses until it is known that there is no marker. `accounts` are those as which plugins are
    /// removed.
    pub fn start(accounts: &ByPlugin<PluginAccount>, role: &mut Role<'_>) -> (Self, Pause) {
        let context = role.context.clone();
        let reader = role.clients.for_controller("caches", DEFAULT_IN_FLIGHT);
        let markers = Cache::<Marker>::namespaced(reader, CONTAINERSHIP_NAMESPACE)
            .named("terminate")
            .fields(&format!("metadata.name={MARKER}"))
            .start(role.tasks, &context.kit);
        let switch = Arc::new(PauseSwitch::new(true));
        let pause = switch.pause();
        markers.notify(follows(&switch, &markers));
        let leftover = Leftover::of(markers.clone());
        let check = leftover.clone();
        context.kit.checks.register("terminate", move || check.check());
        let first = first_list(switch, leftover.clone(), markers.clone());
        loops::run(role.tasks, "terminate/marker", first);
        let client = role.clients.for_controller(Terminator::NAME, MOST_IN_FLIGHT);
        sweep(client, accounts, leftover, &markers, &context, role);
        let writer = role.unfenced.for_controller("terminate-request", 1);
        let clock = Arc::clone(&context.kit.clock);
        let termination = Self {
            markers,
            writer: Arc::new(Writer::new(writer, "terminate-request", Arc::clone(&clock))),
            clock,
        };
        (termination, pause)
    }

    /// The progress; `None` if it was not requested.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.markers.get(&marker_key()).map(|marker| Progress::of(&marker))
    }

    /// Records the request of `by`, and returns how far it is. A request that exists stays as it is.
    ///
    /// # Errors
    /// [`WriteError`], if the API server does not accept it.
    pub async fn request(&self, by: &str) -> Result<Progress, WriteError> {
        let marker = requested(by, self.clock.now());
        match self.writer.create(&marker).await {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(self.progress().unwrap_or_else(|| Progress::of(&marker))),
        }
    }
}

/// The progress of the termination that somebody requested in this cluster; `None` if nobody did. Needs what the role
/// of the coordinator permits.
///
/// # Errors
/// When the API server does not say it.
pub async fn read(client: Client) -> Result<Option<Progress>, kube::Error> {
    let markers = Api::<Marker>::namespaced(client, CONTAINERSHIP_NAMESPACE);
    let named = ListParams::default().fields(&format!("metadata.name={MARKER}"));
    let found = markers.list(&named).await?;
    let marker = found.items.iter().find(|marker| marker.name_any() == MARKER);
    Ok(marker.map(Progress::of))
}

fn sweep(
    client: Client,
    accounts: &ByPlugin<PluginAccount>,
    leftover: Leftover,
    markers: &Cache<Marker>,
    context: &ControllerContext,
    role: &mut Role<'_>,
) {
    let queue = Queue::new();
    // The progress is not a reason to begin again.
    let same = |before: &Marker, after: &Marker| before.metadata.uid == after.metadata.uid;
    markers.notify(queue.same_name().unless(same));
    let context = ControllerContext {
        pause: Pause::never(),
        ..context.clone()
    };
    let plugins = PluginRemoval::new(&client, accounts.clone());
    let terminator = Terminator::new(
        client,
        plugins,
        leftover,
        markers.clone(),
        Arc::clone(&context.kit.clock),
    );
    Controller::new(terminator, queue).start(context, role.tasks);
}

/// Pauses while there is a marker.
fn follows(switch: &Arc<PauseSwitch>, markers: &Cache<Marker>) -> Trigger<Marker> {
    let (switch, markers) = (Arc::clone(switch), markers.clone());
    Trigger::calls(move |_: &Change<'_, Marker>| switch.update(|| !markers.is_empty()))
}

/// Without a marker, there is no change that would end the pause. Ends if the marker is not cached any more, and with
/// it the process.
async fn first_list(switch: Arc<PauseSwitch>, leftover: Leftover, markers: Cache<Marker>) {
    if markers.synced().await.is_ok() {
        leftover.first_list();
        switch.update(|| !markers.is_empty());
        pending::<()>().await;
    }
}

fn marker_key() -> Key {
    Key::namespaced(CONTAINERSHIP_NAMESPACE, MARKER)
}

fn marker_meta() -> ObjectMeta {
    meta::of(Some(CONTAINERSHIP_NAMESPACE), MARKER)
}
