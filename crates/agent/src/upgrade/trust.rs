//! The values that an operator has pinned on the host for upgrades: the cluster, the name of the Node, the keys that
//! may sign scripts, and the agent's folders.
//!
//! - It never comes from the cluster. It is in the folder of the break-glass keys, which the agent's container can only
//!   read. Each file must belong to root, and nobody else may write it.
//! - Earlier versions had it in [`FORMER`], below the agent's folder, where the agent's container can write. Nothing
//!   there counts.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::Dir;
use tidewaiter_api::NodeName;
use tidewaiter_signature::TrustedKey;
use tidewaiter_upgrade::Version;
use tidewaiter_upgrade::signed::{Expected, Untrusted, VerifiedScript, open, open_unsigned};

use crate::host::{Host, HostError, next_of};

/// The file with the id of the cluster.
pub const CLUSTER: &str = "cluster";

/// The file with the name of the Node.
pub const NODE: &str = "node";

/// The file with the agent's folder, in which the host looks for scripts.
pub const FOLDER: &str = "folder";

/// The file with the agent's other folder that its container can write, in which nothing is that the host decides by.
pub const STATE_FOLDER: &str = "state-folder";

/// The end of the name of a file with a public key of minisign.
pub const KEY: &str = ".pub";

/// The file that permits scripts without a signature, with the content `allow`.
pub const UNSIGNED: &str = "unsigned-scripts";

/// The folder of earlier versions, below the agent's.
pub const FORMER: &str = "trust";

/// Returns true if `tidewaiter host install` writes a file of this name, or has left it when it was killed.
pub(super) fn is_ours(name: &str) -> bool {
    let name = next_of(name).unwrap_or(name);
    name.ends_with(KEY) || [CLUSTER, NODE, FOLDER, STATE_FOLDER, UNSIGNED].contains(&name)
}

/// The identity of an agent and of its cluster: a host on which something else is pinned is not prepared for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentIdentity<'a> {
    pub(super) node: &'a NodeName,
    /// The id of the cluster in the cloud; empty if it is not known yet.
    pub(super) cluster: &'a str,
    pub(super) folder: &'a str,
    /// Its setting `stateFolder`.
    pub(super) state_folder: &'a str,
}

/// The pinned values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    cluster: String,
    node: NodeName,
    /// The agent's folders; None where an earlier version was installed, which did not pin them.
    folder: Option<String>,
    state_folder: Option<String>,
    keys: Vec<TrustedKey>,
    permits_unsigned: bool,
}

/// The pinned values cannot be read. No script runs then.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file with the cluster is missing.
    #[error(
        "nothing is pinned for upgrades on this node, because {0} is missing: run tidewaiter host install on the node, \
         also if an earlier version has pinned keys in /etc/containership/trust, which do not count any more"
    )]
    Missing(String),
    /// A file of the host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A file has wrong content.
    #[error("{path} {rule}")]
    Content {
        /// The file.
        path: String,
        /// The rule that it violates.
        rule: String,
    },
}

impl TrustError {
    /// Returns true if a person has to change what is pinned. A file that cannot be read may be read later.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self, Self::Host(error) if !matches!(error, HostError::Unusable { .. }))
    }
}

impl Trust {
    /// Reads the folder. Files with other names do not count.
    ///
    /// # Errors
    /// If a file is missing, has wrong content, or somebody else can write it or the folder.
    pub fn read(pinned: &Host) -> Result<Self, TrustError> {
        let missing = || TrustError::Missing(pinned.path_of(&[CLUSTER]));
        let cluster = line(pinned, CLUSTER)?.ok_or_else(missing)?;
        if cluster.is_empty() {
            return Err(wrong(pinned, CLUSTER, "must be the id of the cluster"));
        }
        let node = line(pinned, NODE)?.and_then(|node| node.parse().ok());
        let permits_unsigned = match line(pinned, UNSIGNED)?.as_deref() {
            None => false,
            Some("allow") => true,
            Some(_) => return Err(wrong(pinned, UNSIGNED, "must be the word allow, or not be there")),
        };
        Ok(Self {
            cluster,
            node: node.ok_or_else(|| wrong(pinned, NODE, "must be the name of the Node"))?,
            folder: line(pinned, FOLDER)?,
            state_folder: line(pinned, STATE_FOLDER)?,
            keys: keys(pinned)?.into_iter().map(|(_, key)| key).collect(),
            permits_unsigned,
        })
    }

