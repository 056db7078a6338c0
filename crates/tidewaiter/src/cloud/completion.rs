//! `tidewaiter complete`: the names that complete a word in a shell. What cannot be read completes nothing.
//!
//! The shell puts the names into a command line, so that those with characters that mean something to it are left out:
//! anyone who may name an object could otherwise write commands there.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::role::kube_contexts;
use tidewaiter_kit::settings::environment;
use tokio::time::timeout;

use super::contexts::Contexts;
use super::output::print;
use super::session::{Session, text};
use crate::cli::{Completed, Completion};

/// The variable with the context.
const CONTEXT: &str = "TIDEWAITER_CLOUD_CONTEXT";

/// The shell waits for the names: a server that does not answer completes nothing.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Prints the names that begin as the last word, or as the value in a last word `--flag=value`, one a line.
pub(super) async fn complete(words: &[String]) -> Result<()> {
    let parts = words.iter().flat_map(|word| match word.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => [Some(flag), Some(value)],
        _ => [Some(word.as_str()), None],
    });
    let words: Vec<String> = parts.flatten().map(str::to_owned).collect();
    let Some((last, before)) = words.split_last() else {
        return Ok(());
    };
    let Some(completion) = Completion::of(before).filter(|_| !last.starts_with('-')) else {
        return Ok(());
    };
    let found = timeout(MAX_WAIT, names(&completion)).await;
    let mut names = found.ok().and_then(Result::ok).unwrap_or_default();
    names.retain(|name| is_plain(name) && name.starts_with(last.as_str()));
    names.sort_unstable();
    names.dedup();
    let lines = names.iter().flat_map(|name| [name.as_str(), "\n"]);
    print(&lines.collect::<String>())
}

async fn names(completion: &Completion) -> Result<Vec<String>> {
    match completion.what {
        Completed::CloudContext => Ok(Contexts::load()?.contexts.into_keys().collect()),
        Completed::KubeContext => Ok(kube_contexts(completion.flag("kubeconfig").map(Path::new))?),
        Completed::Object(kind) => {
            let mut place = completion.place();
            // As for the flag that clap reads.
            let mut variables = environment().into_iter();
            let context = variables.find(|(name, value)| name == CONTEXT && !value.is_empty());
            place.context = place.context.or(context.map(|(_, value)| value));
            let session = Session::open(place)?;
            let objects = session.list(session.list_path(kind).await?).await?;
            Ok(objects.iter().map(|object| word(kind, object).to_owned()).collect())
        }
    }
}

/// A word by which commands find the object.
fn word(kind: Kind, object: &Value) -> &str {
    let key = kind.facts().key.first().copied().unwrap_or("id");
    let fields = match kind {
        Kind::Upgrade | Kind::RoleBinding => ["id", "id"],
        Kind::User => [key, "name"],
        _ => ["name", key],
    };
    let mut words = fields.into_iter().map(|field| text(object, field));
    words.find(|word| !word.is_empty()).unwrap_or_default()
}

fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._@:/+-".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}
