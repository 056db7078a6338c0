//! Refusals of the catalogue of plugins, of which nothing remains.

use http::StatusCode;
use serde_json::json;

use crate::world::{Person, Ran};

const VERSIONS: &str = "plugins/logs/implementations/fluentd/versions";
const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: logs}\n";

async fn add(person: &Person, manifests: &str) -> Ran {
    let file = person.file("objects.yaml", manifests);
    let add = ["cloud", "catalogue", "add", "logs", "fluentd", "1.0.0", "-f", &file];
    person.run(&add).await
}

#[tokio::test]
async fn manifests_that_the_server_would_refuse_are_not_sent() {
    let person = Person::logged_in().await;
    for (text, words) in [
        ("{}\n", ["objects.yaml", "document 1 has no apiVersion and no kind:"]),
        ("- 1\n", ["objects.yaml", "document 1 has no apiVersion and no kind:"]),
        (
            &format!("{NAMESPACE}---\n{{}}\n"),
            ["document 2 has no apiVersion and no kind:", "the field manifests"],
        ),
        (
            &format!("{NAMESPACE}---\nkind: Pod\n"),
            ["document 2 has no apiVersion:", "one per document"],
        ),
        (
            &format!("{NAMESPACE}---\napiVersion: v1\nkind: List\nitems: [{{apiVersion: v1}}]\n"),
            ["document 2 has no kind:", "objects.yaml"],
        ),
        (
            &format!("{NAMESPACE}---\napiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Pod}}\n-\n"),
            ["document 2:", "item 2 of a list is empty: remove it"],
        ),
        (
            "manifests: [[{apiVersion: v1, kind: PodList, items: [null]}]]\n",
            ["objects.yaml", "item 1 of a list is empty: remove it"],
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: 2024}\n",
            [
                "manifests[0][0].metadata.namespace: is the number 2024",
                "put it in quotes",
            ],
        ),
        (
            "manifests: [[{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {b: true}}}]]\n",
            ["manifests[0][0].metadata.labels.b: is true", "put it in quotes"],
        ),
    ] {
        add(&person, text).await.refused(1, &words);
    }
    assert!(person.cloud.seen().is_empty());
}

#[tokio::test]
async fn nothing_remains_of_a_version_whose_manifests_are_refused() {
    let person = Person::logged_in().await;
    let version = format!("/v3/{VERSIONS}/1.0.0");
    let refused = format!("PUT {version}/manifests");
    person.cloud.refuse(&refused, StatusCode::UNPROCESSABLE_ENTITY);
    let writes = || {
        let writes = person.cloud.writes().into_iter();
        writes.map(|seen| seen.line).collect::<Vec<_>>()
    };
    let ran = add(&person, NAMESPACE).await;
    ran.refused(1, &["logs fluentd 1.0.0 was not added", "not now"]);
    let put = format!("PUT {version}");
    assert_eq!(writes(), [put.clone(), refused.clone(), format!("DELETE {version}")]);
    assert!(person.cloud.list(VERSIONS).is_empty());
    // One that was there before stays.
    person
        .cloud
        .put(VERSIONS, vec![json!({"id": "1.0.0", "version": "1.0.0"})]);
    let ran = add(&person, NAMESPACE).await;
    ran.refused(1, &["not now"]);
    assert_eq!(writes(), [put, refused]);
    assert_eq!(person.cloud.list(VERSIONS).len(), 1);
}

#[tokio::test]
async fn manifests_may_be_several_files_or_the_standard_input() {
    let person = Person::logged_in().await;
    let object = |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
    person.file("folder/a.yaml", &object("a"));
    person.file(
        "folder/b.json",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}",
    );
    let folder = person.path("folder");
    let add = ["cloud", "catalogue", "add", "logs", "fluentd", "1.0.0", "-f"];
    let add = [&add[..], &[folder.to_str().unwrap(), "-f", "-"]].concat();
    person.run_fed(&add, &object("c")).await.well();
    let writes = person.cloud.writes();
    let sent = writes.iter().find(|seen| seen.line.ends_with("/manifests")).unwrap();
    let group = sent.body["manifests"][0].as_array().unwrap();
    let names: Vec<_> = group.iter().map(|object| &object["metadata"]["name"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    person
        .run_fed(&add, "- 1\n")
        .await
        .refused(1, &["the standard input", "document 1 has no apiVersion"]);
}
