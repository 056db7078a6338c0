//! The supervised tasks of the process: the only place that spawns tasks and handles signals.
//!
//! A task that ends or panics before shutdown stops the process with an error that names it. On SIGTERM or SIGINT one
//! token is cancelled, every task has a grace to finish, and what is left is then dropped.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt::{self, Debug};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument as _, info, info_span, warn};

use crate::chain::Chain;
use crate::clock::{SharedClock, timeout};

/// The time that tasks have to finish after SIGTERM: a leader hands over within a second.
pub const GRACE: Duration = Duration::from_millis(900);

/// The reason why the process stopped without a signal.
#[derive(Debug, thiserror::Error)]
pub enum TaskEnded {
    /// A task that runs for the life of the process returned.
    #[error("the task {task} ended, which it never should")]
    Returned {
        /// The task's name.
        task: String,
    },
    /// A task failed.
    #[error("the task {task} failed")]
    Failed {
        /// The task's name.
        task: String,
        /// Its error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A task panicked.
    #[error("the task {task} panicked: {message}")]
    Panicked {
        /// The task's name.
        task: String,
        /// The panic's message.
        message: String,
    },
    /// The process cannot handle signals.
    #[error("cannot handle signals")]
    Signals(#[source] io::Error),
}

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// The set of tasks of a process.
pub struct Tasks {
    set: JoinSet<Outcome>,
    names: HashMap<Id, Cow<'static, str>>,
    shutdown: CancellationToken,
    grace: Duration,
    clock: SharedClock,
}

impl Tasks {
    /// No task yet. `clock` measures the grace.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self {
            set: JoinSet::new(),
            names: HashMap::new(),
            shutdown: CancellationToken::new(),
            grace: GRACE,
            clock,
        }
    }

    /// Sets another grace than [`GRACE`].
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Starts a task that runs until shutdown. The error names it when it ends.
    pub fn spawn<E>(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Error + Send + Sync + 'static,
    {
        let name = name.into();
        let span = info_span!(parent: None, "task", task = %name);
        let task = task.map(|result| result.map_err(Into::into)).instrument(span);
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Starts a task that runs what is spawned into it, until shutdown.
    #[must_use]
    pub fn spawner(&mut self, name: impl Into<Cow<'static, str>>) -> Spawner {
        let (sender, mut new) = mpsc::unbounded_channel();
        let shutdown = self.shutdown_token();
        self.spawn(name, async move {
            let mut parts = FuturesUnordered::<BoxFuture<'static, ()>>::new();
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok::<(), Infallible>(()),
                    Some(part) = new.recv() => parts.push(part),
                    Some(()) = parts.next(), if !parts.is_empty() => {}
                }
            }
        });
        Spawner(sender)
    }

    /// Cancelled when the process is to stop. A task then starts nothing more, finishes what it began, and returns.
    #[must_use]
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Runs until `stop` completes with the reason to stop, the token is cancelled, or a task ends.
    ///
    /// # Errors
    /// When a task ended first, in whatever way.
    pub async fn run_until(mut self, stop: impl Future<Output = &'static str>) -> Result<(), TaskEnded> {
        let token = self.shutdown.clone();
        let result = tokio::select! {
            biased;
            reason = stop => {
                info!(reason, "stopping");
                Ok(())
            }
            () = token.cancelled() => Ok(()),
            Some((task, outcome)) = self.next_end() => Err(ended(task, outcome)),
        };
        self.shutdown.cancel();
        self.finish().await;
        result
    }

    /// Gives the remaining tasks their grace, then drops them.
    async fn finish(mut self) {
        let (grace, clock) = (self.grace, Arc::clone(&self.clock));
        let all = async {
            while let Some((task, outcome)) = self.next_end().await {
                match outcome {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => warn!(task = %task, error = %Chain(&*error), "failed while stopping"),
                    Err(error) => warn!(task = %task, error = %panic_message(error), "panicked while stopping"),
                }
            }
        };
        if timeout(&*clock, grace, all).await.is_err() {
            let mut left: Vec<_> = self.names.values().map(Cow::as_ref).collect();
            left.sort_unstable();
            warn!(
                tasks = left.join(", "),
                grace_ms = grace.as_millis(),
                "dropped: did not finish in time"
            );
        }
        // Dropping the set aborts what is left.
    }

