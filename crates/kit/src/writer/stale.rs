//! Stale reads: objects from a cache that are older than our own last write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::Writer;
use crate::key::Key;

impl Writer {
    /// True if `shown` is a stale read: the cache has a version that our own write has replaced, so the pass should
    /// wait for the watch.
    #[must_use]
    pub fn awaits<K: Resource<DynamicType = ()>>(&self, key: &Key, shown: Option<&ObjectMeta>) -> bool {
        let shown = shown.and_then(|shown| shown.resource_version.as_deref());
        self.unseen.holds(&K::plural(&()), key, shown, self.clock.monotonic())
    }

    /// True if `shown`, which a pass read from a followed cache, is a stale read ([`Writer::awaits`]), or the cache has
    /// another version by now: between the read and this call, the watch may show our write, which is then forgotten.
    ///
    /// Not for a pass over many objects: anyone who changes one of them all the time could delay it for ever.
    #[must_use]
    pub fn is_stale<K: Resource<DynamicType = ()>>(&self, key: &Key, shown: Option<&ObjectMeta>) -> bool {
        // In this order: a cache that shows our write is changed before the write is forgotten.
        if self.awaits::<K>(key, shown) {
            return true;
        }
        let shown = shown.and_then(|shown| shown.resource_version.as_deref());
        let current = self.followed.lock().get(&*K::plural(&())).map(|current| current(key));
        current.is_some_and(|current| current.as_deref() != shown)
    }
}
