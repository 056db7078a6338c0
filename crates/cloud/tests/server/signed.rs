//! Signed manifests: what was signed before they were sent counts for what a cluster gets.

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_cloud::models::{PluginManifests, Unknown, parse};
use tidewaiter_cloud::signed::manifests_digest;

use crate::fixture::Fixture;
use crate::requests::conditional;
use crate::world::{World, on_both};

on_both!(the_digest_of_manifests_and_their_signature_stay_as_they_were_sent);

const SIGNATURE: &str = "untrusted comment: signature from a key\nRUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\ntrusted comment: timestamp:1790000000\ny/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==\n";

async fn the_digest_of_manifests_and_their_signature_stay_as_they_were_sent(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let text = r#"{"depends_on": ["CNI", "logs/fluentd"], "jobs": null, "manifests": [[{"kind": "Widget", "apiVersion": "example.com/v1",
        "metadata": {"name": "w"}, "spec": {"z": 1e2, "a": 18446744073709551615, "f": 0.1, "s": "\u00e4\u2028\\", "n": null, "e": []}}]]}"#;
    let sent: Value = serde_json::from_str(text).unwrap();
    let path = "/v3/plugins/metrics/implementations/prometheus/versions/1.0.0/manifests";
    let operator = fixture.token("operator");
    let etag = world.get(operator, path).await.is(200).header("etag");
    conditional(world, operator, Method::PUT, path, ("if-match", &etag), &sent)
        .await
        .is(204);
    let plugin = fixture.near("/clusters/{cluster_id}/plugins/{id}");
    let change = json!({"version": "1.0.0", "signature": SIGNATURE});
    world.patch(owner, &plugin, change).await.is(200);
    let got = world.get(owner, &plugin).await.is(200).json();
    assert_eq!(got["signature"], SIGNATURE);
    // As `tidewaiter cloud sign` reads them.
    let read: PluginManifests = parse(text.as_bytes(), Unknown::Refuse).unwrap();
    let digest = manifests_digest(&serde_json::to_value(read).unwrap());
    assert_eq!(manifests_digest(&got), digest);
    assert_eq!(manifests_digest(&sent), digest);
    // What was got can be sent back.
    world.patch(owner, &plugin, got).await.is(200);
    let refused = world.patch(owner, &plugin, json!({"signature": "none"})).await.is(422);
    assert!(refused.body.contains("four lines"), "{}", refused.body);
}
