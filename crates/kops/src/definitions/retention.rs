//! The time for which a group is tracked.
//!
//! A group that a caller has requested is kept for hours, because the store may lose its file by mistake: its Nodes
//! keep their definition.

use tidewaiter_api::InstanceGroupName;

use super::{Definitions, Inner};

impl Definitions {
    /// Drops the groups that no caller has requested for a long time and that do not exist.
    pub(super) fn forget_unused(&self) {
        let since = self
            .0
            .shared
            .clock
            .monotonic()
            .saturating_sub(self.0.settings.unused_after);
        let all = &self.0.all_groups;
        let mut groups = self.0.groups.lock();
        groups.retain(|name, group| group.wanted_since(since) || all.is_listed(name));
    }

    /// Drops the groups that were deleted and have no Node. One that was requested a moment ago is kept: the Node of
    /// its caller may not be known yet.
    pub(super) fn forget_deleted(&self, has_node: &impl Fn(&InstanceGroupName) -> bool) {
        let Inner {
            all_groups,
            settings,
            shared,
            ..
        } = &*self.0;
        let lately = shared.clock.monotonic().saturating_sub(settings.poll * 2);
        self.0.groups.lock().retain(|name, group| {
            !all_groups.is_deleted(name) || !group.is_missing() || group.wanted_since(lately) || has_node(name)
        });
    }
}
