//! Manifests are signed without the cloud.

use minisign::KeyPair;
use serde_json::json;
use tidewaiter_cloud::signed::{Statement, TrustedKey, manifests_digest, verify};

use crate::world::Person;

const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";
const MANIFESTS: &str = "manifests: [[{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {n: '1'}}]]\n";

#[tokio::test]
async fn manifests_are_signed_with_a_key_and_shown_without_one() {
    let person = Person::new().await;
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let key = person.file("minisign.key", &pair.sk.to_box(None).unwrap().into_string());
    let file = person.file("manifests.yaml", MANIFESTS);
    let sign = [
        "cloud",
        "sign",
        "--cluster",
        CLUSTER,
        "--plugin",
        PLUGIN,
        "--type",
        "metrics",
        "--implementation",
        "prometheus",
        "--plugin-version",
        "1.2.3",
        "-f",
    ];
    let with = |more: &[&str]| sign.iter().chain(more).map(ToString::to_string).collect::<Vec<_>>();
    let run = async |more: &[&str]| {
        let arguments = with(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        person.run(&arguments).await
    };
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"n": "1"}});
    let digest = manifests_digest(&json!({"manifests": [[object]]}));
    let statement = Statement {
        cluster: CLUSTER,
        plugin: PLUGIN,
        plugin_type: "metrics",
        implementation: "prometheus",
        version: "1.2.3",
        digest: &digest,
    };
    assert_eq!(run(&[&file]).await.well(), statement.text().unwrap());
    let signature = run(&[&file, "--secret-key", &key]).await.well();
    let trusted: TrustedKey = pair.pk.to_base64().parse().unwrap();
    assert!(verify(&[trusted], &statement, &signature).unwrap() > 1_767_225_600);
    assert!(person.cloud.seen().is_empty(), "nothing is asked of the cloud");

    // What the cloud would refuse is not signed.
    let wrong = person.file("wrong.yaml", "manifests: [[{kind: ConfigMap}]]\n");
    run(&[&wrong]).await.refused(1, &["wrong.yaml", "apiVersion"]);
    run(&[&file, "--secret-key", &file])
        .await
        .refused(1, &["the secret key cannot be used"]);
}
