//! The state of the mirror in the words of the report to the cloud.

use jiff::Timestamp;
use tidewaiter_api::{CloudSyncStatus, ConditionStatus, HeldDeletions, KindSync};
use tidewaiter_cloud::models::values::{Description, Slug};
use tidewaiter_cloud::models::{ClusterReport, HeldReport, Kind, KindReport, RefusedReport};
use tokio::sync::watch;

use super::board::{Board, LoopState};
use super::cloud_sync::{kind, synced};
use super::held::Held;

/// The state of all sync loops, and the holds apart. Clones share it.
#[derive(Clone)]
pub(crate) struct MirrorState {
    board: Board,
    apart: [Held; 2],
}

impl MirrorState {
    pub(super) fn new(board: Board, apart: [Held; 2]) -> Self {
        Self { board, apart }
    }

    /// Notifies of every update of a sync loop.
    pub(crate) fn updates(&self) -> watch::Receiver<()> {
        self.board.updates()
    }

    /// The part of the report about the mirror.
    pub(crate) fn report(&self, now: Timestamp) -> ClusterReport {
        let loops = self.board.states();
        let before = CloudSyncStatus::default();
        let mirrored = loops.iter().filter_map(|state| {
            Some(KindReport {
                follows: state.follows.iter().filter_map(|kind| word(*kind)).collect(),
                change: state.change.and_then(|change| change.to_string().parse().ok()),
                error: error(state).map_or_else(Description::default, Description::of),
                ..report(&kind(state, &before))?
            })
        });
        let apart = self.apart.iter().filter_map(Held::status);
        let apart = apart.filter_map(|kind| report(&kind));
        let condition = synced(&loops, &[], now);
        ClusterReport {
            synced: condition.status == ConditionStatus::True,
            message: Description::of(&condition.message),
            kinds: mirrored.chain(apart).collect(),
            ..ClusterReport::default()
        }
    }
}

#[cfg(test)]
impl MirrorState {
    /// The state of a mirror that holds a `ClusterRole`.
    pub(crate) fn with_held_role(kit: &tidewaiter_kit::Kit) -> Self {
        let board = Board::new(kit, std::time::Duration::from_secs(30)).unwrap();
        let apart = [Held::roles(kit.clock.clone()), Held::nodes(kit.clock.clone())];
        apart[0].hold("a-role", &["get pods".to_owned()]);
        Self::new(board, apart)
    }
}

fn word(kind: Kind) -> Option<Slug> {
    kind.word().parse().ok()
}

/// The reason why the last list could not be used, or is not applied.
fn error(state: &LoopState) -> Option<&str> {
    let errors = [&state.list_error, &state.write_error, &state.blocked, &state.idle];
    errors.into_iter().find_map(Option::as_deref).or(state.read_error())
}

fn report(sync: &KindSync) -> Option<KindReport> {
    let refused = sync.refused.iter().map(|refused| RefusedReport {
        id: Description::of(&refused.id),
        reason: Description::of(&refused.reason),
    });
    Some(KindReport {
        kind: sync.kind.parse().ok()?,
        follows: Vec::new(),
        change: None,
        revision: Description::of(&sync.revision),
        last_success: sync.last_success,
        objects: sync.objects,
        held: sync.held.as_ref().and_then(held),
        refused_objects: sync.refused_objects,
        refused: refused.collect(),
        error: Description::default(),
    })
}

fn held(held: &HeldDeletions) -> Option<HeldReport> {
    Some(HeldReport {
        revision: held.revision.parse().ok()?,
        since: Some(held.since),
        deletions: held.objects,
        additions: held.additions,
        names: held.names.iter().map(|name| Description::of(name)).collect(),
        reason: Description::of(&held.reason),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidewaiter_cloud::models::values::ChangeNumber;
    use tidewaiter_kit::{Kit, ManualClock};

    use super::*;
    use crate::mirror::board::{Applied, Contents};

    fn applied(change: u64) -> Applied {
        Applied {
            held: None,
            error: None,
            blocked: None,
            idle: None,
            objects: 1,
            change: Some(change),
        }
    }

    #[test]
    fn a_kind_has_followed_up_to_the_list_that_was_applied() {
        let clock = ManualClock::default();
        let kit = Kit::new(clock.shared()).unwrap();
        let board = Board::new(&kit, Duration::from_secs(30)).unwrap();
        board.insert("users", ("User".into(), &[Kind::User]), Box::new(|| None));
        let apart = [Held::roles(clock.shared()), Held::nodes(clock.shared())];
        let state = MirrorState::new(board.clone(), apart.clone());
        let report = || state.report(Timestamp::UNIX_EPOCH);
        let change = || report().kinds[0].change.as_ref().map(ChangeNumber::get);

        assert_eq!((change(), report().synced), (None, false));
        board.listed("users", Some(Contents::default()));
        assert_eq!(change(), None, "it is not applied");
        board.applied("users", applied(17));
        assert_eq!((change(), report().synced), (Some(17), true));
        assert_eq!(report().kinds[0].follows[0].as_str(), "users");
        board.failed("users", "unavailable", "the cloud\u{1b}[31m is away");
        assert!(report().kinds[0].error.as_str().starts_with("the cloud"));
        assert!(!report().synced && report().message.as_str().contains("is away"));

        apart[0].hold("a-role", &["get pods".to_owned()]);
        let kinds = report().kinds;
        assert_eq!((kinds.len(), kinds[1].kind.as_str()), (2, "ClusterRole"));
        assert_eq!(kinds[1].held.as_ref().unwrap().deletions, 1);
    }
}
