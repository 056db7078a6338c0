//! The groups against moto, which we have not written. It lists no instance of a warm pool.

use tidewaiter_identity::{CloudGroup, CloudGroups as _, MemberStatus, Sizes};
use tidewaiter_testkit::Moto;
use tidewaiter_testkit::moto::text_of;

use crate::setup::{CLUSTER, groups_at};

fn form(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    owned.collect()
}

/// Makes a launch template, and returns its id.
async fn launch_template(moto: &Moto, name: &str) -> String {
    let xml = moto
        .ec2(
            "CreateLaunchTemplate",
            &form(&[
                ("LaunchTemplateName", name),
                ("LaunchTemplateData.ImageId", "ami-12c6146b"),
                ("LaunchTemplateData.InstanceType", "m6i.large"),
            ]),
        )
        .await;
    text_of(&xml, "launchTemplateId").unwrap().to_owned()
}

async fn new_version(moto: &Moto, template: &str) {
    let new = [
        ("LaunchTemplateId", template),
        ("LaunchTemplateData.ImageId", "ami-12c6146b"),
        ("LaunchTemplateData.InstanceType", "m6i.large"),
    ];
    moto.ec2("CreateLaunchTemplateVersion", &form(&new)).await;
}

/// Makes a group of two instances for the cluster.
async fn group(moto: &Moto, instance_group: &str, cluster: &str, definition: &[(&str, &str)]) {
    let name = format!("{instance_group}.{cluster}");
    let fixed = [
        ("AutoScalingGroupName", name.as_str()),
        ("AvailabilityZones.member.1", "us-east-1a"),
        ("MinSize", "1"),
        ("DesiredCapacity", "2"),
        ("MaxSize", "5"),
        ("Tags.member.1.Key", "KubernetesCluster"),
        ("Tags.member.1.Value", cluster),
        ("Tags.member.1.PropagateAtLaunch", "true"),
        ("Tags.member.2.Key", "kops.k8s.io/instancegroup"),
        ("Tags.member.2.Value", instance_group),
        ("Tags.member.2.PropagateAtLaunch", "true"),
    ];
    let all = [&fixed[..], definition].concat();
    moto.autoscaling("CreateAutoScalingGroup", &form(&all)).await;
}

fn statuses(group: &CloudGroup) -> Vec<MemberStatus> {
    group.members.iter().map(|member| member.status).collect()
}

#[tokio::test]
async fn groups_as_others_wrote_them() {
    use MemberStatus::{Detached, NeedsUpdate, UpToDate};
    let moto = Moto::start().await;
    let (plain, mixed) = (
        launch_template(&moto, "plain").await,
        launch_template(&moto, "mixed").await,
    );
    let by_template = [
        ("LaunchTemplate.LaunchTemplateId", plain.as_str()),
        ("LaunchTemplate.Version", "$Latest"),
    ];
    let of_policy = "MixedInstancesPolicy.LaunchTemplate";
    let specification = format!("{of_policy}.LaunchTemplateSpecification");
    let keys = [
        format!("{specification}.LaunchTemplateId"),
        format!("{specification}.Version"),
        format!("{of_policy}.Overrides.member.1.InstanceType"),
    ];
    let by_policy = [
        (keys[0].as_str(), mixed.as_str()),
        (&keys[1], "$Latest"),
        (&keys[2], "m6i.large"),
    ];
    group(&moto, "a-plain", CLUSTER, &by_template).await;
    group(&moto, "b-mixed", CLUSTER, &by_policy).await;
    group(&moto, "c-theirs", "other.example.com", &by_template).await;
    let name = format!("a-plain.{CLUSTER}");
    let warm = form(&[("AutoScalingGroupName", &name), ("PoolState", "Stopped")]);
    moto.autoscaling("PutWarmPool", &warm).await;

    let (provider, _) = groups_at(moto.endpoint());
    let ask = async || {
        let mut groups = provider.groups().await.unwrap();
        groups.sort_by(|one, other| one.name.cmp(&other.name));
        groups.retain(|group| group.sizes != Sizes::Unmanaged);
        let [a, b]: [CloudGroup; 2] = groups.try_into().unwrap();
        (a, b)
    };
    let (a, b) = ask().await;
    let sizes = Sizes::OfCloud {
        target: 2,
        min: 1,
        max: 5,
    };
    for (group, instance_group) in [(&a, "a-plain"), (&b, "b-mixed")] {
        assert_eq!(group.instance_group.as_str(), instance_group);
        assert_eq!(group.name, format!("{instance_group}.{CLUSTER}"));
        assert_eq!(group.sizes, sizes);
        assert_eq!(statuses(group), [UpToDate, UpToDate], "{group:?}");
    }

    new_version(&moto, &mixed).await;
    assert_eq!(statuses(&ask().await.1), [NeedsUpdate, NeedsUpdate]);
    assert_eq!(statuses(&ask().await.0), [UpToDate, UpToDate]);

    let id = a.members[0].id.as_str();
    moto.tag(id, "kops.k8s.io/detached-from-asg", &name).await;
    let detach = [
        ("AutoScalingGroupName", name.as_str()),
        ("InstanceIds.member.1", id),
        ("ShouldDecrementDesiredCapacity", "true"),
    ];
    moto.autoscaling("DetachInstances", &form(&detach)).await;
    let detached: Vec<_> = ask().await.0.members;
    let of = |id: &str| {
        detached
            .iter()
            .find(|member| member.id == id)
            .map(|member| member.status)
    };
    assert_eq!((of(id), of(&a.members[1].id)), (Some(Detached), Some(UpToDate)));

    moto.terminate(id).await;
    let left: Vec<_> = ask().await.0.members;
    assert!(left.iter().all(|member| member.id != id), "{left:?}");
}
