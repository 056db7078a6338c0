//! Jobs before and after the objects of a plugin.

use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::eventually;

use crate::world::{SOON, World, config, id};

pub fn job(name: &str) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"activeDeadlineSeconds": 600, "template": {"spec": pod}}})
}

fn jobs(world: &World) -> Api<DynamicObject> {
    world.objects("batch/v1", "jobs", "Job", Some("default"))
}

/// The name of the only job whose name begins so, and which is not `other`.
pub async fn name_of(world: &World, stem: &str, other: &str) -> String {
    eventually(format!("a job {stem}"), SOON, async || {
        let all = jobs(world)
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let names = all.items.into_iter().filter_map(|job| job.metadata.name);
        let names: Vec<String> = names.filter(|name| name.starts_with(stem) && name != other).collect();
        match &names[..] {
            [name] => Ok(name.clone()),
            names => Err(format!("{names:?}")),
        }
    })
    .await
}

/// Writes the end of a job, as the job controller does.
pub async fn ends(world: &World, name: &str, succeeded: bool) {
    let time = "2026-01-01T00:00:00Z";
    let condition = |type_: &str| {
        json!({"type": type_, "status": "True", "reason": "r", "message": "m",
        "lastProbeTime": time, "lastTransitionTime": time})
    };
    let start = Patch::Merge(json!({"status": {"startTime": time}}));
    jobs(world)
        .patch_status(name, &PatchParams::default(), &start)
        .await
        .unwrap();
    let mut status = if succeeded {
        json!({"conditions": [condition("SuccessCriteriaMet"), condition("Complete")], "completionTime": time, "succeeded": 1})
    } else {
        json!({"conditions": [condition("FailureTarget"), condition("Failed")], "failed": 1})
    };
    status["uncountedTerminatedPods"] = json!({});
    let end = Patch::Merge(json!({ "status": status }));
    jobs(world)
        .patch_status(name, &PatchParams::default(), &end)
        .await
        .unwrap();
}

#[tokio::test]
async fn jobs_run_once_for_each_version_and_must_succeed() {
    let world = World::start().await;
    let both = json!({"pre_apply": [job("before")], "post_apply": [job("after")]});
    world.offer_with(1, "1.0.0", &json!([[config("one", "1")]]), &both);
    let running = world.run(PluginSettings::default()).await;
    let before = name_of(&world, "before", "").await;
    world.condition(1, "1.0.0", "Ready", "False JobRuns").await;
    world.config_is("one", None).await;

    // A restart does not run it again.
    running.stop().await;
    let running = world.run(PluginSettings::default()).await;
    world.is_quiet().await;
    assert_eq!(name_of(&world, "before", "").await, before);
    ends(&world, &before, true).await;
    world.config_is("one", Some("1")).await;

    let after = name_of(&world, "after", "").await;
    ends(&world, &after, false).await;
    let message = world.condition(1, "1.0.0", "Stalled", "True JobFailed").await;
    assert!(message.contains(&after) && message.contains("delete it"), "{message}");
    world.event(&id(1), "JobFailed").await;
    world.is_quiet().await;

    // A person can let it run again.
    let uid = jobs(&world).get(&after).await.unwrap().metadata.uid;
    world.delete(&jobs(&world), &after).await;
    world
        .shows(&jobs(&world), &after, |found| {
            found["metadata"]["uid"].as_str().map(str::to_owned) != uid && !found.is_null()
        })
        .await;
    ends(&world, &after, true).await;
    world.is_ready(1, "1.0.0").await;

    // One that has succeeded does not run again, although it is gone.
    world.delete(&jobs(&world), &before).await;
    world.is_quiet().await;
    running.stop().await;
    let _running = world.run(PluginSettings::default()).await;
    world.is_quiet().await;
    world.shows(&jobs(&world), &before, Value::is_null).await;

    // The next version has jobs of its own, and the old ones go.
    world.offer_with(1, "1.1.0", &json!([[config("one", "2")]]), &both);
    let next = name_of(&world, "before", &before).await;
    world.config_is("one", Some("1")).await;
    ends(&world, &next, true).await;
    let last = name_of(&world, "after", &after).await;
    ends(&world, &last, true).await;
    world.is_ready(1, "1.1.0").await;
    world.shows(&jobs(&world), &after, Value::is_null).await;
    world.is_quiet().await;
}

