//! Many namespaces: one request for each child, none afterwards, and a small process.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::Api;
use kube::api::ListParams;
use tidewaiter_testkit::usage::Memory;
use tidewaiter_testkit::{eventually, throughout};

use super::super::{coordinator, unshared};
use super::world::RegistryWorld;
use super::{GOOD, OTHER, SOON};

/// `TIDEWAITER_NAMESPACES` sets another number.
const NAMESPACES: usize = 500;

/// On two cores, with other tests.
const LONG: Duration = Duration::from_mins(8);

fn number_of_namespaces() -> usize {
    let set = tidewaiter_kit::settings::environment();
    let set = set.iter().find(|(name, _)| name == "TIDEWAITER_NAMESPACES");
    set.map_or(NAMESPACES, |(_, number)| number.parse().unwrap())
}

/// A namespace costs this much memory at most, with its account and two pull secrets, in bytes.
const EACH: f64 = 3_000.0;

#[tokio::test]
async fn many_namespaces_cost_one_request_for_each_child_and_little_memory() {
    let number = number_of_namespaces();
    let world = RegistryWorld::on(unshared().await).await;
    world.registries.accept(GOOD, &["u:hunter2-a"]);
    world.registries.accept(OTHER, &["u:hunter2-b"]);
    world.registry("r-good", GOOD, "u", "hunter2-a").await;
    world.registry("r-other", OTHER, "u", "hunter2-b").await;
    let process = world.coordinator(&[]);
    world.has_secret("default", "r-good", GOOD, "hunter2-a").await;
    world.attached("default", "containership", &["r-good", "r-other"]).await;
    let before = Memory::of(process.pid());

    world.namespace("many-00000").await;
    world
        .attached("many-00000", "containership", &["r-good", "r-other"])
        .await;
    world.has_secret("many-00000", "r-other", OTHER, "hunter2-b").await;
    let namespaces: Api<Namespace> = Api::all(world.admin());
    let uid = namespaces.get("many-00000").await.unwrap().metadata.uid.unwrap();
    let mark = world.cluster.audit_mark().await;
    let copies = (1..number).map(|nth| {
        let tail = uid.len() - 5;
        [format!("many-{nth:05}"), format!("{}{nth:05}", &uid[..tail])]
    });
    world
        .cluster
        .copy("namespaces/many-00000", ["many-00000", &uid], copies)
        .await;
    // A look at one costs the API server less than a look at all.
    let last = format!("many-{:05}", number - 1);
    eventually(format!("the pull secret in {last}"), LONG, async || {
        let secret = world.secret(&last, "r-other").await;
        secret.map(drop).ok_or_else(|| process.log_tail())
    })
    .await;
    all_have_theirs(&world, number).await;

    // The Lease is renewed as long as it takes.
    let mine = world.cluster.audit().await.since(mark).by(&coordinator());
    let mine = mine.filter(|entry| entry.object_ref.resource != "leases");
    let (writes, reads) = (mine.clone().writes().count(), mine.verb("get").count());
    assert!(
        writes <= 3 * (number - 1) + 20,
        "{writes} writes in {number} namespaces"
    );
    assert!(reads <= 20, "{reads} reads");
    let after = Memory::of(process.pid());
    let each = (after.anonymous - before.anonymous) * 1024.0 * 1024.0 / f64::from(u32::try_from(number).unwrap());
    println!("{number} namespaces: {before:?} -> {after:?}, {each:.0} bytes each");

    process.stop(SOON).await;
    let mark = world.cluster.audit_mark().await;
    let process = world.coordinator(&[]);
    world.namespace("last").await;
    world.attached("last", "containership", &["r-good", "r-other"]).await;
    throughout("nothing else to be written", Duration::from_secs(3), async || {
        let mut writes = world.written_since(mark).await;
        writes.retain(|write| !write.ends_with(" last"));
        if writes.is_empty() {
            Ok(())
        } else {
            Err(format!("{}: {:?}", writes.len(), writes.first()))
        }
    })
    .await;
    let warm = Memory::of(process.pid());
    println!("after a restart: {warm:?}");
    assert!(number < 5_000 || each < EACH, "{each:.0} bytes for each namespace");
}

async fn all_have_theirs(world: &RegistryWorld, number: usize) {
    let secrets: Api<Secret> = Api::all(world.admin());
    let accounts: Api<ServiceAccount> = Api::all(world.admin());
    eventually("every namespace to have its children", LONG, async || {
        let params = ListParams::default().labels("containership.io/managed=true,controller");
        let secrets = secrets
            .list_metadata(&params)
            .await
            .map_err(|error| error.to_string())?;
        let params = ListParams::default().labels("containership.io/managed=true");
        let accounts = accounts.list(&params).await.map_err(|error| error.to_string())?;
        let attached = accounts.items.iter().filter(|account| {
            account
                .image_pull_secrets
                .as_ref()
                .is_some_and(|entries| entries.len() == 2)
        });
        let (attached, secrets) = (attached.count(), secrets.items.len());
        if attached >= number && secrets >= 2 * number {
            Ok(())
        } else {
            Err(format!("{attached} accounts, {secrets} secrets"))
        }
    })
    .await;
}
