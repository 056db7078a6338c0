//! What keeps Compute Engine from answering: what each failure is told as, and whom it concerns.

use std::time::Duration;

use google_cloud_auth::credentials::{anonymous, mds};
use serde_json::json;
use tidewaiter_identity::Identifier as _;
use tidewaiter_identity::gce::{ClientError, ClientSettings, api, client};
use tidewaiter_testkit::fake_gce::{
    FakeGroup, FakeInstance, REGION, TOKEN, error_info, instance, template, zonal_group,
};
use tidewaiter_testkit::{FakeGce, Scripted, eventually};

use crate::ask::{claim_of, reason, reasons};
use crate::setup::{CLUSTER, One, Provider, ZONE, claims, count, fleet};
use crate::told::{Row, rows, told};

const GET: &str = "instances.get";
const GROUP: &str = "instanceGroupManagers.listManagedInstances";
const TEMPLATE: &str = "instanceTemplates.get";

fn trouble() -> Vec<Row> {
    let limit = |status, code| error_info(status, code, "RATE_LIMIT_EXCEEDED");
    let disabled = error_info(403, "PERMISSION_DENIED", "SERVICE_DISABLED");
    let own = [
        (Scripted::Throttled, "throttled", ""),
        (Scripted::error(403, "userRateLimitExceeded"), "throttled", ""),
        (Scripted::error(403, "quotaExceeded"), "throttled", ""),
        (Scripted::error(429, "somethingNew"), "throttled", ""),
        (limit(429, "RESOURCE_EXHAUSTED"), "throttled", ""),
        (limit(403, "PERMISSION_DENIED"), "throttled", ""),
        (Scripted::raw(429, "<html>slow down"), "throttled", ""),
        (Scripted::Denied, "denied", "403 forbidden"),
        (disabled, "denied", "403 SERVICE_DISABLED"),
        (Scripted::Unauthenticated, "no_credentials", "401 authError"),
        (Scripted::Failed, "failed", "503 backendError"),
        (Scripted::error(500, "internalError"), "failed", "500 internalError"),
        (Scripted::error(400, "invalid"), "failed", "400 invalid"),
    ];
    rows("Compute Engine", own)
}

#[tokio::test]
async fn what_keeps_each_call_from_answering() {
    let one = One::new();
    let (fake, provider) = one.start().await;
    for (method, api) in [
        (GET, api::GET_INSTANCE),
        (GROUP, api::LIST_ZONAL_GROUP),
        (TEMPLATE, api::GET_GLOBAL_TEMPLATE),
    ] {
        for (answer, outcome, detail) in trouble() {
            let before = provider.calls.counted(api, outcome);
            fake.clear_calls();
            fake.script_for(method, [answer.clone()]);
            let refusal = provider.ask_one(&one.instance).await.unwrap_err();
            assert_eq!(
                refusal.to_string(),
                format!("{api}{}", told(outcome, &detail)),
                "{answer:?}"
            );
            assert!(refusal.is_transient() && !refusal.is_forgery(), "{refusal:?}");
            assert_eq!(provider.calls.counted(api, outcome), before + 1, "{answer:?}");
            assert_eq!(
                fake.calls().iter().filter(|call| call.api == method).count(),
                1,
                "no retries: {answer:?}"
            );
        }
        assert!(provider.ask_one(&one.instance).await.is_ok(), "and is well again");
    }
}

#[tokio::test]
async fn connections_that_break() {
    let one = One::new();
    let (fake, provider) = one.start().await;
    for method in [GET, GROUP, TEMPLATE] {
        for answer in [Scripted::Drop, Scripted::BreakOff] {
            fake.script_for(method, [answer.clone()]);
            let refusal = provider.ask_one(&one.instance).await.unwrap_err();
            assert!(
                refusal.to_string().contains(": not reachable ("),
                "{answer:?}: {refusal}"
            );
            assert!(refusal.is_transient(), "{refusal}");
        }
    }
}

