//! The flags of the commands of `tidewaiter cloud` that sign. They are complete without the cloud.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;
use tidewaiter_cloud::models::values::{ClusterId, PluginId, Slug, UpgradeId, Version};
use tidewaiter_kit::duration;

/// What a cluster with `pluginTrust` must be told of the manifests that it accepts.
#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// A file with the manifests (YAML or JSON), as in the catalogue, or - for the standard input
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,

    /// The cluster's id
    #[arg(long, value_name = "ID")]
    pub(crate) cluster: ClusterId,

    /// The plugin's id
    #[arg(long, value_name = "ID")]
    pub(crate) plugin: PluginId,

    /// The plugin's type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) plugin_type: Slug,

    /// The plugin's implementation
    #[arg(long, value_name = "NAME")]
    pub(crate) implementation: Slug,

    /// The plugin's version
    #[arg(long, value_name = "VERSION")]
    pub(crate) plugin_version: Version,

    #[arg(
        long,
        value_name = "FILE",
        help = "The file with the secret key of minisign [default: prints the text to sign, for minisign -S]"
    )]
    pub(crate) secret_key: Option<PathBuf>,

    #[arg(
        long,
        value_name = "FILE",
        requires = "secret_key",
        help = "A file with the password of the key [default: TIDEWAITER_SIGNING_PASSWORD, else a prompt]"
    )]
    pub(crate) password_file: Option<PathBuf>,
}

pub(super) const SIGN_SCRIPT_NEXT: &str = "\
Redirect the output to a file, and upload it:
  tidewaiter cloud sign-script -f upgrade.sh --cluster ID --upgrade ID \\
      --target-version v1.36.3 --control-plane cp-1 --control-plane cp-2 \\
      --node node-1 --node node-2 \\
      --secret-key ~/.minisign/minisign.key > signed.sh
  tidewaiter cloud set-script UPGRADE -f signed.sh
The time of the first node of --control-plane begins now, or with --not-before.
A node runs the script only if the public key is pinned there
(tidewaiter host install --key minisign.pub).";

/// What a node must be told of the script that it runs.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("who").args(["nodes", "control_plane"]).required(true).multiple(true))]
pub(crate) struct SignScriptArgs {
    /// The file with the script, which begins with #!/, or - for the standard input. Signatures that it has already
    /// stay, and so do the times that they give to nodes of --control-plane
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: PathBuf,

    /// The id of the cluster in the cloud, as `tidewaiter cloud get clusters -o wide` shows it
    #[arg(long, value_name = "ID")]
    pub(crate) cluster: ClusterId,

    /// The id of the upgrade in the cloud, as `tidewaiter cloud get upgrades` shows it
    #[arg(long, value_name = "ID")]
    pub(crate) upgrade: UpgradeId,

    #[arg(
        long,
        value_name = "VERSION",
        help = "The version of Kubernetes to upgrade to, that of the upgrade, for example v1.36.3"
    )]
    pub(crate) target_version: tidewaiter_upgrade::Version,

    /// A Node that may run it, by its name in the cluster (`kubectl get nodes`); repeat it for each node
    #[arg(long = "node", value_name = "NAME")]
    pub(crate) nodes: Vec<NodeName>,

    /// A Node of the control plane that may run it; repeat it for each, in the order in which they are upgraded
    /// (`tidewaiter upgrade plan`). Each has a time of its own, one after the other; the nodes of --node have theirs
    /// after them
    #[arg(long, value_name = "NAME")]
    pub(crate) control_plane: Vec<NodeName>,

    #[arg(
        long,
        value_name = "DURATION",
        default_value = "20m",
        value_parser = stagger,
        requires = "control_plane",
        help = "How long the time of each node of --control-plane is, from 2m to 24h, for example 20m. Give them nodeTimeoutSeconds and some minutes"
    )]
    pub(crate) stagger: SignedDuration,

    /// From when on the signatures are valid (RFC 3339, for example 2026-11-28T02:00:00Z) [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) not_before: Option<Timestamp>,

    #[arg(
        long,
        value_name = "DURATION",
        default_value = "24h",
        value_parser = lifetime,
        help = "How long the signatures are valid, counted from now and not from --not-before: from 1m to 30d, for example 24h"
    )]
    pub(crate) expires_in: SignedDuration,

    #[arg(
        long,
        value_name = "FILE",
        help = "The file with the secret key; minisign -G creates one"
    )]
    pub(crate) secret_key: PathBuf,

    #[arg(
        long,
        value_name = "FILE",
        help = "A file with the password of the key [default: TIDEWAITER_SIGNING_PASSWORD, else a prompt]"
    )]
    pub(crate) password_file: Option<PathBuf>,
}

fn lifetime(text: &str) -> Result<SignedDuration, String> {
    within(text, 60, 30 * 86_400, "from 1m to 30d, for example 24h")
}

/// Longer than the error of clocks, by which a script is stopped earlier.
fn stagger(text: &str) -> Result<SignedDuration, String> {
    within(text, 120, 86_400, "from 2m to 24h, for example 20m")
}

fn within(text: &str, least: u64, most: u64, words: &str) -> Result<SignedDuration, String> {
    let permitted = Duration::from_secs(least)..=Duration::from_secs(most);
    let read = duration::within(text, &permitted, words)?;
    read.try_into().map_err(|_| words.to_owned())
}

fn time(text: &str) -> Result<Timestamp, String> {
    let read = text.parse();
    read.map_err(|_| "must be a date and a time with its zone (RFC 3339), for example 2026-11-28T02:00:00Z or 2026-11-28T03:00:00+01:00".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_refused_with_what_is_permitted() {
        for (text, hours) in [("30d", 720), ("1d", 24), ("4w 2d", 720), ("1m", 0)] {
            assert_eq!(lifetime(text).unwrap().as_hours(), hours, "{text}");
        }
        for text in ["31d", "59s", "720"] {
            let error = lifetime(text).unwrap_err();
            assert!(error.ends_with("from 1m to 30d, for example 24h"), "{error}");
        }
        assert_eq!(stagger("1d"), Ok(SignedDuration::from_hours(24)));
        for text in ["25h", "119s"] {
            let error = stagger(text).unwrap_err();
            assert!(error.ends_with("from 2m to 24h, for example 20m"), "{error}");
        }
        assert!(time("2026-11-28T03:00:00+01:00").is_ok());
        for text in ["tomorrow", "2026-11-28 03:00", "2026-11-28T03:00:00"] {
            let error = time(text).unwrap_err();
            assert!(error.contains("for example 2026-11-28T02:00:00Z"), "{error}");
        }
    }
}
