//! A cluster on Compute Engine: the same controller, with a file in which kOps names the other cloud.

use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::Kubelet;
use tidewaiter_testkit::builders::{controller_config, node};
use tidewaiter_testkit::fake_gce::{FakeGce, FakeGroup, FakeInstance, FakeTemplate, instance, template, zonal_group};

use crate::world::{CLUSTER, Controller, Labels, World};

const ZONE: &str = "us-central1-a";

/// A project with a group of workers and the control plane's.
struct Project {
    gce: FakeGce,
    workers: Group,
    masters: Group,
}

struct Group {
    template: FakeTemplate,
    manager: FakeGroup,
}

impl Group {
    fn new(name: &str) -> Self {
        Self {
            template: template(&format!("{name}-template")).kops(CLUSTER, name),
            manager: zonal_group(ZONE, &format!("{name}-mig")),
        }
    }

    fn member(&mut self, name: &str, number: u8) -> FakeInstance {
        let member = instance(ZONE, name)
            .id(number.into())
            .ip(&format!("10.0.0.{number}"))
            .kops(CLUSTER, &self.manager);
        self.manager = self.manager.clone().lists(&member, &self.template);
        member
    }
}

impl Project {
    async fn start() -> Self {
        let (workers, masters) = (Group::new("nodes"), Group::new("masters"));
        Self {
            gce: FakeGce::start().await,
            workers,
            masters,
        }
    }

    fn launch(&self, instances: impl IntoIterator<Item = FakeInstance>) {
        let groups = [&self.workers, &self.masters];
        self.gce.templates(groups.map(|group| group.template.clone()));
        self.gce.groups(groups.map(|group| group.manager.clone()));
        self.gce.launch(instances);
    }

    /// Project and credentials come from the metadata server, as on a machine of that cloud.
    async fn controller(&self, world: &World) -> Controller {
        let config = controller_config(CLUSTER, &world.store.url())
            .set(&["cloud"], "gce")
            .without(&["server", "provider"]);
        let endpoint = self.gce.endpoint();
        let told = self.gce.environment();
        let told = told.iter().map(|(key, value)| (*key, value.as_str()));
        let environment: Vec<_> = told.chain([("TIDEWAITER_GCE_ENDPOINT", endpoint.as_str())]).collect();
        world.controller_from(&config.to_json(), &environment).await
    }
}

async fn register(world: &World, name: &str, instance: &FakeInstance) -> Kubelet {
    let node = node(name)
        .provider_id(&instance.provider_id())
        .internal_ip(instance.address());
    Kubelet::register(&world.cluster, &node.build()).await
}

#[tokio::test]
async fn nodes_get_the_labels_of_the_group_that_their_instance_template_names() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    world.group_as("masters", "Master", &[("vault", "open")]);
    let mut project = Project::start().await;
    let worker = project.workers.member("nodes-abcd", 5);
    let thief = project.workers.member("nodes-evil", 6);
    let master = project.masters.member("masters-abcd", 2);
    // What the instance itself can write says that it is the control plane's.
    let thief = thief.metadata(
        "created-by",
        &format!("projects/our-project/{}", project.masters.manager.path()),
    );
    project.launch([worker.clone(), thief.clone(), master.clone()]);
    let controller = project.controller(&world).await;

    register(&world, worker.node_name(), &worker).await;
    register(&world, master.node_name(), &master).await;
    let of_worker = [
        ("kops.k8s.io/instancegroup", "nodes"),
        ("node-role.kubernetes.io/node", ""),
        ("team", "red"),
    ];
    world.is_verified(worker.node_name(), True, "Proven").await;
    world.has_labels(worker.node_name(), &of_worker).await;
    let words = "instance us-central1-a/masters-abcd of group masters";
    world.says(master.node_name(), "Verified", True, "Proven", words).await;
    assert_eq!(world.labels(master.node_name()).await["vault"], "open");

    // It is in no group that its own words name, and another machine's credentials do not make it that machine.
    register(&world, thief.node_name(), &thief).await;
    world.is_verified(thief.node_name(), False, "NotInGroup").await;
    register(&world, "nodes-liar", &master).await;
    world.is_verified("nodes-liar", False, "NameMismatch").await;
    controller.counts_refusal("NameMismatch", true).await;
    for name in [thief.node_name(), "nodes-liar"] {
        assert_eq!(world.labels(name).await, Labels::new(), "{name}");
    }
}
