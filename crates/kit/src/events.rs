//! Events on objects: what their owner should read in `kubectl describe`.
//!
//! The same words on the same object are published once in 50 minutes (the API server forgets an Event after an hour), and
//! no object gets more than a handful in a row, whatever somebody does to it. A failure to publish is logged; it never
//! fails the work that wanted to tell something.
//!
//! kube's own recorder is not used: within six minutes it takes a second Event of one reason for a repetition of the
//! first and drops its words.

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tracing::{debug, warn};

use crate::chain::Chain;
use crate::client::is_fenced;
use crate::clock::SharedClock;

mod recent;

use recent::Recent;

/// The API server's limit for `note`, in bytes.
const NOTE_LIMIT: usize = 1024;
/// The API server's limit for a name, less the dot and the 16 digits after it.
const NAME_LIMIT: usize = 253 - 17;
/// Where Events on objects without a namespace go, as for every other component.
const CLUSTER_SCOPED_NAMESPACE: &str = "default";

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// Something happened as it should.
    Normal,
    /// Somebody should look.
    Warning,
}

impl NoticeKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// What an Event says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Notice {
    /// Whether somebody should look.
    pub kind: NoticeKind,
    /// Why, in CamelCase, from a fixed set, at most 128 characters: `kubectl describe` shows it as Reason.
    pub reason: Cow<'static, str>,
    /// What was done or tried, in CamelCase, at most 128 characters: `Label`, `Identify`.
    pub action: Cow<'static, str>,
    /// A sentence for a person, cut after 1,024 bytes: what is wrong and what to do. `kubectl describe` shows it as Message.
    pub note: String,
}

/// Who publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// The controller, as a qualified name: `tidewaiter.dev/node-controller`.
    pub controller: String,
    /// The replica: the name of its pod or host.
    pub instance: String,
}

/// Publishes notices as Events. Clones share what was published.
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    clock: SharedClock,
    reporter: Reporter,
    recent: Mutex<Recent>,
}

impl Events {
    /// Publishes through `client`, which needs to create `events.k8s.io` Events in the namespaces of the objects, and in
    /// `default` for those without one.
    #[must_use]
    pub fn new(client: Client, clock: SharedClock, reporter: Reporter) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                clock,
                reporter,
                recent: Mutex::default(),
            }),
        }
    }

    /// Publishes `notice` on the object, unless it was already, or the object has had its share.
    pub async fn publish(&self, regarding: &ObjectReference, notice: Notice) {
        let Shared {
            client,
            clock,
            reporter,
            recent,
        } = &*self.shared;
        let object = regarding.name.as_deref().unwrap_or_default();
        let now = clock.monotonic();
        let Some(key) = recent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .admit(regarding, &notice, now)
        else {
            debug!(object, reason = %notice.reason, "not published again");
            return;
        };
        let event = event(regarding, notice, reporter, MicroTime(clock.now()));
        let namespace = event.metadata.namespace.as_deref().unwrap_or(CLUSTER_SCOPED_NAMESPACE);
        match Api::<Event>::namespaced(client.clone(), namespace)
            .create(&PostParams::default(), &event)
            .await
        {
            Ok(_) => return,
            Err(error) if is_fenced(&error) => debug!(object, "Event not published: no longer the leader"),
            Err(error) => warn!(object, reason = event.reason, error = %Chain(&error), "Event not published"),
        }
        recent.lock().unwrap_or_else(PoisonError::into_inner).withdraw(key);
    }
}

impl Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("reporter", &self.shared.reporter)
            .finish_non_exhaustive()
    }
}

fn event(regarding: &ObjectReference, notice: Notice, reporter: &Reporter, time: MicroTime) -> Event {
    let object = regarding.name.as_deref().unwrap_or("unknown");
    let namespace = regarding.namespace.as_deref().unwrap_or(CLUSTER_SCOPED_NAMESPACE);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", cut(object, NAME_LIMIT), time.0.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        event_time: Some(time),
        type_: Some(notice.kind.as_str().to_owned()),
        reason: Some(notice.reason.into_owned()),
        action: Some(notice.action.into_owned()),
        note: Some(cut(&notice.note, NOTE_LIMIT).to_owned()),
        regarding: Some(ObjectReference {
            resource_version: None,
            ..regarding.clone()
        }),
        reporting_controller: Some(reporter.controller.clone()),
        reporting_instance: Some(cut(&reporter.instance, 128).to_owned()),
        ..Event::default()
    }
}

/// The longest start of `text` that fits into `limit` bytes.
fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests;
