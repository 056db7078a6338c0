//! Lists all objects of one kind, page by page. Unneeded objects are dropped with their page, so that memory contains
//! only one page of a large cluster's pods.
//!
//! A list is complete or an error. All pages belong to one resource version.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{ListParams, ObjectList, Request};
use serde::de::DeserializeOwned;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{Chain, Clock};

/// Objects per page, as in kubectl.
const PAGE: u32 = 500;
/// The timeout of one page.
const PAGE_LIMIT: Duration = Duration::from_secs(10);
/// The timeout of all pages: less than the five minutes after which the API server expires a continue token.
const LIMIT: Duration = Duration::from_mins(2);
/// "Gone": the continue token has expired.
const GONE: u16 = 410;

/// The reason why there is no list.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("the API server did not return {plural} within {limit:?}")]
    Slow { plural: String, limit: Duration },
    #[error(
        "permission to list {plural} is missing: {detail}; the role `view` and read access to Nodes are sufficient"
    )]
    Denied { plural: String, detail: String },
    #[error("the API server does not know {plural}")]
    Missing { plural: String },
    #[error("{plural} cannot be listed: {detail}")]
    Failed { plural: String, detail: String },
}

/// All objects of the resource `R` for which `keep` is true, decoded as `K`.
///
/// # Errors
/// If a page does not arrive, or all pages together take too long.
pub(super) async fn all<R, K>(
    client: &Client,
    clock: &dyn Clock,
    keep: fn(&K) -> bool,
) -> Result<Vec<Arc<K>>, ListError>
where
    R: kube::Resource<DynamicType = ()>,
    K: Clone + DeserializeOwned,
{
    let path = Request::new(R::url_path(&(), None));
    let list = async {
        match pages(client, &path, clock, keep).await {
            // The continue token expired. A new list may be faster; if not, stop.
            Err(PageError::Forgotten) => pages(client, &path, clock, keep).await,
            other => other,
        }
    };
    let plural = || R::plural(&()).into_owned();
    let slow = |limit| ListError::Slow {
        plural: plural(),
        limit,
    };
    match timeout(clock, LIMIT, list).await {
        Ok(Ok(objects)) => Ok(objects),
        Ok(Err(PageError::Slow)) => Err(slow(PAGE_LIMIT)),
        Ok(Err(PageError::Forgotten)) => Err(ListError::Failed {
            plural: plural(),
            detail: "the continue token of the list expired twice".to_owned(),
        }),
        Ok(Err(PageError::Api(error))) => Err(failed(plural(), &error)),
        Err(_) => Err(slow(LIMIT)),
    }
}

enum PageError {
    Slow,
    Forgotten,
    Api(kube::Error),
}

async fn pages<K>(
    client: &Client,
    path: &Request,
    clock: &dyn Clock,
    keep: fn(&K) -> bool,
) -> Result<Vec<Arc<K>>, PageError>
where
    K: Clone + DeserializeOwned,
{
    let mut kept = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let request = path
            .list(&params)
            .map_err(|error| PageError::Api(kube::Error::BuildRequest(error)))?;
        let page = timeout(clock, PAGE_LIMIT, client.request(request)).await;
        let ObjectList { metadata, items, .. } = match page {
            Ok(Ok(page)) => page,
            Ok(Err(kube::Error::Api(status))) if status.code == GONE && params.continue_token.is_some() => {
                return Err(PageError::Forgotten);
            }
            Ok(Err(error)) => return Err(PageError::Api(error)),
            Err(_) => return Err(PageError::Slow),
        };
        kept.extend(items.into_iter().filter(keep).map(Arc::new));
        match metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(kept),
        }
    }
}

fn failed(plural: String, error: &kube::Error) -> ListError {
    let detail = Chain(error).to_string();
    match error {
        kube::Error::Api(status) if status.code == 403 => ListError::Denied { plural, detail },
        kube::Error::Api(status) if status.code == 404 => ListError::Missing { plural },
        _ => ListError::Failed { plural, detail },
    }
}

#[cfg(test)]
mod tests;
