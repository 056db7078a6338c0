//! The flags that select a Kubernetes cluster, as those of kubectl, and the definitions of kOps.

use std::path::PathBuf;

use clap::Args;
use tidewaiter_api::ClusterName;

/// The cluster of a kubeconfig.
#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    /// The kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
}

/// The cluster and the location of its definitions.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The configuration file that kOps wrote for kops-controller. Overrides --name and --state
    #[arg(long, value_name = "FILE")]
    pub(crate) conf: Option<PathBuf>,

    /// The name of the cluster; requires --state
    #[arg(long, value_name = "CLUSTER", env = "KOPS_CLUSTER_NAME")]
    pub(crate) name: Option<ClusterName>,

    #[arg(
        long,
        value_name = "URL",
        env = "KOPS_STATE_STORE",
        help = "The kOps state store: s3://BUCKET, gs://BUCKET or file:///FOLDER; requires --name"
    )]
    pub(crate) state: Option<String>,
}
