//! `tidewaiter host run`: what the host does when `current` changes, and after it has booted.
//!
//! - Everything is decided here, with what cannot come from the cluster: what is pinned, the version of the kubelet, the clock, and the record of this host.
//! - The run is recorded before it begins, and decided again in between. So a crash at any point leads to one run or none. Only a script that declares
//!   itself repeatable runs again after it was interrupted.
//! - What runs is a copy in a folder that the agent cannot reach: a file that is exchanged after it was checked does not run.
//! - A script is killed at the deadline, so that it does not run beside that of the next node. So is its way back.
//! - At most one script runs in a process, and its way back in another one. systemd kills what a script has left when the process ends, before the next one
//!   starts.
//! - A way back begins at most once, and only if everything that let its script run still holds.

mod execute;
mod record;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tidewaiter_api::NodeName;
use tidewaiter_kit::{Chain, SharedClock};
use tidewaiter_upgrade::agent::{self, Refused, Repeatable, Run, confirm, decide};
use tidewaiter_upgrade::signed::{Untrusted, digest};
use tidewaiter_upgrade::{InvalidVersion, Upgrade, Version, form};

use super::files::{self, FileError, Order, Outcome, RunResult};
use super::trust::{Asked, Trust, TrustError};
use crate::host::{AllCalls, Host, HostError, Owner};
use execute::{Execution, Way, printed};
use record::{Record, WayBack};

