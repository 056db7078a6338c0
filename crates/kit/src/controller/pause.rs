//! Stops the controllers of a role for a while, without ending them.

use futures::future::pending;
use tokio::sync::watch;

/// A signal by which controllers pause. Clones share it.
#[derive(Clone, Debug)]
pub struct Pause(watch::Receiver<bool>);

/// Makes controllers pause, and continue.
#[derive(Debug)]
pub struct PauseSwitch(watch::Sender<bool>);

impl Pause {
    /// Never pauses.
    #[must_use]
    pub fn never() -> Self {
        PauseSwitch::new(false).pause()
    }

    /// True if it pauses now.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when it is `paused`, now or later. Cancel safe.
    pub async fn until(&self, paused: bool) {
        let mut state = self.0.clone();
        if state.wait_for(|now| *now == paused).await.is_err() {
            // The switch is gone: it stays as it is.
            pending::<()>().await;
        }
    }
}

impl PauseSwitch {
    /// A switch in this state.
    #[must_use]
    pub fn new(paused: bool) -> Self {
        Self(watch::Sender::new(paused))
    }

    /// The signal that it switches.
    #[must_use]
    pub fn pause(&self) -> Pause {
        Pause(self.0.subscribe())
    }

    /// Sets the state that `paused` returns. Calls at the same time take turns, so the state is never older than what
    /// the last one saw.
    pub fn update(&self, paused: impl FnOnce() -> bool) {
        self.0.send_if_modified(|state| {
            let before = *state;
            *state = paused();
            *state != before
        });
    }
}
