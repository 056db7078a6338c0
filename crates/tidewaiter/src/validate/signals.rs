//! Signals that end a wait.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// SIGINT: Ctrl-C.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

impl Interrupt {
    /// 128 and the signal's number, as shells have it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

/// Waits for a signal.
pub(crate) trait Interrupts {
    /// Completes when one has come.
    async fn next(&mut self) -> Interrupt;
}

/// The signals of this process. From the moment they are listened to, none ends it by itself.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }
}

impl Interrupts for Signals {
    async fn next(&mut self) -> Interrupt {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupt::Interrupted,
            _ = self.terminate.recv() => Interrupt::Terminated,
        }
    }
}
