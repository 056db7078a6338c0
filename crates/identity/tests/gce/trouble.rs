//! The errors of Compute Engine: the refusal of each, and the claims that it concerns.

use std::time::Duration;

use google_cloud_auth::credentials::{anonymous, mds};
use serde_json::json;
use tidewaiter_identity::Identifier as _;
use tidewaiter_identity::gce::{ClientSettings, CredentialsSource, api};
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
            provider.forget_templates();
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
            provider.forget_templates();
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
    let provider = Provider::with(&fake.endpoint(), &fake.endpoint(), Duration::from_secs(6)).await;
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
    let refusing = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    // At the start both are treated alike: the client is created, and the first call fails.
    for (address, expected) in [
        (
            silent.local_addr().unwrap(),
            "gce:compute.instances.get: no valid credentials (timeout)",
        ),
        (refusing, "gce:compute.instances.get: no valid credentials"),
    ] {
        let settings = ClientSettings {
            endpoint: Some(fake.endpoint().parse().unwrap()),
            credentials: CredentialsSource::new(move || {
                mds::Builder::default()
                    .with_endpoint(format!("http://{address}"))
                    .build()
            }),
            credentials_deadline: Duration::from_secs(2),
            call: Duration::from_secs(2),
            ..ClientSettings::default()
        };
        let provider = Provider::of(&settings).await;
        let refusal = provider.ask_one(&one.instance).await.unwrap_err();
        assert!(refusal.to_string().starts_with(expected), "{address}: {refusal}");
        assert!(
            refusal.remedy().contains("GOOGLE_APPLICATION_CREDENTIALS"),
            "{}",
            refusal.remedy()
        );
    }
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn a_token_that_is_revoked_is_replaced() {
    let one = One::new();
    let (fake, provider) = one.start().await;
    assert!(provider.ask_one(&one.instance).await.is_ok());
    fake.revoke_token("the-next-token");
    let refusal = provider.ask_one(&one.instance).await.unwrap_err();
    assert!(
        refusal.to_string().ends_with("no valid credentials (401 authError)"),
        "{refusal}"
    );
    assert!(
        provider.ask_one(&one.instance).await.is_ok(),
        "the next query brings a new token"
    );
    // No more often than this, whatever Compute Engine responds.
    for token in ["the-third-token", "the-fourth-token"] {
        fake.revoke_token(token);
        assert!(provider.ask_one(&one.instance).await.is_err());
    }
    assert!(provider.ask_one(&one.instance).await.is_err());
    provider.clock.advance(Duration::from_secs(10));
    assert!(provider.ask_one(&one.instance).await.is_err());
    assert!(provider.ask_one(&one.instance).await.is_ok());
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
        credentials: CredentialsSource::new(|| Ok(anonymous::Builder::new().build())),
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
        (Scripted::error(404, "notFound"), "Unavailable", 1),
        // It may be the listing alone, so a few are tried by name.
        (Scripted::Denied, "Unavailable", 5),
        (Scripted::Html, "Unavailable", 5),
        (Scripted::json(&json!({})), "Unavailable", 5),
        (Scripted::json(&json!({"kind": "something#else"})), "Unavailable", 5),
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
    assert_eq!(reasons(&provider.ask(&claims(&instances)).await), ["ok"; 30]);
    let calls = fake.take_calls();
    assert_eq!(
        (count(&calls, "instances.aggregatedList"), count(&calls, GET)),
        (2, 30),
        "the first token that repeats ends it"
    );

    let repeated = json!({"managedInstances": [], "nextPageToken": "again"});
    let method = "regionInstanceGroupManagers.listManagedInstances";
    fake.script_for(method, (0..1000).map(|_| Scripted::json(&repeated)));
    assert_eq!(reasons(&provider.ask(&claims(&instances[..1])).await), ["Unavailable"]);
    assert_eq!(count(&fake.calls(), method), 2);
}

/// A listing that is refused, or that one row makes unusable, says nothing about the others.
#[tokio::test]
async fn what_cannot_be_listed_is_asked_for_by_name() {
    let (fake, provider, instances) = fleet(300).await;
    let mut bad_row = instances[0].json();
    bad_row["id"] = json!("no number");
    let scope = format!("zones/{ZONE}");
    let listing = json!({"kind": "compute#instanceAggregatedList", "items": {scope: {"instances": [bad_row]}}});
    for answer in [
        Scripted::Denied,
        Scripted::error(400, "invalid"),
        Scripted::json(&listing),
    ] {
        fake.clear_calls();
        fake.script_for("instances.aggregatedList", [answer.clone()]);
        let results = provider.ask(&claims(&instances)).await;
        assert!(results.iter().all(Result::is_ok), "{answer:?}: {:?}", reasons(&results));
        assert_eq!(count(&fake.calls(), GET), 300, "{answer:?}");
    }
    // One of the instances cannot be read alone either: it alone is refused.
    fake.fail(&instances[7].key(), Scripted::Garbage);
    fake.script_for("instances.aggregatedList", [Scripted::Denied]);
    let results = provider.ask(&claims(&instances)).await;
    let refused: Vec<usize> = (0..300).filter(|place| results[*place].is_err()).collect();
    assert_eq!(refused, [7]);
    // A zone that cannot be listed while the zones are listed one by one.
    fake.fail_zone("us-central1-b");
    provider.ask(&claims(&instances)).await;
    fake.heal();
    fake.clear_calls();
    fake.script_for("instances.list", [Scripted::Denied]);
    assert!(provider.ask(&claims(&instances)).await.iter().all(Result::is_ok));
    assert_eq!(count(&fake.calls(), GET), 100, "those of one zone");
}

#[tokio::test]
async fn what_is_asked_for_by_name_is_bounded() {
    let (fake, provider, instances) = fleet(700).await;
    let mut open = claims(&instances);
    for expected in [484, 216] {
        fake.clear_calls();
        fake.script_for("instances.aggregatedList", [Scripted::Denied]);
        let results = provider.ask(&open).await;
        assert_eq!(count(&fake.calls(), GET), expected);
        let refused = open.into_iter().zip(&results).filter(|(_, result)| result.is_err());
        open = refused.map(|(claim, _)| claim).collect();
    }
    assert!(open.is_empty(), "the next query gets to the rest");
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
            provider.forget_templates();
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
