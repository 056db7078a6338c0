//! The error of a sweep.

use std::fmt;

use tidewaiter_kit::{Category, ReconcileError, Retry, WriteError};

use crate::controllers::PluginError;

/// Something could not be removed. The rest was.
#[derive(Debug)]
pub(in crate::terminate) struct SweepError {
    pub(super) row: &'static str,
    pub(super) failed: Box<Failure>,
}

#[derive(Debug)]
pub(super) enum Failure {
    List(kube::Error),
    Write { count: usize, first: WriteError },
    Plugin(PluginError),
}

impl SweepError {
    pub(super) fn write(row: &'static str, first: WriteError) -> Self {
        let failed = Box::new(Failure::Write { count: 1, first });
        Self { row, failed }
    }
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.failed {
            Failure::List(_) => write!(f, "cannot list {}", self.row),
            Failure::Write { count, .. } => write!(f, "{count} writes to {} failed, the first", self.row),
            Failure::Plugin(_) => f.write_str("cannot remove the objects of a plugin"),
        }
    }
}

impl std::error::Error for SweepError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match &*self.failed {
            Failure::List(error) => error,
            Failure::Write { first, .. } => first,
            Failure::Plugin(error) => error,
        })
    }
}

impl ReconcileError for SweepError {
    fn category(&self) -> Category {
        match &*self.failed {
            Failure::List(error) => Category::new("list", Retry::of(error)),
            // Whatever the reason is, it may be removed while an administrator watches.
            Failure::Write { first, .. } => match first.retry() {
                Retry::Slow => Category::new(first.class(), Retry::Backoff),
                retry => Category::new(first.class(), retry),
            },
            Failure::Plugin(error) => Category::new(error.class(), error.retry()),
        }
    }
}
