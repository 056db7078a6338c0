//! The mirror beside a scripted cloud, as the coordinator's own service account, on a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use tidewaiter_api::CloudSync;
use tidewaiter_api::containership::{ClusterLabel, ClusterUpgrade, Registry, User};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_cloud::client::{self as cloud, ClientSettings, Cluster};
use tidewaiter_coordinator::changes::Changes;
use tidewaiter_coordinator::controllers::Upgrades;
use tidewaiter_coordinator::mirror::{self, MassDeletion, MirrorSettings, RegistryCredentialsIn};
use tidewaiter_kit::PauseSwitch;
use tidewaiter_testkit::{ApiProxy, AuditMark, Identity, Reused, eventually, leaks, settled};

use crate::cluster::{self, Wiring, prepared};
pub use crate::cluster::{Running as Coordinator, SOON, coordinator};
use crate::script::{CLUSTER, INTERVAL, ORGANIZATION, Script};

pub const NAMESPACE: &str = CONTAINERSHIP_NAMESPACE;

/// Dropped, it searches what it showed for the secrets of the tests.
pub struct World {
    pub plane: Reused,
    pub cloud: Script,
    pub mass_deletion: MassDeletion,
    pub credentials: RegistryCredentialsIn,
    /// Pauses the controllers.
    pub pause: PauseSwitch,
    /// The sync interval.
    pub interval: Duration,
    /// The timeout of one request to the cloud.
    pub timeout: Duration,
}

impl Drop for World {
    fn drop(&mut self) {
        leaks::search(&self.plane, None);
    }
}

impl World {
    pub async fn start() -> Self {
        Self::with(Script::start(false).await).await
    }

    pub async fn with(cloud: Script) -> Self {
        leaks::capture_logs();
        Self {
            plane: prepared().await,
            cloud,
            mass_deletion: MassDeletion::Confirm,
            credentials: RegistryCredentialsIn::Secret,
            pause: PauseSwitch::new(false),
            interval: INTERVAL,
            timeout: Duration::from_secs(5),
        }
    }

    pub fn client(&self) -> Client {
        self.plane.client(&Identity::Admin)
    }

    /// Starts a coordinator, which leads at once.
    pub async fn coordinator(&self) -> Coordinator {
        self.coordinator_with(self.plane.config(&coordinator())).await
    }

    /// The same through a proxy.
    pub async fn coordinator_through(&self, proxy: &ApiProxy) -> Coordinator {
        self.coordinator_with(kube::Config::new(proxy.url().parse().unwrap()))
            .await
    }

    /// The same with another way to the API server.
    async fn coordinator_with(&self, config: kube::Config) -> Coordinator {
        let mut role = Wiring::new(&config, self.pause.pause()).await;
        let mut settings = ClientSettings::new(self.cloud.url.parse().unwrap());
        settings.token = Some(leaks::secret("twk_0123456789abcdef_hunter2hunter2").parse().unwrap());
        settings.sync_interval = self.interval;
        settings.timeout = self.timeout;
        settings.deadline = self.timeout + Duration::from_secs(1);
        let cluster = Cluster {
            organization: ORGANIZATION.parse().unwrap(),
            id: CLUSTER.parse().unwrap(),
        };
        let kit = role.context.kit.clone();
        let client = cloud::Client::new(&settings, kit.clock.clone()).unwrap();
        let leadership = role.context.leadership.clone();
        let changes = Changes::start(client.clone(), cluster, leadership, &kit.metrics, &mut role.tasks).unwrap();
        let settings = MirrorSettings {
            cloud: tidewaiter_coordinator::Cloud {
                client,
                cluster,
                interval: self.interval,
            },
            mass_deletion: self.mass_deletion,
            registry_credentials: self.credentials,
            upgrades: Upgrades::default(),
        };
        mirror::start(settings, &changes, &mut role.role()).unwrap();
        role.run()
    }

    pub fn users(&self) -> Api<User> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub fn labels(&self) -> Api<ClusterLabel> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub fn registries(&self) -> Api<Registry> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub fn upgrades(&self) -> Api<ClusterUpgrade> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// Waits until the users have these names, in the order of their ids.
    pub async fn users_are(&self, names: &[&str]) {
        eventually(format!("the users {names:?}"), SOON, async || {
            let found = self.user_names().await;
            if found == names {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    pub async fn user_names(&self) -> Vec<String> {
        let users = self.users().list(&ListParams::default()).await.unwrap();
        users.into_iter().map(|user| user.spec.name).collect()
    }

    pub async fn sync(&self) -> CloudSync {
        let objects: Api<CloudSync> = Api::all(self.client());
        objects
            .get("cloud")
            .await
            .unwrap_or_else(|_| CloudSync::new("cloud", tidewaiter_api::CloudSyncSpec {}))
    }

    /// Waits until a condition of `CloudSync` has this status and reason; returns its message.
    pub async fn condition(&self, type_: &str, wanted: &str) -> String {
        eventually(format!("{type_} to be {wanted}"), SOON, async || {
            let sync = self.sync().await;
            let condition = sync.condition(type_).ok_or("there is none")?;
            let found = format!("{:?} {}", condition.status, condition.reason);
            if found == wanted {
                Ok(condition.message.clone())
            } else {
                Err(format!("{found}: {}", condition.message))
            }
        })
        .await
    }

    /// Waits for an Event of this reason; returns its object and note.
    pub async fn event(&self, reason: &str) -> (String, String) {
        let events: Api<Event> = Api::all(self.client());
        eventually(format!("an Event {reason}"), SOON, async || {
            let all = events
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let found = all.iter().find(|event| event.reason.as_deref() == Some(reason));
            let event =
                found.ok_or_else(|| format!("{:?}", all.iter().map(|event| &event.reason).collect::<Vec<_>>()))?;
            let regarding = event.regarding.clone().unwrap_or_default();
            Ok::<_, String>((
                format!(
                    "{}/{}",
                    regarding.kind.unwrap_or_default(),
                    regarding.name.unwrap_or_default()
                ),
                event.note.clone().unwrap_or_default(),
            ))
        })
        .await
    }

    /// The writes since `mark`, as `verb resource name`, except Events.
    pub async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        cluster::written_since(&self.plane, mark, "events").await
    }

    /// Waits until nothing is written during two rounds.
    pub async fn quiet(&self) {
        eventually("two rounds without a write", SOON, async || {
            let mark = self.plane.audit_mark().await;
            self.polled("/ssh-users", 2).await;
            let written = self.written_since(mark).await;
            if written.is_empty() {
                Ok(())
            } else {
                Err(format!("{written:?}"))
            }
        })
        .await;
    }

    /// The number of requests of the list at `end`, once there are no more: where nothing polls.
    pub async fn asked(&self, end: &'static str) -> usize {
        // Longer than the first list waits for the change stream.
        let still = Duration::from_secs(3);
        settled(format!("the requests of {end}"), still, SOON, async || {
            self.cloud.requests(end)
        })
        .await
    }

    /// Waits until the kind with the list at `end` was asked for at least `times` more.
    pub async fn polled(&self, end: &'static str, times: usize) {
        let before = self.cloud.requests(end);
        eventually(format!("{times} more requests of {end}"), SOON, async || {
            let now = self.cloud.requests(end);
            if now >= before + times {
                Ok(())
            } else {
                Err(now - before)
            }
        })
        .await;
    }
}

pub fn names<K: kube::Resource>(objects: impl IntoIterator<Item = K>) -> Vec<String> {
    objects.into_iter().map(|object| object.name_any()).collect()
}
