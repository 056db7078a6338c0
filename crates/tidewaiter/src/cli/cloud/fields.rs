//! The flags for the fields of a new object, in place of a file.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(next_help_heading = "Fields in place of a file, of some kinds")]
pub(crate) struct FieldFlags {
    /// The name, except of a registry
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The e-mail address of the user
    #[arg(long, value_name = "EMAIL")]
    pub(crate) email: Option<String>,

    /// The role of the user: `read_only`, `member`, `admin` or `owner`; of a service account not `owner`
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,

    /// A file with the password of the user, or for the registry
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,

    /// The file with the public SSH key, for example `~/.ssh/id_ed25519.pub`
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// A member of the team, by e-mail address or id; may be repeated
    #[arg(long = "member", value_name = "MEMBER")]
    pub(crate) members: Vec<String>,

    /// The address of the registry, for example `quay.io`
    #[arg(long, value_name = "HOST")]
    pub(crate) address: Option<String>,

    /// The provider of the registry: `azure`, `dockerhub`, `quay` or `private`
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,

    /// The user name for the registry
    #[arg(long, value_name = "NAME")]
    pub(crate) username: Option<String>,

    /// The description of the service account, the team or the registry
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}
