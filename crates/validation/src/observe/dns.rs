//! The addresses of the API's name, as this host resolves it.

use std::time::Duration;

use tidewaiter_kit::Clock;
use tidewaiter_kit::clock::timeout;
use tokio::net::lookup_host;

use crate::observation::{Dns, Part};

/// The timeout of a DNS lookup.
const LIMIT: Duration = Duration::from_secs(5);

/// Resolves `name`. A cluster without a published name needs no lookup.
///
/// The lookup runs on a thread that cannot be cancelled: dropping a runtime waits for its end, unless the runtime is
/// shut down in the background.
pub async fn resolve(name: Option<&str>, clock: &dyn Clock) -> Part<Dns> {
    let Some(name) = name else {
        return Part::Known(Dns::NotAsked);
    };
    match timeout(clock, LIMIT, lookup_host((name, 0))).await {
        Ok(Ok(addresses)) => {
            let mut addresses: Vec<_> = addresses.map(|address| address.ip()).collect();
            addresses.sort_unstable();
            addresses.dedup();
            Part::Known(Dns::Addresses(addresses))
        }
        Ok(Err(error)) => Part::Unknown(format!("{name} does not resolve here: {error}")),
        Err(elapsed) => Part::Unknown(format!("{name} does not resolve here: {elapsed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewaiter_kit::SystemClock;

    #[tokio::test]
    async fn addresses_are_each_said_once_and_a_cluster_without_a_name_is_not_asked() {
        let found = resolve(Some("127.0.0.1"), &SystemClock).await;
        assert_eq!(found, Part::Known(Dns::Addresses(vec!["127.0.0.1".parse().unwrap()])));
        assert_eq!(resolve(None, &SystemClock).await, Part::Known(Dns::NotAsked));
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_resolved_is_unknown_and_named() {
        let Part::Unknown(reason) = resolve(Some("no name at all"), &SystemClock).await else {
            panic!("it resolves");
        };
        assert!(reason.starts_with("no name at all does not resolve here: "), "{reason}");
    }
}
