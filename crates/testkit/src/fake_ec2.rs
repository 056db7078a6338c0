//! An EC2 of our own, for scale and for faults: `DescribeInstances` and `DescribeLaunchTemplates` of the EC2 Query API
//! over plain HTTP, so that it is reached through the real SDK. On the same port are the Query API of Auto Scaling
//! (`DescribeAutoScalingGroups`, `DescribeWarmPool`) and the instance metadata service (version 2, the region only).
//!
//! It words its answers as EC2 does: an id that it does not know fails the whole call and is named; a filter leaves out
//! what it does not know; a zone in trouble fails every call that names one of its instances, or that names none by id.
//! It checks that requests are signed, not the key of the signature.

mod answer;
mod group;
mod instance;
mod parameters;
mod protocol;

use std::collections::BTreeMap;

pub use answer::{groups, instances, page};
pub use group::{FakeGroup, FakeMember, group, member};
pub use instance::{FakeInstance, instance};

use crate::fake_cloud::FakeCloud;
use instance::Listed;

/// The region that it says it is.
pub const REGION: &str = "us-east-1";

/// An EC2. Its calls name instances by id, with the filter `instance-id` when they name them by it, launch templates by
/// id, and the group of a warm pool.
pub type FakeEc2 = FakeCloud<Ec2>;

/// The contents of EC2.
#[derive(Debug)]
pub struct Ec2 {
    instances: BTreeMap<String, Listed>,
    groups: BTreeMap<String, FakeGroup>,
    /// The default and the newest version, by id.
    launch_templates: BTreeMap<String, (i64, i64)>,
    metadata_region: String,
}

impl Default for Ec2 {
    fn default() -> Self {
        Self {
            instances: BTreeMap::new(),
            groups: BTreeMap::new(),
            launch_templates: BTreeMap::new(),
            metadata_region: REGION.to_owned(),
        }
    }
}

impl FakeEc2 {
    /// Returns the environment with which a process reaches it through the SDK.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_EC2", self.endpoint()),
            ("AWS_ENDPOINT_URL_AUTO_SCALING", self.endpoint()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIDFAKE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "fake-secret".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// Lists these from now on, each in place of the one with its id.
    pub fn launch(&self, instances: impl IntoIterator<Item = FakeInstance>) {
        let listed = instances
            .into_iter()
            .map(|instance| (instance.id.clone(), Listed::new(instance)));
        self.change_cloud(|ec2| ec2.instances.extend(listed));
    }

    /// Changes the instance `id`, which has to be listed.
    pub fn change(&self, id: &str, change: impl FnOnce(FakeInstance) -> FakeInstance) {
        self.change_cloud(|ec2| {
            let listed = ec2.instances.get_mut(id);
            let listed = listed.unwrap_or_else(|| panic!("no instance {id} to change"));
            *listed = Listed::new(change(listed.instance.clone()));
        });
    }

    /// Lists the instance `id` no more, as EC2 does about an hour after an instance has terminated.
    pub fn forget(&self, id: &str) {
        self.change_cloud(|ec2| {
            ec2.instances.remove(id);
        });
    }

    /// Has these Auto Scaling groups from now on, each in place of the one of its name, and launches those of their
    /// instances that are not listed: with the tags of the group, in the state that their lifecycle means.
    pub fn groups(&self, groups: impl IntoIterator<Item = FakeGroup>) {
        self.change_cloud(|ec2| {
            for group in groups {
                for instance in group.launched() {
                    let listed = ec2.instances.entry(instance.id.clone());
                    listed.or_insert_with(|| Listed::new(instance));
                }
                ec2.groups.insert(group.name.clone(), group);
            }
        });
    }

    /// Has the Auto Scaling group no more.
    pub fn forget_group(&self, name: &str) {
        self.change_cloud(|ec2| {
            ec2.groups.remove(name);
        });
    }

    /// Has a launch template with this default and this newest version.
    pub fn launch_template(&self, id: &str, default: i64, latest: i64) {
        self.change_cloud(|ec2| {
            ec2.launch_templates.insert(id.to_owned(), (default, latest));
        });
    }

    /// Sets the region in its instance metadata service.
    pub fn metadata_region(&self, region: &str) {
        self.change_cloud(|ec2| region.clone_into(&mut ec2.metadata_region));
    }
}
