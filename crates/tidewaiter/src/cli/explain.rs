//! The flags of `tidewaiter explain`.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, StringValueParser, TypedValueParser as _};
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tidewaiter_api::{ClusterName, InstanceGroupName, Lifecycle, NodeName};
use url::Url;

use super::{ClusterFlags, OutputFormat, Place, PolicyFlags};

#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// Shows the labels that the state store defines for an InstanceGroup; needs no access to the cluster or to
    /// instances
    Group(ExplainGroupArgs),
    /// Shows the identity of a Node, its labels with their sources, and what the controller would change now; changes
    /// nothing
    Node(ExplainNodeArgs),
    /// Lists the Nodes refused as forged, and what `onForgery: quarantine` would change on each; changes nothing
    Forgeries(ExplainForgeriesArgs),
    /// Shows what a user or a team of the cloud may do in the cluster now, by which binding, on which nodes a user can
    /// log in, and who can log in on a node; what is refused or waits; changes nothing
    Access(ExplainAccessArgs),
    /// Says where each node records who has logged in; reads nothing
    Logins,
    /// Says whether somebody requested that everything that the coordinator manages is removed, and how to begin anew;
    /// fails if so; changes nothing
    Terminate(ExplainTerminateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainTerminateArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainAccessArgs {
    #[command(flatten)]
    pub(crate) subjects: AccessSubjects,

    /// Only what applies in this namespace [default: all namespaces]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = namespace)]
    pub(crate) namespace: Option<String>,

    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// The name of a namespace is a DNS label (RFC 1123). It becomes a part of the path of a request.
fn namespace(text: &str) -> Result<String, &'static str> {
    let is_label = (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-');
    if is_label {
        Ok(text.to_owned())
    } else {
        Err("must be the name of a namespace: at most 63 lower-case letters, digits and dashes")
    }
}

/// The journal of a node has the id without dashes; everything else has it with them.
fn dashed(user: String) -> String {
    let is_simple = user.len() == 32 && user.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_simple {
        return user;
    }
    let id = user.to_ascii_lowercase();
    let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
    parts.join("-")
}

/// Who is asked about: at least one.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct AccessSubjects {
    /// The user, by id (with or without dashes), by the name that the cluster knows, or by e-mail address in the cloud
    /// where you are logged in
    #[arg(long, value_name = "USER", value_parser = StringValueParser::new().map(dashed))]
    pub(crate) user: Option<String>,

    /// A team, by id, or by name in the cloud where you are logged in; more than once for several. With --user: the
    /// teams of the user, which the cluster does not know
    #[arg(long, value_name = "TEAM", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) team: Vec<String>,

    /// A node: who can log in there. With --user: only this user
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainNodeArgs {
    /// The name of the Node
    pub(crate) node: NodeName,

    /// Queries the cloud for the identity of the Node, with your own credentials, instead of reading its NodeIdentity
    /// record
    #[arg(long, requires = "conf")]
    pub(crate) from_cloud: bool,

    #[command(flatten)]
    pub(crate) sources: ExplainSources,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainForgeriesArgs {
    #[command(flatten)]
    pub(crate) sources: ExplainSources,
}

/// The sources to read. Without a configuration file, or a cluster and its state store, only the records are read.
#[derive(Debug, Args)]
pub(crate) struct ExplainSources {
    #[command(flatten)]
    pub(crate) place: Place,

    /// The settings file of the controller (YAML), so that the output matches what it does. Environment variables
    /// (TIDEWAITER_…) override it
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) flags: ExplainFlags,

    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

/// The settings that have a flag.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExplainFlags {
    /// The kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    #[serde(flatten)]
    policy: PolicyFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainGroupArgs {
    /// The name of the InstanceGroup
    pub(crate) group: InstanceGroupName,

    /// The name of the cluster
    #[arg(long, value_name = "CLUSTER", env = "KOPS_CLUSTER_NAME")]
    pub(crate) name: ClusterName,

    /// The state store
    #[arg(
        long,
        value_name = "URL",
        env = "KOPS_STATE_STORE",
        help = "The kOps state store: s3://BUCKET, gs://BUCKET or file:///FOLDER"
    )]
    pub(crate) state: String,

    /// The endpoint of the state store, if it is not the public one
    #[arg(long, value_name = "URL", env = "TIDEWAITER_STATE_ENDPOINT")]
    pub(crate) state_endpoint: Option<Url>,

    /// The region in which the state store is looked up first
    #[arg(long, env = "AWS_REGION")]
    pub(crate) region: Option<String>,

    /// The billing model of the instance
    #[arg(long, value_name = "LIFECYCLE", default_value = "on-demand")]
    pub(crate) lifecycle: LifecycleFlag,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LifecycleFlag {
    /// Full price
    OnDemand,
    /// Spot price; the cloud may reclaim the instance
    Spot,
    /// Reserved time windows
    Scheduled,
}

impl From<LifecycleFlag> for Lifecycle {
    fn from(flag: LifecycleFlag) -> Self {
        match flag {
            LifecycleFlag::OnDemand => Self::OnDemand,
            LifecycleFlag::Spot => Self::Spot,
            LifecycleFlag::Scheduled => Self::Scheduled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_gets_its_dashes() {
        let id = "0b8e4a52-13f7-4f0e-9d3c-7a6b5c4d3e2f";
        for simple in ["0b8e4a5213f74f0e9d3c7a6b5c4d3e2f", "0B8E4A5213F74F0E9D3C7A6B5C4D3E2F"] {
            assert_eq!(dashed(simple.to_owned()), id);
        }
        let long = "a".repeat(33);
        let umlauts = "ä".repeat(16);
        for other in [id, "Alice", "", "0b8e4a5213f74f0e9d3c7a6b5c4d3e2", &long, &umlauts] {
            assert_eq!(dashed(other.to_owned()), other);
        }
    }

    #[test]
    fn a_namespace_is_a_name_and_no_path() {
        assert_eq!(namespace("kube-system").unwrap(), "kube-system");
        let long = "a".repeat(64);
        for wrong in [
            "",
            "../default",
            "default/rolebindings/x?a=",
            "A",
            "-a",
            "a-",
            "a.b",
            &long,
        ] {
            assert!(namespace(wrong).is_err(), "{wrong}");
        }
    }
}
