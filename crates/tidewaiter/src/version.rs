//! `tidewaiter version`: the versions of this program, of the cloud in which the user is logged in, of Kubernetes, and
//! of Tidewaiter's programs in the cluster. A part that does not answer is unknown, with the reason, and no failure.

use anyhow::Result;
use futures::join;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Client};
use serde::Serialize;
use tidewaiter_kit::Chain;

use crate::Failure;
use crate::cli::{ClusterFlags, ShowVersionArgs};
use crate::cloud::{run, server_version};
use crate::explain::output::{Table, print};
use crate::upgrade::reader;

/// The label of every program of Tidewaiter, whether Helm or the manifests installed it.
const PROGRAMS: &str = "app.kubernetes.io/name=tidewaiter";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Part>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Part>,
    programs: Vec<Program>,
}

/// A version, or the reason why it is not known.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Part {
    Version(String),
    Unknown(String),
}

impl Part {
    fn unknown(error: &anyhow::Error) -> Self {
        Self::Unknown(Chain(error.as_ref()).to_string())
    }
}

/// A program in the cluster.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Program {
    namespace: String,
    name: String,
    image: String,
}

/// Prints the versions.
pub(crate) fn main(args: &ShowVersionArgs) -> Result<(), Failure> {
    run(async {
        let mut versions = Versions {
            client: env!("CARGO_PKG_VERSION"),
            server: None,
            cluster: None,
            programs: Vec::new(),
        };
        if !args.client {
            let (server, cluster) = join!(server_version(args.cloud_context.as_deref()), cluster(&args.cluster));
            versions.server = Some(server.map_or_else(|error| Part::unknown(&error), Part::Version));
            versions.cluster = Some(match cluster {
                Ok((version, programs)) => {
                    versions.programs = programs;
                    Part::Version(version)
                }
                Err(error) => Part::unknown(&error),
            });
        }
        print(&args.output, &versions, || vec![table(&versions)])
    })
    .map_err(Failure::Running)
}

/// The version of Kubernetes, and the programs there, as far as the user may list them.
async fn cluster(flags: &ClusterFlags) -> Result<(String, Vec<Program>)> {
    let (client, _) = reader(flags).await?;
    let version = client.apiserver_version().await?.git_version;
    Ok((version, programs(client).await.unwrap_or_default()))
}

async fn programs(client: Client) -> kube::Result<Vec<Program>> {
    let labelled = ListParams::default().labels(PROGRAMS);
    let deployments = Api::<Deployment>::all(client.clone()).list(&labelled).await?;
    let daemon_sets = Api::<DaemonSet>::all(client).list(&labelled).await?;
    let deployments = deployments.items.into_iter();
    let deployments = deployments.map(|found| (found.metadata, found.spec.template));
    let daemon_sets = daemon_sets.items.into_iter();
    let daemon_sets = daemon_sets.map(|found| (found.metadata, found.spec.template));
    Ok(deployments.chain(daemon_sets).flat_map(images).collect())
}

fn images((metadata, template): (ObjectMeta, PodTemplateSpec)) -> Vec<Program> {
    let containers = template.spec.map(|spec| spec.containers).unwrap_or_default();
    let program = |image| Program {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        image,
    };
    let images = containers.into_iter().filter_map(|container| container.image);
    images.map(program).collect()
}

fn table(versions: &Versions) -> Table {
    let mut table = Table::new("", &["PART", "VERSION"]);
    table.row(["client", versions.client]);
    for (name, part) in [("server", &versions.server), ("cluster", &versions.cluster)] {
        match part {
            Some(Part::Version(version)) => table.row([name, version]),
            Some(Part::Unknown(why)) => table.row([name, &format!("unknown: {why}")]),
            None => {}
        }
    }
    for program in &versions.programs {
        table.row([&format!("{}/{}", program.namespace, program.name), &program.image]);
    }
    table
}
