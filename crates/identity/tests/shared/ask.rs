//! The queries of a test to a provider.

use std::sync::Mutex;

use tidewaiter_identity::{Claim, Identifier, Identity, Refusal};

/// The results of a query, by the place of each claim.
pub(crate) type Results = Vec<Result<Identity, Refusal>>;

/// Queries in batches of at most `max_batch` claims, and makes sure that each claim was answered exactly once.
pub(crate) async fn ask(identifier: &dyn Identifier, claims: &[Claim]) -> Results {
    let results: Mutex<Vec<Results>> = Mutex::new(vec![Vec::new(); claims.len()]);
    let at_most = identifier.max_batch().min(claims.len()).max(1);
    for (part, claims) in claims.chunks(at_most).enumerate() {
        identifier
            .identify(claims, &|place, result| {
                results.lock().unwrap()[part * at_most + place].push(result);
            })
            .await;
    }
    let one = |(place, mut given): (usize, Results)| {
        assert_eq!(given.len(), 1, "answers for {:?}: {given:?}", claims[place]);
        given.remove(0)
    };
    results.into_inner().unwrap().into_iter().enumerate().map(one).collect()
}

/// Returns the claim of some Node with this providerID.
pub(crate) fn claim_of(provider_id: &str) -> Claim {
    Claim {
        node: "some-node".parse().unwrap(),
        uid: "some-uid".parse().unwrap(),
        provider_id: provider_id.parse().unwrap(),
        addresses: Vec::new(),
        rivals: Vec::new(),
    }
}

/// `ok` or the reason, for each.
pub(crate) fn reasons(results: &[Result<Identity, Refusal>]) -> Vec<&'static str> {
    results.iter().map(reason).collect()
}

pub(crate) fn reason<T>(result: &Result<T, Refusal>) -> &'static str {
    result.as_ref().map_or_else(Refusal::reason, |_| "ok")
}
