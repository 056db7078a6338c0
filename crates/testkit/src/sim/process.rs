//! A process that talks to the server: it can be killed at any write, and stopped for a while.

use std::fmt::{self, Debug};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};

/// When a process dies: at which of its writes from now on, the first being 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The write does not reach the server.
    Before(usize),
    /// The write takes effect.
    After(usize),
}

/// The reaction of a process to the arrival of one of its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtWrite {
    Goes,
    DiesBefore,
    DiesAfter,
}

/// One process. Clones are the same one.
///
/// A process that is dead or stopped receives nothing: no answer, no event of a watch, and no time, if its clock waits
/// for [`Process::running`] after each sleep. So nothing runs in it, like in a real process after SIGKILL and between
/// SIGSTOP and SIGCONT.
#[derive(Clone)]
pub struct Process(Arc<Shared>);

struct Shared {
    name: String,
    state: Mutex<State>,
    died: Notify,
}

#[derive(Default)]
struct State {
    dead: bool,
    crash: Option<Crash>,
    /// The waiters for the end of a stop; `None` while the process runs.
    stopped: Option<Vec<oneshot::Sender<()>>>,
}

impl Process {
    /// A process that runs.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::new(Shared {
            name: name.to_owned(),
            state: Mutex::default(),
            died: Notify::new(),
        }))
    }

    /// The name under which the log shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Kills the process now. Drop its tasks too.
    pub fn kill(&self) {
        self.lock().dead = true;
        self.0.died.notify_waiters();
    }

    /// Kills the process at one of its next writes.
    pub fn kill_at(&self, crash: Crash) {
        self.lock().crash = Some(crash);
    }

    /// Returns true if it was killed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// Completes when the process is dead.
    pub async fn died(&self) {
        let died = self.0.died.notified();
        if !self.is_dead() {
            died.await;
        }
    }

    /// Stops the process, as SIGSTOP does.
    pub fn stop(&self) {
        self.lock().stopped.get_or_insert_default();
    }

    /// Lets a stopped process go on, as SIGCONT does. What it waited for arrives at one instant, in an order drawn from
    /// `random`.
    pub fn resume(&self, random: &mut fastrand::Rng) {
        let mut waiting = self.lock().stopped.take().unwrap_or_default();
        random.shuffle(&mut waiting);
        for one in waiting {
            // The waiting task may be gone.
            let _ = one.send(());
        }
    }

    /// Completes at once while the process runs, after the stop when it is stopped, and never once it is dead.
    pub async fn running(&self) {
        loop {
            let resumed = {
                let mut state = self.lock();
                if state.dead {
                    None
                } else if let Some(waiting) = &mut state.stopped {
                    let (resume, resumed) = oneshot::channel();
                    waiting.push(resume);
                    Some(resumed)
                } else {
                    return;
                }
            };
            match resumed {
                Some(resumed) => drop(resumed.await),
                None => pending().await,
            }
        }
    }

    /// One of its writes arrives.
    pub(super) fn writes(&self) -> AtWrite {
        let mut state = self.lock();
        let (at_write, crash) = match state.crash {
            None => (AtWrite::Goes, None),
            Some(Crash::Before(0)) => (AtWrite::DiesBefore, None),
            Some(Crash::After(0)) => (AtWrite::DiesAfter, None),
            Some(Crash::Before(left)) => (AtWrite::Goes, Some(Crash::Before(left - 1))),
            Some(Crash::After(left)) => (AtWrite::Goes, Some(Crash::After(left - 1))),
        };
        state.crash = crash;
        at_write
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }
}

impl Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Process").field(&self.0.name).finish()
    }
}