#[tokio::test]
async fn every_call_has_a_deadline() {
    let one = One::new();
    let fake = FakeGce::start().await;
    one.add_to(&fake);
    let provider = Provider::with(&fake.endpoint(), &fake.endpoint(), Duration::from_secs(1)).await;
    for (method, api) in [
        (GET, api::GET_INSTANCE),
        (GROUP, api::LIST_ZONAL_GROUP),
        (TEMPLATE, api::GET_GLOBAL_TEMPLATE),
    ] {
        fake.script_for(method, [Scripted::Hang]);
        let refusal = provider.ask_one(&one.instance).await.unwrap_err();
        assert_eq!(refusal.to_string(), format!("{api}: not reachable (timeout)"));
        assert_eq!(provider.calls.counted(api, "timeout"), 1);
    }
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let one = One::new();
    let (fake, provider) = one.start().await;
    fake.metadata_away(true);
    let refusal = provider.ask_one(&one.instance).await.unwrap_err();
    assert_eq!(refusal.to_string(), "gce:compute.instances.get: no valid credentials");
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn a_source_of_credentials_that_never_answers() {
    let one = One::new();
    let (fake, _) = one.start().await;
    // Takes connections, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let source = mds::Builder::default().with_endpoint(format!("http://{}", silent.local_addr().unwrap()));
    let settings = |source: mds::Builder| ClientSettings {
        endpoint: Some(fake.endpoint().parse().unwrap()),
        credentials: Some(source.build().unwrap()),
        credentials_deadline: Duration::from_millis(200),
        call: Duration::from_millis(200),
    };
    let error = client(&settings(source)).await.unwrap_err();
    assert!(matches!(error, ClientError::Late(_)), "{error}");

    let source = mds::Builder::default().with_endpoint(format!("http://{}", silent.local_addr().unwrap()));
    let provider = Provider::of(&settings(source.with_universe_domain("googleapis.com"))).await;
    let refusal = provider.ask_one(&one.instance).await.unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "gce:compute.instances.get: no valid credentials (timeout)"
    );
    assert!(
        refusal.remedy().contains("GOOGLE_APPLICATION_CREDENTIALS"),
        "{}",
        refusal.remedy()
    );
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn a_zone_that_does_not_exist_has_no_instances() {
    let (fake, provider, instances) = fleet(20).await;
    let unknown = claim_of("gce://our-project/moon-east1-a/nodes-0001");
    assert_eq!(
        reasons(&provider.ask(std::slice::from_ref(&unknown)).await),
        ["NotFound"]
    );
    // Beside a zone in trouble it is told from it.
    let mut asked = claims(&instances);
    asked.push(unknown);
    fake.fail_zone("us-central1-b");
    assert_eq!(reason(&provider.ask(&asked).await[20]), "NotFound");
    fake.heal();
    provider.ask(&asked).await;
    fake.clear_calls();
    provider.ask(&asked).await;
    assert_eq!(
        count(&fake.calls(), "instances.aggregatedList"),
        1,
        "it is no zone in trouble"
    );
}

#[tokio::test]
async fn a_token_that_is_not_taken() {
    let one = One::new();
    let (fake, _) = one.start().await;
    let settings = ClientSettings {
        endpoint: Some(fake.endpoint().parse().unwrap()),
        credentials: Some(anonymous::Builder::new().build()),
        ..ClientSettings::default()
    };
    let provider = Provider::of(&settings).await;
    let refusal = provider.ask_one(&one.instance).await.unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "gce:compute.instances.get: no valid credentials (401 authError)"
    );
}

