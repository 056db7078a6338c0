//! The way from a Node's providerID to its group, each step with its forgery.

use tidewaiter_api::Lifecycle;
use tidewaiter_identity::gce::{api, project};
use tidewaiter_identity::{Claim, Identity, NodeNames, NotManaged, Refusal, prove};
use tidewaiter_testkit::fake_gce::{
    FakeGce, FakeTemplate, PROJECT, PROJECT_NUMBER, REGION, instance, regional_group, regional_template, template,
    zonal_group,
};

use crate::ask::{claim_of, reason};
use crate::setup::{CLUSTER, One, Provider, ZONE, rows};

#[tokio::test]
async fn an_instance_of_ours() {
    let one = One::new()
        .instance(|instance| {
            instance
                .ip("10.1.2.3")
                .ipv6("fd00::7")
                .alias("10.200.3.0/24")
                .interface("10.9.0.1")
        })
        .template(|template| template.model("SPOT"));
    let (fake, provider) = one.start().await;
    let identity = provider.ask_one(&one.instance).await.unwrap();
    let expected = Identity {
        instance: "us-central1-a/nodes-x7k2".to_owned(),
        group: "nodes".parse().unwrap(),
        starting: false,
        zone: ZONE.to_owned(),
        lifecycle: Lifecycle::Spot,
        names: vec!["nodes-x7k2".to_owned()],
        // Neither the alias range, which is the pods', nor the public address.
        addresses: ["10.1.2.3", "10.9.0.1", "fd00::7"]
            .map(|address| address.parse().unwrap())
            .to_vec(),
        tag_labels: Vec::new(),
    };
    assert_eq!(identity, expected);
    let way = [
        ("instances.get", 1),
        ("instanceGroupManagers.listManagedInstances", 1),
        ("instanceTemplates.get", 1),
    ];
    assert_eq!(rows(&fake.calls()), way);
    for api in [api::GET_INSTANCE, api::LIST_ZONAL_GROUP, api::GET_GLOBAL_TEMPLATE] {
        assert_eq!(provider.calls.counted(api, "ok"), 1, "{api}");
    }
}

#[tokio::test]
async fn regional_groups_and_regional_templates() {
    let template = regional_template(REGION, "nodes-v1").kops(CLUSTER, "nodes");
    let group = regional_group(REGION, "nodes");
    let instance = instance("us-central1-f", "nodes-x7k2").kops(CLUSTER, &group);
    let group = group.lists(&instance, &template);
    let one = One {
        instance,
        group,
        template,
    };
    let (fake, provider) = one.start().await;
    assert_eq!(provider.ask_one(&one.instance).await.unwrap().group.as_str(), "nodes");
    let way = [
        ("instances.get", 1),
        ("regionInstanceGroupManagers.listManagedInstances", 1),
        ("regionInstanceTemplates.get", 1),
    ];
    assert_eq!(rows(&fake.calls()), way);
}

