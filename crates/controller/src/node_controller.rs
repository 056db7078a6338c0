//! NodeController: gives each Node the labels of its InstanceGroup, once the cloud proves what the Node is.
//!
//! Observe the Node, its record and what the cloud says; plan, purely; write the record, the Node, the record; report.
//! A Node is reconciled when it, its record, its rivals or its group's definition change, and when its identity
//! expires. A heartbeat costs nothing: no write, no call.

mod apply;
mod error;
pub(crate) mod group_change;
mod labels;
pub(crate) mod observation;
pub(crate) mod observe;
pub(crate) mod plan;
mod policy;
pub(crate) mod quarantine;
mod start;
pub(crate) mod status;
pub(crate) mod writes;

use std::sync::Arc;
use std::time::Duration;

use tidewaiter_api::NodeIdentity;
use tidewaiter_identity::{Lookup, Refusal};
use tidewaiter_kit::{
    Cache, Events, Index, Next, Pass, Reconciler, SharedClock, UndecodableObjects, WriteLimits, Writer,
};
use tidewaiter_kops::Definitions;

use crate::objects::{Node, Record};
use error::NodeError;
pub(crate) use labels::{falls_back, given, needs_tags, owned};
use observation::Finding;
use plan::plan;
pub use policy::{ForeignLabels, LabelsFrom, OnForgery, OnGroupChange, Policy};
use quarantine::Census;
pub use start::{NodeControllerParts, start};
use status::Status;

/// Our own write is not in the caches yet. Its change starts a pass; this is the fallback, should somebody have undone
/// it.
const CATCH_UP: Duration = Duration::from_secs(1);

/// The controller. One reconcile is one pass over one Node.
pub struct NodeController {
    nodes: Cache<Node>,
    records: Cache<Record>,
    /// The Nodes that claim an instance, by `spec.providerID` to the letter.
    claims: Index<Box<str>>,
    identities: Arc<Lookup>,
    definitions: Definitions,
    policy: Policy,
    /// Only where forged Nodes are quarantined: it costs memory for each Node.
    census: Option<Arc<Census>>,
    writer: Writer,
    write_limits: WriteLimits,
    status: Status,
    events: Events,
    clock: SharedClock,
    undecodable: UndecodableObjects,
}

impl Reconciler for NodeController {
    const NAME: &'static str = "node";
    type Error = NodeError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, NodeError> {
        let Some(claimed) = self.read(pass.key())? else {
            self.forget(pass.key());
            return Ok(Next::UntilChanged);
        };
        let found = pass.outside(Box::pin(self.find(claimed.claim.clone()))).await;
        let Some(mut seen) = self.observe(claimed, found)? else {
            // It is gone, or claims something else by now: that change has queued it again.
            return Ok(Next::Pending(CATCH_UP));
        };
        pass.about(seen.reference());
        if let Some(error) = self.undecodable.error::<NodeIdentity>(pass.key()) {
            self.status.blocked(pass.key());
            return Err(NodeError::Record(error));
        }
        if apply::awaits_cache(&self.writer, &seen) {
            return Ok(Next::Pending(CATCH_UP));
        }
        if matches!(seen.finding, Finding::Refused(Refusal::GroupChanged { .. })) {
            // Anyone who changes it back should not wait until the answer expires.
            self.identities.doubt(&seen.uid);
        }
        seen.brake = self.count(&seen);
        let plan = plan(&seen, self.clock.now());
        if plan.writes()
            && let Err(wait) = self.write_limits.take(pass.key())
        {
            self.events.publish(&seen.reference(), status::changes_too_often());
            return Ok(Next::Pending(wait));
        }
        let applied = apply::apply(&self.writer, &seen, &plan).await;
        self.report(&seen, &plan, applied.is_ok());
        applied?;
        seen.next()
    }
}
