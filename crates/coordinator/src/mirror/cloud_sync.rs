//! `CloudSync`: one object that shows the state of every sync loop, and takes the release of what the brake holds.
//!
//! Only the leader writes it, and only when something but a time changed. A person annotates it with a revision to
//! release deletions.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource as _};
use parking_lot::Mutex;
use serde_json::json;
use tidewaiter_api::cloud_sync::{CLOUD_SYNC, CLUSTER_ROLE, RELEASE_ANNOTATION, SYNCED};
use tidewaiter_api::{CloudSync, CloudSyncSpec, CloudSyncStatus, Condition, ConditionStatus, KindSync};
use tidewaiter_kit::client::DEFAULT_IN_FLIGHT;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, Controller, Events, Key, Next, Pass, Queue, Reconciler, SharedClock, WriteError, Writer};
use tokio::sync::watch;

use super::board::Board;
use super::held::Held;
use crate::loops;
use plan::{Plan, patience, plan, release, release_ended};
pub(super) use plan::{kind, synced};

/// The name of the controller, under which the fields of `CloudSync` are written.
pub(crate) const CLOUD_SYNC_CONTROLLER: &str = "cloud-sync";

/// The rest between two writes with the same conditions and the same hold: counts change with every object.
const REST: Duration = Duration::from_secs(5);

/// The rest while the cluster is not as the cloud lists it.
const REST_IN_TROUBLE: Duration = Duration::from_secs(15);

/// The interval of passes without a change: no change starts a pass when the API server begins or ceases to refuse the
/// watch of a kind.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Our own write is not in the cache yet: its change starts a pass. This is the fallback.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The revision that a person released, as the cluster shows it.
#[derive(Clone)]
pub(super) struct Release(Cache<CloudSync>);

impl Release {
    /// The revision that a person released.
    pub(super) fn revision(&self) -> Option<String> {
        released(&*self.0.get(&super::key())?).cloned()
    }

    /// Starts a pass whenever it may have changed. Passes begin without it: its definition may be missing, and a
    /// release that is read later starts another one.
    pub(super) fn notify(&self, queue: &Queue) {
        let trigger = queue.always(super::key()).unawaited();
        self.0
            .notify(trigger.unless(|before, after| released(before) == released(after)));
    }

    /// The object, for Events.
    pub(super) fn reference(&self) -> ObjectReference {
        let known = self.0.get(&super::key());
        known.map_or_else(
            || CloudSync::new(CLOUD_SYNC, CloudSyncSpec {}).object_ref(&()),
            |it| it.object_ref(&()),
        )
    }
}

fn released(object: &CloudSync) -> Option<&String> {
    object.metadata.annotations.as_ref()?.get(RELEASE_ANNOTATION)
}

/// Starts its cache and its controller.
pub(super) fn start(board: Board, cluster: String, apart: [Held; 2], reader: &Client, role: &mut Role<'_>) -> Release {
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let clock = Arc::clone(&context.kit.clock);
    let objects = Cache::<CloudSync>::all(reader.clone())
        .optional()
        .start(tasks, &context.kit);
    let queue = Queue::new();
    // The first pass needs neither an object nor a response of the cloud.
    queue.push(super::key());
    objects.notify(queue.always(super::key()));
    let updates = queue_updates(board.updates(), queue.clone());
    loops::run(tasks, "cloud-sync/updates", updates);
    for held in &apart {
        let updates = queue_updates(held.updates(), queue.clone());
        loops::run(tasks, "cloud-sync/held", updates);
    }
    let client = clients.for_controller(CloudSyncController::NAME, DEFAULT_IN_FLIGHT);
    let writer = Writer::new(client, CloudSyncController::NAME, Arc::clone(&clock));
    writer.follow(&objects);
    let controller = CloudSyncController {
        objects: objects.clone(),
        board,
        cluster,
        apart,
        writer,
        events: context.events.of(CloudSyncController::NAME),
        written: Mutex::default(),
        clock,
    };
    Controller::new(controller, queue).start(context.clone(), tasks);
    Release(objects)
}

async fn queue_updates(mut updates: watch::Receiver<()>, queue: Queue) {
    while updates.changed().await.is_ok() {
        queue.push(super::key());
    }
}

struct CloudSyncController {
    objects: Cache<CloudSync>,
    board: Board,
    /// Its id in the cloud.
    cluster: String,
    /// The holds apart from the deletions of mirrored objects.
    apart: [Held; 2],
    writer: Writer,
    events: Events,
    clock: SharedClock,
    /// The time when the status was last written; monotonic.
    written: Mutex<Option<Duration>>,
}

impl Reconciler for CloudSyncController {
    const NAME: &'static str = CLOUD_SYNC_CONTROLLER;
    type Error = WriteError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, WriteError> {
        let key: Key = super::key();
        let object = self.objects.get(&key);
        if self
            .writer
            .awaits::<CloudSync>(&key, object.as_ref().map(|object| &object.metadata))
        {
            return Ok(Next::Pending(CATCH_UP));
        }
        let Some(object) = object else {
            self.writer
                .apply_new(&CloudSync::new(CLOUD_SYNC, CloudSyncSpec {}), |_| true)
                .await?;
            return Ok(Next::Pending(CATCH_UP));
        };
        pass.about(object.object_ref(&()));
        let loops = self.board.states();
        let apart: Vec<KindSync> = self.apart.iter().filter_map(Held::status).collect();
        let roles = apart.iter().find(|kind| kind.kind == CLUSTER_ROLE);
        let held = roles.and_then(|roles| roles.held.as_ref());
        self.board.roles_held(held.map_or(0, |held| held.objects));
        let annotated = released(&object).map(String::as_str);
        let is_apart = |revision| self.apart.iter().any(|held| held.release(revision));
        let ended = if annotated.is_some_and(is_apart) {
            Some(release_ended())
        } else {
            release(annotated, &loops)
        };
        if let Some(notice) = ended {
            let without = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: null}}});
            self.writer.patch::<CloudSync>(&object.metadata, without).await?;
            self.events.publish(&object.object_ref(&()), notice);
            return Ok(Next::Pending(CATCH_UP));
        }
        if let Some(wait) = patience(&object, &loops) {
            return Ok(Next::Pending(wait));
        }
        let Some(Plan {
            status,
            notices,
            changes_hold,
        }) = plan(&object, &self.cluster, &loops, apart, self.clock.now())
        else {
            return Ok(Next::After(LOOK_AGAIN));
        };
        let rest = self.rest(&status);
        if notices.is_empty() && !changes_hold && !rest.is_zero() {
            return Ok(Next::Pending(rest));
        }
        let mut desired = CloudSync::new(CLOUD_SYNC, CloudSyncSpec {});
        desired.status = Some(status);
        self.writer.apply_status(&desired, &object.metadata).await?;
        *self.written.lock() = Some(self.clock.monotonic());
        for notice in notices {
            self.events.publish(&object.object_ref(&()), notice);
        }
        Ok(Next::After(LOOK_AGAIN))
    }
}

impl CloudSyncController {
    /// The time that a write waits which changes no condition. It waits longer while the sync fails, because the error
    /// may be another one each time.
    fn rest(&self, status: &CloudSyncStatus) -> Duration {
        let synced = |condition: &Condition| condition.type_ == SYNCED && condition.status == ConditionStatus::True;
        let rest = if status.conditions.iter().any(synced) {
            REST
        } else {
            REST_IN_TROUBLE
        };
        let written = *self.written.lock();
        let next = written.map_or(Duration::ZERO, |written| written.saturating_add(rest));
        next.saturating_sub(self.clock.monotonic())
    }
}
