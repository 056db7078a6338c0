//! The variables that kOps sets in the container of kops-controller. Each one has an effect or produces a warning.
//!
//! kOps copies most of them from the machine on which `kops update cluster` runs, whether the cluster needs them or
//! not. The proxy variables (`http_proxy`, `https_proxy`, `NO_PROXY`, `no_proxy`) are read by the clients themselves.
//! Many are secrets: no value is ever shown.
//!
//! Source: `util/pkg/env` and `KopsControllerEnv` of kOps.

use tidewaiter_kops::Cloud;
use tidewaiter_kops::store::Scheme;

/// Names and values.
pub(crate) type Variables = [(String, String)];

pub(crate) const S3_ENDPOINT: &str = "S3_ENDPOINT";
pub(crate) const S3_REGION: &str = "S3_REGION";
pub(crate) const S3_ACCESS_KEY_ID: &str = "S3_ACCESS_KEY_ID";
pub(crate) const S3_SECRET_ACCESS_KEY: &str = "S3_SECRET_ACCESS_KEY";
pub(crate) const AWS_REGION: &str = "AWS_REGION";
const OWN_S3: [&str; 4] = [S3_ENDPOINT, S3_REGION, S3_ACCESS_KEY_ID, S3_SECRET_ACCESS_KEY];

const OPENSTACK: [&str; 15] = [
    "OS_TENANT_ID",
    "OS_TENANT_NAME",
    "OS_PROJECT_ID",
    "OS_PROJECT_NAME",
    "OS_PROJECT_DOMAIN_NAME",
    "OS_PROJECT_DOMAIN_ID",
    "OS_DOMAIN_NAME",
    "OS_DOMAIN_ID",
    "OS_USERNAME",
    "OS_PASSWORD",
    "OS_AUTH_URL",
    "OS_REGION_NAME",
    "OS_APPLICATION_CREDENTIAL_ID",
    "OS_APPLICATION_CREDENTIAL_SECRET",
    "KOPS_OS_TLS_INSECURE_SKIP_VERIFY",
];

/// Variables for what Tidewaiter does not do, on any cloud.
const WITHOUT_EFFECT: [(&[&str], &str); 5] = [
    (&OPENSTACK, "Tidewaiter does not call OpenStack"),
    (&["DIGITALOCEAN_ACCESS_TOKEN"], "Tidewaiter does not call DigitalOcean"),
    (&["LINODE_TOKEN"], "Tidewaiter does not call Linode"),
    (
        &["SCW_ACCESS_KEY", "SCW_SECRET_KEY", "SCW_DEFAULT_PROJECT_ID"],
        "Tidewaiter does not call Scaleway",
    ),
    (
        &["KOPS_BASE_URL", "KOPS_RUN_TOO_NEW_VERSION"],
        "Tidewaiter has no bootstrap server",
    ),
];

/// The value of a variable, unless it is empty.
pub(crate) fn variable<'a>(environment: &'a Variables, name: &str) -> Option<&'a str> {
    let found = environment.iter().find(|(key, value)| key == name && !value.is_empty());
    found.map(|(_, value)| value.as_str())
}

/// One line for each purpose for which variables are set without an effect on this cloud and this state store.
pub(super) fn warnings(cloud: Cloud, store: Scheme, environment: &Variables) -> Vec<String> {
    let no_s3 = "the state store is not s3://BUCKET/PATH";
    let of_s3 = match (store, variable(environment, S3_ENDPOINT)) {
        (Scheme::S3, Some(_)) => None,
        (Scheme::S3, None) => Some("S3_ENDPOINT is not set, so the state store is Amazon's"),
        (Scheme::Gs | Scheme::File, _) => Some(no_s3),
    };
    let of_aws = (cloud != Cloud::Aws && store != Scheme::S3).then_some(no_s3);
    let of_hetzner = (cloud != Cloud::Hetzner).then(|| format!("cloud is {cloud}"));
    let others = [
        (&OWN_S3[..], of_s3),
        (&[AWS_REGION], of_aws),
        (&["HCLOUD_TOKEN"], of_hetzner.as_deref()),
    ];
    let others = others.into_iter().filter_map(|(names, why)| Some((names, why?)));
    WITHOUT_EFFECT
        .into_iter()
        .chain(others)
        .filter_map(|(names, why)| warning(names, why, environment))
        .collect()
}