#[tokio::test]
async fn what_one_instance_can_be() {
    for (status, expected) in [
        ("RUNNING", "ok"),
        ("PROVISIONING", "NotRunning"),
        ("STAGING", "NotRunning"),
        ("PENDING", "NotRunning"),
        ("PENDING_STOP", "NotRunning"),
        ("STOPPING", "NotRunning"),
        ("STOPPED", "NotRunning"),
        ("SUSPENDING", "NotRunning"),
        ("SUSPENDED", "NotRunning"),
        ("REPAIRING", "NotRunning"),
        ("DEPROVISIONING", "NotRunning"),
        ("TERMINATED", "NotRunning"),
        ("A_STATE_OF_THE_FUTURE", "NotRunning"),
        ("", "Unavailable"),
    ] {
        let one = One::new().instance(|instance| instance.status(status));
        let (fake, provider) = one.start().await;
        let result = provider.ask_one(&one.instance).await;
        assert_eq!(reason(&result), expected, "{status}");
        if expected != "ok" {
            assert_eq!(fake.calls().len(), 1, "nothing more is asked of one that is {status}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_about_the_instance_is_unusable() {
    for one in [
        One::new().instance(|instance| instance.id(0)),
        One::new().instance(|instance| instance.says_zone("")),
        One::new().instance(|instance| instance.says_zone("us-central1-b")),
    ] {
        let (_fake, provider) = one.start().await;
        let result = provider.ask_one(&one.instance).await;
        assert_eq!(reason(&result), "Unavailable", "{:?}", one.instance);
    }
}

#[tokio::test]
async fn lifecycles_are_the_templates() {
    for (one, expected) in [
        (One::new(), Lifecycle::OnDemand),
        (One::new().template(|t| t.model("STANDARD")), Lifecycle::OnDemand),
        (One::new().template(|t| t.model("OF_THE_FUTURE")), Lifecycle::OnDemand),
        (One::new().template(|t| t.model("SPOT")), Lifecycle::Spot),
        (One::new().template(FakeTemplate::preemptible), Lifecycle::Spot),
    ] {
        let (_fake, provider) = one.start().await;
        let identity = provider.ask_one(&one.instance).await.unwrap();
        assert_eq!(identity.lifecycle, expected, "{:?}", one.template);
    }
}

#[tokio::test]
async fn other_projects_are_never_asked_about() {
    let one = One::new();
    let (fake, provider) = one.start().await;
    let stranger = claim_of("gce://other-project/us-central1-a/nodes-x7k2");
    // The first query finds an instance of ours, too; the second knows that our project is the right one.
    for asked in [
        vec![stranger.clone(), claim_of(&one.instance.provider_id())],
        vec![stranger.clone()],
    ] {
        fake.clear_calls();
        let refusal = provider.ask(&asked).await.remove(0).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "instance us-central1-a/nodes-x7k2 belongs to \"other-project\", not to ours.example.com"
        );
        assert!(refusal.is_forgery());
        let calls = if asked.len() == 1 { 0 } else { 3 };
        assert_eq!(fake.calls().len(), calls, "{:?}", fake.calls());
    }
}

/// With a wrong setting every Node names another project, and none of them is forged.
#[tokio::test]
async fn a_wrong_project_setting_is_told_as_such() {
    let (fake, provider) = One::new().start().await;
    let names = (1..=20).map(|number| claim_of(&format!("gce://real-project/us-central1-a/n-{number}")));
    let mut asked: Vec<_> = names.collect();
    // One of our project, which proves nothing as long as it is not of the cluster.
    asked.push(claim_of("gce://our-project/us-central1-a/no-such"));
    let mut results = provider.ask(&asked).await;
    assert_eq!(reason(&results.remove(20)), "NotFound");
    for result in results {
        let refusal = result.unwrap_err();
        assert_eq!(refusal.reason(), "ProjectMismatch");
        assert_eq!(
            refusal.to_string(),
            "the providerID names project real-project, but the setting project is our-project, and no instance of \
             ours.example.com was found there"
        );
        assert!(!refusal.is_forgery() && !refusal.is_transient());
        assert!(
            refusal.remedy().contains("TIDEWAITER_PROJECT or GCP_PROJECT"),
            "{}",
            refusal.remedy()
        );
    }
    assert_eq!(fake.calls().len(), 1, "{:?}", fake.calls());
}

#[tokio::test]
async fn an_instance_that_its_group_deletes_or_abandons() {
    for (action, expected, words) in [
        (
            "DELETING",
            "NotRunning",
            "instance us-central1-a/nodes-x7k2 is being deleted by its managed instance group",
        ),
        (
            "ABANDONING",
            "NotInGroup",
            "instance us-central1-a/nodes-x7k2 is being abandoned by zones/us-central1-a/instanceGroupManagers/a-nodes",
        ),
        (
            "NONE",
            "Unavailable",
            "gce:compute.instanceGroupManagers.listManagedInstances: unusable response (us-central1-a/nodes-x7k2 is listed \
             without a template)",
        ),
    ] {
        let one = One::new();
        let listed = one.group(|one| zonal_group(ZONE, "a-nodes").lists_from(&one.instance, "").doing(action));
        let (_fake, provider) = listed.start().await;
        let refusal = provider.ask_one(&listed.instance).await.unwrap_err();
        assert_eq!((refusal.reason(), refusal.to_string().as_str()), (expected, words));
        // As long as the group names its template, it is a member.
        let one = One::new().group(|one| one.group.clone().doing(action));
        let (_fake, provider) = one.start().await;
        assert!(provider.ask_one(&one.instance).await.is_ok(), "{action}");
    }
}

/// It has no other address, so its Node lists it as an internal one.
#[tokio::test]
async fn an_external_ipv6_address_is_the_instances_own() {
    let one = One::new().instance(|instance| instance.external_ipv6("2600:1900:4000::7"));
    let (_fake, provider) = one.start().await;
    let identity = provider.ask_one(&one.instance).await.unwrap();
    let own: std::net::IpAddr = "2600:1900:4000::7".parse().unwrap();
    assert_eq!(identity.addresses, [own]);
    let claim = Claim {
        node: "nodes-x7k2".parse().unwrap(),
        addresses: vec![own],
        ..claim_of(&one.instance.provider_id())
    };
    assert!(prove(&claim, identity.into(), NodeNames::Enforce).is_ok());
}

/// The instance can write `created-by`: here it lies.
#[tokio::test]
async fn a_forged_creator() {
    let masters = zonal_group(ZONE, "a-masters");
    let master = instance(ZONE, "masters-1").id(9001).kops(CLUSTER, &masters);
    let template = template("masters-v1").kops(CLUSTER, "masters");
    let masters = masters.lists(&master, &template);
    let number = PROJECT_NUMBER;
    for (said, expected, calls) in [
        // A group of ours that has not made it: by number, by id, and by the number of another project.
        (format!("projects/{number}/{}", masters.path()), "not listed", 2),
        (format!("projects/{PROJECT}/{}", masters.path()), "not listed", 2),
        (format!("projects/999999999999/{}", masters.path()), "not listed", 2),
        (
            format!("projects/{number}/zones/{ZONE}/instanceGroupManagers/no-such"),
            "gone",
            2,
        ),
        // Never asked about.
        (format!("projects/other-project/{}", masters.path()), "foreign", 1),
        (
            format!("projects/{number}/zones/us-central1-b/instanceGroupManagers/b-masters"),
            "no group",
            1,
        ),
        (
            format!("projects/{number}/regions/us-east1/instanceGroupManagers/masters"),
            "no group",
            1,
        ),
        (format!("https://evil.example/{}", masters.path()), "no group", 1),
        ("x".repeat(10_240), "no group", 1),
        (String::new(), "no group", 1),
    ] {
        let one = One::new().instance(|instance| instance.metadata("created-by", &said));
        let (fake, provider) = one.start().await;
        fake.launch([master.clone()]);
        fake.groups([masters.clone()]);
        fake.templates([template.clone()]);
        let refusal = provider.ask_one(&one.instance).await.unwrap_err();
        let what = match &refusal {
            Refusal::NotManaged { why, .. } => match why {
                NotManaged::NotListed(_) => "not listed",
                NotManaged::GroupGone(_) => "gone",
                NotManaged::NoGroup(_) => "no group",
                other => panic!("{other}"),
            },
            Refusal::ForeignProject { theirs: Some(_), .. } => "foreign",
            other => panic!("{other}"),
        };
        assert_eq!(what, expected, "{said}");
        assert_eq!(fake.calls().len(), calls, "{said}: {:?}", fake.calls());
        assert!(refusal.to_string().len() < 400, "{refusal}");
        // The one who really is of the group is not hurt.
        assert_eq!(provider.ask_one(&master).await.unwrap().group.as_str(), "masters");
    }
}

#[tokio::test]
async fn not_in_a_group() {
    let bare = One::new().instance(|instance| instance.without_metadata("created-by"));
    let moved_out = One::new().group(|_| zonal_group(ZONE, "a-nodes"));
    // The group has made another one of the same name since.
    let another = One::new().group(|one| {
        let later = one.instance.clone().id(4002);
        zonal_group(ZONE, "a-nodes").lists(&later, &one.template)
    });
    // The group is about to make it.
    let not_yet = One::new().group(|one| zonal_group(ZONE, "a-nodes").creates(ZONE, "nodes-x7k2", &one.template));
    for (one, text) in [
        (
            bare,
            "instance us-central1-a/nodes-x7k2 does not name the managed instance group that created it",
        ),
        (
            moved_out,
            "instance us-central1-a/nodes-x7k2 claims to be created by zones/us-central1-a/instanceGroupManagers/a-nodes, \
             which does not list it",
        ),
        (another, "which does not list it"),
        (not_yet, "which does not list it"),
    ] {
        let (_fake, provider) = one.start().await;
        let refusal = provider.ask_one(&one.instance).await.unwrap_err();
        assert_eq!(refusal.reason(), "NotInGroup");
        assert!(refusal.to_string().ends_with(text), "{refusal}");
        assert!(!refusal.is_forgery() && !refusal.is_transient(), "{refusal}");
    }
}

#[tokio::test]
async fn listed_repeatedly_or_without_a_template_is_refused() {
    let www = "https://www.googleapis.com/compute/v1/projects";
    let masters = template("masters-v1").kops(CLUSTER, "masters");
    let rows = |one: &One| zonal_group(ZONE, "a-nodes").lists(&one.instance, &one.template);
    let listed_from =
        |url: String| One::new().group(|one| zonal_group(ZONE, "a-nodes").lists_from(&one.instance, &url));
    for (one, expected) in [
        (
            One::new().group(|one| rows(one).lists(&one.instance, &masters)),
            "Unavailable",
        ),
        (
            One::new().group(|one| rows(one).lists(&one.instance, &one.template)),
            "Unavailable",
        ),
        (listed_from(String::new()), "Unavailable"),
        (listed_from("nonsense".to_owned()), "Unavailable"),
        (
            listed_from(format!("{www}/{PROJECT}/regions/us-east1/instanceTemplates/nodes-v1")),
            "Unavailable",
        ),
        (
            listed_from(format!("{www}/other-project/global/instanceTemplates/nodes-v1")),
            "ForeignProject",
        ),
        (
            listed_from(format!("{www}/{PROJECT_NUMBER}/global/instanceTemplates/nodes-v1")),
            "ok",
        ),
        (
            listed_from(format!("{www}/{PROJECT}/global/instanceTemplates/gone")),
            "NotInGroup",
        ),
    ] {
        let (fake, provider) = one.start().await;
        fake.templates([masters.clone()]);
        let result = provider.ask_one(&one.instance).await;
        assert_eq!(reason(&result), expected, "{:?}", one.group);
        if !matches!(expected, "ok" | "NotInGroup") {
            assert_eq!(fake.calls().len(), 2, "no template is asked for");
        }
    }
}

#[tokio::test]
async fn what_a_template_can_say() {
    let group = "kops-k8s-io-instance-group-name";
    for (one, expected, forged) in [
        (One::new(), "ok", false),
        (
            One::new().template(|t| t.metadata("cluster-name", "other.example.com")),
            "ForeignProject",
            true,
        ),
        (
            One::new().template(|t| t.metadata("cluster-name", "OURS.example.com")),
            "ForeignProject",
            true,
        ),
        (
            One::new().template(|t| t.without_metadata("cluster-name")),
            "ForeignProject",
            false,
        ),
        (One::new().template(|t| t.without_metadata(group)), "NotInGroup", false),
        (
            One::new().template(|t| t.metadata(group, "../config")),
            "NotInGroup",
            false,
        ),
        (One::new().template(|t| t.metadata(group, "")), "NotInGroup", false),
        (One::new().template(|_| template("nodes-v1")), "ForeignProject", false),
    ] {
        let (_fake, provider) = one.start().await;
        let result = provider.ask_one(&one.instance).await;
        assert_eq!(reason(&result), expected, "{:?}", one.template);
        if let Err(refusal) = result {
            assert_eq!(refusal.is_forgery(), forged, "{refusal}");
            assert!(!refusal.to_string().contains(char::is_control), "{refusal}");
        }
    }
}

#[tokio::test]
async fn what_is_missing_is_looked_for_in_the_template() {
    let one = One::new().template(|t| t.without_metadata("cluster-name"));
    let (_fake, provider) = one.start().await;
    let refusal = provider.ask_one(&one.instance).await.unwrap_err();
    assert!(
        refusal.to_string().contains("has no template metadata that"),
        "{refusal}"
    );
    assert!(refusal.remedy().contains("a new instance template"), "{refusal}");
}

/// The instance's own metadata and labels of its cluster and group have no effect.
#[tokio::test]
async fn an_instance_cannot_name_its_own_group_or_cluster() {
    let one = One::new().instance(|instance| {
        instance
            .metadata("kops-k8s-io-instance-group-name", "masters")
            .metadata("cluster-name", "other.example.com")
            .label("k8s-io-cluster-name", "other-example-com")
            .label("k8s-io-role-control-plane", "")
    });
    let (_fake, provider) = one.start().await;
    assert_eq!(provider.ask_one(&one.instance).await.unwrap().group.as_str(), "nodes");
}

#[tokio::test]
async fn two_versions_of_one_group() {
    let stable = template("nodes-v1").kops(CLUSTER, "nodes");
    let canary = template("nodes-v2").kops(CLUSTER, "nodes-canary").model("SPOT");
    let group = zonal_group(ZONE, "a-nodes");
    let old = instance(ZONE, "nodes-1").id(1).kops(CLUSTER, &group);
    let new = instance(ZONE, "nodes-2").id(2).kops(CLUSTER, &group);
    let group = group.lists(&old, &stable).lists(&new, &canary);
    let fake = FakeGce::start().await;
    fake.launch([old.clone(), new.clone()]);
    fake.groups([group]);
    fake.templates([stable, canary]);
    let provider = Provider::at(&fake.endpoint()).await;
    let results = provider.ask(&crate::setup::claims(&[old, new])).await;
    let said: Vec<_> = results
        .iter()
        .map(|result| result.as_ref().map(|i| (i.group.as_str(), i.lifecycle)).unwrap())
        .collect();
    assert_eq!(
        said,
        [("nodes", Lifecycle::OnDemand), ("nodes-canary", Lifecycle::Spot)]
    );
    let calls = fake.calls();
    assert_eq!(calls.len(), 5, "two instances, one listing, two templates: {calls:?}");
}

#[tokio::test]
async fn one_name_in_two_zones_is_two_instances() {
    let template = template("nodes-v1").kops(CLUSTER, "nodes");
    let masters = crate::setup::One::new();
    let other_zone = "us-central1-b";
    let group = zonal_group(other_zone, "b-nodes");
    let twin = instance(other_zone, "nodes-x7k2")
        .id(4002)
        .ip("10.0.0.2")
        .kops(CLUSTER, &group);
    let (fake, provider) = masters.start().await;
    fake.groups([group.lists(&twin, &template)]);
    fake.launch([twin.clone()]);
    let results = provider
        .ask(&crate::setup::claims(&[
            masters.instance.clone(),
            twin,
            masters.instance.clone(),
        ]))
        .await;
    let places: Vec<_> = results
        .iter()
        .map(|result| result.as_ref().unwrap().instance.as_str())
        .collect();
    assert_eq!(
        places,
        [
            "us-central1-a/nodes-x7k2",
            "us-central1-b/nodes-x7k2",
            "us-central1-a/nodes-x7k2"
        ]
    );
}

#[tokio::test]
async fn the_project_comes_from_the_metadata_server() {
    let fake = FakeGce::start().await;
    let metadata = fake.endpoint().parse().unwrap();
    fake.metadata_project("example.com:our-project\n");
    let said = project(None, Some(&metadata)).await.unwrap();
    assert_eq!(said.as_str(), "example.com:our-project");
    let set = project(Some("set-project"), Some(&metadata)).await.unwrap();
    assert_eq!(set.as_str(), "set-project", "what is set goes first");

    fake.metadata_project("<html>\u{1b}[31m");
    let error = project(None, Some(&metadata)).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the project \"<html>\\u{1b}[31m\" is not valid"),
        "{error}"
    );
    fake.metadata_away(true);
    let error = project(None, Some(&metadata)).await.unwrap_err();
    assert!(error.to_string().ends_with("set GCP_PROJECT"), "{error}");
    fake.away().await;
    let error = project(None, Some(&metadata)).await.unwrap_err();
    assert!(error.to_string().ends_with("set GCP_PROJECT"), "{error}");
}
