//! `tidewaiter host run`: the reaction of the host to a change of `current`, and to a boot.
//!
//! - Everything is decided here, with what cannot come from the cluster: what is pinned, the version of the kubelet,
//!   the clock, and the record of this host.
//! - The run is recorded before it begins, and decided again in between. So a crash at any point leads to one run or
//!   none. Only a script that declares itself repeatable runs again after it was interrupted, whatever the version of
//!   the kubelet is then.
//! - A script that has ended, or was refused because of itself or of a pinned value, is final: no script of this
//!   upgrade runs any more. The coordinator starts the next node then.
//! - A script that is recorded as running does not run when this process has the lock. It is settled, also when its
//!   order is gone. Where its unit was killed and the host goes on, the unit of the way back settles it: it does not
//!   run again, also if it is repeatable, so that one that uses up the memory does not do so until its deadline.
//! - The script that runs is a copy in a folder that the agent cannot reach: a file that is exchanged after it was
//!   checked does not run. Where the copy cannot run, nothing is recorded, and the order is retried.
//! - A script is killed at the deadline, so that it does not run beside that of the next node. So is its way back.
//!   Where its signature has a window, it neither begins before that nor runs beyond it.
//! - At most one script runs in a process, and its way back in another one. systemd kills what a script has left when
//!   the process ends, before the next one starts.
//! - A way back begins at most once, and only if everything that let its script run still holds.
//! - How a script ended is written as soon as it can be: until the deadline by the process that ran it, where what the
//!   script left ends with that process; then, if it was recorded, for a day by the unit of the way back.

mod execute;
mod record;
mod settle;
mod written;

use std::fs::File;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tidewaiter_api::NodeName;
use tidewaiter_kit::{Chain, SharedClock};
use tidewaiter_upgrade::agent::{self, Again, Refused, Repeatable, Run, confirm, decide};
use tidewaiter_upgrade::signed::{Untrusted, VerifiedScript, digest};
use tidewaiter_upgrade::{InvalidVersion, Upgrade, Version, form};

use super::files::{FileError, Order, Outcome, RunResult};
use super::trust::{ScriptRequest, Trust, TrustError};
use crate::host::{Host, HostError};
use execute::{CopyError, Execution, Mode};
pub(super) use execute::{SCRIPT, kubelet_version, version_text};
use record::{Record, WayBack};
use settle::{ended, write_again};
use written::Ended;

/// The reason why the host can neither run nor refuse a script.
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
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl From<HostError> for RunError {
    fn from(error: HostError) -> Self {
        Self::File(error.into())
    }
}

