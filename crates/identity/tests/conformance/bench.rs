//! A cloud, its provider, and how a test asks it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidewaiter_identity::{Claim, Identifier, Identity, Lookup, LookupSettings, Refusal};
use tidewaiter_kit::{CloudCalls, ManualClock, Metrics};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ask::{Results, ask};
use crate::cloud::{Cloud, Launched, Wiring};

/// Longer than anything takes, on a machine that does ten things at once.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// A provider with a clock that stands still until the test moves it.
pub(crate) struct Bench {
    pub(crate) identifier: Arc<dyn Identifier>,
    pub(crate) clock: ManualClock,
    pub(crate) counted: CloudCalls,
}

/// A lookup whose calls are made until it is dropped.
pub(crate) struct Running {
    pub(crate) lookup: Arc<Lookup>,
    /// The number of Nodes that were announced because the cloud is back.
    pub(crate) back: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Bench {
    pub(crate) async fn of(cloud: &impl Cloud) -> Self {
        Self::with(cloud, Duration::from_secs(20)).await
    }

    pub(crate) async fn with(cloud: &impl Cloud, deadline: Duration) -> Self {
        let clock = ManualClock::default();
        let calls = Metrics::new(&clock.shared()).unwrap().cloud_calls();
        let wiring = Wiring {
            clock: clock.shared(),
            calls: calls.clone(),
            deadline,
        };
        Self {
            identifier: cloud.provider(&wiring).await,
            clock,
            counted: calls,
        }
    }

    pub(crate) async fn ask(&self, claims: &[Claim]) -> Results {
        ask(self.identifier.as_ref(), claims).await
    }

    pub(crate) async fn ask_one(&self, instance: &Launched) -> Result<Identity, Refusal> {
        self.ask(&[claim(instance)]).await.remove(0)
    }

    pub(crate) fn lookup(&self) -> Running {
        let settings = LookupSettings::default();
        let lookup = Arc::new(Lookup::new(Arc::clone(&self.identifier), self.clock.shared(), settings));
        let mut tasks = JoinSet::new();
        let back = Arc::new(AtomicUsize::new(0));
        let announced = Arc::clone(&back);
        let on_back = move |_: &_| {
            announced.fetch_add(1, Ordering::SeqCst);
        };
        let running = Arc::clone(&lookup).run(CancellationToken::new(), on_back, || false);
        tasks.spawn(async move {
            let _ = running.await;
        });
        Running {
            lookup,
            back,
            _tasks: tasks,
        }
    }
}

/// Returns the claim of the instance's own Node.
pub(crate) fn claim(instance: &Launched) -> Claim {
    Claim {
        node: instance.node.parse().unwrap(),
        uid: format!("uid-of-{}", instance.node).parse().unwrap(),
        provider_id: instance.provider_id.parse().unwrap(),
        addresses: vec![instance.address.parse().unwrap()],
        rivals: Vec::new(),
    }
}

pub(crate) fn claims<'a>(instances: impl IntoIterator<Item = &'a Launched>) -> Vec<Claim> {
    instances.into_iter().map(claim).collect()
}
