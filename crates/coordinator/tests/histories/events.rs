//! The change stream of the simulated cloud, and what goes wrong with it.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::json;
use tidewaiter_testkit::sim::Process;

use crate::cloud::Cloud;
use crate::world::sleep;

const HEARTBEAT: Duration = Duration::from_secs(15);

/// The state of the change stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announces {
    Well,
    /// Each event five times.
    Repeatedly,
    /// Every second event is lost, and nobody says so.
    Lossily,
    /// That anything may have changed.
    Resets,
    /// For a second at a time, and what changes in between is lost.
    Briefly,
    /// The connection is accepted, and nothing comes.
    Nothing,
    /// The connection is accepted, and not even its head comes.
    Hangs,
    /// There is no stream.
    Absent,
}

pub const ANNOUNCES: [Announces; 8] = [
    Announces::Well,
    Announces::Repeatedly,
    Announces::Lossily,
    Announces::Resets,
    Announces::Briefly,
    Announces::Nothing,
    Announces::Hangs,
    Announces::Absent,
];

/// One connection.
struct Connection {
    cloud: Cloud,
    process: Process,
    announces: Announces,
    epoch: u64,
    begun: bool,
    /// The number of changes that it has announced.
    next: usize,
    end: tokio::time::Instant,
}

/// The bytes of a connection, until the way in which the cloud announces becomes another.
pub fn bytes(
    cloud: Cloud,
    process: Process,
    known: Option<usize>,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let (announces, epoch, changes) = {
        let state = cloud.lock();
        (state.announces, state.epoch, state.changes.len())
    };
    let brief = if announces == Announces::Briefly {
        1
    } else {
        24 * 60 * 60
    };
    let connection = Connection {
        announces,
        epoch,
        // What it does not remember is lost.
        begun: known.is_some() && announces != Announces::Briefly,
        next: known
            .filter(|_| announces != Announces::Briefly)
            .unwrap_or(changes)
            .min(changes),
        end: sleep(Duration::from_secs(brief)).deadline(),
        cloud,
        process,
    };
    stream::unfold(connection, async |mut connection| {
        let text = connection.next().await?;
        connection.process.running().await;
        Some((Ok(Bytes::from(text)), connection))
    })
}

impl Connection {
    async fn next(&mut self) -> Option<String> {
        let changed = self.cloud.changed();
        if !std::mem::replace(&mut self.begun, true) && self.announces != Announces::Nothing {
            return Some(format!("event: hello\nid: {}\ndata: {{}}\n\n", self.next));
        }
        let mut heartbeat = Box::pin(sleep(HEARTBEAT));
        let mut changed = Box::pin(changed.notified_owned());
        loop {
            if self.cloud.lock().epoch != self.epoch {
                return None;
            }
            if self.announces != Announces::Nothing
                && let Some(text) = self.change()
            {
                return Some(text);
            }
            tokio::select! {
                biased;
                () = &mut changed => changed = Box::pin(self.cloud.changed().notified_owned()),
                () = tokio::time::sleep_until(self.end) => return None,
                () = &mut heartbeat => {
                    if self.announces != Announces::Nothing {
                        return Some(":\n\n".to_owned());
                    }
                    heartbeat = Box::pin(sleep(HEARTBEAT));
                }
            }
        }
    }

    /// The next change that is announced.
    fn change(&mut self) -> Option<String> {
        loop {
            let word = *self.cloud.lock().changes.get(self.next)?;
            self.next += 1;
            let id = self.next;
            if self.announces == Announces::Lossily && id.is_multiple_of(2) {
                continue;
            }
            let change = format!("event: change\nid: {id}\ndata: {}\n\n", json!({"kinds": [word]}));
            return Some(match self.announces {
                Announces::Repeatedly => change.repeat(5),
                Announces::Resets => format!("event: reset\nid: {id}\ndata: {{}}\n\n"),
                _ => change,
            });
        }
    }
}
