//! The health of the control plane's components, for the gauges `kops_component_*`.
//!
//! From ComponentStatuses, as in kOps, where the API server serves them. They are deprecated (since Kubernetes 1.19);
//! without them etcd is healthy if the API server's `/readyz` says so, and the scheduler and the controller manager are
//! if their Leases are being renewed. A Lease is judged by our own clock, because the holder's may be another: it has
//! to change.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use http::Request;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ComponentStatus;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::client::Body;
use parking_lot::Mutex;
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, SharedClock};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::warn;

const INTERVAL: Duration = Duration::from_secs(20);
const JITTER: f64 = 0.1;
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum age of an answer.
const LIMIT: Duration = Duration::from_mins(2);

const NAMESPACE: &str = "kube-system";
/// By their Leases' names, which are their own.
const LEADERS: [&str; 2] = ["kube-scheduler", "kube-controller-manager"];
/// The duration of a Lease that has none: the default of client-go.
const LEASE_SECONDS: i32 = 15;

/// The number of components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Components {
    pub(crate) healthy: u32,
    pub(crate) unhealthy: u32,
}

impl FromIterator<bool> for Components {
    fn from_iter<T: IntoIterator<Item = bool>>(components: T) -> Self {
        let mut sum = Self::default();
        for healthy in components {
            *(if healthy { &mut sum.healthy } else { &mut sum.unhealthy }) += 1;
        }
        sum
    }
}

/// The components, asked about again and again.
pub(super) struct Watched {
    client: Client,
    clock: SharedClock,
    known: watch::Sender<Option<Components>>,
    /// The last renewal of each Lease, and when it was first seen (monotonic).
    renewals: Mutex<HashMap<&'static str, (Option<String>, Duration)>>,
}

impl Watched {
    pub(super) fn new(client: Client, clock: SharedClock) -> Self {
        Self {
            client,
            clock,
            known: watch::Sender::new(None),
            renewals: Mutex::default(),
        }
    }

    /// The components, while they are known.
    pub(super) fn subscribe(&self) -> watch::Receiver<Option<Components>> {
        self.known.subscribe()
    }

    pub(super) async fn keep_asking(self, shutdown: CancellationToken) -> Result<(), Infallible> {
        shutdown.run_until_cancelled(self.ask_for_ever()).await;
        Ok(())
    }

    async fn ask_for_ever(&self) -> Infallible {
        let mut answered = self.clock.monotonic();
        let mut last_logged = None;
        loop {
            let answer = timeout(&*self.clock, ANSWER, self.ask()).await;
            match answer.map_err(|elapsed| elapsed.to_string()).flatten() {
                Ok(components) => {
                    answered = self.clock.monotonic();
                    last_logged = None;
                    self.publish(Some(components));
                }
                Err(error) => {
                    if last_logged.as_ref() != Some(&error) {
                        warn!(%error, "the components of the control plane are not known");
                        last_logged = Some(error);
                    }
                    if self.clock.monotonic().saturating_sub(answered) > LIMIT {
                        self.publish(None);
                    }
                }
            }
            self.clock.sleep(jittered(INTERVAL, JITTER)).await;
        }
    }

    fn publish(&self, components: Option<Components>) {
        self.known
            .send_if_modified(|known| std::mem::replace(known, components) != components);
    }

    async fn ask(&self) -> Result<Components, String> {
        let statuses = Api::<ComponentStatus>::all(self.client.clone());
        match statuses.list(&ListParams::default()).await {
            Ok(list) if !list.items.is_empty() => Ok(list.iter().map(is_healthy).collect()),
            // They are not served any more.
            Ok(_) => self.ask_each().await,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405 | 410) => self.ask_each().await,
            Err(error) => Err(format!("componentstatuses: {}", Chain(&error))),
        }
    }

    async fn ask_each(&self) -> Result<Components, String> {
        let mut healthy = vec![self.etcd().await?];
        for leader in LEADERS {
            healthy.push(self.is_renewing(leader).await?);
        }
        Ok(healthy.into_iter().collect())
    }

    /// Every line of `/readyz?verbose` about etcd, whatever else is not ready.
    async fn etcd(&self) -> Result<bool, String> {
        let request = Request::get("/readyz?verbose").body(Body::empty());
        let request = request.map_err(|error| format!("readyz: {error}"))?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| format!("readyz: {}", Chain(&error)))?;
        let status = answer.status();
        if !(status.is_success() || status.is_server_error()) {
            return Err(format!("readyz: the API server answers {status}"));
        }
        let text = answer.into_body().collect_bytes().await;
        let text = text.map_err(|error| format!("readyz: {}", Chain(&error)))?;
        etcd_of(&String::from_utf8_lossy(&text)).ok_or_else(|| "readyz: it does not speak of etcd".to_owned())
    }

    async fn is_renewing(&self, name: &'static str) -> Result<bool, String> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), NAMESPACE);
        let lease = leases.get_opt(name).await;
        let lease = lease.map_err(|error| format!("the Lease {name}: {}", Chain(&error)))?;
        let spec = lease.and_then(|lease| lease.spec).unwrap_or_default();
        let renewed = spec.renew_time.map(|time| time.0.to_string());
        let duration = u64::try_from(spec.lease_duration_seconds.unwrap_or(LEASE_SECONDS)).unwrap_or_default();
        let held = spec.holder_identity.is_some_and(|holder| !holder.is_empty());
        let now = self.clock.monotonic();
        let mut renewals = self.renewals.lock();
        let (seen, since) = renewals.entry(name).or_insert_with(|| (renewed.clone(), now));
        if *seen != renewed {
            (*seen, *since) = (renewed, now);
        }
        Ok(held && now.saturating_sub(*since) <= Duration::from_secs(duration))
    }
}

fn is_healthy(status: &ComponentStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Healthy" && condition.status == "True")
}

/// Returns true if every line about etcd says that it is healthy; None if there is none.
fn etcd_of(readyz: &str) -> Option<bool> {
    let about = |line: &str| {
        let (sign, check) = line.split_at_checked(3)?;
        let name = check.split(' ').next().unwrap_or_default();
        matches!(name, "etcd" | "etcd-readiness").then_some(sign == "[+]")
    };
    readyz.lines().filter_map(about).reduce(|one, other| one && other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readyz_says_of_etcd() {
        for (text, expected) in [
            (
                "[+]ping ok\n[+]etcd ok\n[+]etcd-readiness ok\nreadyz check passed\n",
                Some(true),
            ),
            (
                "[+]ping ok\n[-]etcd failed: reason withheld\n[+]etcd-readiness ok\n",
                Some(false),
            ),
            ("[+]etcd ok\n[-]informer-sync failed: reason withheld\n", Some(true)),
            ("[+]ping ok\n[+]etcd-of-another ok\n", None),
            ("ok", None),
            ("é", None),
        ] {
            assert_eq!(etcd_of(text), expected, "{text}");
        }
    }

    #[test]
    fn counts() {
        let components: Components = [true, false, true].into_iter().collect();
        assert_eq!((components.healthy, components.unhealthy), (2, 1));
    }
}
