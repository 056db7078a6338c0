//! `tidewaiter cloud attach`: the manifests of a coordinator that mirrors one cluster of the cloud, for kubectl.

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tidewaiter_api::Role;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_cloud::client::{BaseUrl, ClientError, Method, Request};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::{Clock as _, SystemClock};
use tidewaiter_signature::sha256;

use super::output::{note, yaml};
use super::session::{Session, request, text};
use crate::cli::AttachArgs;
use crate::write_stdout;

/// The manifests of `deploy/coordinator`, with the values of an example.
const DEPLOYMENT: &str = include_str!("../../../../deploy/coordinator/deployment.yaml");
const RBAC: &str = include_str!("../../../../deploy/coordinator/rbac.yaml");
const ADMISSION: &str = include_str!("../../../../deploy/coordinator/admission.yaml");
const PLUGINS: &str = include_str!("../../../../deploy/coordinator/plugins/rbac.yaml");
const PLUGINS_BINDING: &str = "tidewaiter-coordinator-plugins";

/// The example's values. That of the URL begins the settings of the cloud.
const IMAGE: &str = concat!("image: registry.invalid/tidewaiter:", env!("CARGO_PKG_VERSION"));
const URL: &str = "apiBaseUrl: https://cloud.example.com\n";
const CLUSTER: &str = "clusterId: 00000000-0000-4000-8000-000000000000";
const ORGANIZATION: &str = "organizationId: 00000000-0000-4000-8000-000000000000";

/// The beginning of the pod template. Pods read their settings once, and a changed annotation here starts new ones.
const TEMPLATE: &str = "  template:\n    metadata:\n";

/// The most bytes of certificates: a Secret holds 1 MiB, with the key.
const MAX_CA_BYTES: usize = 1024 * 1024 - 1024;

const CERTIFICATE: (&str, &str) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");

/// Creates the cluster, or an API key if it exists, and prints the manifests with it.
pub(super) async fn attach(args: &AttachArgs) -> Result<()> {
    if io::stdout().is_terminal() {
        bail!(
            "the manifests contain the API key of the cluster: pipe them into kubectl apply --server-side -f -, or into a file that only you can read"
        );
    }
    let session = Session::open(&args.place)?;
    let login = session.login();
    let context = || login.server.parse().context("the server of the context");
    let url = usable(args.url.clone().map_or_else(context, Ok)?)?;
    let ca = login.ca_file.as_deref().map(certificates).transpose()?;
    let (id, key) = cluster_and_key(&session, args).await?;
    let crds = Role::Coordinator.crds();
    let mut parts = crds.iter().map(|crd| yaml(&json!(crd))).collect::<Result<Vec<_>>>()?;
    parts.push(deployment(
        &args.image,
        &url,
        session.organization_id()?,
        &id,
        ca.as_deref(),
    ));
    let plugins = args.plugins.then_some(PLUGINS);
    parts.extend([RBAC, ADMISSION].into_iter().chain(plugins).map(str::to_owned));
    parts.push(yaml(&secret(&key, ca))?);
    // A reader that ended, which elsewhere is no failure, has not applied them.
    write_stdout(&parts.join("---\n"))
}

