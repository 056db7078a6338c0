//! Agents on folders of their own, and the watches of many more.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tidewaiter_api::containership::User;
use tidewaiter_testkit::{Identity, Process, Program, eventually, free_port};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use super::bed::{Bed, LONG};
use super::{now, pause};
use crate::process::{Role, SOON};

const NAMESPACE: &str = "tidewaiter-agent";
/// Watches that are begun at the same time.
const BEGINNING: usize = 64;
/// Seconds after which a watch ends by itself: longer than a measurement takes.
const WATCH_SECONDS: u32 = 290;

/// An agent with the settings of the release, except for addresses, the folder and its owner.
pub struct Agent {
    pub role: Role,
    pub file: PathBuf,
}

/// The service account of the agents.
pub fn account() -> Identity {
    Identity::service_account(NAMESPACE, "tidewaiter-agent")
}

/// Applies `deploy/agent`.
pub async fn prepare(bed: &Bed) {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    bed.cluster.apply_manifests(deploy.join("crds/agent")).await;
    bed.cluster.apply_manifests(deploy.join("agent")).await;
}

impl Agent {
    /// Starts one on a new Node.
    pub async fn start(bed: &Bed, node: &str) -> Result<Self> {
        let token = bed.cluster.pod_token(NAMESPACE, "tidewaiter-agent", node).await;
        let folder = bed.scratch.path().join(node);
        std::fs::create_dir(&folder)?;
        let admin = format!("127.0.0.1:{}", free_port());
        let owner = std::fs::metadata(&folder)?;
        let program = Program::new(&bed.program)
            .name(format!("agent-{node}"))
            .arg("agent")
            .env("NODE_NAME", node)
            .env(
                "TIDEWAITER_KUBECONFIG",
                bed.cluster.kubeconfig_of(&serde_json::json!({"token": token})),
            )
            .env("TIDEWAITER_FOLDER", &folder)
            .env("TIDEWAITER_STATE_FOLDER", format!("{}-state", folder.display()))
            .env("TIDEWAITER_ADMIN_ADDRESS", &admin)
            .env("TIDEWAITER_HEALTH_ADDRESS", "127.0.0.1:0")
            .env("TIDEWAITER_OWNER_UID", owner.uid().to_string())
            .env("TIDEWAITER_OWNER_GID", owner.gid().to_string());
        let role = Role {
            process: Process::start(&bed.scratch, program),
            metrics: format!("http://{admin}/metrics"),
            admin: format!("http://{admin}"),
        };
        Ok(Self {
            role,
            file: folder.join("home/.ssh/authorized_keys"),
        })
    }

    pub fn content(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap_or_default()
    }

    /// Waits until this number of users may log in with keys.
    pub async fn has_keys(&self, count: usize) {
        eventually(format!("{count} keys in the file"), LONG, async || {
            let found = self
                .content()
                .lines()
                .filter(|line| line.starts_with("command="))
                .count();
            if found == count { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// When the file has such a content.
    pub async fn until(&self, wanted: impl Fn(&str) -> bool) -> Result<Instant> {
        let begin = now();
        loop {
            if wanted(&self.content()) {
                return Ok(now());
            }
            if begin.elapsed() > SOON {
                bail!(
                    "the key did not change within {SOON:?}: {}",
                    self.role.process.log_tail()
                );
            }
            pause(Duration::from_millis(1)).await;
        }
    }
}

/// The watches of many agents on the Users, and the time at which each got the change of a User.
pub struct Watches {
    pub told: UnboundedReceiver<(Instant, String)>,
    _tasks: JoinSet<()>,
}

impl Watches {
    /// Each over a connection of its own, as the agents have them.
    pub async fn start(bed: &Bed, count: usize) -> Result<Self> {
        let client = bed.cluster.client(&account());
        let users: Api<User> = Api::namespaced(client, "containership-core");
        let list = users.list_metadata(&ListParams::default()).await?;
        let version = list.metadata.resource_version.context("a version")?;
        let params = WatchParams::default().timeout(WATCH_SECONDS).disable_bookmarks();
        let begun = stream::iter(0..count)
            .map(|_| users.watch(&params, &version))
            .buffer_unordered(BEGINNING);
        let begun: Vec<_> = begun.try_collect().await?;
        let (tell, told) = unbounded_channel();
        let mut tasks = JoinSet::new();
        for watch in begun {
            let tell = tell.clone();
            tasks.spawn(async move {
                let mut watch = watch.boxed();
                while let Some(event) = watch.next().await {
                    let Ok(WatchEvent::Modified(user)) = event else {
                        continue;
                    };
                    if tell.send((now(), user.metadata.name.unwrap_or_default())).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { told, _tasks: tasks })
    }
}
