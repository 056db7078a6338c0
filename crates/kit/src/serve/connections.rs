//! The open connections of a port: limited in number, and shared between peers.
//!
//! The limit never makes a new connection wait: it closes the oldest connection of the peer that has the most. A peer
//! is an IPv4 address or an IPv6 network of 64 bits, because one host usually has a whole such network.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use tokio::task::{AbortHandle, Id, JoinSet};

/// The connections, whose tasks return `T`.
pub(super) struct Connections<T> {
    limit: usize,
    tasks: JoinSet<T>,
    /// The connections of each peer, oldest first; those that are being closed are not among them.
    peers: HashMap<IpAddr, VecDeque<Connection>>,
    peer_of: HashMap<Id, IpAddr>,
    /// The number of connections so far.
    opened: u64,
}

struct Connection {
    number: u64,
    task: AbortHandle,
}

impl<T: Send + 'static> Connections<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            tasks: JoinSet::new(),
            peers: HashMap::new(),
            peer_of: HashMap::new(),
            opened: 0,
        }
    }

    /// True if no connection is open.
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// False while a connection that was closed to make room still holds its socket, which is for one poll of its task.
    pub(super) fn has_room(&self) -> bool {
        self.tasks.len() <= self.limit
    }

    /// Runs `connection`, which `address` opened. Above the limit, closes the oldest connection of the peer that has
    /// the most, the new one included in the count.
    pub(super) fn open(&mut self, address: IpAddr, connection: impl Future<Output = T> + Send + 'static) {
        let peer = network(address);
        let task = self.tasks.spawn(connection);
        self.peer_of.insert(task.id(), peer);
        let number = self.opened;
        self.opened += 1;
        self.peers
            .entry(peer)
            .or_default()
            .push_back(Connection { number, task });
        if self.peer_of.len() > self.limit {
            self.close_one();
        }
    }

    /// Completes when the task of a connection ends, or at once when none is open. Returns the result of the task;
    /// `None` for a connection that was closed to make room.
    pub(super) async fn closed(&mut self) -> Option<T> {
        let (id, result) = match self.tasks.join_next_with_id().await? {
            Ok((id, result)) => (id, Some(result)),
            Err(error) => (error.id(), None),
        };
        let peer = self.peer_of.remove(&id)?;
        self.remove(peer, |connection| connection.task.id() == id);
        result
    }

    /// Looks at each peer once: there are at most `limit`.
    fn close_one(&mut self) {
        let oldest = |connections: &VecDeque<Connection>| connections.front().map(|oldest| oldest.number);
        let most = self
            .peers
            .iter()
            .max_by_key(|(_, connections)| (connections.len(), Reverse(oldest(connections))));
        let Some(peer) = most.map(|(peer, _)| *peer) else {
            return;
        };
        if let Some(closed) = self.remove(peer, |_| true) {
            self.peer_of.remove(&closed.task.id());
            closed.task.abort();
        }
    }

    /// Removes the oldest connection of the peer for which `matches` is true.
    fn remove(&mut self, peer: IpAddr, matches: impl Fn(&Connection) -> bool) -> Option<Connection> {
        let connections = self.peers.get_mut(&peer)?;
        let removed = connections
            .iter()
            .position(matches)
            .and_then(|position| connections.remove(position));
        if connections.is_empty() {
            self.peers.remove(&peer);
        }
        removed
    }
}

/// The network that one client controls: an IPv4 address, or an IPv6 network of 64 bits.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The connections that are open, by their numbers.
    fn numbers(connections: &Connections<()>) -> Vec<u64> {
        let mut numbers: Vec<u64> = connections
            .peers
            .values()
            .flatten()
            .map(|connection| connection.number)
            .collect();
        numbers.sort_unstable();
        numbers
    }

    #[tokio::test]
    async fn the_peer_with_the_most_loses_its_oldest() {
        let mut connections = Connections::new(4);
        for peer in ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2"] {
            connections.open(address(peer), pending());
        }
        connections.open(address("10.0.0.3"), pending());
        assert_eq!(numbers(&connections), [0, 2, 3, 4]);
        assert!(!connections.has_room(), "the closed one still has its socket");
        connections.closed().await;
        assert!(connections.has_room());
        // A peer that asks for more than its share closes its own.
        connections.open(address("10.0.0.2"), pending());
        assert_eq!(numbers(&connections), [0, 3, 4, 5]);
    }

    #[tokio::test]
    async fn among_equals_the_oldest_is_closed() {
        let mut connections = Connections::new(3);
        for last in 1..=5 {
            connections.open(address(&format!("10.0.0.{last}")), pending());
        }
        assert_eq!(numbers(&connections), [2, 3, 4]);
    }

    #[tokio::test]
    async fn a_connection_that_ends_makes_room() {
        let mut connections = Connections::new(2);
        let end = Arc::new(tokio::sync::Notify::new());
        let ended = Arc::clone(&end);
        connections.open(address("10.0.0.1"), pending());
        connections.open(address("10.0.0.1"), async move { ended.notified().await });
        end.notify_one();
        connections.closed().await;
        connections.open(address("10.0.0.1"), pending());
        assert_eq!(numbers(&connections), [0, 2]);
        assert_eq!(connections.peer_of.len(), 2);
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        for (one, other, same) in [
            ("2001:db8::1", "2001:db8::2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("10.0.0.1", "10.0.0.2", false),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
        ] {
            assert_eq!(
                network(address(one)) == network(address(other)),
                same,
                "{one} and {other}"
            );
        }
    }
}