    async fn next_end(&mut self) -> Option<(Cow<'static, str>, Result<Outcome, JoinError>)> {
        let (id, outcome) = match self.set.join_next_with_id().await? {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(error)),
        };
        Some((self.names.remove(&id).unwrap_or_default(), outcome))
    }
}

/// Runs futures that begin at any time, as parts of one task.
pub struct Spawner(mpsc::UnboundedSender<BoxFuture<'static, ()>>);

impl Spawner {
    /// Runs `part` until it ends or the returned guard is dropped.
    #[must_use]
    pub fn spawn(&self, part: impl Future<Output = ()> + Send + 'static) -> DropGuard {
        let end = CancellationToken::new();
        let part = end.clone().run_until_cancelled_owned(part);
        // The task ends only with the process.
        let _ = self.0.send(part.map(|_| ()).boxed());
        end.drop_guard()
    }
}

impl Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("names", &self.names.values())
            .finish_non_exhaustive()
    }
}

fn ended(task: Cow<'static, str>, outcome: Result<Outcome, JoinError>) -> TaskEnded {
    let task = task.into_owned();
    match outcome {
        Ok(Ok(())) => TaskEnded::Returned { task },
        Ok(Err(source)) => TaskEnded::Failed { task, source },
        Err(error) => TaskEnded::Panicked {
            task,
            message: panic_message(error),
        },
    }
}

/// The message of a panic.
pub(crate) fn panic_message(error: JoinError) -> String {
    let Ok(payload) = error.try_into_panic() else {
        return "cancelled".to_owned();
    };
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload
            .downcast_ref::<&str>()
            .copied()
            .unwrap_or("no message")
            .to_owned(),
    }
}

/// Handles signals from the moment of the call, so that one during start-up is not lost.
pub(crate) fn stop_signal() -> io::Result<BoxFuture<'static, &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    }
    .boxed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::future::{pending, ready};

    use crate::clock::{ManualClock, SimulatedClock};

    #[derive(Debug, thiserror::Error)]
    #[error("the disk is full")]
    struct Full;

    async fn never() -> &'static str {
        pending().await
    }

    #[tokio::test]
    async fn a_task_that_returns_is_named() {
        let mut tasks = Tasks::new(ManualClock::default().shared());
        tasks.spawn("idle", pending::<Result<(), Infallible>>());
        tasks.spawn("short", ready(Ok::<(), Infallible>(())));
        let error = tasks.with_grace(Duration::ZERO).run_until(never()).await.unwrap_err();
        assert_eq!(error.to_string(), "the task short ended, which it never should");
    }

    #[tokio::test]
    async fn a_task_that_fails_is_named_with_its_cause() {
        let mut tasks = Tasks::new(ManualClock::default().shared());
        tasks.spawn("writer", ready(Err(Full)));
        let error = tasks.run_until(never()).await.unwrap_err();
        assert_eq!(Chain(&error).to_string(), "the task writer failed: the disk is full");
    }

    #[tokio::test]
    async fn a_panic_is_named() {
        let mut tasks = Tasks::new(ManualClock::default().shared());
        tasks.spawn("clumsy", async {
            panic!("out of {}", "cheese") as Result<(), Infallible>
        });
        let error = tasks.run_until(never()).await.unwrap_err();
        assert_eq!(error.to_string(), "the task clumsy panicked: out of cheese");
    }

    #[tokio::test]
    async fn the_end_of_one_lets_the_others_finish() {
        let mut tasks = Tasks::new(ManualClock::default().shared());
        let finished = Arc::new(AtomicBool::new(false));
        let (token, flag) = (tasks.shutdown_token(), Arc::clone(&finished));
        tasks.spawn("careful", async move {
            token.cancelled().await;
            tokio::task::yield_now().await;
            flag.store(true, Ordering::Relaxed);
            Ok::<(), Infallible>(())
        });
        tasks.spawn("writer", ready(Err(Full)));
        tasks.run_until(never()).await.unwrap_err();
        assert!(finished.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn told_to_stop_it_ends_well_within_the_grace() {
        let clock = SimulatedClock::new();
        let mut tasks = Tasks::new(Arc::new(clock.clone()));
        tasks.spawn("stubborn", pending::<Result<(), Infallible>>());
        tasks.run_until(ready("SIGTERM")).await.unwrap();
        assert_eq!(clock.elapsed(), GRACE);
    }
}
