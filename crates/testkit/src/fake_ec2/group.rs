//! An Auto Scaling group as a test describes it, and as `DescribeAutoScalingGroups` and `DescribeWarmPool` write it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::instance::{FakeInstance, escaped, instance};

/// The id of a launch template, and the version: a number, `$Latest`, `$Default`, or nothing.
type Template = (String, String);

/// An Auto Scaling group of the fake. What is `None` or empty is left out of the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeGroup {
    pub(super) name: String,
    pub(super) tags: BTreeMap<String, String>,
    status: Option<String>,
    sizes: [i32; 3],
    configuration: Option<String>,
    template: Option<Template>,
    mixed: Option<Template>,
    /// By type of instance.
    overrides: Vec<(String, Template)>,
    members: Vec<FakeMember>,
    pub(super) pool: Option<Vec<FakeMember>>,
}

/// An instance as its group lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeMember {
    id: String,
    zone: String,
    state: String,
    instance_type: String,
    configuration: Option<String>,
    template: Option<Template>,
}

/// A group without tags, instances or a definition, which means to have one instance, at least none and at most ten.
#[must_use]
pub fn group(name: &str) -> FakeGroup {
    FakeGroup {
        name: name.to_owned(),
        sizes: [0, 1, 10],
        ..FakeGroup::default()
    }
}

/// An instance in service in `us-east-1a`, made from nothing that is known.
#[must_use]
pub fn member(id: &str) -> FakeMember {
    FakeMember {
        id: id.to_owned(),
        zone: "us-east-1a".to_owned(),
        state: "InService".to_owned(),
        instance_type: "m6i.large".to_owned(),
        configuration: None,
        template: None,
    }
}

