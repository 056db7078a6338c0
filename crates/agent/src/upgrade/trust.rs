//! What an operator has pinned on the host, in the folder `trust`: the cluster, the name of the Node, and the keys that may sign scripts.
//!
//! It never comes from the cluster. Each file must belong to the owner of the agent's files, and nobody else may write it.

use std::os::fd::OwnedFd;

use rustix::fs::Dir;
use tidewaiter_api::NodeName;
use tidewaiter_signature::TrustedKey;
use tidewaiter_upgrade::Version;
use tidewaiter_upgrade::signed::{Expected, Untrusted, VerifiedScript, open, open_unsigned};

use super::files::{FileError, read_own};
use crate::host::{Host, HostError, Opened};

/// The folder, below the agent's.
pub const FOLDER: [&str; 1] = ["trust"];

/// The file with the id of the cluster.
pub const CLUSTER: &str = "cluster";

/// The file with the name of the Node.
pub const NODE: &str = "node";

/// The end of the name of a file with a public key of minisign.
pub const KEY: &str = ".pub";

/// The file that permits scripts without a signature, with the content `allow`.
pub const UNSIGNED: &str = "unsigned-scripts";

/// What is pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    cluster: String,
    node: NodeName,
    keys: Vec<TrustedKey>,
    permits_unsigned: bool,
}

/// What is pinned cannot be read. No script runs then.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The folder is missing.
    #[error(
        "nothing is pinned on this node, because there is no folder trust: run tidewaiter host install on the node"
    )]
    Missing,
    /// A file of the host.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file has wrong content.
    #[error("trust/{name} {rule}")]
    Content {
        /// The file.
        name: String,
        /// What it must be.
        rule: String,
    },
}

impl TrustError {
    /// Whether a person has to change what is pinned. A file that cannot be read may be read later.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self, Self::File(FileError::Host(_)))
    }
}

impl From<HostError> for TrustError {
    fn from(error: HostError) -> Self {
        Self::File(error.into())
    }
}

impl Trust {
    /// Reads the folder. Files with other names do not count.
    ///
    /// # Errors
    /// If the folder or a file is missing, has wrong content, or somebody else can write it.
    pub fn read(host: &Host) -> Result<Self, TrustError> {
        let opened = host.look(&FOLDER)?;
        let folder = opened.as_ref().and_then(Opened::last).ok_or(TrustError::Missing)?;
        host.check_own(folder, "trust")?;
        let line = |name: &str| -> Result<Option<String>, TrustError> {
            let text = read_own(host, folder, name)?;
            let last = |text: &String| {
                text.lines()
                    .rfind(|line| !line.trim().is_empty())
                    .map(|line| line.trim().to_owned())
            };
            Ok(text.as_ref().map(|text| last(text).unwrap_or_default()))
        };
        let cluster = line(CLUSTER)?.filter(|cluster| !cluster.is_empty());
        let node = line(NODE)?.and_then(|node| node.parse().ok());
        let permits_unsigned = match line(UNSIGNED)?.as_deref() {
            None => false,
            Some("allow") => true,
            Some(_) => return Err(wrong(UNSIGNED, "must be the word allow, or not be there")),
        };
        let mut keys = Vec::new();
        for name in names(folder)? {
            if let Some(key) = line(&name)? {
                keys.push(key.parse().map_err(|rule: String| wrong(&name, &rule))?);
            }
        }
        Ok(Self {
            cluster: cluster.ok_or_else(|| wrong(CLUSTER, "must be the id of the cluster"))?,
            node: node.ok_or_else(|| wrong(NODE, "must be the name of the Node"))?,
            keys,
            permits_unsigned,
        })
    }

    /// The name of the Node.
    #[must_use]
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// Whether scripts without a signature run. An operator set this on the host, for taking over.
    #[must_use]
    pub fn permits_unsigned(&self) -> bool {
        self.permits_unsigned
    }

    /// Returns the script if it may run on this host.
    ///
    /// # Errors
    /// Which check refused.
    pub fn open<'a>(&self, text: &'a str, asked: &Asked<'_>) -> Result<VerifiedScript<'a>, Untrusted> {
        let expected = Expected {
            keys: &self.keys,
            cluster: &self.cluster,
            node: &self.node,
            upgrade: asked.upgrade,
            version: asked.version,
            newest: asked.newest,
            now: asked.now,
        };
        match open(text, &expected) {
            Err(Untrusted::Unsigned) if self.permits_unsigned => Ok(open_unsigned(text)),
            result => result,
        }
    }
}

fn wrong(name: &str, rule: &str) -> TrustError {
    TrustError::Content {
        name: name.to_owned(),
        rule: rule.to_owned(),
    }
}

/// The names of the files with keys, in order.
pub(super) fn names(folder: &OwnedFd) -> Result<Vec<String>, HostError> {
    let failed = |source| HostError::call("read", "trust", source);
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(KEY) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// For what a script is to run.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The id of the upgrade.
    pub upgrade: &'a str,
    /// The version to upgrade to.
    pub version: &'a Version,
    /// The newest signature that the host has accepted, in seconds since 1970; 0 if that is not known.
    pub newest: i64,
    /// The time of the host.
    pub now: jiff::Timestamp,
}