/// A Job among the manifests that the API server is to delete when it has finished, as ingress-nginx has two.
fn expiring(image: &str) -> Value {
    let mut job = job("patch");
    job["spec"]["ttlSecondsAfterFinished"] = json!(0);
    job["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    job
}

#[tokio::test]
async fn a_job_that_is_deleted_after_it_has_succeeded_does_not_run_again() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[expiring("one"), config("one", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    let there = |found: &Value| !found.is_null();
    world.shows(&jobs(&world), "patch", there).await;
    // Before it has succeeded, it is an object as any other.
    let first = jobs(&world).get("patch").await.unwrap();
    world.delete(&jobs(&world), "patch").await;
    world
        .shows(&jobs(&world), "patch", |found| {
            there(found) && found["metadata"]["uid"].as_str() != first.metadata.uid.as_deref()
        })
        .await;
    let applied = jobs(&world).get("patch").await.unwrap();
    assert_eq!(applied.data["spec"]["ttlSecondsAfterFinished"], Value::Null);

    ends(&world, "patch", true).await;
    world.is_ready(1, "1.0.0").await;
    eventually("the inventory to say it", SOON, async || {
        let spec = world
            .inventories()
            .get(&id(1))
            .await
            .map_err(|error| error.to_string())?
            .spec;
        let fields: Vec<String> = spec.objects().map(|(_, object)| object.fields.clone()).collect();
        let is_there = fields.iter().any(|fields| fields == "succeeded");
        if is_there { Ok(()) } else { Err(format!("{fields:?}")) }
    })
    .await;
    world.is_quiet().await;
    // As a person may do.
    world.delete(&jobs(&world), "patch").await;
    world.is_quiet().await;
    running.stop().await;
    let running = world.run(PluginSettings::default()).await;
    world.is_quiet().await;
    world.shows(&jobs(&world), "patch", Value::is_null).await;
    world.is_ready(1, "1.0.0").await;

    // The next version has another Job, which takes the place of one that is still there.
    for (version, image) in [("2.0.0", "two"), ("3.0.0", "three")] {
        world.offer(1, version, &json!([[expiring(image), config("one", "1")]]));
        let has_image = |found: &Value| found["spec"]["template"]["spec"]["containers"][0]["image"] == image;
        world.shows(&jobs(&world), "patch", has_image).await;
    }
    ends(&world, "patch", true).await;
    world.is_ready(1, "3.0.0").await;
    world.is_quiet().await;
    running.stop().await;
}

#[tokio::test]
async fn a_job_that_expires_runs_once_for_each_version() {
    let world = World::with_controller_manager().await;
    let uid = async || jobs(&world).get("patch").await.unwrap().metadata.uid;
    let mut runs = Vec::new();
    let mut running = world.run(PluginSettings::default()).await;
    // The second version has the same Job as the first one.
    for (version, value) in [("1.0.0", "1"), ("2.0.0", "2")] {
        world.offer(1, version, &json!([[expiring("one"), config("one", value)]]));
        world.is_ready(1, version).await;
        let run = uid().await;
        assert!(!runs.contains(&run), "{version} has the Job of another version");
        // The controllers would delete it now, and a start would create it again.
        world.is_quiet().await;
        running.stop().await;
        running = world.run(PluginSettings::default()).await;
        world.is_quiet().await;
        assert_eq!(uid().await, run, "{version}");
        runs.push(run);
    }
    running.stop().await;
}
