//! The machines of the cluster at AWS.

use crate::moto::{Launch, Launched, Moto};

use super::{CLUSTER, CONTROL_PLANE, WORKERS};

pub(super) async fn launch(moto: &Moto, group: &str, address: &str) -> Launched {
    let tags = vec![("KubernetesCluster", CLUSTER), ("kops.k8s.io/instancegroup", group)];
    let launch = Launch {
        tags,
        address,
        ..Launch::default()
    };
    moto.launch(&launch).await
}

fn form(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// An Auto Scaling group for each InstanceGroup, empty at first.
pub(super) async fn make_groups(moto: &Moto) {
    let template = [
        ("LaunchTemplateName", "machines"),
        ("LaunchTemplateData.ImageId", "ami-12c6146b"),
        ("LaunchTemplateData.InstanceType", "m6i.large"),
    ];
    moto.ec2("CreateLaunchTemplate", &form(&template)).await;
    for group in [CONTROL_PLANE, WORKERS] {
        let name = name(group);
        let definition = [
            ("AutoScalingGroupName", name.as_str()),
            ("AvailabilityZones.member.1", "us-east-1a"),
            ("LaunchTemplate.LaunchTemplateName", "machines"),
            ("LaunchTemplate.Version", "$Latest"),
            ("MinSize", "0"),
            ("DesiredCapacity", "0"),
            ("MaxSize", "9"),
            ("Tags.member.1.Key", "KubernetesCluster"),
            ("Tags.member.1.Value", CLUSTER),
            ("Tags.member.2.Key", "kops.k8s.io/instancegroup"),
            ("Tags.member.2.Value", group),
        ];
        moto.autoscaling("CreateAutoScalingGroup", &form(&definition)).await;
    }
}

/// As kOps names it.
fn name(group: &str) -> String {
    let role = if group == CONTROL_PLANE { ".masters" } else { "" };
    format!("{group}{role}.{CLUSTER}")
}

/// The verdict on the cluster is on the machines of its groups.
pub(super) async fn attach(moto: &Moto, machine: &Launched, group: &str) {
    let name = name(group);
    let attach = [
        ("AutoScalingGroupName", name.as_str()),
        ("InstanceIds.member.1", &machine.id),
    ];
    moto.autoscaling("AttachInstances", &form(&attach)).await;
}
