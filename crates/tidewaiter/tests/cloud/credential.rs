//! The response to kubectl.

use serde_json::Value;

use crate::world::{CLUSTER, Person, TOKEN};

#[tokio::test]
async fn kubectl_gets_a_token_for_the_cluster() {
    let person = Person::logged_in().await;
    let info =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#;
    let ran = person
        .run_open(
            &["credential", "--cluster", "production"],
            &[("KUBERNETES_EXEC_INFO", info)],
        )
        .await;
    let credential: Value = serde_json::from_str(&ran.well()).unwrap();
    assert_eq!(credential["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(credential["kind"], "ExecCredential");
    assert_eq!(credential["status"]["token"], TOKEN);
    assert_eq!(credential["status"]["expirationTimestamp"], "2027-01-15T08:00:00Z");
    let writes = person.cloud.writes();
    assert!(
        writes.len() == 1 && writes[0].line.ends_with(&format!("/clusters/{CLUSTER}/token")),
        "{writes:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_is_said_in_words() {
    let person = Person::new().await;
    person
        .run(&["credential"])
        .await
        .refused(1, &["not logged in", "tidewaiter cloud login"]);
    let person = Person::logged_in().await;
    let info = r#"{"apiVersion":"client.authentication.k8s.io/v1alpha1"}"#;
    let ran = person
        .run_with(&["credential"], &[("KUBERNETES_EXEC_INFO", info)])
        .await;
    ran.refused(1, &["v1alpha1", "client.authentication.k8s.io/v1"]);
    person
        .run(&["credential", "--cluster", "nowhere"])
        .await
        .refused(1, &["no Cluster \"nowhere\""]);
}
