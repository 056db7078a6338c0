//! `tidewaiter cloud attach`, where the answer of the cloud is lost or refused, and where it is run again.

use http::StatusCode;

use crate::world::{CLUSTER, Person, of_cluster, of_organization};

fn attach<'a>(cluster: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let attach = ["cloud", "attach", cluster, "--image", "registry.test/tidewaiter:1"];
    [&attach[..], &["--url", "https://cloud.test"], more].concat()
}

#[tokio::test]
async fn without_an_answer_it_says_what_may_exist_and_how_to_take_it_back() {
    let person = Person::logged_in().await;
    let post = format!("POST /v3/{}", of_organization("clusters"));
    person.cloud.refuse(&post, StatusCode::SERVICE_UNAVAILABLE);
    let (new, existing) = (attach("staging", &[]), attach("production", &[]));
    let (new, existing) = tokio::join!(person.run(&new), person.run(&existing));
    new.refused(
        1,
        &[
            "the cluster staging may exist now",
            "tidewaiter cloud delete cluster ID",
            "503",
        ],
    );
    let delete = format!("tidewaiter cloud api-keys delete KEY --cluster {CLUSTER}");
    existing.refused(1, &["may have one more API key, created at 2", &delete, "503"]);

    person.cloud.refuse(&post, StatusCode::FORBIDDEN);
    for cluster in ["staging", "production"] {
        let ran = person.run(&attach(cluster, &[])).await;
        ran.refused(1, &["403"]);
        assert!(!ran.err.contains("may "), "{}", ran.err);
    }
    assert!(person.cloud.list(&of_cluster("api-keys")).is_empty());
}

#[tokio::test]
async fn a_run_without_plugins_says_how_an_earlier_permission_ends() {
    let person = Person::logged_in().await;
    let binding = "kubectl delete clusterrolebinding tidewaiter-coordinator-plugins";
    for (cluster, flags, is_named) in [
        ("production", &["--plugins"][..], false),
        ("production", &[], true),
        ("staging", &[], false),
    ] {
        let ran = person.run_open(&attach(cluster, flags), &[]).await;
        assert_eq!(ran.err.contains(binding), is_named, "{cluster} {flags:?}: {}", ran.err);
        ran.well();
    }
    let ran = person.run_open(&attach("a\u{202e}b", &[]), &[]).await;
    assert!(ran.err.contains("created the cluster a\\u{202e}b ("), "{}", ran.err);
}
