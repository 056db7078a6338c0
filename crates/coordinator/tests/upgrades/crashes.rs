//! Killed before or after any of its writes, the controller goes on where it was: no node is started twice, none is
//! left out, and each has its order until it is done.

use serde_json::json;
use tidewaiter_api::containership::UpgradeStatus;
use tidewaiter_testkit::{ApiProxy, ApiRequest, Moment, every};

use crate::cluster::{MORE, coordinator, is_killed, kills};
use crate::world::{OLD, Script, World, is_once};

/// The writes of an upgrade of three nodes: of the progress the claim, three starts and the end, as many of the status,
/// and two of each order.
const WRITES: usize = 16;

#[tokio::test]
async fn killed_at_any_write_the_upgrade_goes_on_where_it_was() {
    for moment in [Moment::Before, Moment::After] {
        let world = World::start().await;
        let proxy = ApiProxy::start(&world.cluster, &coordinator());
        let config = kube::Config::new(proxy.url().parse().unwrap());
        for nth in (1..).step_by(every(3)) {
            assert!(nth <= WRITES + MORE, "more writes than {nth}");
            for name in ["cp", "w1", "w2"] {
                world.join(name, OLD, &[]).await;
            }
            let name = format!("upgrade-{nth}");
            let running = world.run_with(&config).await;
            let killed = kills(&proxy, &running, nth, moment, is_counted);
            world.upgrade(&name, json!({})).await;
            // The last writes are that of the conditions, and the end of the last order.
            let is_done = async || world.says_the_end(&name).await && world.ordered().await.is_empty();
            let restart = async {
                let was_killed = is_killed(&killed, format!("{moment:?} write {nth}"), nth >= WRITES, is_done).await;
                proxy.clear_hook();
                (
                    was_killed,
                    if was_killed {
                        Some(world.run_with(&config).await)
                    } else {
                        None
                    },
                )
            };
            let (order, (was_killed, restarted)) = tokio::join!(world.play(&name, |_| Script::Works), restart);
            assert_eq!(order, ["cp", "w1", "w2"], "{moment:?} write {nth}");
            assert!(is_once(&order));
            world.ends(&name, UpgradeStatus::Success).await;
            world.orders_are(&[]).await;
            drop((running, restarted));
            for name in ["cp", "w1", "w2"] {
                world.delete_node(name).await;
            }
            if !was_killed {
                break;
            }
        }
    }
}

/// Counts decisions: Events are reports.
fn is_counted(request: &ApiRequest) -> bool {
    request.is_write() && matches!(request.resource(), "clusterupgrades" | "nodeupgrades")
}
