//! The subscribers of a cache, called for each change: the indexes first, then the triggers.

use parking_lot::RwLock;

use super::Change;

pub(super) type Update<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

pub(super) struct Subscribers<K> {
    indexes: RwLock<Vec<Update<K>>>,
    triggers: RwLock<Vec<Update<K>>>,
}

impl<K> Subscribers<K> {
    pub(super) fn new() -> Self {
        Self {
            indexes: RwLock::default(),
            triggers: RwLock::default(),
        }
    }

    /// Adds an index after `fill` has given it the objects that there are. No change is applied meanwhile.
    pub(super) fn add_index(&self, update: Update<K>, fill: impl FnOnce(&Update<K>)) {
        let mut indexes = self.indexes.write();
        fill(&update);
        indexes.push(update);
    }

    /// Adds a trigger after `fill` has announced the objects that there are. No change is announced meanwhile.
    pub(super) fn add_trigger(&self, trigger: Update<K>, fill: impl FnOnce(&Update<K>)) {
        let mut triggers = self.triggers.write();
        fill(&trigger);
        triggers.push(trigger);
    }

    pub(super) fn index(&self, change: &Change<'_, K>) {
        call(&self.indexes, change);
    }

    pub(super) fn notify(&self, change: &Change<'_, K>) {
        call(&self.triggers, change);
    }
}

fn call<K>(all: &RwLock<Vec<Update<K>>>, change: &Change<'_, K>) {
    for update in all.read().iter() {
        update(change);
    }
}
