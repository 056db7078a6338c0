//! A cluster on Compute Engine.

use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::fake_gce::{FakeGce, FakeGroup, FakeInstance, FakeTemplate, instance, template, zonal_group};

use super::{Machine, Machines, controller, nodes_get_what_the_cloud_vouches_for, world};
use crate::world::{CLUSTER, Labels};

const ZONE: &str = "us-central1-a";

/// A managed instance group of one zone, and the template of its members.
pub struct Group {
    template: FakeTemplate,
    manager: FakeGroup,
}

impl Group {
    pub fn new(name: &str) -> Self {
        Self {
            template: template(&format!("{name}-template")).kops(CLUSTER, name),
            manager: zonal_group(ZONE, &format!("{name}-mig")),
        }
    }

    /// One more instance.
    pub fn member(&mut self, name: &str, number: u8) -> FakeInstance {
        let member = instance(ZONE, name)
            .id(number.into())
            .ip(&format!("10.0.0.{number}"))
            .kops(CLUSTER, &self.manager);
        self.manager = self.manager.clone().lists(&member, &self.template);
        member
    }

    /// The cloud has it from now on.
    pub fn exists_in(self, gce: &FakeGce) {
        gce.templates([self.template]);
        gce.groups([self.manager]);
    }
}

/// Project and credentials come from the metadata server, as on a machine of that cloud.
pub fn environment(gce: &FakeGce) -> Vec<(&'static str, String)> {
    let mut environment = gce.environment();
    environment.push(("TIDEWAITER_GCE_ENDPOINT", gce.endpoint()));
    environment
}

impl From<&FakeInstance> for Machine {
    fn from(instance: &FakeInstance) -> Self {
        Self {
            node: instance.node_name().to_owned(),
            provider_id: instance.provider_id(),
            address: instance.address().to_owned(),
            instance: instance.key(),
        }
    }
}

/// A worker, a master, and a worker whose metadata says that it is the control plane's.
pub async fn launch() -> (FakeGce, Machines) {
    let gce = FakeGce::start().await;
    let (mut workers, mut masters) = (Group::new("nodes"), Group::new("masters"));
    let worker = workers.member("nodes-abcd", 5);
    let thief = workers.member("nodes-evil", 6);
    let master = masters.member("masters-abcd", 2);
    let creator = format!("projects/our-project/{}", masters.manager.path());
    let thief = thief.metadata("created-by", &creator);
    let machines = Machines {
        worker: Machine::from(&worker),
        master: Machine::from(&master),
        thief: Machine::from(&thief),
    };
    gce.launch([worker, master, thief]);
    for group in [workers, masters] {
        group.exists_in(&gce);
    }
    (gce, machines)
}

#[tokio::test]
async fn nodes_get_the_labels_of_the_group_that_their_instance_template_names() {
    let world = world().await;
    let (gce, machines) = launch().await;
    let controller = controller(&world, "gce", &environment(&gce)).await;
    nodes_get_what_the_cloud_vouches_for(&world, &controller, &machines).await;
}

#[tokio::test]
async fn what_names_another_project_is_told_and_never_asked_about() {
    let world = world().await;
    let gce = FakeGce::start().await;
    let mut workers = Group::new("nodes");
    let lured = workers.member("nodes-lured", 7);
    let elsewhere = format!("projects/other-project/{}", workers.manager.path());
    let honest = workers.member("nodes-honest", 8);
    let machine = Machine::from(&lured);
    let known = Machine::from(&honest);
    gce.launch([lured.metadata("created-by", &elsewhere), honest]);
    workers.exists_in(&gce);
    let controller = controller(&world, "gce", &environment(&gce)).await;
    // No Node counts as forged before an instance of the cluster was found in our project.
    let stranger = Machine {
        provider_id: "gce://other-project/us-central1-a/nodes-other".to_owned(),
        ..machine.clone()
    };
    stranger.registers_as(&world, "nodes-stranger").await;
    let setting = "the setting project is our-project";
    world
        .says("nodes-stranger", "Verified", False, "ProjectMismatch", setting)
        .await;
    assert_eq!(controller.metric("tidewaiter_nodes{state=\"forged\"}").await, 0.0);
    known.registers_as(&world, &known.node).await;
    world.is_verified(&known.node, True, "Proven").await;
    world.is_verified("nodes-stranger", False, "ForeignProject").await;
    gce.clear_calls();

    machine.registers_as(&world, &machine.node).await;
    let words = "other-project";
    world
        .says(&machine.node, "Verified", False, "ForeignProject", words)
        .await;
    world.tells(&machine.node, "ForeignProject", words).await;
    asked_only_about(&gce, "/nodes-lured");

    let (other, junk) = ("gce://other-project/us-central1-a/nodes-lured", "x".repeat(10 * 1024));
    for (name, provider_id, reason) in [
        ("nodes-other", other, "ForeignProject"),
        ("nodes-junk", &junk, "InvalidProviderId"),
        (
            "nodes-aws",
            "aws:///us-east-1a/i-0123456789abcdef0",
            "InvalidProviderId",
        ),
    ] {
        let claims = Machine {
            provider_id: provider_id.to_owned(),
            ..machine.clone()
        };
        claims.registers_as(&world, name).await;
        world.is_verified(name, False, reason).await;
        world.tells(name, reason, "").await;
        assert_eq!(world.labels(name).await, Labels::new(), "{name}");
    }
    asked_only_about(&gce, "/nodes-lured");
    controller.counts_refusal("ForeignProject", true).await;
    controller.has_not_panicked();
}

/// Since it was asked last, the cloud was called for this instance of our project, and for nothing else.
fn asked_only_about(gce: &FakeGce, instance: &str) {
    // The verdict on the cluster asks for our project's groups, which no instance names.
    let of_the_verdict =
        |api: &str| api.ends_with("List") || api.ends_with(".listManagedInstances") || api == "instanceTemplates.get";
    for call in gce.take_calls() {
        if of_the_verdict(call.api) && call.outcome == "ok" {
            continue;
        }
        let of_it = call.api == "instances.get"
            && call.names.iter().all(|name| name.ends_with(instance))
            && call.outcome == "ok";
        assert!(of_it, "{call:?}");
    }
}