    /// The id of the cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The name of the Node.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// The reason why the host is not prepared for this agent, so that no script would run; None if it is.
    #[must_use]
    pub(super) fn problem(&self, agent: AgentIdentity<'_>) -> Option<String> {
        let AgentIdentity {
            node,
            cluster,
            folder,
            state_folder,
        } = agent;
        if self.node != *node {
            return Some(format!(
                "the host is installed as the Node {}, and this one is {node}, so it refuses each script: run tidewaiter \
                 host install with --node {node} on it",
                self.node
            ));
        }
        if !cluster.is_empty() && self.cluster != cluster {
            return Some(format!(
                "the host is installed for the cluster {}, and this one is {cluster}, so it refuses each script: run \
                 tidewaiter host install with --cluster {cluster} on it",
                self.cluster
            ));
        }
        if let Some(pinned) = self
            .folder
            .as_deref()
            .filter(|pinned| Path::new(pinned) != Path::new(folder))
        {
            return Some(format!(
                "the host looks for scripts in {pinned}, and the agent writes them to {folder}, so none runs: run tidewaiter \
                 host install with --folder {folder} on it, or correct the agent's setting folder"
            ));
        }
        if let Some(pinned) = self
            .state_folder
            .as_deref()
            .filter(|pinned| Path::new(pinned) != Path::new(state_folder))
        {
            return Some(format!(
                "the host is installed for an agent whose stateFolder is {pinned}, and here it is {state_folder}, which may have \
                 programs that run as root: run tidewaiter host install with --agent-state-folder {state_folder} on it, or \
                 correct the agent's setting"
            ));
        }
        (self.keys.is_empty() && !self.permits_unsigned).then(|| {
            "no key is pinned on this node, so it refuses each script: run tidewaiter host keys add FILE on it"
                .to_owned()
        })
    }

    /// Returns true if scripts without a signature run. An operator set this on the host, for taking over.
    #[must_use]
    pub fn permits_unsigned(&self) -> bool {
        self.permits_unsigned
    }

    /// Returns the script if it may run on this host.
    ///
    /// # Errors
    /// The check that failed.
    pub fn open<'a>(&self, text: &'a str, request: &ScriptRequest<'_>) -> Result<VerifiedScript<'a>, Untrusted> {
        let expected = Expected {
            keys: &self.keys,
            cluster: &self.cluster,
            node: &self.node,
            upgrade: request.upgrade,
            version: request.version,
            newest: request.newest,
            now: request.now,
        };
        match open(text, &expected) {
            Err(Untrusted::Unsigned) if self.permits_unsigned => Ok(open_unsigned(text)),
            result => result,
        }
    }
}

fn wrong(pinned: &Host, name: &str, rule: &str) -> TrustError {
    TrustError::Content {
        path: pinned.path_of(&[name]),
        rule: rule.to_owned(),
    }
}

/// The last line of a file that has text; None if the file is missing.
fn line(pinned: &Host, name: &str) -> Result<Option<String>, HostError> {
    let content = pinned.read_trusted(name)?;
    Ok(content.map(|content| last_line(&String::from_utf8_lossy(&content)).to_owned()))
}

fn last_line(text: &str) -> &str {
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    line.unwrap_or_default().trim()
}

/// The key in a file that minisign writes.
///
/// # Errors
/// The rule that the text violates.
pub fn key(text: &str) -> Result<TrustedKey, String> {
    last_line(text).parse()
}

/// The pinned keys, each with the name of its file, in the order of these.
///
/// # Errors
/// If a file has wrong content, or somebody else can write it.
pub(super) fn keys(pinned: &Host) -> Result<Vec<(String, TrustedKey)>, TrustError> {
    let Some(folder) = pinned.trusted_folder()? else {
        return Ok(Vec::new());
    };
    let mut keys = Vec::new();
    for name in names(&folder)? {
        if let Some(text) = line(pinned, &name)? {
            let key = text.parse().map_err(|rule: String| wrong(pinned, &name, &rule))?;
            keys.push((name, key));
        }
    }
    Ok(keys)
}

/// The names of the files with keys, in order.
pub(super) fn names(folder: &OwnedFd) -> Result<Vec<String>, HostError> {
    let mut names = entries(folder)?;
    names.retain(|name| name.ends_with(KEY));
    names.sort();
    Ok(names)
}

/// The names in a folder.
pub(super) fn entries(folder: &OwnedFd) -> Result<Vec<String>, HostError> {
    let failed = |source| HostError::call("read", "a folder", source);
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// The request to run a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRequest<'a> {
    /// The id of the upgrade.
    pub upgrade: &'a str,
    /// The version to upgrade to.
    pub version: &'a Version,
    /// The newest signature that the host has accepted, in seconds since 1970; 0 if that is not known.
    pub newest: i64,
    /// The time of the host.
    pub now: jiff::Timestamp,
}
