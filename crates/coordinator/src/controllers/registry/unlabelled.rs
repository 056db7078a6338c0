//! Pull secrets of ours whose labels were removed, so that no cache contains them. While the registry exists, the pass
//! over the namespace finds them by name and corrects them. When the cloud no longer lists the registry, this
//! controller deletes them: removing a label must not preserve a revoked credential.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, PartialObjectMeta};
use tidewaiter_api::names::{CONTROLLER_LABEL, MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::{
    Cache, Category, Change, Key, Next, Pass, Queue, ReconcileError, Reconciler, Retry, Trigger, WriteError, Writer,
};

use super::pull_secret::{TYPES, is_written};
use super::shelf::Registries;
use super::stored::StoredRegistry;
use super::{JITTER, RECHECK};

/// Objects in one page. Their metadata alone is read.
const PAGE: u32 = 500;

pub(super) struct UnlabelledController {
    pub(super) registries: Registries,
    pub(super) secrets: Api<Secret>,
    pub(super) writer: Arc<Writer>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum UnlabelledError {
    #[error("the pull secrets without labels cannot be listed")]
    List(#[source] kube::Error),
    #[error("a pull secret of a registry that is gone cannot be deleted")]
    Delete(#[source] WriteError),
}

impl Reconciler for UnlabelledController {
    const NAME: &'static str = "unlabelled-pullsecret";
    type Error = UnlabelledError;

    /// Again each hour, because a label may be removed at any time.
    async fn reconcile(&self, _: &mut Pass) -> Result<Next, UnlabelledError> {
        if !self.registries.are_known() {
            return Ok(Next::UntilChanged);
        }
        let mut swept = Ok(());
        for type_ in TYPES {
            for labels in [
                format!("{MANAGED_LABEL}!={MANAGED_VALUE}"),
                format!("{MANAGED_LABEL}={MANAGED_VALUE},!{CONTROLLER_LABEL}"),
            ] {
                let asked = ListParams::default().limit(PAGE).labels(&labels);
                swept = self.sweep(asked.fields(&format!("type={type_}"))).await.and(swept);
            }
        }
        swept?;
        Ok(Next::After(jittered(RECHECK, JITTER)))
    }
}

impl UnlabelledController {
    /// A Secret that cannot be deleted does not stop the deletion of the others.
    async fn sweep(&self, mut asked: ListParams) -> Result<(), UnlabelledError> {
        let is_left = |secret: &&PartialObjectMeta<Secret>| {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            is_written(&secret.metadata) && !self.registries.exists(name)
        };
        let mut swept = Ok(());
        loop {
            let page = self
                .secrets
                .list_metadata(&asked)
                .await
                .map_err(UnlabelledError::List)?;
            for left in page.items.iter().filter(is_left) {
                if let Err(error) = self.writer.delete::<Secret>(&left.metadata).await {
                    swept = Err(UnlabelledError::Delete(error));
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => asked = asked.continue_token(&token),
                None => return swept,
            }
        }
    }
}

/// Queues a pass at the start, and when a registry may have been removed.
pub(super) fn notify(queue: &Queue, registries: &Registries, objects: &Cache<StoredRegistry>) {
    let wake = {
        let queue = queue.clone();
        move || queue.push(Key::new("all"))
    };
    wake();
    if let Some(lists) = registries.lists() {
        let wake = wake.clone();
        lists.registries.notify(move |changed| {
            if changed.changes_names() {
                wake();
            }
        });
    }
    objects.notify(Trigger::calls(move |change: &Change<'_, StoredRegistry>| {
        if change.after.is_none() {
            wake();
        }
    }));
}

impl ReconcileError for UnlabelledError {
    fn category(&self) -> Category {
        match self {
            Self::List(_) => Category::new("list", Retry::Backoff),
            Self::Delete(error) => Category {
                is_refusal: false,
                ..error.category()
            },
        }
    }
}
