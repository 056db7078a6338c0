//! Killed before or after each of its writes, the mirror ends where it ends without that, and is quiet then.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_testkit::{ApiProxy, ApiRequest, Moment, eventually, every};

use crate::cluster::{MORE, is_killed, kills};
use crate::objects::{KINDS, Kind, POOL, pool};
use crate::script::Script;
use crate::stored::api;
use crate::world::{Coordinator, SOON, World, coordinator};

/// From one to the other, each kind has a creation, an update and a deletion.
const STATES: [[(usize, usize); 2]; 2] = [[(1, 1), (2, 1)], [(2, 2), (3, 1)]];

/// Eleven kinds of resources, three writes each, and the stored lists of ten.
const WRITES: usize = 43;

struct Scene {
    world: World,
    proxy: ApiProxy,
}

#[tokio::test]
async fn killed_at_any_write_it_ends_the_same_and_is_quiet() {
    let world = World::with(Script::start(true).await).await;
    let proxy = ApiProxy::start(&world.plane, &coordinator());
    let scene = Scene { world, proxy };
    scene.says(&STATES[0]);
    let mut running = scene.start().await;
    scene.ends_as(&STATES[0]).await;
    let mut nth = 0;
    let mut is_over = false;
    while !is_over {
        nth += every(3);
        assert!(nth <= WRITES + MORE, "more writes than {nth}");
        // The histories do both, in simulated time.
        let moment = if nth % 2 == 0 { Moment::After } else { Moment::Before };
        let state = &STATES[nth % 2];
        let killed = kills(&scene.proxy, &running, nth, moment, is_counted);
        scene.says(state);
        let is_done = async || scene.has(state).await.is_ok();
        if is_killed(&killed, format!("{moment:?} write {nth}"), nth > WRITES, is_done).await {
            scene.proxy.clear_hook();
            running = scene.start().await;
        } else {
            // There is no such write any more.
            is_over = true;
            scene.proxy.clear_hook();
        }
        scene.ends_as(state).await;
    }
    running.stop().await;

    let mark = scene.world.plane.audit_mark().await;
    let _running = scene.start().await;
    scene.world.polled("/ssh-users", 2).await;
    let written = scene.world.written_since(mark).await;
    // CloudSync may lack the counts of the last round, and gets them as the kinds are listed.
    assert!(written.iter().all(|write| write.contains("cloudsyncs")), "{written:?}");
    scene.world.condition("Synced", "True Applied").await;
    scene.world.quiet().await;
}

impl Scene {
    async fn start(&self) -> Coordinator {
        self.world.coordinator_through(&self.proxy).await
    }

    /// The cloud has these objects of each kind.
    fn says(&self, objects: &[(usize, usize)]) {
        for kind in KINDS {
            let pools = (kind == Kind::AutoscalingGroup).then(|| pool(POOL, None));
            let objects = objects.iter().map(|(number, value)| kind.object(*number, *value));
            self.world
                .cloud
                .replace(format!("/{}", kind.path()), pools.into_iter().chain(objects));
        }
        self.world.cloud.changed(&KINDS.map(Kind::changed));
    }

    /// Waits until the cluster has exactly these.
    async fn ends_as(&self, objects: &[(usize, usize)]) {
        eventually(format!("{objects:?}"), SOON, async || self.has(objects).await).await;
        self.world.condition("Synced", "True Applied").await;
    }

    /// The first kind of which the cluster has others than these.
    async fn has(&self, objects: &[(usize, usize)]) -> Result<(), String> {
        for (resource, group) in KINDS.iter().flat_map(|kind| kind.resources()) {
            let wanted = objects
                .iter()
                .map(|(number, value)| (Kind::name(resource, *number), format!("v{value}")));
            let wanted: BTreeMap<String, String> = wanted.collect();
            let labels = if *resource == "secrets" {
                "tidewaiter.dev/registry"
            } else {
                ""
            };
            let (api, params) = (api(&self.world, resource, group), ListParams::default().labels(labels));
            let there = api.list(&params).await.unwrap();
            release(&api, &there.items).await;
            let there = there.into_iter().map(|object| {
                let object: Value = serde_json::to_value(object).unwrap();
                (
                    object["metadata"]["name"].as_str().unwrap().to_owned(),
                    Kind::shown(resource, &object),
                )
            });
            let there: BTreeMap<String, String> = there.collect();
            if there != wanted {
                return Err(format!("{resource}: {there:?}"));
            }
        }
        Ok(())
    }
}

/// Does what the controllers of roles and bindings do, which do not run here: their finalizers go when the objects are
/// deleted.
async fn release(api: &Api<DynamicObject>, objects: &[DynamicObject]) {
    let deleted = objects
        .iter()
        .filter(|object| object.metadata.deletion_timestamp.is_some());
    for object in deleted {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let released = api.patch(&object.name_any(), &PatchParams::default(), &patch).await;
        assert!(released.is_ok() || is_gone(&released), "{released:?}");
    }
}

fn is_gone<T>(result: &kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 404)
}

fn is_counted(request: &ApiRequest) -> bool {
    request.is_write() && !["events", "cloudsyncs", "leases"].contains(&request.resource())
}
