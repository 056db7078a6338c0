//! Drops parts of objects before they are cached.

use futures::StreamExt as _;

use super::{CacheBuilder, Cacheable, Connect, Guarded};

impl<K: Cacheable> CacheBuilder<K> {
    /// Drops the fields of each object that nobody reads, before it is cached: for kinds that have no slim type because
    /// they are also written.
    #[must_use]
    pub fn prune(self, prune: impl Fn(&mut K) + Clone + Send + Sync + 'static) -> Self {
        let connect = self.connect;
        let connect: Connect<K> = Box::new(move |config| {
            let prune = prune.clone();
            let each = move |it: &mut Guarded<K>| it.0.iter_mut().for_each(&prune);
            connect(config)
                .map(move |event| event.map(|event| event.modify(&each)))
                .boxed()
        });
        Self { connect, ..self }
    }
}
