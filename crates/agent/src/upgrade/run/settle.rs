//! The steps after a script has ended, or was interrupted: its way back, and the final result.

use jiff::Timestamp;
use tidewaiter_kit::Chain;
use tidewaiter_upgrade::Version;
use tidewaiter_upgrade::agent::Again;

use super::execute::{Execution, Mode};
use super::record::{self, Record, WayBack};
use super::{Interrupted, NotRun, RunError, Runner, WAY_BACK_BEGINS, and, digest, form, opened, target, within};
use crate::host::Host;
use crate::upgrade::files::{Order, Outcome, RunResult};
use crate::upgrade::trust::Trust;

/// The node or the unit ended while it ran.
const WAY_BACK_INTERRUPTED: &str = "its way back was interrupted, and does not run again";

/// Its order is gone before it began.
const WAY_BACK_WITHDRAWN: &str = "its way back does not run: current was changed or removed";

impl Runner {
    /// Settles what was interrupted, and whose order is gone meanwhile, or whose unit was killed.
    pub(super) fn settle(&self, host: &Host, state: &Host) -> Result<Option<RunResult>, RunError> {
        let Some(told) = host.result().unwrap_or_default() else {
            return Ok(None);
        };
        if told.outcome == Outcome::Running
            && let Some(ended) = ended(state, &told.id)
        {
            return write_again(host, ended);
        }
        match told.outcome {
            Outcome::Running => self
                .report(host, &told.id, Outcome::Interrupted, &Interrupted(None))
                .map(Some),
            Outcome::RollingBack => self.settle_way_back(host, state, true),
            _ => Ok(None),
        }
    }

    /// A way back that is not due any more has begun, and does not run when this process has the lock. One that is due
    /// begins in its own unit, which systemd starts because this process fails; so it begins after a reboot, too.
    /// Without its order it does not begin.
    pub(super) fn settle_way_back(
        &self,
        host: &Host,
        state: &Host,
        is_withdrawn: bool,
    ) -> Result<Option<RunResult>, RunError> {
        let mut record = Record::read(state)?;
        let told = host.result().unwrap_or_default();
        let (outcome, failed, what) = match (record.way_back.take(), told) {
            (Some(due), _) if is_withdrawn => (Outcome::Failed, due.failed, WAY_BACK_WITHDRAWN),
            (Some(due), _) => (Outcome::RollingBack, due.failed, WAY_BACK_BEGINS),
            (None, Some(told)) => (Outcome::Failed, told, WAY_BACK_INTERRUPTED),
            (None, None) => return Ok(None),
        };
        if outcome == Outcome::Failed {
            record.write(state)?;
        }
        let result = RunResult {
            outcome,
            at: self.clock.now(),
            ..and(failed, what)
        };
        host.write_result(&result)?;
        Ok(Some(result))
    }

    /// Runs the way back of the last script, if the script has failed, has one, and has not begun it; or reports that
    /// the script, or its way back, was interrupted. Returns the result; None if there is nothing to do. It must be
    /// called in a process of its own, when nothing of the script runs any more.
    ///
    /// # Errors
    /// When neither the record nor the result can be written.
    pub fn way_back(&self) -> Result<Option<RunResult>, RunError> {
        let state = opened(&self.state)?;
        let Some(_lock) = record::lock(&state)? else {
            return Ok(None);
        };
        let mut record = Record::read(&state)?;
        let host = Host::of_root(&self.folder);
        let Some(WayBack { script, failed }) = record.way_back.take() else {
            // systemd starts this also when it has killed the unit, and nothing else would report the result of its
            // script.
            return self.until_written(self.settle_deadline(), || self.settle(&host, &state));
        };
        // It begins at most once, whatever happens then.
        record.write(&state)?;
        let ended = self.roll_back(&host, &record, &script, &failed);
        let (result, until) = ended.unwrap_or_else(|refused| {
            let result = and(failed, &format!("its way back does not run: {}", Chain(&refused)));
            (result, self.settle_deadline())
        });
        self.until_written(until, || Ok(host.write_result(&result)?))?;
        Ok(Some(result))
    }

    /// Returns the deadline, too. Not if the kubelet is new: the coordinator may count the node as done, and start the
    /// next one.
    fn roll_back(
        &self,
        host: &Host,
        record: &Record,
        script: &str,
        failed: &RunResult,
    ) -> Result<(RunResult, Timestamp), NotRun> {
        let trust = Trust::read(&Host::of_root(&self.pinned))?;
        let ordered = host.ordered()?;
        let is_same = |order: &Order| form::id(&order.upgrade) == failed.id && digest(&order.script) == script;
        let order = ordered.filter(is_same).ok_or(NotRun::Withdrawn)?;
        let target = target(&order)?;
        let script = trust.open(&order.script, &self.script_request(&failed.id, &target, record))?;
        let before = record.version_before(&failed.id);
        // A program that was half replaced has no version, and is what a way back is for.
        let version = self.version().or_else(|| before.clone());
        let run = self.decide_again(host, &order, record, trust.node(), version.as_ref(), Again::No)?;
        let run = within(&script, run);
        let execution = Execution::new(self.copy(script.body())?, trust.node(), &run, &*self.clock);
        // A folder that is full is no reason not to begin.
        let _ = host.write_result(&RunResult {
            outcome: Outcome::RollingBack,
            until: Some(run.until),
            ..and(
                failed.clone(),
                &format!("its way back runs, until {} at the latest", run.until),
            )
        });
        let back = execution.start(Mode::Rollback).map_err(NotRun::Start)?;
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
        let result = RunResult {
            rolled_back,
            at: back.at,
            tail: format!("{}{}", failed.tail, back.tail),
            ..and(failed.clone(), &what)
        };
        Ok((result, run.until))
    }
}

/// The result of the script of this upgrade in the host's record: where the agent reads it, it could not be written.
pub(super) fn ended(state: &Host, id: &str) -> Option<RunResult> {
    let record = Record::read(state).ok()?;
    record.result.filter(|result| result.id == id)
}

pub(super) fn write_again(host: &Host, ended: RunResult) -> Result<Option<RunResult>, RunError> {
    host.write_result(&ended)?;
    Ok(Some(ended))
}