fn warning(names: &[&str], why: &str, environment: &Variables) -> Option<String> {
    let set: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| variable(environment, name).is_some())
        .collect();
    let verb = if set.len() == 1 { "has" } else { "have" };
    (!set.is_empty()).then(|| format!("{} {verb} no effect: {why}", set.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(names: &[&str]) -> Vec<(String, String)> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), format!("secret-{name}")))
            .collect()
    }

    fn warned(cloud: Cloud, store: Scheme, names: &[&str]) -> Vec<String> {
        let warnings = warnings(cloud, store, &variables(names));
        assert!(warnings.iter().all(|line| !line.contains("secret")), "{warnings:?}");
        warnings
    }

    /// Everything that kOps can set besides proxies.
    fn every_name() -> Vec<&'static str> {
        let groups = WITHOUT_EFFECT.into_iter().flat_map(|(names, _)| names.iter().copied());
        groups.chain(OWN_S3).chain(["AWS_REGION", "HCLOUD_TOKEN"]).collect()
    }

    #[test]
    fn what_has_an_effect_gives_no_warning() {
        assert_eq!(warned(Cloud::Aws, Scheme::S3, &["AWS_REGION"]), [""; 0]);
        assert_eq!(
            warned(Cloud::Gce, Scheme::S3, &["AWS_REGION"]),
            [""; 0],
            "the bucket's region is looked up there"
        );
        let hetzner = [&OWN_S3[..], &["HCLOUD_TOKEN"]].concat();
        assert_eq!(warned(Cloud::Hetzner, Scheme::S3, &hetzner), [""; 0]);
    }

    #[test]
    fn every_other_variable_of_kops_is_named_in_a_warning() {
        for (cloud, store, effective) in [
            (
                Cloud::Aws,
                Scheme::S3,
                &[
                    "S3_ENDPOINT",
                    "S3_REGION",
                    "S3_ACCESS_KEY_ID",
                    "S3_SECRET_ACCESS_KEY",
                    "AWS_REGION",
                ][..],
            ),
            (Cloud::Gce, Scheme::Gs, &[]),
            (Cloud::Hetzner, Scheme::File, &["HCLOUD_TOKEN"]),
        ] {
            let warnings = warned(cloud, store, &every_name());
            for name in every_name() {
                let lines = warnings.iter().filter(|line| {
                    line.split([' ', ','])
                        .take_while(|word| *word != "no")
                        .any(|word| word == name)
                });
                assert_eq!(
                    lines.count(),
                    usize::from(!effective.contains(&name)),
                    "{name} on {cloud}: {warnings:?}"
                );
            }
        }
    }

    #[test]
    fn a_warning_says_why() {
        for (cloud, store, names, expected) in [
            (
                Cloud::Aws,
                Scheme::S3,
                &["HCLOUD_TOKEN"][..],
                "HCLOUD_TOKEN has no effect: cloud is aws",
            ),
            (
                Cloud::Hetzner,
                Scheme::S3,
                &["S3_REGION", "S3_ACCESS_KEY_ID"],
                "S3_REGION, S3_ACCESS_KEY_ID have no effect: S3_ENDPOINT is not set, so the state store is Amazon's",
            ),
            (
                Cloud::Gce,
                Scheme::Gs,
                &["AWS_REGION"],
                "AWS_REGION has no effect: the state store is not s3://BUCKET/PATH",
            ),
            (
                Cloud::Aws,
                Scheme::S3,
                &["KOPS_BASE_URL"],
                "KOPS_BASE_URL has no effect: Tidewaiter has no bootstrap server",
            ),
        ] {
            assert_eq!(warned(cloud, store, names), [expected]);
        }
        let empty = every_name()
            .into_iter()
            .map(|name| (name.to_owned(), String::new()))
            .collect::<Vec<_>>();
        assert_eq!(
            warnings(Cloud::Gce, Scheme::File, &empty),
            [""; 0],
            "an empty variable is unset"
        );
    }
}
