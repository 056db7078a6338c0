//! The mirror beside a scripted cloud, as the coordinator's own service account, on a real API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt as _};
use tidewaiter_api::CloudSync;
use tidewaiter_api::containership::{ClusterLabel, ClusterUpgrade, Registry, User};
use tidewaiter_cloud::client::{self as cloud, ClientSettings, Cluster};
use tidewaiter_coordinator::changes::Changes;
use tidewaiter_coordinator::mirror::{self, MassDeletion, MirrorSettings, RegistryCredentialsIn};
use tidewaiter_kit::client::Clients;
use tidewaiter_kit::events::Reporter;
use tidewaiter_kit::{ControllerContext, Events, Kit, Leadership, Pause, SystemClock, Tasks};
use tidewaiter_testkit::{AuditMark, ControlPlane, Identity, Reused, eventually};
use tokio_util::sync::CancellationToken;

use crate::script::{CLUSTER, INTERVAL, ORGANIZATION, Script};

pub const SOON: Duration = Duration::from_mins(1);
pub const NAMESPACE: &str = "containership-core";

pub struct World {
    pub plane: Reused,
    pub cloud: Script,
    pub mass_deletion: MassDeletion,
    pub credentials: RegistryCredentialsIn,
}

/// One coordinator. It ends when this is dropped.
pub struct Coordinator {
    stop: CancellationToken,
    ended: Option<BoxFuture<'static, ()>>,
}

fn deploy(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(folder)
}

pub fn coordinator() -> Identity {
    Identity::service_account(NAMESPACE, "tidewaiter-coordinator")
}

impl World {
    pub async fn start() -> Self {
        Self::with(Script::start(false).await).await
    }

    pub async fn with(cloud: Script) -> Self {
        let plane = ControlPlane::reused(async |plane| {
            plane.apply_manifests(deploy("crds/coordinator")).await;
            plane.apply_manifests(deploy("coordinator")).await;
        });
        Self {
            plane: plane.await,
            cloud,
            mass_deletion: MassDeletion::Confirm,
            credentials: RegistryCredentialsIn::Secret,
        }
    }

    pub fn client(&self) -> Client {
        self.plane.client(&Identity::Admin)
    }

    /// Starts a coordinator, which leads at once.
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    pub async fn coordinator(&self) -> Coordinator {
        let clock = SystemClock::shared();
        let kit = Kit::new(Arc::clone(&clock)).unwrap();
        let mut tasks = Tasks::new(Arc::clone(&clock));
        let leadership = Leadership::always(Arc::clone(&clock));
        let clients = Clients::new(&self.plane.config(&coordinator()), &leadership, &kit)
            .await
            .unwrap();
        let reporter = Reporter {
            controller: "tidewaiter-coordinator".to_owned(),
            instance: "test".to_owned(),
        };
        let events = Events::start(clients.for_events(), Arc::clone(&clock), reporter, &mut tasks);
        let context = ControllerContext {
            kit: kit.clone(),
            leadership: leadership.clone(),
            events,
            pause: Pause::never(),
            shutdown: tasks.shutdown_token(),
        };
        let mut settings = ClientSettings::new(self.cloud.url.parse().unwrap());
        settings.token = Some("twk_0123456789abcdef_hunter2hunter2".parse().unwrap());
        settings.sync_interval = INTERVAL;
        settings.timeout = Duration::from_secs(5);
        settings.deadline = Duration::from_secs(6);
        let cluster = Cluster {
            organization: ORGANIZATION.parse().unwrap(),
            id: CLUSTER.parse().unwrap(),
        };
        let client = cloud::Client::new(&settings, clock).unwrap();
        let changes = Changes::start(client.clone(), cluster, leadership, &mut tasks);
        let settings = MirrorSettings {
            client,
            cluster,
            interval: INTERVAL,
            mass_deletion: self.mass_deletion,
            registry_credentials: self.credentials,
        };
        mirror::start(settings, &changes, &clients, &context, &mut tasks).unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = tokio::spawn(async move {
            tasks
                .run_until(async move {
                    stopped.cancelled().await;
                    "the test ends"
                })
                .await
                .unwrap();
        });
        Coordinator {
            stop,
            ended: Some(Box::pin(async move { running.await.unwrap() })),
        }
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
        let writes = self.plane.audit().await.since(mark).by(&coordinator()).writes();
        let writes = writes.iter().map(|entry| (entry.verb.as_str(), &entry.object_ref));
        writes
            .filter(|(_, object)| object.resource != "events")
            .map(|(verb, object)| format!("{verb} {} {}", object.resource, object.name))
            .collect()
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

impl Coordinator {
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(ended) = self.ended.take() {
            ended.await;
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn names<K: kube::Resource>(objects: impl IntoIterator<Item = K>) -> Vec<String> {
    objects.into_iter().map(|object| object.name_any()).collect()
}
