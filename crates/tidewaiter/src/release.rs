//! `tidewaiter release`: releases what the coordinator holds: deletions of the mirror, and `ClusterRoles` of another
//! coordinator.
//!
//! It shows what is held, asks for confirmation, and annotates `CloudSync` with exactly the revisions that it showed,
//! one after the other. If the cloud's list changes in between, the coordinator holds another revision, and nothing is
//! released.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tidewaiter_api::cloud_sync::{CLOUD_SYNC, CLUSTER_ROLE, NODE, RELEASE_ANNOTATION, UNREADABLE_LIST};
use tidewaiter_api::values::printable;
use tidewaiter_api::{CloudSync, HeldDeletions, KindSync};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Kit, Leadership, SharedClock, SystemClock, client};

use crate::Failure;
use crate::cli::ReleaseArgs;
use crate::cloud::{confirm, print, run};
use crate::place::api_server;

/// The deadline of the coordinator for one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// The interval at which `CloudSync` is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the command.
pub(crate) fn main(args: &ReleaseArgs) -> Result<(), Failure> {
    run(release(args)).map_err(Failure::Running)
}

async fn release(args: &ReleaseArgs) -> Result<()> {
    let kit = Kit::new(SystemClock::shared())?;
    let config = api_server(args.cluster.kubeconfig.as_deref(), args.cluster.context.as_deref()).await?;
    let leadership = Leadership::always(kit.clock.clone());
    let mirror = Mirror {
        objects: Api::all(client::fenced(&config, &leadership, &kit).await?),
        clock: kit.clock,
    };
    let sync = mirror.read().await?;
    let chosen = chosen(&sync, args.kind.as_deref())?;
    print(&chosen.iter().map(shown).collect::<String>())?;
    if !args.yes {
        confirm("Release these changes?")?;
    }
    for (_, held) in &chosen {
        mirror.release(&held.revision).await?;
    }
    for (kind, held) in &chosen {
        mirror.carried_out(&kind.kind, &held.revision).await?;
        print(&format!("released {}\n", kind.kind))?;
    }
    Ok(())
}

type Held<'a> = (&'a KindSync, &'a HeldDeletions);

/// Returns the held deletions that the person named, or all of them.
///
/// # Errors
/// When nothing of it is held, or no release lets it pass.
fn chosen<'a>(sync: &'a CloudSync, kind: Option<&str>) -> Result<Vec<Held<'a>>> {
    let kinds = sync.status.as_ref().map_or(&[][..], |status| &status.kinds);
    let all: Vec<Held<'_>> = kinds
        .iter()
        .filter_map(|kind| Some((kind, kind.held.as_ref()?)))
        .collect();
    let names = |kinds: &[&str]| printable(&kinds.join(", "));
    let Some(kind) = kind else {
        let released: Vec<_> = all.iter().copied().filter(|(_, held)| is_releasable(held)).collect();
        return match (released.is_empty(), all.first()) {
            (false, _) => Ok(released),
            (true, Some(first)) => Err(unreadable(first)),
            (true, None) => bail!("nothing is held"),
        };
    };
    let found = all.iter().find(|(found, _)| found.kind.eq_ignore_ascii_case(kind));
    match found {
        Some(found) if is_releasable(found.1) => Ok(vec![*found]),
        Some(found) => Err(unreadable(found)),
        None if !kinds.iter().any(|known| known.kind.eq_ignore_ascii_case(kind))
            && ![CLUSTER_ROLE, NODE]
                .iter()
                .any(|other| other.eq_ignore_ascii_case(kind)) =>
        {
            let mirrored = kinds.iter().map(|kind| &*kind.kind);
            let known: BTreeSet<&str> = mirrored.chain([CLUSTER_ROLE, NODE]).collect();
            bail!(
                "{} is not a kind that can be held; the kinds are {}",
                printable(kind),
                names(&Vec::from_iter(known))
            )
        }
        None if all.is_empty() => bail!("nothing of {kind} is held, nor of any other kind"),
        None => {
            let held: Vec<&str> = all.iter().map(|(kind, _)| &*kind.kind).collect();
            bail!("nothing of {kind} is held, but of {}", names(&held))
        }
    }
}