/// Returns the id of the cluster, which is created if it does not exist, and a new API key of it.
async fn cluster_and_key(session: &Session, args: &AttachArgs) -> Result<(String, String)> {
    let clusters = session.organization()?.below("clusters");
    let name = &args.cluster;
    let Some(id) = session.find(Kind::Cluster, &clusters, name).await? else {
        let body = json!({ "name": name });
        let sent = session.send(&request(Method::POST, clusters, body, None)).await;
        let (id, key) = created(sent, || {
            format!(
                "the cluster {name} may exist now: run this again to use it, or take it back with its key: tidewaiter cloud get clusters shows its id for tidewaiter cloud delete cluster ID"
            )
        })?;
        note(&format!(
            "created the cluster {name} ({id}); if these manifests are not applied: tidewaiter cloud delete cluster {id}"
        ));
        return Ok((id, key));
    };
    let since = SystemClock.now();
    let keys = clusters.below(&id).below("api-keys");
    let sent = session.send(&Request::new(Method::POST, keys)).await;
    let (key_id, key) = created(sent, || {
        format!(
            "the cluster {name} ({id}) may have one more API key, created at {since:.0} or later: tidewaiter cloud api-keys list --cluster {id} shows its id for tidewaiter cloud api-keys delete KEY --cluster {id}"
        )
    })?;
    note(&format!(
        "the cluster {name} ({id}) exists, and has one more API key; if these manifests are not applied: tidewaiter cloud api-keys delete {key_id} --cluster {id}"
    ));
    if !args.plugins {
        note(&format!(
            "if plugins were permitted before (--plugins), they still are; to end that: kubectl delete clusterrolebinding {PLUGINS_BINDING}"
        ));
    }
    Ok((id, key))
}

/// Returns the id and the API key in the response. Without a usable one, the error says what may exist, unless the
/// cloud refused the request.
fn created(sent: Result<Value>, may_exist: impl FnOnce() -> String) -> Result<(String, String)> {
    let usable = sent.and_then(|made| match (text(&made, "id"), text(&made, "api_key")) {
        ("", _) | (_, "") => Err(anyhow!("the response of the cloud has no key")),
        (id, key) => Ok((id.to_owned(), key.to_owned())),
    });
    usable.map_err(|error| match error.downcast_ref() {
        Some(ClientError::Refused { .. } | ClientError::NotOurs { .. } | ClientError::Rejected { .. }) => error,
        _ => error.context(may_exist()),
    })
}

/// The URL, if the coordinator can use it in a pod.
fn usable(url: BaseUrl) -> Result<BaseUrl> {
    if url.is_loopback() {
        bail!("{url} is this machine, which pods cannot reach: name the cloud's address for the cluster with --url");
    }
    if url.is_plain() {
        bail!("{url} is plain HTTP, which exposes the API key: name an https address of the cloud with --url");
    }
    Ok(url)
}

/// The certificates of a file, which may also have a private key.
fn certificates(path: &Path) -> Result<String> {
    let failed = || format!("the certificates of the context in {}", path.display());
    let read = fs::read(path).with_context(failed)?;
    certificates_of(&String::from_utf8_lossy(&read)).with_context(failed)
}

fn certificates_of(text: &str) -> Result<String> {
    let (begin, end) = CERTIFICATE;
    let bodies = text.split(begin).skip(1).filter_map(|block| block.split_once(end));
    let certificates: String = bodies.flat_map(|(body, _)| [begin, body, end, "\n"]).collect();
    match certificates.len() {
        0 => bail!("the file has no certificate in PEM"),
        1..=MAX_CA_BYTES => Ok(certificates),
        bytes => bail!(
            "the certificates have {} KiB, and a Secret holds 1024 KiB: log in with a file of the cloud's authority alone: tidewaiter cloud login --ca-file FILE",
            bytes.div_ceil(1024)
        ),
    }
}

/// The manifest of the Deployment and its settings. Every value is quoted as JSON, which YAML reads.
fn deployment(image: &str, url: &BaseUrl, organization: &str, cluster: &str, ca: Option<&str>) -> String {
    let quoted = |key: &str, value: &str| format!("{key}: {}", Value::from(value));
    let url = url.to_string();
    let digest = ca.map_or_else(String::new, |ca| format!(" {}", sha256(ca.as_bytes())));
    let ca = ca.map_or("", |_| "      caFile: /etc/tidewaiter/cloud/ca.crt\n");
    let attached = format!("{url} {organization} {cluster}{digest}");
    let attached = quoted("tidewaiter.dev/attached", &attached);
    // The comment at the beginning is for people who fill it in.
    let filled = DEPLOYMENT
        .find("apiVersion:")
        .map_or(DEPLOYMENT, |begin| &DEPLOYMENT[begin..]);
    filled
        .replace(IMAGE, &quoted("image", image))
        .replace(URL, &format!("{}\n{ca}", quoted("apiBaseUrl", &url)))
        .replace(CLUSTER, &quoted("clusterId", cluster))
        .replace(ORGANIZATION, &quoted("organizationId", organization))
        .replacen(
            TEMPLATE,
            &format!("{TEMPLATE}      annotations:\n        {attached}\n"),
            1,
        )
}