/// The reason why a script is not run.
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
    #[error(transparent)]
    Folder(#[from] RunError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("the script cannot be started")]
    Start(#[source] std::io::Error),
}

/// The node or the unit ended while a script ran.
#[derive(Debug, thiserror::Error)]
#[error("the node or the unit ended while the script ran, and it does not run again")]
struct Interrupted(#[source] Option<NotRun>);

/// The time when it begins.
const WAY_BACK_BEGINS: &str = "its way back begins when what it left has ended";

impl NotRun {
    /// The outcome of the order. An order that is gone or over is not the last word: its node may have another one.
    fn outcome(&self) -> Outcome {
        let is_final = match self {
            Self::Trust(error) => error.is_final(),
            Self::Untrusted(error) => error.is_final(),
            Self::Target(_) | Self::Start(_) => true,
            Self::Refused(Refused::AtVersion { version, target }) if version.is(target) => return Outcome::Succeeded,
            Self::Refused(Refused::RunBefore) => return Outcome::Interrupted,
            Self::Refused(refused) => matches!(refused, Refused::AtVersion { .. } | Refused::UnknownVersion),
            Self::File(_) | Self::Folder(_) | Self::Copy(_) | Self::Withdrawn => false,
        };
        if is_final { Outcome::Refused } else { Outcome::Blocked }
    }
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
    /// The folder of what is pinned, which the agent cannot write.
    pub pinned: PathBuf,
    /// The folder of the record, which the agent cannot reach.
    pub state: PathBuf,
    /// The folder in which scripts run; None for `state`.
    pub script_folder: Option<PathBuf>,
    /// The kubelet, whose version counts.
    pub kubelet: PathBuf,
    /// The time.
    pub clock: SharedClock,
}

impl Runner {
    /// Carries out the order in `current`, and writes the result. Returns it; None if there is nothing to do. An order
    /// that comes meanwhile is left to the next process: the agent repeats an order without a result.
    ///
    /// # Errors
    /// When neither the record nor the result can be written.
    pub fn run(&self) -> Result<Option<RunResult>, RunError> {
        let state = opened(&self.state)?;
        let Some(_lock) = record::lock(&state)? else {
            return Ok(None);
        };
        self.carry_out(&state)
    }

    /// Copies a script to where it can run. Before that, nothing may be recorded as begun.
    fn copy(&self, script: &str) -> Result<PathBuf, NotRun> {
        let folder = self.script_folder.as_ref().unwrap_or(&self.state);
        Ok(execute::copy(&opened(folder)?, script)?)
    }

    /// None if there is no order, or it is over.
    fn carry_out(&self, state: &Host) -> Result<Option<RunResult>, RunError> {
        let host = Host::of_root(&self.folder);
        let order = match host.ordered() {
            Ok(None) => return self.settle(&host, state),
            Ok(Some(order)) => order,
            Err(error) => return self.report(&host, "", Outcome::Blocked, &error).map(Some),
        };
        let id = form::id(&order.upgrade).to_owned();
        let before = host.result().unwrap_or_default().filter(|result| result.id == id);
        let outcome = before.map(|result| result.outcome);
        if outcome.is_some_and(Outcome::is_final) {
            return Ok(None);
        }
        if let Some(ended) = ended(state, &id) {
            return write_again(&host, ended);
        }
        let due = |record: Record| record.way_back.is_some_and(|due| due.failed.id == id);
        let is_due = Record::read(state).is_ok_and(due);
        if is_due || outcome == Some(Outcome::RollingBack) {
            return self.settle_way_back(&host, state, false);
        }
        // Only one runs, and it is not this one: the process that ran it has ended.
        let was_running = outcome == Some(Outcome::Running);
        let result = match self.start(&host, state, &order, &id) {
            Ok(ended) => return self.write_ended(&host, state, ended).map(Some),
            Err(refused) if was_running => self.result(&id, Outcome::Interrupted, &Interrupted(Some(refused))),
            Err(refused) => {
                let outcome = refused.outcome();
                if outcome == Outcome::Refused {
                    // Whatever happens to the result, and also if the script may be repeated.
                    let mut record = Record::read(state)?;
                    record.ledger.begun.insert(id.clone());
                    record.ended = Some(id.clone());
                    record.write(state)?;
                }
                self.result(&id, outcome, &refused)
            }
        };
        host.write_result(&result)?;
        Ok(Some(result))
    }

    fn report(
        &self,
        host: &Host,
        id: &str,
        outcome: Outcome,
        why: &(dyn std::error::Error + 'static),
    ) -> Result<RunResult, RunError> {
        let result = self.result(id, outcome, why);
        host.write_result(&result)?;
        Ok(result)
    }

    fn result(&self, id: &str, outcome: Outcome, why: &(dyn std::error::Error + 'static)) -> RunResult {
        RunResult {
            id: id.to_owned(),
            outcome,
            message: Chain(why).to_string(),
            exit_code: None,
            rolled_back: false,
            at: self.clock.now(),
            until: None,
            tail: String::new(),
        }
    }

    /// Checks the order, records the run, decides again, and runs the script.
    fn start(&self, host: &Host, state: &Host, order: &Order, id: &str) -> Result<Ended, NotRun> {
        let trust = Trust::read(&Host::of_root(&self.pinned))?;
        let mut record = Record::read(state)?;
        let upgrades = [identified(order, id)];
        let target = target(order)?;
        let script = trust.open(&order.script, &self.script_request(id, &target, &record))?;
        // One that has ended was not interrupted.
        let repeatable = match record.ended.as_deref() {
            Some(ended) if ended == id => Repeatable::No,
            _ => script.repeatable(),
        };
        let is_again = record.ledger.begun.contains(id) && repeatable == Repeatable::Yes;
        let version = self.version_for(&record, id, is_again);
        let view = agent::Host {
            node: trust.node(),
            version: version.as_ref(),
            ledger: &record.ledger,
            now: self.clock.now(),
        };
        let decided = decide(&upgrades, view, repeatable)?;
        let path = self.copy(script.body())?;
        record.begin(&upgrades, id, script.generation(), version.as_ref());
        record.write(state)?;
        let version = self.version_for(&record, id, is_again);
        let run = self.decide_again(host, order, &record, trust.node(), version.as_ref(), decided.again)?;
        let run = within(&script, run);
        host.write_result(&self.running(id, &run))?;
        let execution = Execution::new(path, trust.node(), &run, &*self.clock);
        let result = execution.start(Mode::Upgrade).map_err(NotRun::Start)?;
        record.ended = Some(id.to_owned());
        let (mut result, until) = (result, run.until);
        if result.outcome == Outcome::Failed && script.has_way_back() {
            record.way_back = Some(WayBack {
                script: digest(&order.script),
                failed: result.clone(),
            });
            match record.write(state) {
                Ok(()) => {
                    result = and(result, WAY_BACK_BEGINS);
                    result.outcome = Outcome::RollingBack;
                    // It may be what makes room: it does not wait.
                    let until = self.clock.now();
                    return Ok(Ended {
                        result,
                        until,
                        record: None,
                    });
                }
                Err(error) => {
                    result = and(result, &format!("its way back does not run: {}", Chain(&error)));
                    record.way_back = None;
                }
            }
        }
        record.result = Some(result.clone());
        Ok(Ended {
            result,
            until,
            record: Some(record),
        })
    }

    /// The version of the kubelet. A script that runs again may have left a program that is half replaced and has none:
    /// then that of before counts.
    fn version_for(&self, record: &Record, id: &str, is_again: bool) -> Option<Version> {
        self.version()
            .or_else(|| record.version_before(id).filter(|_| is_again))
    }

    fn script_request<'a>(&self, upgrade: &'a str, version: &'a Version, record: &Record) -> ScriptRequest<'a> {
        ScriptRequest {
            upgrade,
            version,
            newest: record.newest,
            now: self.clock.now(),
        }
    }

    /// Decides again, because the checked order may have been withdrawn.
    fn decide_again(
        &self,
        host: &Host,
        order: &Order,
        record: &Record,
        node: &NodeName,
        version: Option<&Version>,
        again: Again,
    ) -> Result<Run, NotRun> {
        let id = form::id(&order.upgrade);
        let still = host.ordered()?.filter(|still| still.script == order.script);
        let still = still.ok_or(NotRun::Withdrawn)?;
        let view = agent::Host {
            node,
            version,
            ledger: &record.ledger,
            now: self.clock.now(),
        };
        Ok(confirm(id, again, &[identified(&still, id)], view)?)
    }

    fn running(&self, id: &str, run: &Run) -> RunResult {
        RunResult {
            id: id.to_owned(),
            outcome: Outcome::Running,
            message: format!("the script runs, until {} at the latest", run.until),
            exit_code: None,
            rolled_back: false,
            at: self.clock.now(),
            until: Some(run.until),
            tail: String::new(),
        }
    }

    /// The version of the kubelet on this host; None if it cannot be read.
    fn version(&self) -> Option<Version> {
        kubelet_version(&self.kubelet, &*self.clock)
    }
}

fn target(order: &Order) -> Result<Version, NotRun> {
    order.upgrade.spec.target_version.parse().map_err(NotRun::Target)
}

/// The run, which ends with the window of the signature.
fn within(script: &VerifiedScript<'_>, run: Run) -> Run {
    Run {
        until: script.limit(run.until),
        ..run
    }
}

/// Adds `text` to the message.
fn and(result: RunResult, what: &str) -> RunResult {
    RunResult {
        message: format!("{}; {what}", result.message),
        ..result
    }
}

/// The upgrade under the id that is signed, and not under the uid of an object: so an upgrade that somebody deletes and
/// creates again under the same id is the same one, and its script does not run again.
fn identified(order: &Order, id: &str) -> Upgrade {
    Upgrade {
        uid: id.to_owned(),
        ..form::read(&order.upgrade)
    }
}

/// A folder of root, which is created if it is missing.
fn opened(folder: &Path) -> Result<Host, RunError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| RunError::State {
        path: folder.to_owned(),
        source,
    })?;
    Ok(Host::of_root(folder))
}

/// Takes the lock. Returns it, and true if a way back is due; None if a script runs.
pub(super) fn hold(state: &Host) -> Result<Option<(File, bool)>, HostError> {
    let Some(lock) = record::lock(state)? else {
        return Ok(None);
    };
    let is_due = Record::read(state).is_ok_and(|record| record.way_back.is_some());
    Ok(Some((lock, is_due)))
}

#[cfg(test)]
mod tests;