impl FakeGroup {
    /// One more tag.
    #[must_use]
    pub fn tag(mut self, key: &str, value: &str) -> Self {
        self.tags.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Without this tag.
    #[must_use]
    pub fn without_tag(mut self, key: &str) -> Self {
        self.tags.remove(key);
        self
    }

    /// The tags that kOps gives the group of this cluster and `InstanceGroup`.
    #[must_use]
    pub fn kops(self, cluster: &str, instance_group: &str) -> Self {
        self.tag("KubernetesCluster", cluster)
            .tag("kops.k8s.io/instancegroup", instance_group)
    }

    /// The fewest, the desired number and the most of its instances.
    #[must_use]
    pub fn sizes(self, min: i32, desired: i32, max: i32) -> Self {
        Self {
            sizes: [min, desired, max],
            ..self
        }
    }

    /// The status: `Delete in progress`.
    #[must_use]
    pub fn status(self, status: &str) -> Self {
        Self {
            status: Some(status.to_owned()),
            ..self
        }
    }

    /// It makes its instances from this launch configuration.
    #[must_use]
    pub fn configuration(self, name: &str) -> Self {
        Self {
            configuration: Some(name.to_owned()),
            ..self
        }
    }

    /// It makes its instances from this launch template.
    #[must_use]
    pub fn template(self, id: &str, version: &str) -> Self {
        Self {
            template: Some(template(id, version)),
            ..self
        }
    }

    /// It has a mixed instances policy with this launch template.
    #[must_use]
    pub fn mixed(self, id: &str, version: &str) -> Self {
        Self {
            mixed: Some(template(id, version)),
            ..self
        }
    }

    /// Its policy has another launch template for this type.
    #[must_use]
    pub fn but_for(mut self, instance_type: &str, id: &str, version: &str) -> Self {
        self.overrides.push((instance_type.to_owned(), template(id, version)));
        self
    }

    /// Lists these too.
    #[must_use]
    pub fn with(mut self, members: impl IntoIterator<Item = FakeMember>) -> Self {
        self.members.extend(members);
        self
    }

    /// It has a warm pool with these.
    #[must_use]
    pub fn warm_pool(self, members: impl IntoIterator<Item = FakeMember>) -> Self {
        Self {
            pool: Some(members.into_iter().collect()),
            ..self
        }
    }

    /// Its instances, as it has launched them.
    pub(super) fn launched(&self) -> impl Iterator<Item = FakeInstance> {
        self.members.iter().chain(self.pool.iter().flatten()).map(|member| {
            let state = if member.state == "Warmed:Stopped" {
                "stopped"
            } else {
                "running"
            };
            let launched = instance(&member.id).zone(&member.zone).state(state);
            FakeInstance {
                tags: self.tags.clone(),
                ..launched
            }
        })
    }

    /// As an item of `AutoScalingGroups`, with some of the bulk that the answers have.
    pub(super) fn xml(&self) -> String {
        let mut xml = String::with_capacity(1024 + 512 * self.members.len());
        xml.push_str("<member>");
        element(&mut xml, "AutoScalingGroupName", &self.name);
        let [min, desired, max] = self.sizes;
        let _ = write!(
            xml,
            "<MinSize>{min}</MinSize><MaxSize>{max}</MaxSize><DesiredCapacity>{desired}</DesiredCapacity>"
        );
        xml.push_str(
            "<DefaultCooldown>300</DefaultCooldown><HealthCheckType>EC2</HealthCheckType>\
             <HealthCheckGracePeriod>0</HealthCheckGracePeriod><CreatedTime>2026-01-01T00:00:00.000Z</CreatedTime>",
        );
        if let Some(status) = &self.status {
            element(&mut xml, "Status", status);
        }
        if let Some(name) = &self.configuration {
            element(&mut xml, "LaunchConfigurationName", name);
        }
        if let Some(template) = &self.template {
            write_template(&mut xml, "LaunchTemplate", template);
        }
        if let Some(template) = &self.mixed {
            xml.push_str("<MixedInstancesPolicy><LaunchTemplate>");
            write_template(&mut xml, "LaunchTemplateSpecification", template);
            xml.push_str("<Overrides>");
            for (instance_type, template) in &self.overrides {
                xml.push_str("<member>");
                element(&mut xml, "InstanceType", instance_type);
                write_template(&mut xml, "LaunchTemplateSpecification", template);
                xml.push_str("</member>");
            }
            xml.push_str("</Overrides></LaunchTemplate></MixedInstancesPolicy>");
        }
        xml.push_str(&instances(&self.members));
        self.write_tags(&mut xml);
        if self.pool.is_some() {
            xml.push_str("<WarmPoolConfiguration><PoolState>Stopped</PoolState></WarmPoolConfiguration>");
        }
        xml.push_str("</member>");
        xml
    }

    fn write_tags(&self, xml: &mut String) {
        xml.push_str("<Tags>");
        for (key, value) in &self.tags {
            xml.push_str("<member>");
            element(xml, "Key", key);
            element(xml, "Value", value);
            element(xml, "ResourceId", &self.name);
            xml.push_str(
                "<ResourceType>auto-scaling-group</ResourceType><PropagateAtLaunch>true</PropagateAtLaunch></member>",
            );
        }
        xml.push_str("</Tags>");
    }
}

impl FakeMember {
    /// The zone.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        Self {
            zone: zone.to_owned(),
            ..self
        }
    }

    /// The lifecycle state: `Pending`, `Terminating:Wait`, `Warmed:Stopped`, …
    #[must_use]
    pub fn state(self, state: &str) -> Self {
        Self {
            state: state.to_owned(),
            ..self
        }
    }

    /// The type; `m6i.large` without it.
    #[must_use]
    pub fn instance_type(self, instance_type: &str) -> Self {
        Self {
            instance_type: instance_type.to_owned(),
            ..self
        }
    }

    /// It was made from this launch configuration.
    #[must_use]
    pub fn configuration(self, name: &str) -> Self {
        Self {
            configuration: Some(name.to_owned()),
            ..self
        }
    }

    /// It was made from this version of a launch template.
    #[must_use]
    pub fn template(self, id: &str, version: &str) -> Self {
        Self {
            template: Some(template(id, version)),
            ..self
        }
    }

    fn write(&self, xml: &mut String) {
        xml.push_str("<member>");
        element(xml, "InstanceId", &self.id);
        element(xml, "InstanceType", &self.instance_type);
        element(xml, "AvailabilityZone", &self.zone);
        xml.push_str("<HealthStatus>Healthy</HealthStatus>");
        element(xml, "LifecycleState", &self.state);
        if let Some(name) = &self.configuration {
            element(xml, "LaunchConfigurationName", name);
        }
        if let Some(template) = &self.template {
            write_template(xml, "LaunchTemplate", template);
        }
        xml.push_str("<ProtectedFromScaleIn>false</ProtectedFromScaleIn></member>");
    }
}

/// The element `Instances`.
pub(super) fn instances(members: &[FakeMember]) -> String {
    let mut xml = "<Instances>".to_owned();
    for member in members {
        member.write(&mut xml);
    }
    xml.push_str("</Instances>");
    xml
}

fn template(id: &str, version: &str) -> Template {
    (id.to_owned(), version.to_owned())
}

fn write_template(xml: &mut String, name: &str, (id, version): &Template) {
    let _ = write!(xml, "<{name}>");
    element(xml, "LaunchTemplateId", id);
    element(xml, "LaunchTemplateName", &format!("name-of-{id}"));
    if !version.is_empty() {
        element(xml, "Version", version);
    }
    let _ = write!(xml, "</{name}>");
}

fn element(xml: &mut String, name: &str, text: &str) {
    let _ = write!(xml, "<{name}>{}</{name}>", escaped(text));
}
