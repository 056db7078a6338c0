use serde_json::json;

use super::super::*;
use crate::controllers::plugin::cluster::MANAGER;
use crate::controllers::plugin::desired::{Release, Sent};

const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";
const OTHER: &str = "cccccccc-0000-4000-8000-000000000002";

fn manifest() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "creationTimestamp": null},
        "spec": {"size": 1.0, "names": ["a", "b"], "none": null}, "status": {"ready": false}})
}

fn release() -> Release {
    Release::read(PLUGIN, "1.0.0", &Sent::from(&json!({"manifests": [[manifest()]]})), &[]).unwrap()
}

fn live() -> Live {
    Live::created("u".to_owned(), "ours".to_owned())
}

/// The owner of an object with this metadata.
fn judged(record: &Record, metadata: Value) -> Seen {
    let release = release();
    let object = &release.groups[0][0];
    let claimant = Claimant {
        plugin: PLUGIN,
        record,
        is_gone: &|plugin| plugin != OTHER,
    };
    let metadata = serde_json::from_value(metadata).unwrap();
    claimant.judge(&object.id, object, &metadata, live())
}

fn applied(manifest: &Value) -> Value {
    json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": manifest.to_string()}})
}

/// The manifest as kubectl remembers it, and as Go writes numbers.
fn remembered() -> Value {
    let mut remembered = manifest();
    remembered["metadata"] = json!({"name": "w", "namespace": "n", "annotations": {}});
    remembered["spec"]["size"] = json!(1);
    remembered
}

#[test]
fn a_label_decides_unless_its_plugin_is_gone() {
    let labelled = |plugin: &str| json!({"labels": {PLUGIN_LABEL: plugin}});
    let gone = "cccccccc-0000-4000-8000-000000000003";
    for (plugin, expected) in [
        (PLUGIN, Seen::Ours(live())),
        (OTHER, Seen::OtherPlugin(OTHER.to_owned())),
        (gone, Seen::Adoptable(live(), Claim::Orphan(gone.to_owned()))),
        // No plugin ever had this id.
        ("of-a-person", Seen::OtherPlugin("of-a-person".to_owned())),
    ] {
        assert_eq!(judged(&Record::default(), labelled(plugin)), expected);
    }
}

#[test]
fn what_the_go_coordinator_applied_is_known_by_the_manifest() {
    let judge = |manifest: &Value| judged(&Record::default(), applied(manifest));
    assert_eq!(judge(&remembered()), Seen::Adoptable(live(), Claim::Inherited));
    let changes: [fn(&mut Value); 6] = [
        |it| it["spec"]["size"] = json!(2),
        |it| it["spec"]["names"] = json!(["a"]),
        |it| it["spec"]["more"] = json!(1),
        |it| it["metadata"]["labels"] = json!({"a": "b"}),
        |it| it["metadata"]["name"] = json!("v"),
        |it| it["apiVersion"] = json!("example.com/v1beta1"),
    ];
    for change in changes {
        let mut other = remembered();
        change(&mut other);
        assert_eq!(judge(&other), Seen::Foreign, "{other}");
    }
    for nothing in [
        json!({}),
        json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "["}}),
    ] {
        assert_eq!(judged(&Record::default(), nothing), Seen::Foreign);
    }
    // Only what is there before the first version.
    let mut record = Record::default();
    let plugin = serde_json::from_value(json!({"id": PLUGIN, "version": "1.0.0"})).unwrap();
    record.finish(&plugin, &release());
    assert_eq!(judged(&record, applied(&remembered())), Seen::Foreign);
}

#[test]
fn what_the_plugin_applied_stays_its_own_without_the_label() {
    let release = release();
    let object = &release.groups[0][0];
    let mut record = Record::default();
    record.expect(object.id.clone(), &object.version, 0);
    let fields = |manager: &str| json!({"managedFields": [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {}}}]});
    // It was never applied.
    assert_eq!(judged(&record, fields(MANAGER)), Seen::Foreign);
    record.apply(&object.id, &object.digest, "ours".to_owned());
    assert_eq!(
        judged(&record, fields(MANAGER)),
        Seen::Adoptable(live(), Claim::Unlabelled)
    );
    // Another object of the name.
    assert_eq!(judged(&record, fields("kubectl")), Seen::Foreign);
}