/// Returns true if a release lets everything pass.
fn is_releasable(held: &HeldDeletions) -> bool {
    held.reason != UNREADABLE_LIST
}

fn unreadable((kind, held): &Held<'_>) -> anyhow::Error {
    anyhow!(
        "the deletions of {} cannot be released: {}. Correct it in the cloud",
        kind.kind,
        held.reason
    )
}

fn shown((kind, held): &Held<'_>) -> String {
    let HeldDeletions {
        revision,
        since,
        objects,
        additions,
        names,
        reason,
    } = held;
    let deleted = match kind.kind.as_str() {
        CLUSTER_ROLE | NODE => printable(reason),
        _ => format!("{objects} of {} would be deleted ({})", kind.objects, printable(reason)),
    };
    let added = match *additions {
        0 => String::new(),
        _ => format!(" and {additions} would be added"),
    };
    let first = format!(
        "{}: {deleted}{added}; held since {since}, revision {revision}",
        kind.kind
    );
    let named = names.iter().map(|name| format!("  {}", printable(name)));
    let all = usize::try_from(objects.saturating_add(*additions)).unwrap_or(usize::MAX);
    let more = all.saturating_sub(names.len());
    let rest = (more > 0).then(|| format!("  and {more} more"));
    let lines = std::iter::once(first).chain(named).chain(rest);
    lines.map(|line| line + "\n").collect()
}

/// The mirror of the cluster, by its `CloudSync`.
struct Mirror {
    objects: Api<CloudSync>,
    clock: SharedClock,
}

impl Mirror {
    async fn read(&self) -> Result<CloudSync> {
        self.objects
            .get(CLOUD_SYNC)
            .await
            .map_err(|error| explained(error, "get"))
    }

    /// Annotates `CloudSync` with the revision, and waits until the coordinator has removed the annotation, which it
    /// does when it has used it.
    async fn release(&self, revision: &str) -> Result<()> {
        let annotation = json!({"metadata": {"annotations": {RELEASE_ANNOTATION: revision}}});
        let (params, merge) = (PatchParams::default(), Patch::Merge(annotation));
        let patched = self.objects.patch(CLOUD_SYNC, &params, &merge).await;
        patched.map_err(|error| explained(error, "patch"))?;
        let is_requested = |sync: &CloudSync| {
            let annotations = sync.metadata.annotations.as_ref();
            annotations
                .and_then(|all| all.get(RELEASE_ANNOTATION))
                .map(String::as_str)
                == Some(revision)
        };
        self.until(|sync| (!is_requested(sync)).then_some(())).await.with_context(|| {
            format!("the release of {revision} is requested, and the coordinator has not carried it out yet: check that it runs, and its log")
        })
    }

    /// Waits until `CloudSync` does not show this revision as held any more.
    async fn carried_out(&self, kind: &str, revision: &str) -> Result<()> {
        let now = self.until(|sync| {
            let kinds = &sync.status.as_ref()?.kinds;
            let held = kinds.iter().find(|found| found.kind == kind)?.held.as_ref();
            match held {
                Some(held) if held.revision == revision => None,
                other => Some(other.map(|held| held.revision.clone())),
            }
        });
        let now = now
            .await
            .with_context(|| format!("CloudSync still shows {kind} as held: see its conditions"))?;
        match now {
            None => Ok(()),
            Some(other) => bail!(
                "the cloud's list of {kind} has changed: revision {revision} was not released, and {other} is held now: run the command again to see and release that"
            ),
        }
    }

    /// Reads `CloudSync` until it is so.
    async fn until<T>(&self, mut is_so: impl FnMut(&CloudSync) -> Option<T>) -> Result<T> {
        let reading = async {
            loop {
                if let Some(found) = is_so(&self.read().await?) {
                    return Ok(found);
                }
                self.clock.sleep(POLL_INTERVAL).await;
            }
        };
        timeout(&*self.clock, STEP_TIMEOUT, reading).await?
    }
}

