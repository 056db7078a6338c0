//! The abilities of a cloud that the tests need: the fixture that a new provider brings.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tidewaiter_identity::Identifier;
use tidewaiter_kit::{CloudCalls, SharedClock};
use tidewaiter_testkit::{FakeCloud, Protocol};

/// The cluster of all tests.
pub(crate) const CLUSTER: &str = "ours.example.com";

/// The dependencies of a provider.
pub(crate) struct Wiring {
    pub(crate) clock: SharedClock,
    pub(crate) calls: CloudCalls,
    /// The longest that one call may take.
    pub(crate) deadline: Duration,
}

/// An instance, as its own Node speaks of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    /// As [`Identity`](tidewaiter_identity::Identity) names it.
    pub(crate) instance: String,
    pub(crate) provider_id: String,
    /// The name of its Node.
    pub(crate) node: String,
    pub(crate) address: String,
    pub(crate) zone: String,
}

impl Launched {
    pub(crate) fn new(instance: impl Display, provider_id: String, node: &str, address: &str, zone: &str) -> Self {
        Self {
            instance: instance.to_string(),
            provider_id,
            node: node.to_owned(),
            address: address.to_owned(),
            zone: zone.to_owned(),
        }
    }
}

/// The reason why a row does not concern a cloud.
pub(crate) struct NotApplicable(pub(crate) &'static str);

impl NotApplicable {
    /// Prints it in the test's output.
    #[expect(clippy::print_stderr, reason = "for whoever reads what was tried")]
    pub(crate) fn say(&self) {
        eprintln!("not applicable: {}", self.0);
    }
}

/// A cloud with instances, reached through its real client.
pub(crate) trait Cloud: Send + Sync + Sized {
    /// Starts a cloud without instances.
    async fn start() -> Self;

    /// The provider for [`CLUSTER`].
    async fn provider(&self, wiring: &Wiring) -> Arc<dyn Identifier>;

    /// Launches instances into a group of [`CLUSTER`]. From its number follows all that an instance is, so launching it
    /// again makes the same one; three in a row are in three zones.
    async fn launch(&mut self, numbers: RangeInclusive<u32>, group: &str) -> Vec<Launched>;

    /// Stops the instance, which is still listed.
    async fn stop(&mut self, instance: &Launched);

    /// Gives the instance to another cluster.
    async fn give_away(&mut self, instance: &Launched);

    /// Removes the instance from its group.
    async fn ungroup(&mut self, instance: &Launched);

    /// The providerID of an instance that was never there.
    fn unknown() -> &'static str;

    /// The providerID of this instance with another zone in it, and the reason with which that is refused.
    fn elsewhere(instance: &Launched) -> Result<(String, &'static str), NotApplicable>;

    /// providerIDs of this cloud's scheme that no instance can have.
    fn malformed() -> Vec<&'static str>;
}

/// The cost of a query.
pub(crate) struct Costs {
    /// The calls for this number of instances, all in one group.
    pub(crate) known: fn(usize) -> usize,
    /// The number of calls that a query within minutes of another saves.
    pub(crate) kept: usize,
    /// The calls that one unknown instance may add, each time.
    pub(crate) unknown: usize,
    /// The calls that one instance may add which makes the cloud fail: the first time, and from then on.
    pub(crate) bad: (usize, usize),
    /// The calls that a zone in trouble may add: the first time, and from then on.
    pub(crate) zone: (usize, usize),
}

impl Costs {
    /// The calls for this number of instances within minutes of another query.
    pub(crate) fn again(&self, count: usize) -> usize {
        (self.known)(count) - self.kept
    }
}

/// A cloud whose faults a test can order, from the fake that plays it.
pub(crate) trait Faults: Cloud {
    type Api: Protocol;

    const COSTS: Costs;

    fn fake(&self) -> &FakeCloud<Self::Api>;

    /// Deletes the instance.
    fn remove(&mut self, instance: &Launched);

    /// Returns an error if calls neither name zones nor depend on them.
    fn zones() -> Result<(), NotApplicable> {
        Ok(())
    }
}
