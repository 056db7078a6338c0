//! Cases that only EC2 has, from the fake: the answer to each claim, the number of calls, and the effect on others.

use std::sync::Arc;
use std::time::Duration;

use tidewaiter_api::Lifecycle;
use tidewaiter_identity::aws::{API, region};
use tidewaiter_identity::{Claim, CloudGroups as _, Identity, NodeNames, Refusal, UnavailableCause, prove};
use tidewaiter_testkit::fake_ec2::{FakeEc2, FakeInstance, instance, instances, page};
use tidewaiter_testkit::{Scripted, TokenBucket};

use crate::ask::{claim_of, reason, reasons};
use crate::setup::{CLUSTER, Provider, SECRET, TOKEN, groups_at, no_credentials, silent_credentials};
use crate::told::{Row, rows, told};

const ID: &str = "i-0123456789abcdef0";
const PROVIDER_ID: &str = "aws:///us-east-1a/i-0123456789abcdef0";

async fn fake(instances: impl IntoIterator<Item = FakeInstance>) -> (FakeEc2, Provider) {
    let fake = FakeEc2::start().await;
    fake.launch(instances);
    let provider = Provider::at(&fake.endpoint());
    (fake, provider)
}

fn ours(id: &str) -> FakeInstance {
    instance(id).kops(CLUSTER, "nodes")
}

fn fleet(count: u32) -> Vec<FakeInstance> {
    (1..=count)
        .map(|number| FakeInstance::numbered(number).kops(CLUSTER, "nodes"))
        .collect()
}

fn claims(instances: &[FakeInstance]) -> Vec<Claim> {
    instances
        .iter()
        .map(|instance| claim_of(&instance.provider_id()))
        .collect()
}

/// The filter by which each call named its instances, if not by id, how many, and what it got.
fn calls(fake: &FakeEc2) -> Vec<(Option<String>, usize, String)> {
    fake.take_calls()
        .into_iter()
        .map(|call| (call.filter, call.names.len(), call.outcome))
        .collect()
}

fn by_id(ids: usize) -> (Option<String>, usize, String) {
    (None, ids, "ok".to_owned())
}

fn by_filter(ids: usize) -> (Option<String>, usize, String) {
    (Some("instance-id".to_owned()), ids, "ok".to_owned())
}

#[tokio::test]
async fn an_instance_of_ours() {
    let described = ours(ID)
        .ip("10.1.2.3")
        .secondary_ip("10.1.2.77")
        .ipv6("fd00::7")
        .interface("10.9.0.1", "IP-10-9-0-1.ec2.internal")
        .lifecycle("spot");
    let (_fake, provider) = fake([described]).await;
    let identity = provider.ask_one(PROVIDER_ID).await.unwrap();
    let expected = Identity {
        instance: ID.to_owned(),
        group: "nodes".parse().unwrap(),
        starting: false,
        zone: "us-east-1a".to_owned(),
        lifecycle: Lifecycle::Spot,
        // The name of a secondary address is a pod's, no Node's, and that of another interface may be lent.
        names: vec![ID.to_owned(), "ip-10-1-2-3.ec2.internal".to_owned()],
        addresses: ["10.1.2.3", "10.1.2.77", "10.9.0.1", "fd00::7"]
            .map(|address| address.parse().unwrap())
            .to_vec(),
        tag_labels: Vec::new(),
    };
    assert_eq!(identity, expected);
    assert_eq!(provider.calls.counted(API, "ok"), 1);
}

/// A worker that may attach interfaces lends its own name to a control plane, and claims to be it.
#[tokio::test]
async fn the_name_of_an_attached_interface_proves_nothing() {
    let lent = "ip-10-9-0-1.ec2.internal";
    let named = ours(ID).interface("10.9.0.1", lent);
    // Without a primary name, as long as EC2 has not given one.
    for described in [named.clone(), named.name("")] {
        let (_fake, provider) = fake([described]).await;
        let identity = Arc::new(provider.ask_one(PROVIDER_ID).await.unwrap());
        let worker = Claim {
            node: lent.parse().unwrap(),
            addresses: vec!["10.9.0.1".parse().unwrap()],
            ..claim_of(PROVIDER_ID)
        };
        let refusal = prove(&worker, Arc::clone(&identity), NodeNames::Enforce).unwrap_err();
        assert_eq!((refusal.reason(), refusal.is_forgery()), ("NameMismatch", true));
        let node = ID.parse().unwrap();
        assert!(prove(&Claim { node, ..worker }, identity, NodeNames::Enforce).is_ok());
    }
}