/// Explains the error in the words of its reader.
fn explained(error: kube::Error, verb: &str) -> anyhow::Error {
    let remedy = match &error {
        kube::Error::Api(status) if status.code == 404 => {
            "there is no CloudSync in this cluster: the coordinator has not started here yet, or deploy/crds/coordinator is not applied"
                .to_owned()
        }
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
            format!("a release needs the permission to {verb} cloudsyncs.tidewaiter.dev")
        }
        _ => "the API server does not answer as it should".to_owned(),
    };
    anyhow!(error).context(remedy)
}

#[cfg(test)]
mod tests {
    use tidewaiter_api::{CloudSyncSpec, CloudSyncStatus};

    use super::*;

    fn kind(name: &str, held: Option<&str>) -> KindSync {
        KindSync {
            kind: name.to_owned(),
            objects: 40,
            held: held.map(|reason| HeldDeletions {
                revision: format!("of-{name}"),
                since: "2026-01-01T00:00:00Z".parse().unwrap(),
                objects: 30,
                additions: 0,
                names: vec!["one".to_owned(), "two\u{1b}[2J".to_owned()],
                reason: reason.to_owned(),
            }),
            ..KindSync::default()
        }
    }

    fn sync(kinds: Vec<KindSync>) -> CloudSync {
        let mut sync = CloudSync::new(CLOUD_SYNC, CloudSyncSpec {});
        sync.status = Some(CloudSyncStatus {
            kinds,
            ..CloudSyncStatus::default()
        });
        sync
    }

    /// The chosen kinds, or the error.
    fn choose(sync: &CloudSync, kind: Option<&str>) -> Result<Vec<String>, String> {
        let chosen = chosen(sync, kind).map_err(|error| error.to_string())?;
        Ok(chosen.iter().map(|(kind, _)| kind.kind.clone()).collect())
    }

    #[test]
    fn what_is_named_and_held_is_released_and_nothing_else() {
        let most = Some("more than half of the objects would be deleted");
        let some = sync(vec![
            kind("ClusterLabel", most),
            kind("Plugin", Some(UNREADABLE_LIST)),
            kind("Registry", None),
            kind("User", most),
        ]);
        let none = sync(vec![kind("User", None)]);
        let unreadable = sync(vec![kind("Plugin", Some(UNREADABLE_LIST)), kind("User", None)]);
        let chosen = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        for (sync, kind, expected) in [
            (&some, None, chosen(&["ClusterLabel", "User"])),
            (&some, Some("user"), chosen(&["User"])),
            (
                &some,
                Some("registry"),
                Err("nothing of registry is held, but of ClusterLabel, Plugin, User"),
            ),
            (
                &some,
                Some("pods"),
                Err(
                    "pods is not a kind that can be held; the kinds are ClusterLabel, ClusterRole, Node, Plugin, Registry, User",
                ),
            ),
            (&none, None, Err("nothing is held")),
            (
                &none,
                Some("User"),
                Err("nothing of User is held, nor of any other kind"),
            ),
            (
                &none,
                Some("clusterrole"),
                Err("nothing of clusterrole is held, nor of any other kind"),
            ),
        ] {
            assert_eq!(choose(sync, kind), expected.map_err(str::to_owned), "{kind:?}");
        }
        for (sync, kind) in [(&some, Some("Plugin")), (&unreadable, None)] {
            let error = choose(sync, kind).unwrap_err();
            assert!(
                error.contains("Plugin cannot be released: the list contains"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_held_is_shown_and_no_name_can_reach_the_terminal() {
        let mut user = kind("User", Some("more than half"));
        let held = sync(vec![user.clone()]);
        let text = shown(&chosen(&held, None).unwrap()[0]);
        assert!(
            text.starts_with(
                "User: 30 of 40 would be deleted (more than half); held since 2026-01-01T00:00:00Z, revision of-User\n  one\n"
            ) && text.ends_with("  and 28 more\n")
                && !text.contains('\u{1b}'),
            "{text}"
        );
        user.held.as_mut().unwrap().additions = 12;
        let text = shown(&chosen(&sync(vec![user]), None).unwrap()[0]);
        let words = "30 of 40 would be deleted (more than half) and 12 would be added;";
        assert!(text.contains(words), "{text}");
    }
}
