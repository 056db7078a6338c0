//! The outcome of a job. Pure.

use serde_json::Value;

/// The outcome of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    Running,
    Succeeded,
    Failed,
}

impl JobState {
    /// Of a `Job` of batch/v1.
    pub(super) fn of(job: &Value) -> Self {
        let conditions = job["status"]["conditions"].as_array();
        let has = |type_: &str| {
            let mut all = conditions.into_iter().flatten();
            all.any(|condition| condition["type"] == type_ && condition["status"] == "True")
        };
        if has("Complete") {
            Self::Succeeded
        } else if has("Failed") {
            Self::Failed
        } else {
            Self::Running
        }
    }
}
