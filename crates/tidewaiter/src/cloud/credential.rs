//! `tidewaiter credential`: a plugin of kubectl that gives it a token for one cluster.
//!
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use tidewaiter_cloud::client::Method;
use tidewaiter_kit::settings::environment;

use super::session::{Session, request, text};
use crate::cli::CredentialArgs;

const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// Prints the token in the form that kubectl reads.
pub(super) async fn print(args: &CredentialArgs) -> Result<()> {
    let version = wanted_version(&environment())?;
    let session = Session::open(&args.place)?;
    let path = session.cluster(None).await?.below("token");
    let answer = session.send(&request(Method::POST, path, json!({}), None)).await?;
    let (token, expires) = (text(&answer, "token"), text(&answer, "expires_at"));
    if token.is_empty() {
        bail!("the response of the cloud contains no token");
    }
    let credential = json!({
        "apiVersion": version,
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": expires},
    });
    super::output::print(&format!("{credential}\n"))
}

/// The API version that kubectl requests.
fn wanted_version(environment: &[(String, String)]) -> Result<&'static str> {
    let Some((_, info)) = environment.iter().find(|(name, _)| name == "KUBERNETES_EXEC_INFO") else {
        return Ok(VERSIONS[0]);
    };
    let info: Value = serde_json::from_str(info).map_err(|_| anyhow!("KUBERNETES_EXEC_INFO is not JSON"))?;
    let asked = text(&info, "apiVersion");
    let known = VERSIONS.into_iter().find(|version| *version == asked);
    known.ok_or_else(|| {
        anyhow!(
            "KUBERNETES_EXEC_INFO requests the version {asked:?}; set apiVersion in the kubeconfig to {}",
            VERSIONS[0]
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_gets_the_version_that_it_asks_for() {
        let asked = |info: &str| wanted_version(&[("KUBERNETES_EXEC_INFO".to_owned(), info.to_owned())]);
        assert_eq!(wanted_version(&[]).unwrap(), VERSIONS[0]);
        for version in VERSIONS {
            assert_eq!(asked(&format!(r#"{{"apiVersion":"{version}"}}"#)).unwrap(), version);
        }
        for info in ["", "{}", r#"{"apiVersion":"client.authentication.k8s.io/v1alpha1"}"#] {
            assert!(asked(info).is_err(), "{info}");
        }
    }
}