/// The Secret for which the pods wait. In `data`, another owner's key is a conflict for kubectl, and is not replaced.
fn secret(key: &str, ca: Option<String>) -> Value {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let mut data = json!({ "api-key": bytes(key) });
    if let Some(ca) = ca {
        data["ca.crt"] = json!(bytes(&ca));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tidewaiter-coordinator-cloud", "namespace": CONTAINERSHIP_NAMESPACE},
        "data": data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deployment_has_the_values_and_none_of_the_example() {
        let url = "https://cloud.test".parse().unwrap();
        let mut annotations = Vec::new();
        for ca in [None, Some("a"), Some("b")] {
            let made = deployment("registry.test/tw:1", &url, "o", "c", ca);
            for wanted in [
                "          image: \"registry.test/tw:1\"\n",
                "      apiBaseUrl: \"https://cloud.test\"\n",
                "      clusterId: \"c\"\n",
                "      organizationId: \"o\"\n",
            ] {
                assert!(made.contains(wanted), "{wanted} in {made}");
            }
            let annotation =
                "    metadata:\n      annotations:\n        tidewaiter.dev/attached: \"https://cloud.test o c";
            assert!(made.starts_with("apiVersion: v1\nkind: Namespace\n"), "{made}");
            let (_, annotation) = made.split_once(annotation).unwrap();
            let (rest, after) = annotation.split_once("\"\n").unwrap();
            assert!(after.starts_with("      labels:\n"), "{made}");
            annotations.push(rest.to_owned());
            assert!(!made.contains("00000000-") && !made.contains("registry.invalid") && !made.contains("example.com"));
            let is_used = made.contains("      caFile: /etc/tidewaiter/cloud/ca.crt\n");
            assert_eq!(is_used, ca.is_some());
        }
        assert_eq!(annotations[0], "");
        assert_ne!(annotations[1], annotations[2], "other certificates start other pods");
    }

    #[test]
    fn the_note_names_the_binding_for_plugins() {
        let name = format!("kind: ClusterRoleBinding\nmetadata:\n  name: {PLUGINS_BINDING}\n");
        assert!(PLUGINS.contains(&name), "{PLUGINS}");
    }

    #[test]
    fn of_a_file_with_more_only_the_certificates_reach_the_cluster() {
        let certificate = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        let (one, two) = (certificate("YQ=="), certificate("Yg=="));
        let file =
            format!("Issuer: a\n{one}-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n{two}# end");
        assert_eq!(certificates_of(&file).unwrap(), format!("{one}{two}"));
        let key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        let error = certificates_of(key).unwrap_err().to_string();
        assert!(error.contains("no certificate"), "{error}");
    }

    #[test]
    fn what_no_secret_holds_is_refused_before_a_key_is_made() {
        let bundle = |bytes: usize| {
            let (begin, end) = CERTIFICATE;
            format!("{begin}{}{end}\n", "A".repeat(bytes - begin.len() - end.len() - 1))
        };
        assert!(certificates_of(&bundle(MAX_CA_BYTES)).is_ok());
        let error = certificates_of(&bundle(MAX_CA_BYTES + 1)).unwrap_err().to_string();
        assert!(error.contains("1024 KiB") && error.contains("--ca-file"), "{error}");
    }

    #[test]
    fn a_pod_can_use_the_address() {
        for (address, expected) in [
            ("https://cloud.test", true),
            ("https://10.0.0.1:3990", true),
            ("http://cloud.test", false),
            ("https://localhost:3990", false),
            ("https://[::1]", false),
        ] {
            assert_eq!(usable(address.parse().unwrap()).is_ok(), expected, "{address}");
        }
    }
}
