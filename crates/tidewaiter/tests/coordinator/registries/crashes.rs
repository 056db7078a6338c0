//! Killed (SIGKILL) before and after each of its writes, the coordinator leaves what its next start brings to the same
//! end.

use std::sync::Arc;

use tidewaiter_testkit::{ApiProxy, ApiRequest, Moment, Process, eventually};

use super::super::{SOON, coordinator};
use super::GOOD;
use super::world::RegistryWorld;

/// The namespaces whose writes are counted: that of the record, and one of the others.
const NAMESPACES: [&str; 2] = ["containership-core", "team"];

/// The process ends before its world.
struct Scene {
    process: Arc<Process>,
    proxy: ApiProxy,
    world: RegistryWorld,
}

#[tokio::test]
async fn killed_at_any_write_it_ends_the_same() {
    let world = RegistryWorld::start(false).await;
    world.registries.accept(GOOD, &["u:hunter2-a", "u:hunter2-b"]);
    world.namespace("team").await;
    let proxy = ApiProxy::start(&world.cluster, &coordinator());
    let process = Arc::new(world.coordinator_through(&proxy.kubeconfig(), &[]));
    let scene = Scene { process, proxy, world };
    for namespace in NAMESPACES {
        scene.world.attached(namespace, "containership", &[]).await;
    }
    for moment in [Moment::Before, Moment::After] {
        // The pull secret in each namespace, then the entry of each account.
        for nth in 1..=4 {
            scene
                .crash(nth, moment, async || {
                    scene.world.registry("r", GOOD, "u", "hunter2-a").await;
                })
                .await;
            scene.ends_with(Some("hunter2-a")).await;
            scene
                .crash(nth, moment, async || scene.world.unregister("r").await)
                .await;
            scene.ends_with(None).await;
        }
        scene.world.registry("r", GOOD, "u", "hunter2-a").await;
        scene.ends_with(Some("hunter2-a")).await;
        for (nth, password) in [(1, "hunter2-b"), (2, "hunter2-a")] {
            scene
                .crash(nth, moment, async || {
                    scene.world.registry("r", GOOD, "u", password).await;
                })
                .await;
            scene.ends_with(Some(password)).await;
        }
        scene.world.unregister("r").await;
        scene.ends_with(None).await;
    }
}

impl Scene {
    /// Does what makes the process write, waits until it is killed at the nth write, and starts it again.
    async fn crash(&self, nth: usize, moment: Moment, change: impl AsyncFnOnce()) {
        self.proxy.kill_at(&self.process, nth, moment, is_counted);
        change().await;
        eventually(
            format!("the process to be killed {moment:?} write {nth}"),
            SOON,
            async || {
                if self.process.is_running() {
                    Err("it runs")
                } else {
                    Ok(())
                }
            },
        )
        .await;
        self.proxy.clear_hook();
        self.world.expire_lease().await;
        self.process.start_again();
    }

    async fn ends_with(&self, password: Option<&str>) {
        for namespace in NAMESPACES {
            if let Some(password) = password {
                self.world.has_secret(namespace, "r", GOOD, password).await;
                self.world.attached(namespace, "containership", &["r"]).await;
            } else {
                self.world.gone(namespace, "r").await;
                self.world.attached(namespace, "containership", &[]).await;
            }
        }
    }
}

fn is_counted(request: &ApiRequest) -> bool {
    let in_namespace = NAMESPACES
        .iter()
        .any(|name| request.path.contains(&format!("/namespaces/{name}/")));
    request.is_write() && in_namespace && ["secrets", "serviceaccounts"].contains(&request.resource())
}
