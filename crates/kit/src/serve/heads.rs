//! Limits the bytes that the connections of a port buffer before a request begins: unfinished TLS handshakes and heads.
//! The HTTP library limits each connection; this limits all of them together, except for a free part of each.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The free part of each connection: an ordinary head, also with a token, or the client's part of a handshake.
pub(super) const FREE_BYTES: usize = 4 * 1024;
/// The most that a connection buffers, roughly: a head, and a record of TLS.
const MAX_BYTES: usize = super::MAX_HEAD_BYTES + 16 * 1024;

/// The bytes that all connections together may still buffer beyond [`FREE_BYTES`].
pub(super) struct Heads(AtomicUsize);

impl Heads {
    pub(super) fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    fn take(&self, bytes: usize) -> bool {
        let take = |left: usize| left.checked_sub(bytes);
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The bytes that one connection has sent since its handshake or its last request. A body does not count.
pub(super) struct Head<'a> {
    of_all: &'a Heads,
    bytes: AtomicUsize,
    in_request: AtomicBool,
}

impl<'a> Head<'a> {
    pub(super) fn new(of_all: &'a Heads) -> Self {
        Self {
            of_all,
            bytes: AtomicUsize::new(0),
            in_request: AtomicBool::new(false),
        }
    }

    /// The part of `bytes` that counts against the limit of all connections.
    fn taken(bytes: usize) -> usize {
        bytes.min(MAX_BYTES).saturating_sub(FREE_BYTES)
    }

    /// Returns true if the limit permits `bytes` more.
    pub(super) fn add(&self, bytes: usize) -> bool {
        if self.in_request.load(Ordering::Relaxed) {
            return true;
        }
        let before = self.bytes.load(Ordering::Relaxed);
        let after = before + bytes;
        let is_permitted = self.of_all.take(Self::taken(after) - Self::taken(before));
        if is_permitted {
            self.bytes.store(after, Ordering::Relaxed);
        }
        is_permitted
    }

    /// A request begins: its body is counted where it is read.
    pub(super) fn begin_request(&self) {
        self.complete();
        self.in_request.store(true, Ordering::Relaxed);
    }

    /// A response begins: the next bytes are those of a head.
    pub(super) fn end_request(&self) {
        self.in_request.store(false, Ordering::Relaxed);
    }

    /// A handshake or a head is complete: what was sent is read.
    pub(super) fn complete(&self) {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.of_all.give_back(Self::taken(bytes));
    }
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        self.complete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_has_beyond_its_own_part_others_have_not() {
        let of_all = Heads::new(10 * 1024);
        let (one, other) = (Head::new(&of_all), Head::new(&of_all));
        assert!(one.add(FREE_BYTES) && other.add(FREE_BYTES), "that counts for nobody");
        assert!(one.add(7 * 1024) && other.add(3 * 1024));
        assert!(!one.add(1) && !other.add(1));
        one.complete();
        assert!(other.add(7 * 1024) && !other.add(1));
        drop(other);
        assert!(one.add(FREE_BYTES + 10 * 1024) && !one.add(1));
    }

    #[test]
    fn what_the_library_does_not_buffer_does_not_count() {
        let of_all = Heads::new(MAX_BYTES - FREE_BYTES);
        let one = Head::new(&of_all);
        assert!(one.add(MAX_BYTES) && one.add(usize::MAX / 4));
    }
}
