//! The names that can complete the last word of a command line: those that only files and servers know. The script of
//! the shell completes all others. Pure.

use std::collections::HashMap;

use clap::{Arg, Command, CommandFactory as _};
use tidewaiter_cloud::models::Kind;

use super::{Cli, CloudPlace};

/// The names that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completed {
    /// The logins.
    CloudContext,
    /// The contexts of a kubeconfig.
    KubeContext,
    /// Objects of the cloud.
    Object(Kind),
}

/// The names that are wanted, and the flags that say where they are.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) what: Completed,
    flags: HashMap<String, String>,
}

impl Completion {
    /// The names that can be the word after these, the first of which is the program; None if the shell knows them. A
    /// flag and its value are two words.
    pub(crate) fn of(words: &[String]) -> Option<Self> {
        let root = Cli::command();
        let (mut command, mut path) = (&root, Vec::new());
        let (mut flags, mut positionals) = (HashMap::new(), Vec::new());
        let mut flag: Option<&Arg> = None;
        for word in words.iter().skip(1) {
            if let Some(open) = flag.take() {
                flags.insert(open.get_long().unwrap_or_default().to_owned(), word.clone());
            } else if let Some(long) = word.strip_prefix("--") {
                flag = with_value(command, |arg| arg.get_long() == Some(long));
            } else if let Some(short) = word.strip_prefix('-') {
                flag = with_value(command, |arg| {
                    arg.get_short().is_some_and(|own| short.chars().eq([own]))
                });
            } else if let Some(below) = command.find_subcommand(word) {
                command = below;
                path.push(below.get_name());
            } else {
                positionals.push(word.as_str());
            }
        }
        let arg = flag.or_else(|| command.get_positionals().nth(positionals.len()))?;
        let what = completed(&path, arg, &positionals)?;
        if !is_cloud(&path) {
            // That of a kubeconfig.
            flags.remove("context");
        }
        Some(Self { what, flags })
    }

    /// The value of a flag.
    pub(crate) fn flag(&self, long: &str) -> Option<&str> {
        self.flags.get(long).map(String::as_str)
    }

    /// The place in the cloud; a flag that names none is as absent.
    pub(crate) fn place(&self) -> CloudPlace {
        let flag = |long| self.flag(long).map(str::to_owned);
        CloudPlace {
            context: flag("context"),
            organization: self.flag("organization").and_then(|id| id.parse().ok()),
            cluster: flag("cluster"),
            node_pool: flag("node-pool"),
            user: flag("user"),
        }
    }
}

/// The flag of the command, if a value follows it.
fn with_value(command: &Command, is_meant: impl Fn(&Arg) -> bool) -> Option<&Arg> {
    let mut flags = command.get_arguments().filter(|arg| arg.get_action().takes_values());
    flags.find(|arg| is_meant(arg))
}

/// Returns true for the commands whose flags are about the cloud.
fn is_cloud(path: &[&str]) -> bool {
    matches!(path, ["cloud" | "credential", ..])
}

fn completed(path: &[&str], arg: &Arg, positionals: &[&str]) -> Option<Completed> {
    let value = arg.get_value_names()?.first()?.as_str();
    let is_cloud = is_cloud(path);
    let kind = match (arg.get_long(), value) {
        (Some("cloud-context"), _) => return Some(Completed::CloudContext),
        (Some("context"), _) if is_cloud => return Some(Completed::CloudContext),
        (Some("context"), _) => return Some(Completed::KubeContext),
        (Some("team"), _) => Kind::Team,
        _ if !is_cloud => return None,
        (None, "NAME") if matches!(path, [_, "context", _]) => return Some(Completed::CloudContext),
        (None, "OBJECT") => super::cloud::kind_of(positionals.first()?)?,
        (_, "CLUSTER") => Kind::Cluster,
        (_, "POOL") => Kind::NodePool,
        (_, "ACCOUNT") => Kind::ServiceAccount,
        (_, "USER" | "MEMBER" | "OPERATOR") => Kind::User,
        (_, "POLICY") => Kind::AutoscalingPolicy,
        (_, "UPGRADE") => Kind::Upgrade,
        (_, "NODE") => Kind::Node,
        _ => return None,
    };
    Some(Completed::Object(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_that_a_word_can_be_follow_from_the_words_before() {
        use Completed::{CloudContext, KubeContext, Object};
        for (line, expected) in [
            ("tidewaiter cloud get registries", Some(Object(Kind::Registry))),
            ("tidewaiter cloud get -o json User", Some(Object(Kind::User))),
            ("tidewaiter cloud delete --yes team", Some(Object(Kind::Team))),
            ("tidewaiter cloud get", None),
            ("tidewaiter cloud get team developers", None),
            ("tidewaiter cloud get nothing", None),
            ("tidewaiter cloud get --cluster", Some(Object(Kind::Cluster))),
            ("tidewaiter cloud attach", Some(Object(Kind::Cluster))),
            ("tidewaiter cloud set-role", Some(Object(Kind::User))),
            (
                "tidewaiter cloud assign by-cpu --node-pool",
                Some(Object(Kind::NodePool)),
            ),
            ("tidewaiter cloud api-keys list --context", Some(CloudContext)),
            ("tidewaiter cloud context use", Some(CloudContext)),
            ("tidewaiter cloud tokens create", None),
            (
                "tidewaiter cloud tokens list --service-account",
                Some(Object(Kind::ServiceAccount)),
            ),
            ("tidewaiter version --cloud-context", Some(CloudContext)),
            ("tidewaiter version --context", Some(KubeContext)),
            ("tidewaiter upgrade plan a --context", Some(KubeContext)),
            ("tidewaiter validate --name", None),
            ("tidewaiter explain access --context a --team", Some(Object(Kind::Team))),
            ("tidewaiter", None),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = Completion::of(&words).map(|completion| completion.what);
            assert_eq!(found, expected, "{line}");
        }
        let words = "tidewaiter cloud get node --cluster staging --node-pool workers".split(' ');
        let words: Vec<String> = words.map(str::to_owned).collect();
        let place = Completion::of(&words).unwrap().place();
        let given = (place.cluster.as_deref(), place.node_pool.as_deref());
        assert_eq!(given, (Some("staging"), Some("workers")));
    }
}
