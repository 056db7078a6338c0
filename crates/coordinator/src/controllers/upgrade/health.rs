//! The health of the cluster, as far as Nodes do not show it: what each `ClusterHealth` says, and whether etcd answers
//! the API server.
//!
//! It is read when an upgrade requires it, and not watched: a cluster may have no `ClusterHealth`, and the check of
//! etcd cannot be watched.

use kube::{Api, Client};
use tidewaiter_api::ClusterHealth;
use tidewaiter_api::cluster_health::HEALTHY;
use tidewaiter_api::{Condition, ConditionStatus};
use tidewaiter_kit::Guarded;
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::client::optional;
use tidewaiter_upgrade::Health;

/// Every check of the API server, one a line: `[+]etcd ok`, `[-]etcd failed: reason withheld`. Anyone who is
/// authenticated may read it by default.
const CHECKS: &str = "/readyz?verbose";

/// Reads it.
///
/// # Errors
/// The API server does not answer, or does not permit it.
pub async fn read(client: &Client) -> kube::Result<Health> {
    Ok(Health {
        unhealthy: unhealthy(client).await?,
        etcd_failed: etcd_failed(client).await?,
        is_unknown: false,
    })
}

/// The message of the first `ClusterHealth` that is not Healthy. Without its definition, there is none.
async fn unhealthy(client: &Client) -> kube::Result<Option<String>> {
    let listed = list_all(&Api::<Guarded<ClusterHealth>>::all(client.clone())).await;
    let Some((all, undecodable)) = optional(listed)? else {
        return Ok(None);
    };
    let named = |name: Option<String>| name.unwrap_or_default();
    let undecodable = undecodable.into_iter().next();
    let undecodable = undecodable.map(|bad| format!("the ClusterHealth {} cannot be read", named(bad.metadata.name)));
    let mut said = all.into_iter().filter_map(|health| {
        let conditions = health.status.map(|status| status.conditions).unwrap_or_default();
        let name = named(health.metadata.name);
        match conditions.iter().find(|condition| condition.type_ == HEALTHY) {
            Some(condition) if condition.status == ConditionStatus::True => None,
            condition => Some(words(&name, condition)),
        }
    });
    Ok(said.next().or(undecodable))
}

fn words(name: &str, condition: Option<&Condition>) -> String {
    match condition {
        Some(condition) => format!("the ClusterHealth {name} is not Healthy: {}", condition.message),
        None => format!("the ClusterHealth {name} does not say yet whether it is Healthy"),
    }
}

/// Returns true if the check of etcd fails. An API server that does not tell, or does not tell us, is not asked for
/// more.
async fn etcd_failed(client: &Client) -> kube::Result<bool> {
    let request = http::Request::get(CHECKS)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    match client.request_text(request).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) => Ok(says_etcd_failed(&status.message)),
        Err(error) => Err(error),
    }
}

fn says_etcd_failed(checks: &str) -> bool {
    checks.lines().any(|line| line.starts_with("[-]etcd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_check_of_etcd_that_fails_counts() {
        let all = "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]etcd-readiness ok\n[-]poststarthook/x failed: reason withheld\nreadyz check failed\n";
        assert!(!says_etcd_failed(all));
        assert!(says_etcd_failed(
            &all.replace("[+]etcd ok", "[-]etcd failed: reason withheld")
        ));
        assert!(!says_etcd_failed("forbidden: User cannot get path \"/readyz\""));
    }
}
