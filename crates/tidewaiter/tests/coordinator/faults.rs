//! A cloud that was restored, is new, has an expired certificate or lists what is hostile: nothing goes, and it is
//! named.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tidewaiter_api::containership::ClusterLabel;
use tidewaiter_testkit::{FakeRegistries, Identity, eventually, leaks, throughout};

use crate::cloud::{Cloud, Fault};
use crate::registries::GOOD;
use crate::{SOON, World, coordinator, write};

const CORE: &str = "containership-core";
const MANY: usize = 6;

/// Several sync intervals.
const A_WHILE: Duration = Duration::from_secs(6);

async fn labels(world: &World) -> usize {
    let labels: Api<ClusterLabel> = Api::namespaced(world.cluster.client(&Identity::Admin), CORE);
    labels.list(&ListParams::default()).await.unwrap().items.len()
}

/// Creates labels in the cloud, and runs a coordinator until it has mirrored them.
async fn mirrored(world: &World, cloud: &Cloud) -> crate::Replica {
    for number in 0..MANY {
        let key = format!("cluster.containership.io/label-{number}");
        cloud.post("^/labels", json!({"key": key, "value": "a"})).await;
    }
    let replica = world.replica(&quick(cloud), None);
    eventually("the labels", SOON, async || match labels(world).await {
        MANY => Ok(()),
        other => Err(other),
    })
    .await;
    world.synced("True Applied", SOON).await;
    replica
}

/// The brake waits for a person, and the cloud is asked each second.
fn quick(cloud: &Cloud) -> Vec<(&'static str, String)> {
    let mut variables = cloud.variables();
    variables.push(("CONTAINERSHIP_CLOUD_SYNC_INTERVAL_SEC", "1s".to_owned()));
    variables.push(("TIDEWAITER_MASS_DELETION", "release".to_owned()));
    variables
}

async fn stays(world: &World) {
    throughout("every label to stay", A_WHILE, async || match labels(world).await {
        MANY => Ok(()),
        other => Err(other),
    })
    .await;
}

#[tokio::test]
async fn a_cloud_restored_from_before_the_objects_deletes_nothing() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let backup = cloud.backup().await;
    let _replica = mirrored(&world, &cloud).await;
    cloud.starts_anew(Some(&backup)).await;
    world
        .synced_saying("False DeletionsHeld", &["ClusterLabel"], SOON)
        .await;
    stays(&world).await;
}

#[tokio::test]
async fn a_cloud_with_a_new_database_deletes_nothing_and_the_remedy_is_named() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let _replica = mirrored(&world, &cloud).await;
    cloud.starts_anew(None).await;
    let message = world.synced("False ListFailed", SOON).await;
    assert!(
        message.contains("401") && message.contains("cloud.apiKeyFile"),
        "{message}"
    );
    stays(&world).await;
}

#[tokio::test]
async fn an_expired_certificate_of_the_cloud_is_named_and_changes_nothing() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let replica = mirrored(&world, &cloud).await;
    replica.process.stop(SOON).await;
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 2, 1));
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &authority).unwrap();
    let file = |name: &str, text: &str| {
        let path = world.scratch.path().join(name);
        write(&path, text);
        path
    };
    let address = cloud
        .over_tls(file("cloud.crt", &leaf.pem()), file("cloud.key", &key.serialize_pem()))
        .await;
    let url = format!("https://localhost:{}", address.port());
    let mut variables = quick(&cloud);
    variables[0].1.clone_from(&url);
    let ca = file("cloud-ca.crt", &authority.pem());
    variables.push(("CONTAINERSHIP_CLOUD_CA_FILE", ca.display().to_string()));
    let _replica = world.replica(&variables, None);
    let message = world.synced("False ListFailed", SOON).await;
    for words in [
        "certificate expired",
        &url,
        "has expired or is not valid yet: renew it, or correct the clock",
        "ClusterLabel",
    ] {
        assert!(message.contains(words), "{words} in {message}");
    }
    stays(&world).await;

    // The same server as the API server of a kubeconfig: neither its authority nor its address is to be corrected.
    let fields = json!({"server": url, "certificate-authority": ca});
    let kubeconfig = world.cluster.kubeconfig_with(&coordinator(), &fields);
    let replica = world.replica(&world.away, Some(kubeconfig));
    let named =
        format!("cannot connect to the API server {url} (its certificate has expired or is not valid yet: renew it");
    eventually("the expired certificate of the API server", SOON, async || {
        let log = replica.process.log();
        if log.contains(&named) { Ok(()) } else { Err(log) }
    })
    .await;
}

/// Ours refuses these; another cloud, or one that an attacker has, may list them.
#[tokio::test]
async fn what_is_hostile_in_the_clouds_list_of_registries_gets_no_pull_secret_and_is_asked_nothing() {
    let (world, cloud, registries) = (
        World::start().await,
        Cloud::start().await,
        FakeRegistries::start().await,
    );
    registries.accept(GOOD, &["u:hunter2-good"]);
    let id = |number: usize| format!("cccccccc-0000-4000-8000-{number:012}");
    let registry = |number: usize, provider: &str, address: &str| {
        json!({"id": id(number), "added_at": null, "created_at": "1551441600000", "updated_at": "1551441600000",
            "organization_id": cloud.organization, "owner": null, "description": "", "provider": provider, "email": null,
            "serveraddress": address,
            "credentials": {"username": "u", "password": leaks::secret("hunter2-good")}})
    };
    let hostile = [
        "../",
        "../../kube-system",
        "kube-system",
        "a\nb.registries.test",
        "a b.registries.test",
        "user:secret@evil.registries.test",
        "https://evil.registries.test#@good.registries.test",
        "127.0.0.1:6443",
        "169.254.169.254",
        "[::1]",
        "",
    ];
    let mut list: Vec<Value> = hostile
        .iter()
        .enumerate()
        .map(|(at, address)| registry(at + 1, "private", address))
        .collect();
    list.push(registry(50, "evil", "evil.registries.test"));
    let mut climbing = registry(51, "private", "evil.registries.test");
    climbing["id"] = json!("../../kube-system");
    list.push(climbing);
    list.push(registry(0, "private", GOOD));
    cloud.fault("/registries", Fault::Lists(json!(list).to_string().leak()));
    let mut variables = quick(&cloud);
    variables.extend(registries.environment());
    let _replica = world.replica(&variables, None);

    world.namespace("team").await;
    let secrets: Api<Secret> = Api::all(world.cluster.client(&Identity::Admin));
    let pull_secrets = async || {
        let all = secrets.list(&ListParams::default().labels("controller")).await.unwrap();
        let names = all
            .into_iter()
            .filter(|secret| secret.metadata.namespace.as_deref() == Some("team"));
        names.map(|secret| secret.metadata.name.unwrap()).collect::<Vec<_>>()
    };
    eventually("the pull secret of the good one", SOON, async || {
        let names = pull_secrets().await;
        if names == [id(0)] {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
    world.synced_saying("False ObjectsRefused", &["Registry"], SOON).await;
    throughout("no other pull secret and no other host", A_WHILE, async || {
        let (names, contacted) = (pull_secrets().await, registries.contacted());
        let known = |host: &String| [GOOD, "auth.registries.test"].contains(&host.as_str());
        if names == [id(0)] && contacted.iter().all(known) {
            Ok(())
        } else {
            Err(format!("{names:?} {contacted:?}"))
        }
    })
    .await;
}