/// Why the host cannot even refuse.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file of the host.
    #[error(transparent)]
    File(#[from] FileError),
    /// The folder of the record.
    #[error("{} cannot be created", path.display())]
    State {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl From<HostError> for RunError {
    fn from(error: HostError) -> Self {
        Self::File(error.into())
    }
}

/// Why a script is not run.
#[derive(Debug, thiserror::Error)]
enum NotRun {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Target(InvalidVersion),
    #[error("current was changed or removed while the order was checked")]
    Withdrawn,
    #[error("the script cannot be started")]
    Start(#[source] std::io::Error),
}

/// The script has restarted the node, or was interrupted after it had upgraded the kubelet.
#[derive(Debug, thiserror::Error)]
#[error(
    "the node or the unit was restarted while the script ran; the kubelet is at {version} since, and the script for {target} does not run again"
)]
struct Restarted {
    version: Version,
    target: Version,
}

impl From<HostError> for NotRun {
    fn from(error: HostError) -> Self {
        Self::File(error.into())
    }
}

/// The host.
#[derive(Debug)]
pub struct Runner {
    /// The folder that the agent shares.
    pub folder: PathBuf,
    /// The folder of the record, which the agent cannot reach.
    pub state: PathBuf,
    /// The kubelet, whose version counts.
    pub kubelet: PathBuf,
    /// The time.
    pub clock: SharedClock,
}

impl Runner {
    /// Carries out what `current` orders, and writes what became of it. Returns the result; None if there is nothing to do. An order that comes
    /// meanwhile is left to the next process: the agent repeats what is not answered.
    ///
    /// # Errors
    /// When neither the record nor the result can be written.
    pub fn run(&self) -> Result<Option<RunResult>, RunError> {
        let state = self.open_state()?;
        let Some(_lock) = record::lock(&state)? else {
            return Ok(None);
        };
        self.carry_out(&state)
    }

    fn open_state(&self) -> Result<Host, RunError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.state);
        made.map_err(|source| RunError::State {
            path: self.state.clone(),
            source,
        })?;
        Ok(own(&self.state))
    }

    /// None if there is no order, or it is over.
    fn carry_out(&self, state: &Host) -> Result<Option<RunResult>, RunError> {
        let host = own(&self.folder);
        let order = match host.ordered() {
            Ok(None) => return Ok(None),
            Ok(Some(order)) => order,
            Err(error) => return self.tell(&host, "", Outcome::Refused, &error).map(Some),
        };
        let id = files::id(&order.upgrade).to_owned();
        let before = host.result().unwrap_or_default().filter(|result| result.id == id);
        let is_over = before
            .as_ref()
            .is_some_and(|result| !matches!(result.outcome, Outcome::Refused | Outcome::Running));
        if is_over {
            return Ok(None);
        }
        // Only one runs, and it is not this one: the process that ran it has ended. Whether the order still counts does not matter then.
        let was_running = before.is_some_and(|result| result.outcome == Outcome::Running);
        if let Some(restarted) = self.restarted(&order).filter(|_| was_running) {
            return self.tell(&host, &id, Outcome::Succeeded, &restarted).map(Some);
        }
        let result = match self.start(&host, state, &order, &id) {
            Ok(result) => result,
            Err(NotRun::Refused(refused @ Refused::RunBefore)) => {
                return self.tell(&host, &id, Outcome::Interrupted, &refused).map(Some);
            }
            Err(refused) => return self.tell(&host, &id, Outcome::Refused, &refused).map(Some),
        };
        host.tell(&result)?;
        Ok(Some(result))
    }

    fn tell(
        &self,
        host: &Host,
        id: &str,
        outcome: Outcome,
        why: &(dyn std::error::Error + 'static),
    ) -> Result<RunResult, RunError> {
        let result = RunResult {
            id: id.to_owned(),
            outcome,
            message: Chain(why).to_string(),
            exit_code: None,
            rolled_back: false,
            at: self.clock.now(),
            tail: String::new(),
        };
        host.tell(&result)?;
        Ok(result)
    }

    /// Checks the order, records the run, decides again, and runs the script.
    fn start(&self, host: &Host, state: &Host, order: &Order, id: &str) -> Result<RunResult, NotRun> {
        let trust = Trust::read(host)?;
        let mut record = Record::read(state)?;
        let upgrades = [identified(order, id)];
        let version = self.version();
        let target = target(order)?;
        let script = trust.open(&order.script, &self.asked(id, &target, &record))?;
        let view = agent::Host {
            node: trust.node(),
            version: version.as_ref(),
            ledger: &record.ledger,
            now: self.clock.now(),
        };
        // One that has ended was not interrupted.
        let repeatable = match record.ended.as_deref() {
            Some(ended) if ended == id => Repeatable::No,
            _ => script.repeatable(),
        };
        decide(&upgrades, view, repeatable)?;
        record.begin(&upgrades, id, script.generation(), version.as_ref());
        record.write(state)?;
        let run = self.decide_again(host, order, &record, trust.node(), self.version().as_ref())?;
        host.tell(&self.running(id, &run))?;
        let execution = Execution::new(state, script.body(), trust.node(), &run, &*self.clock);
        let result = execution.start(Way::There).map_err(NotRun::Start)?;
        record.ended = Some(id.to_owned());
        let is_due = result.outcome == Outcome::Failed && script.has_way_back();
        record.way_back = is_due.then(|| WayBack {
            script: digest(&order.script),
            failed: result.clone(),
        });
        let what = match record.write(state) {
            Ok(()) => "its way back begins when what it left has ended".to_owned(),
            Err(error) => format!("its way back does not run: {}", Chain(&error)),
        };
        Ok(if is_due { and(result, &what) } else { result })
    }

    /// Takes back what the last script did, if it has failed, can take it back, and has not begun to. Returns what became of it; None if there is nothing to
    /// take back. It must be called in a process of its own, when nothing of the script runs any more.
    ///
    /// # Errors
    /// When neither the record nor the result can be written.
    pub fn way_back(&self) -> Result<Option<RunResult>, RunError> {
        let state = self.open_state()?;
        let Some(_lock) = record::lock(&state)? else {
            return Ok(None);
        };
        let mut record = Record::read(&state)?;
        let Some(WayBack { script, failed }) = record.way_back.take() else {
            return Ok(None);
        };
        // It begins at most once, whatever happens then.
        record.write(&state)?;
        let host = own(&self.folder);
        let result = self.go_back(&host, &state, &record, &script, &failed);
        let result =
            result.unwrap_or_else(|refused| and(failed, &format!("its way back does not run: {}", Chain(&refused))));
        host.tell(&result)?;
        Ok(Some(result))
    }

    /// Not if the kubelet is new: the coordinator may count the node as done, and start the next one.
    fn go_back(
        &self,
        host: &Host,
        state: &Host,
        record: &Record,
        script: &str,
        failed: &RunResult,
    ) -> Result<RunResult, NotRun> {
        let trust = Trust::read(host)?;
        let ordered = host.ordered()?;
        let is_same = |order: &Order| files::id(&order.upgrade) == failed.id && digest(&order.script) == script;
        let order = ordered.filter(is_same).ok_or(NotRun::Withdrawn)?;
        let target = target(&order)?;
        let script = trust.open(&order.script, &self.asked(&failed.id, &target, record))?;
        let before = record.version_before(&failed.id);
        // A program that was half replaced has no version, and is what a way back is for.
        let version = self.version().or_else(|| before.clone());
        let run = self.decide_again(host, &order, record, trust.node(), version.as_ref())?;
        let execution = Execution::new(state, script.body(), trust.node(), &run, &*self.clock);
        // A folder that is full is no reason not to begin.
        let _ = host.tell(&and(
            failed.clone(),
            &format!("its way back runs, until {} at the latest", run.until),
        ));
        let back = execution.start(Way::Back).map_err(NotRun::Start)?;
        let version = self.version();
        let shown = version
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), Version::to_string);
        let is_back = back.outcome == Outcome::Succeeded;
        let rolled_back = is_back && version.is_some() && version == before;
        let what = if rolled_back {
            format!("its way back ended with the status 0, and the kubelet is at {shown} as before")
        } else if is_back {
            format!("its way back ended with the status 0, but the version of the kubelet is {shown} now")
        } else {
            format!("its way back did not end well: {}", back.message)
        };
        Ok(RunResult {
            rolled_back,
            at: back.at,
            tail: format!("{}{}", failed.tail, back.tail),
            ..and(failed.clone(), &what)
        })
    }

    fn asked<'a>(&self, upgrade: &'a str, version: &'a Version, record: &Record) -> Asked<'a> {
        Asked {
            upgrade,
            version,
            newest: record.newest,
            now: self.clock.now(),
        }
    }

    /// What was checked must still be ordered.
    fn decide_again(
        &self,
        host: &Host,
        order: &Order,
        record: &Record,
        node: &NodeName,
        version: Option<&Version>,
    ) -> Result<Run, NotRun> {
        let id = files::id(&order.upgrade);
        let still = host.ordered()?.filter(|still| still.script == order.script);
        let still = still.ok_or(NotRun::Withdrawn)?;
        let view = agent::Host {
            node,
            version,
            ledger: &record.ledger,
            now: self.clock.now(),
        };
        Ok(confirm(id, &[identified(&still, id)], view)?)
    }

    fn running(&self, id: &str, run: &Run) -> RunResult {
        RunResult {
            id: id.to_owned(),
            outcome: Outcome::Running,
            message: format!("the script runs, until {} at the latest", run.until),
            exit_code: None,
            rolled_back: false,
            at: self.clock.now(),
            tail: String::new(),
        }
    }

    /// The kubelet is at the version of the order, or newer.
    fn restarted(&self, order: &Order) -> Option<Restarted> {
        let target: Version = order.upgrade.spec.target_version.parse().ok()?;
        let version = self.version().filter(|version| version.order(&target).is_ge())?;
        Some(Restarted { version, target })
    }

    /// The version of the kubelet on this host; None if it cannot be read.
    fn version(&self) -> Option<Version> {
        let text = printed(Command::new(&self.kubelet).arg("--version"), &*self.clock)?;
        text.split_whitespace().last()?.parse().ok()
    }
}

fn target(order: &Order) -> Result<Version, NotRun> {
    order.upgrade.spec.target_version.parse().map_err(NotRun::Target)
}

/// The same result, with more words.
fn and(result: RunResult, what: &str) -> RunResult {
    RunResult {
        message: format!("{}; {what}", result.message),
        ..result
    }
}

/// The upgrade under the id that is signed, and not under the uid of an object: so an upgrade that somebody deletes and creates again under the same id is
/// the same one, and its script does not run again.
fn identified(order: &Order, id: &str) -> Upgrade {
    Upgrade {
        uid: id.to_owned(),
        ..form::read(&order.upgrade)
    }
}

/// A folder of whoever runs this: root.
pub(super) fn own(folder: &Path) -> Host {
    let owner = Owner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    };
    Host::new(folder, owner, Arc::new(AllCalls))
}

#[cfg(test)]
mod tests;