/// EC2 lists a pending instance before it has its name and its addresses.
#[tokio::test]
async fn a_pending_instance_makes_no_forgery_of_an_honest_node() {
    for (state, reason) in [("pending", "Starting"), ("running", "NameMismatch")] {
        let (_fake, provider) = fake([ours(ID).state(state).name("")]).await;
        let identity = Arc::new(provider.ask_one(PROVIDER_ID).await.unwrap());
        let node = "ip-10-0-0-1.ec2.internal".parse().unwrap();
        let claim = Claim {
            node,
            ..claim_of(PROVIDER_ID)
        };
        let refusal = prove(&claim, identity, NodeNames::Enforce).unwrap_err();
        assert_eq!((refusal.reason(), refusal.is_forgery()), (reason, state == "running"));
    }
}

#[tokio::test]
async fn labels_in_tags_are_kept_for_whoever_asks_for_them() {
    let tag = |key: &str| format!("k8s.io/cluster-autoscaler/node-template/label/{key}");
    let described = ours(ID)
        .tag(&tag("team"), "red")
        .tag(&tag("node-role.kubernetes.io/node"), "")
        .tag(&tag("no key!"), "no value!")
        .tag("k8s.io/cluster-autoscaler/node-template/taint/x", "y:NoSchedule")
        .tag("team", "blue");
    let (_fake, mut provider) = fake([described]).await;
    assert_eq!(provider.ask_one(PROVIDER_ID).await.unwrap().tag_labels, []);
    provider.ec2 = provider.ec2.with_tag_labels();
    let labels = provider.ask_one(PROVIDER_ID).await.unwrap().tag_labels;
    let expected = [
        ("no key!", "no value!"),
        ("node-role.kubernetes.io/node", ""),
        ("team", "red"),
    ];
    assert_eq!(labels, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[tokio::test]
async fn what_one_instance_can_say() {
    let other_tag = "kubernetes.io/cluster/other.example.com";
    let our_tag = "kubernetes.io/cluster/ours.example.com";
    let group_tag = "kops.k8s.io/instancegroup";
    let newer = || instance(ID).tag(group_tag, "nodes");
    for (described, expected) in [
        (ours(ID), "ok"),
        (ours(ID).state("pending"), "ok"),
        (ours(ID).name(""), "ok"),
        (ours(ID).state("shutting-down"), "NotRunning"),
        (ours(ID).state("terminated"), "NotRunning"),
        (instance(ID).state("terminated"), "NotRunning"),
        (ours(ID).state("stopping"), "NotRunning"),
        (ours(ID).state("stopped"), "NotRunning"),
        (ours(ID).state("a-state-of-the-future"), "NotRunning"),
        (ours(ID).state(""), "Unavailable"),
        (ours(ID).zone(""), "Unavailable"),
        (ours(ID).zone("us-east-1b"), "ZoneMismatch"),
        (ours(ID).tag("KubernetesCluster", "other.example.com"), "ForeignProject"),
        (ours(ID).tag("KubernetesCluster", "OURS.example.com"), "ForeignProject"),
        (ours(ID).tag("KubernetesCluster", ""), "ForeignProject"),
        (ours(ID).without_tag("KubernetesCluster"), "ok"),
        (
            ours(ID).without_tag("KubernetesCluster").tag(other_tag, "owned"),
            "ForeignProject",
        ),
        (newer(), "ForeignProject"),
        (newer().tag(our_tag, "owned"), "ok"),
        (newer().tag(our_tag, "shared"), "ForeignProject"),
        (newer().tag(other_tag, "owned"), "ForeignProject"),
        (ours(ID).without_tag(group_tag), "NotInGroup"),
        // EC2 may list a new instance before its tags.
        (ours(ID).without_tag(group_tag).state("pending"), "Starting"),
        (newer().state("pending"), "Starting"),
        (newer().tag(other_tag, "owned").state("pending"), "ForeignProject"),
        (ours(ID).tag(group_tag, "").state("pending"), "NotInGroup"),
        (ours(ID).tag(group_tag, ""), "NotInGroup"),
        (ours(ID).tag(group_tag, "../config"), "NotInGroup"),
        (ours(ID).tag(group_tag, "Nodes"), "NotInGroup"),
    ] {
        let (_fake, provider) = fake([described.clone()]).await;
        let result = provider.ask_one(PROVIDER_ID).await;
        assert_eq!(reason(&result), expected, "{described:?}");
    }
}

#[tokio::test]
async fn only_another_owner_is_evidence_of_forgery() {
    let (fake, provider) = fake([ours(ID).tag("KubernetesCluster", "other")]).await;
    assert!(provider.ask_one(PROVIDER_ID).await.unwrap_err().is_forgery());
    fake.launch([instance(ID)]);
    assert!(!provider.ask_one(PROVIDER_ID).await.unwrap_err().is_forgery());
}

#[tokio::test]
async fn what_is_missing_is_called_a_tag() {
    for described in [instance(ID), ours(ID).without_tag("kops.k8s.io/instancegroup")] {
        let (_fake, provider) = fake([described]).await;
        let refusal = provider.ask_one(PROVIDER_ID).await.unwrap_err();
        assert!(refusal.to_string().contains("has no tag that"), "{refusal}");
        assert!(
            refusal.remedy().contains("the tags that kOps sets on the instance"),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn lifecycles() {
    for (written, expected) in [
        ("", Lifecycle::OnDemand),
        ("spot", Lifecycle::Spot),
        ("scheduled", Lifecycle::Scheduled),
        ("capacity-block", Lifecycle::OnDemand),
        ("of-the-future", Lifecycle::OnDemand),
    ] {
        let (_fake, provider) = fake([ours(ID).lifecycle(written)]).await;
        assert_eq!(
            provider.ask_one(PROVIDER_ID).await.unwrap().lifecycle,
            expected,
            "{written}"
        );
    }
}

#[tokio::test]
async fn a_tag_with_control_characters_is_shown_safely() {
    let (_fake, provider) = fake([ours(ID).tag("kops.k8s.io/instancegroup", "a\u{9}\u{85}b")]).await;
    let refusal = provider.ask_one(PROVIDER_ID).await.unwrap_err();
    assert_eq!(refusal.reason(), "NotInGroup");
    assert!(!refusal.to_string().contains(char::is_control), "{refusal}");
}

#[tokio::test]
async fn several_claims_of_one_instance_are_one_id() {
    let (fake, provider) = fake([ours(ID)]).await;
    let asked = [
        claim_of(PROVIDER_ID),
        claim_of(PROVIDER_ID),
        claim_of(&PROVIDER_ID.replace("1a", "1b")),
    ];
    assert_eq!(reasons(&provider.ask(&asked).await), ["ok", "ok", "ZoneMismatch"]);
    assert_eq!(calls(&fake), [by_id(1)]);
}

#[tokio::test]
async fn an_unknown_id_stays_apart_as_long_as_it_is_asked_for() {
    let (fake, provider) = fake([ours(ID)]).await;
    let asked = [claim_of(PROVIDER_ID), claim_of("aws:///us-east-1a/i-00000000000000bad")];
    provider.ask(&asked).await;
    for _ in 0..3 {
        provider.clock.advance(Duration::from_mins(45));
        fake.clear_calls();
        provider.ask(&asked).await;
        let calls = calls(&fake);
        assert!(
            calls.iter().all(|(_, ids, outcome)| *ids == 1 && outcome == "ok"),
            "{calls:?}"
        );
    }
    provider.clock.advance(Duration::from_hours(2));
    fake.clear_calls();
    provider.ask(&asked).await;
    assert_eq!(calls(&fake)[0].1, 2, "and is one of the others again after a while");
}

#[tokio::test]
async fn when_ec2_does_not_name_the_unknown_the_filter_finds_the_others() {
    let fleet = fleet(450);
    let (fake, provider) = fake(fleet.clone()).await;
    let vague = |message: &str| Scripted::Error {
        status: 400,
        code: "InvalidInstanceID.NotFound",
        message: message.to_owned(),
    };
    fake.script([vague("The instance IDs do not exist")]);
    let mut asked = claims(&fleet);
    asked.push(claim_of("aws:///us-east-1a/i-00000000000000bad"));
    let results = provider.ask(&asked).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 450);
    assert_eq!(results[450].as_ref().unwrap_err().reason(), "NotFound");
    let found = calls(&fake);
    assert_eq!(found[1..], [by_filter(200), by_filter(200), by_filter(51)]);
}

#[tokio::test]
async fn a_liar_who_names_healthy_ids_unknown_ends_in_a_bounded_number_of_calls() {
    // An EC2 that names another id with each answer: names are believed once, then the filter is used.
    let fleet = fleet(10);
    let (fake, provider) = fake(fleet.clone()).await;
    fake.script(fleet.iter().take(5).map(|instance| Scripted::Error {
        status: 400,
        code: "InvalidInstanceID.Malformed",
        message: format!("Invalid id: \"{}\"", instance.id()),
    }));
    let results = provider.ask(&claims(&fleet)).await;
    assert_eq!(fake.calls().len(), 3);
    assert_eq!(
        results
            .iter()
            .filter(|result| result.as_ref().is_err_and(|r| r.reason() == "NotFound"))
            .count(),
        2
    );
}

#[tokio::test]
async fn what_an_answer_lacks_repeats_or_adds() {
    let fleet = fleet(3);
    let (fake, provider) = fake([]).await;
    let stranger = ours("i-0fffffffffffffff0");
    // Not in the order in which they were asked for, one missing, one twice, one that nobody asked for.
    fake.script([instances(&[
        stranger,
        fleet[2].clone(),
        fleet[0].clone(),
        fleet[2].clone(),
    ])]);
    let results = provider.ask(&claims(&fleet)).await;
    assert_eq!(reasons(&results), ["ok", "NotFound", "Unavailable"]);
    assert_eq!(results[0].as_ref().unwrap().instance, fleet[0].id());
}

#[tokio::test]
async fn twice_with_different_tags_is_refused_whatever_the_order() {
    let (fake, provider) = fake([]).await;
    let masters = instance(ID).kops(CLUSTER, "masters");
    for order in [vec![masters.clone(), ours(ID)], vec![ours(ID), masters]] {
        fake.script([instances(&order)]);
        assert_eq!(provider.ask_one(PROVIDER_ID).await.unwrap_err().reason(), "Unavailable");
    }
}

#[tokio::test]
async fn pages_are_read_to_the_end_and_not_for_ever() {
    let fleet = fleet(2);
    let (fake, provider) = fake([]).await;
    fake.script([page(&fleet[..1]), instances(&fleet[1..])]);
    assert_eq!(reasons(&provider.ask(&claims(&fleet)).await), ["ok", "ok"]);
    fake.script((0..100).map(|_| page(&[])));
    assert_eq!(
        reasons(&provider.ask(&claims(&fleet)).await),
        ["Unavailable", "Unavailable"]
    );
    assert!(fake.calls().len() <= 2 + 20, "{} calls", fake.calls().len());
}

fn trouble() -> Vec<Row> {
    let own = [
        (Scripted::Throttled, "throttled", ""),
        (Scripted::error(400, "Throttling"), "throttled", ""),
        (Scripted::error(400, "ThrottlingException"), "throttled", ""),
        (Scripted::error(503, "EC2ThrottledException"), "throttled", ""),
        (Scripted::error(503, "SlowDown"), "throttled", ""),
        (Scripted::error(429, "SomethingNew"), "throttled", ""),
        (Scripted::Failed, "failed", "InternalError"),
        (Scripted::error(503, "Unavailable"), "failed", "Unavailable"),
        (Scripted::Denied, "denied", "UnauthorizedOperation"),
        (Scripted::Unauthenticated, "no_credentials", "AuthFailure"),
        (
            Scripted::error(400, "RequestExpired"),
            "no_credentials",
            "RequestExpired",
        ),
        (Scripted::error(400, "ExpiredToken"), "no_credentials", "ExpiredToken"),
        (Scripted::BreakOff, "unreachable", "the response is truncated"),
        (
            Scripted::Drop,
            "unreachable",
            "connection closed before message completed",
        ),
    ];
    rows("AWS", own)
}

#[tokio::test]
async fn what_keeps_ec2_from_answering() {
    for (answer, outcome, detail) in trouble() {
        let (fake, provider) = fake([ours(ID)]).await;
        fake.script([answer.clone()]);
        let refusal = provider.ask_one(PROVIDER_ID).await.unwrap_err();
        assert_eq!(
            refusal.to_string(),
            format!("{API}{}", told(outcome, &detail)),
            "{answer:?}"
        );
        assert!(refusal.is_transient() && !refusal.is_forgery(), "{refusal:?}");
        assert_eq!(provider.calls.counted(API, outcome), 1, "{answer:?}");
        assert_eq!(fake.calls().len(), 1, "no retries: {answer:?}");
        assert!(
            provider.ask_one(PROVIDER_ID).await.is_ok(),
            "and is well again after {answer:?}"
        );
    }
}

#[tokio::test]
async fn without_credentials_nothing_is_sent() {
    let fake = FakeEc2::start().await;
    let provider = Provider::with(&no_credentials(), &fake.endpoint(), Duration::from_secs(5));
    let refusal = provider.ask_one(PROVIDER_ID).await.unwrap_err();
    assert_eq!(refusal.to_string(), "ec2:DescribeInstances: no valid credentials");
    assert!(
        refusal.remedy().starts_with("Provide credentials"),
        "{}",
        refusal.remedy()
    );
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn a_source_of_credentials_that_never_answers() {
    let fake = FakeEc2::start().await;
    let provider = Provider::with(&silent_credentials(), &fake.endpoint(), Duration::from_secs(5));
    let refusal = provider.ask_one(PROVIDER_ID).await.unwrap_err();
    assert!(
        refusal
            .to_string()
            .starts_with("ec2:DescribeInstances: no valid credentials"),
        "{refusal}"
    );
    assert!(fake.calls().is_empty());
}

#[tokio::test]
async fn no_secret_is_ever_told() {
    let echo = format!("The canonical string was POST / x-amz-security-token:{TOKEN} {SECRET}");
    let codes = [
        "SignatureDoesNotMatch",
        "AuthFailure",
        "InvalidParameterValue",
        "InternalError",
        "InvalidInstanceID.NotFound",
    ];
    for code in codes {
        let (fake, provider) = fake([]).await;
        fake.script((0..9).map(|_| Scripted::Error {
            status: 400,
            code,
            message: echo.clone(),
        }));
        let refusal = provider.ask_one(PROVIDER_ID).await.unwrap_err();
        for text in [refusal.to_string(), format!("{refusal:?}"), refusal.remedy().to_owned()] {
            assert!(
                !text.contains(TOKEN) && !text.contains(SECRET) && !text.contains("http"),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn whatever_ec2_answers_a_query_ends_in_a_bounded_number_of_calls() {
    let fleet = fleet(900);
    let (fake, provider) = fake(fleet.clone()).await;
    // Fails everything.
    fake.script((0..1000).map(|_| Scripted::Failed));
    assert!(provider.ask(&claims(&fleet)).await.iter().all(Result::is_err));
    let failed = fake.take_calls().len();
    assert!(failed <= 4, "{failed} calls when nothing tells the parts apart");
}

#[tokio::test]
async fn while_ec2_is_away_a_query_is_one_call_and_the_first_success_asks_for_the_rest() {
    let fleet = fleet(900);
    let (fake, provider) = fake(fleet.clone()).await;
    fake.always(Some(Scripted::Failed));
    let mut spent = Vec::new();
    for _ in 0..10 {
        assert!(provider.ask(&claims(&fleet)).await.iter().all(Result::is_err));
        spent.push(fake.take_calls().len());
    }
    assert_eq!(spent, [4, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    fake.always(None);
    assert!(provider.ask(&claims(&fleet)).await.iter().all(Result::is_ok));
    assert_eq!(
        fake.take_calls().len(),
        4,
        "some of a zone, its rest, and the other zones"
    );
    assert!(provider.ask(&claims(&fleet)).await.iter().all(Result::is_ok));
    assert_eq!(fake.take_calls().len(), 1);
}

/// The one zone must not keep the others away.
#[tokio::test]
async fn a_zone_that_comes_back_later_than_the_others_delays_them_by_a_few_tries() {
    let fleet = fleet(900);
    let (fake, provider) = fake(fleet.clone()).await;
    fake.always(Some(Scripted::Failed));
    provider.ask(&claims(&fleet)).await;
    fake.always(None);
    let is_late = |instance: &FakeInstance| in_zone(instance, "us-east-1b");
    for instance in fleet.iter().filter(|instance| is_late(instance)) {
        fake.fail(instance.id(), Scripted::Failed);
    }
    let (mut tries, mut results) = (0, provider.ask(&claims(&fleet)).await);
    while results.iter().all(Result::is_err) {
        tries += 1;
        assert!(tries < 3, "{:?}", results[0]);
        results = provider.ask(&claims(&fleet)).await;
    }
    for (result, instance) in results.iter().zip(&fleet) {
        assert_eq!(result.is_ok(), !is_late(instance), "{}: {result:?}", instance.id());
    }
}

/// One id in each zone makes EC2 fail, for whatever reason: the others must be answered at last.
#[tokio::test]
async fn a_bad_id_in_each_zone_is_no_outage_for_ever() {
    let fleet = fleet(90);
    let (fake, provider) = fake(fleet.clone()).await;
    let bad = &fleet[40..43];
    for instance in bad {
        fake.fail(instance.id(), Scripted::Failed);
    }
    let (mut tries, mut well) = (0, 0);
    while well < fleet.len() - bad.len() {
        tries += 1;
        assert!(tries < 20, "{well} answered");
        let results = provider.ask(&claims(&fleet)).await;
        well = results.iter().filter(|result| result.is_ok()).count();
    }
}

fn in_zone(instance: &FakeInstance, zone: &str) -> bool {
    instance.provider_id().contains(zone)
}

/// Nodes of a zone in trouble are tried again without the others.
#[tokio::test]
async fn one_zone_in_trouble_is_not_taken_for_the_whole_of_ec2() {
    let fleet = fleet(90);
    let (fake, provider) = fake(fleet.clone()).await;
    let (bad, healthy): (Vec<_>, Vec<_>) = fleet.iter().cloned().partition(|it| in_zone(it, "us-east-1b"));
    for instance in &bad {
        fake.fail(instance.id(), Scripted::Failed);
    }
    provider.ask(&claims(&fleet)).await;
    for tries in 1..=4 {
        for _ in 0..tries {
            assert!(provider.ask(&claims(&bad)).await.iter().all(Result::is_err));
        }
        let mixed = [&healthy[..], &bad[..1]].concat();
        let results = provider.ask(&claims(&mixed)).await;
        assert!(results[..healthy.len()].iter().all(Result::is_ok), "{:?}", results[0]);
    }
}

/// After EC2 was away, a zone and an id of another zone still make calls fail: the others are answered after a few
/// tries.
#[tokio::test]
async fn a_bad_id_beside_a_zone_in_trouble_is_found() {
    let fleet = fleet(60);
    let (fake, provider) = fake(fleet.clone()).await;
    for instance in fleet.iter().filter(|it| in_zone(it, "us-east-1b")) {
        fake.fail(instance.id(), Scripted::Failed);
    }
    provider.ask(&claims(&fleet)).await;
    fake.always(Some(Scripted::Failed));
    provider.ask(&claims(&fleet)).await;
    fake.always(None);
    let of_two_zones: Vec<_> = fleet.iter().filter(|it| !in_zone(it, "us-east-1c")).cloned().collect();
    let bad = of_two_zones.iter().find(|it| in_zone(it, "us-east-1a")).unwrap();
    fake.fail(bad.id(), Scripted::Failed);
    let mut tries = 0;
    while provider
        .ask(&claims(&of_two_zones))
        .await
        .iter()
        .filter(|it| it.is_ok())
        .count()
        < 19
    {
        tries += 1;
        assert!(tries < 8, "nothing isolates the bad id");
    }
}

#[tokio::test]
async fn many_ids_that_make_ec2_fail_cost_a_bounded_number_of_calls_each_time() {
    let fleet = fleet(900);
    let (fake, provider) = fake(fleet.clone()).await;
    // One in each of two zones: finding both takes more calls than one query may cost.
    let bad = [&fleet[100], &fleet[401]];
    for instance in &bad {
        fake.fail(instance.id(), Scripted::Failed);
    }
    let mut spent = Vec::new();
    for _ in 0..3 {
        provider.ask(&claims(&fleet)).await;
        spent.push(calls(&fake).len());
    }
    assert!(spent.iter().all(|calls| *calls <= 34), "{spent:?} calls");
    let results = provider.ask(&claims(&fleet)).await;
    for (result, instance) in results.iter().zip(&fleet) {
        assert_eq!(
            result.is_ok(),
            !bad.contains(&instance),
            "{}: {result:?}",
            instance.id()
        );
    }
}

#[tokio::test]
async fn throttled_in_the_middle() {
    let fleet = fleet(30);
    let (fake, provider) = fake(fleet.clone()).await;
    fake.script([
        Scripted::Failed,
        Scripted::Throttled,
        Scripted::Throttled,
        Scripted::Throttled,
    ]);
    let results = provider.ask(&claims(&fleet)).await;
    assert!(
        results
            .iter()
            .all(|result| result.as_ref().is_err_and(|refusal| refusal.reason() == "Throttled"))
    );
    assert_eq!(fake.calls().len(), 4, "no more calls once it is throttled");
}

#[tokio::test]
async fn the_token_bucket_throttles() {
    let (fake, provider) = fake([ours(ID)]).await;
    fake.throttle(Some(TokenBucket {
        capacity: 2.0,
        refill: 0.0,
    }));
    let mut results = Vec::new();
    for _ in 0..3 {
        results.push(provider.ask_one(PROVIDER_ID).await);
    }
    assert_eq!(reasons(&results), ["ok", "ok", "Throttled"]);
}

#[tokio::test]
async fn the_region_comes_from_the_metadata_service() {
    let fake = FakeEc2::start().await;
    let metadata = fake.endpoint().parse().unwrap();
    fake.metadata_region("eu-north-1\n");
    assert_eq!(region(None, Some(&metadata)).await.unwrap().as_ref(), "eu-north-1");
    assert_eq!(
        region(Some("us-west-2"), Some(&metadata)).await.unwrap().as_ref(),
        "us-west-2",
        "what is set goes first"
    );
    fake.metadata_region("<html>\u{1b}[31m");
    let error = region(None, Some(&metadata)).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the region \"<html>\\u{1b}[31m\" is not valid"),
        "{error}"
    );
    fake.away().await;
    let error = region(None, Some(&metadata)).await.unwrap_err();
    assert!(error.to_string().ends_with("set AWS_REGION"), "{error}");
}

/// The SDK takes each of them for a list without instances or groups.
#[tokio::test]
async fn a_response_that_is_cut_short_or_too_large_says_nothing_of_an_instance() {
    let fake = FakeEc2::start().await;
    let provider = Provider::at(&fake.endpoint());
    let (groups, _) = groups_at(&fake.endpoint());
    let answers = |api: &str, inner: &str, ends: bool| {
        let end = if ends {
            format!("</{api}Response>")
        } else {
            String::new()
        };
        let body = format!("<?xml version=\"1.0\"?>\n<{api}Response>{inner}{end}");
        fake.script_for(api, [Scripted::Raw { status: 200, body }]);
    };
    let large = " ".repeat(65 << 20);
    for (space, ends, said) in [
        ("", false, "the response is not a complete XML document"),
        (&large, true, "the response is larger than 64 MiB"),
    ] {
        answers("DescribeInstances", space, ends);
        let refusal = provider.ask_one(PROVIDER_ID).await.unwrap_err();
        let expected = Refusal::Unavailable {
            api: API,
            cause: UnavailableCause::Unusable,
            detail: said.to_owned(),
        };
        assert_eq!(refusal, expected);
        let inner = format!("{space}<DescribeAutoScalingGroupsResult></DescribeAutoScalingGroupsResult>");
        answers("DescribeAutoScalingGroups", &inner, ends);
        let error = groups.groups().await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    answers("DescribeInstances", "", true);
    assert_eq!(reason(&provider.ask_one(PROVIDER_ID).await), "NotFound");
}
