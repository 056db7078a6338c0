//! `tidewaiter cloud attach`: the manifests of a coordinator that mirrors one cluster of the cloud, for kubectl.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tidewaiter_api::Role;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_cloud::client::{BaseUrl, Method, Request};
use tidewaiter_cloud::models::Kind;

use super::output::{print, yaml};
use super::session::{Session, request, text};
use crate::cli::AttachArgs;

/// The manifests of `deploy/coordinator`, with the values of an example.
const DEPLOYMENT: &str = include_str!("../../../../deploy/coordinator/deployment.yaml");
const RBAC: &str = include_str!("../../../../deploy/coordinator/rbac.yaml");
const ADMISSION: &str = include_str!("../../../../deploy/coordinator/admission.yaml");
const PLUGINS: &str = include_str!("../../../../deploy/coordinator/plugins/rbac.yaml");

/// The example's values. That of the URL begins the settings of the cloud.
const IMAGE: &str = concat!("image: registry.invalid/tidewaiter:", env!("CARGO_PKG_VERSION"));
const URL: &str = "apiBaseUrl: https://cloud.example.com\n";
const CLUSTER: &str = "clusterId: 00000000-0000-4000-8000-000000000000";
const ORGANIZATION: &str = "organizationId: 00000000-0000-4000-8000-000000000000";

/// Creates the cluster, or an API key if it exists, and prints the manifests with it.
pub(super) async fn attach(args: &AttachArgs) -> Result<()> {
    if io::stdout().is_terminal() {
        bail!(
            "the manifests contain the API key of the cluster: pipe them into kubectl apply --server-side -f -, or into a file that only you can read"
        );
    }
    let session = Session::open(&args.place)?;
    let login = session.login();
    let url = match &args.url {
        Some(url) => url.clone(),
        None => cluster_url(&login.server)?,
    };
    let ca = login.ca_file.as_ref().map(fs::read_to_string).transpose();
    let ca = ca.context("the certificates of the context")?;
    let clusters = session.organization()?.below("clusters");
    let (id, created) = if let Some(id) = session.find(Kind::Cluster, &clusters, &args.cluster).await? {
        let keys = clusters.below(&id).below("api-keys");
        (id, session.send(&Request::new(Method::POST, keys)).await?)
    } else {
        let created = session
            .send(&request(Method::POST, clusters, json!({ "name": args.cluster }), None))
            .await?;
        (text(&created, "id").to_owned(), created)
    };
    let _ = writeln!(
        io::stderr(),
        "a new API key for the cluster {} ({id}); without the Secret below, delete the key: tidewaiter cloud api-keys list --cluster {id}",
        args.cluster
    );
    for crd in Role::Coordinator.crds() {
        print(&format!("---\n{}", yaml(&json!(crd))?))?;
    }
    let deployment = deployment(&args.image, &url, session.organization_id()?, &id, ca.is_some());
    let secret = yaml(&secret(text(&created, "api_key"), ca))?;
    let plugins = args.plugins.then_some(PLUGINS);
    let mut parts = [&deployment, RBAC, ADMISSION]
        .into_iter()
        .chain(plugins)
        .chain([&*secret]);
    parts.try_for_each(|part| print(&format!("---\n{part}")))
}

/// The address of the context, if pods can reach it.
fn cluster_url(server: &str) -> Result<BaseUrl> {
    let url: BaseUrl = server.parse().context("the server of the context")?;
    if url.is_loopback() {
        bail!("{url} is this machine, which pods cannot reach: name the cloud's address in the cluster with --url");
    }
    Ok(url)
}

/// The manifest of the Deployment and its settings. Every value is quoted as JSON, which YAML reads.
fn deployment(image: &str, url: &BaseUrl, organization: &str, cluster: &str, has_ca: bool) -> String {
    let quoted = |key: &str, value: &str| format!("{key}: {}", Value::from(value));
    let ca = if has_ca {
        "      caFile: /etc/tidewaiter/cloud/ca.crt\n"
    } else {
        ""
    };
    DEPLOYMENT
        .replace(IMAGE, &quoted("image", image))
        .replace(URL, &format!("{}\n{ca}", quoted("apiBaseUrl", &url.to_string())))
        .replace(CLUSTER, &quoted("clusterId", cluster))
        .replace(ORGANIZATION, &quoted("organizationId", organization))
}

/// The Secret for which the pods wait.
fn secret(key: &str, ca: Option<String>) -> Value {
    let mut data = json!({ "api-key": key });
    if let Some(ca) = ca {
        data["ca.crt"] = ca.into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tidewaiter-coordinator-cloud", "namespace": CONTAINERSHIP_NAMESPACE},
        "stringData": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deployment_has_the_values_and_none_of_the_example() {
        let url = "https://cloud.test".parse().unwrap();
        for has_ca in [false, true] {
            let made = deployment("registry.test/tw:1", &url, "o", "c", has_ca);
            for wanted in [
                "          image: \"registry.test/tw:1\"\n",
                "      apiBaseUrl: \"https://cloud.test\"\n",
                "      clusterId: \"c\"\n",
                "      organizationId: \"o\"\n",
            ] {
                assert!(made.contains(wanted), "{wanted} in {made}");
            }
            assert!(!made.contains("0000") && !made.contains("registry.invalid") && !made.contains("example.com"));
            assert_eq!(made.contains("      caFile: /etc/tidewaiter/cloud/ca.crt\n"), has_ca);
        }
    }
}
