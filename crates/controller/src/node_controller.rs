//! NodeController: gives each Node the labels of its InstanceGroup, once the cloud vouches for what it is.
//!
//! Observe the Node, its record and what the cloud says; plan, purely; write the record, the Node, the record; tell. Nodes
//! are reconciled when they, their records, their rivals or their group's definition change, and when their identity
//! expires. A heartbeat costs nothing: no write, no call.

mod apply;
mod error;
pub mod explain;
mod forged;
mod forgeries;
mod labels;
mod node;
mod observe;
mod plan;
mod policy;
mod record;
mod replaced;
mod rivals;
mod standings;
mod start;

use std::sync::Arc;
use std::time::Duration;

use tidewaiter_identity::Lookup;
use tidewaiter_kit::{Cache, Events, Key, Next, Reconciler, SharedClock};
use tidewaiter_kops::Definitions;
use tokio::sync::Semaphore;

use apply::Writer;
use error::NodeError;
pub use forged::Forged;
use forgeries::Forgeries;
pub use node::Node;
use plan::{Finding, Observation, Plan, plan};
use record::Record;
use rivals::Rivals;
use standings::Standings;

pub use apply::FIELD_MANAGER;
pub use policy::{ForeignLabels, LabelsFrom, OnForgery, Policy};
pub use start::{NodeControllerParts, start};

/// Our own write is not in the caches yet. Its change queues the Node; this is the net, should somebody have undone it.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The controller. One reconcile is one pass over one Node.
#[derive(Debug)]
pub struct NodeController {
    nodes: Cache<Node>,
    records: Cache<Record>,
    rivals: Arc<Rivals>,
    identities: Arc<Lookup>,
    definitions: Definitions,
    writer: Writer,
    /// Bounds the passes that plan and write: each of them holds some ten kilobytes. Thousands may wait together for one joined
    /// answer of the cloud before.
    turns: Semaphore,
    events: Events,
    standings: Standings,
    /// Only where forged Nodes are put into quarantine: it costs memory for each Node.
    forgeries: Option<Arc<Forgeries>>,
    policy: Policy,
    clock: SharedClock,
}

impl Reconciler for NodeController {
    const NAME: &'static str = "node";
    type Object = Node;
    type Error = NodeError;

    async fn reconcile(&self, node: Arc<Node>) -> Result<Next, NodeError> {
        let asked = self.read(&node)?;
        drop(node);
        let found = Box::pin(self.find(asked.claim.clone())).await;
        // Closed never: the semaphore lives as long as the controller.
        let turn = self.turns.acquire().await;
        let Some((seen, next)) = self.observe(asked, found)? else {
            // It is gone, or another by now; the change that made it so has queued it again.
            return Ok(Next::UntilChanged);
        };
        if self.writer.is_ahead_of(&seen.name, &seen.node, seen.record.as_deref()) {
            return Ok(Next::After(CATCH_UP));
        }
        let plan = plan(&seen, self.clock.now());
        self.standings.note(&seen, &plan);
        let applied = Box::pin(self.writer.apply(&seen.name, &seen.node, seen.record.as_deref(), &plan)).await;
        drop(turn);
        self.tell(&seen, &plan);
        applied?;
        match seen.finding {
            Finding::Refused(refusal) => Err(NodeError::Refused(refusal)),
            Finding::Undefined(_, error) => Err(NodeError::Undefined(error)),
            Finding::Unclaimed | Finding::Malformed(_) | Finding::Defined(..) => Ok(next),
        }
    }

    fn forget(&self, gone: &Key) {
        self.standings.forget(gone.name());
        self.writer.forget(gone.name());
    }
}

impl NodeController {
    fn tell(&self, seen: &Observation, plan: &Plan) {
        for notice in &plan.notices {
            self.events.publish(&seen.reference(), notice.clone());
        }
    }
}