#[tokio::test]
async fn no_secret_is_ever_told() {
    let one = One::new();
    let (fake, provider) = one.start().await;
    for status in [400, 401, 403, 404, 500] {
        fake.script_for(
            GET,
            [Scripted::Error {
                status,
                code: "someReason",
                message: format!("https://x.example/?access_token={TOKEN}"),
            }],
        );
        let refusal = provider.ask_one(&one.instance).await.unwrap_err();
        for text in [refusal.to_string(), format!("{refusal:?}"), refusal.remedy().to_owned()] {
            assert!(!text.contains(TOKEN) && !text.contains("http"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_listing_that_fails_for_all_is_told_to_all() {
    let (fake, provider, instances) = fleet(30).await;
    for (answer, expected, calls) in [
        (Scripted::Throttled, "Throttled", 1),
        (Scripted::Denied, "Unavailable", 1),
        (Scripted::error(404, "notFound"), "Unavailable", 1),
        (Scripted::Html, "Unavailable", 1),
        (Scripted::json(&json!({})), "Unavailable", 1),
        (Scripted::json(&json!({"kind": "something#else"})), "Unavailable", 1),
        // It may be for one zone, so each is tried.
        (Scripted::Failed, "Unavailable", 4),
    ] {
        fake.clear_calls();
        fake.always(Some(answer.clone()));
        let results = provider.ask(&claims(&instances)).await;
        assert_eq!(reasons(&results), [expected; 30], "{answer:?}");
        assert_eq!(fake.calls().len(), calls, "{answer:?}");
        fake.always(None);
    }
    fake.clear_calls();
    assert!(provider.ask(&claims(&instances)).await.iter().all(Result::is_ok));
    assert_eq!(fake.calls().len(), 3, "and is well again");
}

#[tokio::test]
async fn pages_are_not_read_for_ever() {
    let (fake, provider, instances) = fleet(30).await;
    let endless = json!({"kind": "compute#instanceAggregatedList", "nextPageToken": "again"});
    fake.script_for("instances.aggregatedList", (0..1000).map(|_| Scripted::json(&endless)));
    assert_eq!(reasons(&provider.ask(&claims(&instances)).await), ["Unavailable"; 30]);
    assert_eq!(fake.calls().len(), 100);
}

#[tokio::test]
async fn an_instance_that_is_listed_twice_is_refused() {
    let (fake, provider, instances) = fleet(6).await;
    let mut twice: Vec<_> = instances.iter().filter(|i| i.zone() == ZONE).cloned().collect();
    twice.push(twice[0].clone().metadata("created-by", "another"));
    let rows: Vec<_> = twice.iter().map(FakeInstance::json).collect();
    let scope = format!("zones/{ZONE}");
    let listing = json!({"kind": "compute#instanceAggregatedList", "items": {scope: {"instances": rows}}});
    fake.script_for("instances.aggregatedList", [Scripted::json(&listing)]);
    let results = provider.ask(&claims(&instances)).await;
    for (result, instance) in results.iter().zip(&instances) {
        let expected = if *instance == twice[0] { "Unavailable" } else { "ok" };
        assert_eq!(reason(result), expected, "{}", instance.key());
    }
}

#[tokio::test]
async fn a_group_or_a_template_that_fails_concerns_its_own_nodes_only() {
    let (fake, provider, instances) = fleet(20).await;
    let template = template("other-v1").kops(CLUSTER, "other");
    let group = zonal_group(ZONE, "a-other");
    let others: Vec<_> = (1..=5)
        .map(|number| {
            instance(ZONE, &format!("other-{number}"))
                .id(number)
                .kops(CLUSTER, &group)
        })
        .collect();
    fake.groups([others
        .iter()
        .fold(group, |group, instance| group.lists(instance, &template))]);
    fake.launch(others.clone());
    fake.templates([template]);
    let all: Vec<_> = instances.iter().chain(&others).cloned().collect();
    assert!(provider.ask(&claims(&all)).await.iter().all(Result::is_ok));
    for name in ["us-central1-a/a-other", "global/other-v1"] {
        for (answer, expected) in [
            (Scripted::Failed, "Unavailable"),
            (Scripted::Throttled, "Throttled"),
            (Scripted::Garbage, "Unavailable"),
            (Scripted::error(404, "notFound"), "NotInGroup"),
        ] {
            fake.fail(name, answer.clone());
            let results = provider.ask(&claims(&all)).await;
            assert!(results[..20].iter().all(Result::is_ok), "{answer:?}");
            assert_eq!(reasons(&results[20..]), [expected; 5], "{name}: {answer:?}");
        }
        fake.heal();
    }
    // One page of a listing that fails is no listing: nobody is taken for one who is not listed.
    fake.forget_group(REGION, "nodes");
    assert_eq!(reasons(&provider.ask(&claims(&instances)).await), ["NotInGroup"; 20]);
}

#[tokio::test]
async fn a_listing_that_breaks_off_between_pages_says_nothing() {
    let (fake, provider, _) = fleet(1).await;
    let instances = crate::setup::add_fleet(&fake, 700, FakeGroup::paginated);
    let method = "regionInstanceGroupManagers.listManagedInstances";
    // The first page answers; the second does not.
    let first = json!({"managedInstances": [], "nextPageToken": "500"});
    fake.script_for(method, [Scripted::json(&first), Scripted::Failed]);
    let results = provider.ask(&claims(&instances)).await;
    assert!(
        results.iter().all(|result| reason(result) == "Unavailable"),
        "{:?}",
        results[0]
    );
}

#[tokio::test]
async fn a_query_that_is_dropped_while_a_group_is_listed_leaves_nothing_behind() {
    let (fake, provider, instances) = fleet(30).await;
    let method = "regionInstanceGroupManagers.listManagedInstances";
    fake.script_for(method, [Scripted::Hang]);
    let all = claims(&instances);
    let listed = eventually("the group to be listed", Duration::from_mins(1), async || {
        let calls = fake.calls();
        let listed = calls.iter().any(|call| call.api == method);
        if listed { Ok(()) } else { Err(format!("{calls:?}")) }
    });
    tokio::select! {
        () = provider.gce.identify(&all, &|_, _| panic!("nothing was answered")) => panic!("nothing answers"),
        () = listed => (),
    }
    assert!(provider.ask(&all).await.iter().all(Result::is_ok));
}
