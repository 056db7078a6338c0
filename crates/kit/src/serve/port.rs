//! A port that another process of this machine may use for now.
//!
//! On the network of a node, two processes of one role can meet: the pods of kops-controller and of
//! `deploy/controller` during a takeover, or the old and the new pod of a replacement. The later one needs none of its
//! ports to stand by, or to lead. So it starts without, and serves each port as soon as it is free.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;
use tracing::{info, warn};

use super::{BindError, bind};
use crate::clock::Clock;

/// The time between two tries of a port in use.
const BIND_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A port, open or in use.
#[derive(Debug)]
pub struct Port {
    setting: &'static str,
    address: SocketAddr,
    /// None while another process uses the port.
    listener: Option<TcpListener>,
}

impl Port {
    /// Listens on `address`, which comes from `setting`, unless another process uses it.
    ///
    /// # Errors
    /// When the operating system refuses the address for another reason: it is not one of this machine, or may not be
    /// used.
    pub async fn open(setting: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let listener = match bind(setting, address).await {
            Ok(listener) => Some(listener),
            Err(error) if error.source.kind() == ErrorKind::AddrInUse => {
                warn!(setting, %address, "another process uses this address; it is served as soon as it is free");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            setting,
            address,
            listener,
        })
    }

    /// Waits until the port is free.
    pub(crate) async fn listener(self, clock: &dyn Clock) -> TcpListener {
        if let Some(listener) = self.listener {
            return listener;
        }
        loop {
            clock.sleep(BIND_RETRY_DELAY).await;
            if let Ok(listener) = bind(self.setting, self.address).await {
                info!(setting = self.setting, address = %self.address, "the address is free, and served");
                return listener;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::poll;

    use super::*;
    use crate::clock::ManualClock;

    #[tokio::test]
    async fn a_port_in_use_is_served_when_it_is_free() {
        let clock = ManualClock::default();
        let other = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = other.local_addr().unwrap();
        let shared = clock.shared();
        let port = Port::open("healthAddress", address).await.unwrap();
        let mut listener = pin!(port.listener(&*shared));
        assert!(poll!(listener.as_mut()).is_pending());
        clock.advance(BIND_RETRY_DELAY);
        assert!(poll!(listener.as_mut()).is_pending(), "it is still in use");
        drop(other);
        clock.advance(BIND_RETRY_DELAY);
        assert_eq!(listener.await.local_addr().unwrap(), address);
    }
}
