//! Reads a list once, for a command without a watch.

use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

use super::{Cacheable, Guarded, Undecodable};

/// Objects in one answer of the API server.
const PAGE_SIZE: u32 = 500;

/// Reads all objects, page by page: those that can be decoded, and those that cannot.
///
/// # Errors
/// When a page cannot be read.
pub async fn list_all<K: Cacheable + DeserializeOwned>(
    api: &Api<Guarded<K>>,
) -> kube::Result<(Vec<K>, Vec<Undecodable>)> {
    let mut asked = ListParams::default().limit(PAGE_SIZE);
    let (mut items, mut undecodable) = (Vec::new(), Vec::new());
    loop {
        let page = api.list(&asked).await?;
        for Guarded(item) in page.items {
            match item {
                Ok(item) => items.push(item),
                Err(bad) => undecodable.push(bad),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => asked = asked.continue_token(&token),
            None => return Ok((items, undecodable)),
        }
    }
}
