//! Reads one file, or the names in one folder, from the state store.
//!
//! A read always ends: within [`READ_LIMIT`], with at most [`MAX_FILE_BYTES`] or [`MAX_NAMES`] and a handful of
//! requests. A truncated response never counts as a file or a folder. Nothing is written, nothing is cached, and no
//! message contains anything that differs between requests, so that equal failures have equal messages. Credentials are
//! loaded when a request first needs them, so `file://` and `gs://` work on a machine without AWS configuration.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use ::url::Url;
use async_trait::async_trait;
use aws_credential_types::provider::SharedCredentialsProvider;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore};
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::{SharedClock, SystemClock};

use crate::document::MAX_BYTES;

mod client;
mod credentials;
mod error;
mod folder;
mod http;
mod url;

pub use error::{OpenError, StoreError};
pub use url::{InvalidStateUrl, Scheme, StateUrl};

/// The maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: usize = MAX_BYTES;

/// The maximum number of files in a folder: a hundred times the number of groups in the largest clusters.
pub const MAX_NAMES: usize = 10_000;

/// The timeout of one read, including retries and loading credentials.
pub const READ_LIMIT: Duration = Duration::from_secs(20);

/// The options of a state store. The default is correct for a cluster that kOps created on its cloud.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// An endpoint other than the cloud's: a test server, or a store with the cloud's protocol. Buckets are then part
    /// of the path. Plain HTTP is used only if this starts with `http://`.
    pub endpoint: Option<Url>,
    /// The region of the bucket, if it is known; otherwise it is determined.
    pub region: Option<String>,
    /// The region that is tried first if [`region`](Self::region) is not set: the cluster's own.
    pub likely_region: Option<String>,
    /// The source of AWS credentials; by default the default chain of the AWS SDK.
    pub aws_credentials: Option<SharedCredentialsProvider>,
    /// A file with Google credentials of a service account or a user; by default those of `gcloud` or of the machine.
    pub google_credentials: Option<PathBuf>,
    /// Sends requests unsigned: for test servers and public buckets.
    pub anonymous: bool,
    /// The source of time.
    pub clock: SharedClock,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            likely_region: None,
            aws_credentials: None,
            google_credentials: None,
            anonymous: false,
            clock: SystemClock::shared(),
        }
    }
}

/// The version of a file, as named by its store. Opaque to everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etag(pub(crate) String);

impl From<String> for Etag {
    fn from(version: String) -> Self {
        Self(version)
    }
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The file still has the given version.
    NotModified,
    /// The current file.
    Found {
        /// Its content, at most [`MAX_FILE_BYTES`].
        bytes: Bytes,
        /// Its version, if the store provides one.
        etag: Option<Etag>,
    },
}

/// Reads and lists files below a configuration base: [`StateStore`], or its replacement in a test.
#[async_trait]
pub trait ReadFile: Debug + Send + Sync {
    /// Reads `file`, a path below the base; with `known`, only if its version differs.
    ///
    /// # Errors
    /// See [`StoreError`].
    async fn read(&self, file: &str, known: Option<&Etag>) -> Result<Read, StoreError>;

    /// The sorted names of the files directly in `folder`, a path below the base without a trailing slash. A folder
    /// that does not exist is empty: object stores have no folders. In a folder of this host, whatever is not a file is
    /// named, too, and is an error when it is read.
    ///
    /// # Errors
    /// See [`StoreError`]; never a part of the names.
    async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError>;
}

/// An open state store. Opening it sends no request.
#[derive(Debug)]
pub struct StateStore {
    url: StateUrl,
    clock: SharedClock,
    client: client::Client,
}

impl StateStore {
    /// Prepares reads below `url`.
    ///
    /// # Errors
    /// If the options contradict each other, or a credentials file is missing or invalid.
    pub fn open(url: &StateUrl, options: StoreOptions) -> Result<Self, OpenError> {
        Ok(Self {
            url: url.clone(),
            clock: options.clock.clone(),
            client: client::Client::open(url, options)?,
        })
    }

    /// The URL of the store.
    #[must_use]
    pub fn url(&self) -> &StateUrl {
        &self.url
    }

    async fn get(&self, file: &str, known: Option<&Etag>) -> Result<Read, StoreError> {
        let object = self.url.object(file);
        if self.url.scheme() == Scheme::File
            && let Some(found) = folder::in_place_of(&object).await
        {
            let file = file.to_owned();
            return Err(StoreError::NotAFile { file, found });
        }
        let options = GetOptions::new().with_if_none_match(known.map(|etag| etag.0.as_str()));
        let store = self.client.store();
        let mut answer = store.get_opts(&object, options.clone()).await;
        if let Err(error) = &answer
            && let Some(store) = self.client.follow(&store, error).await
        {
            answer = store.get_opts(&object, options).await;
        }
        let read = match answer {
            Ok(result) => body(result).await,
            Err(object_store::Error::NotModified { .. }) if known.is_some() => return Ok(Read::NotModified),
            Err(error) => Err(error),
        };
        match read {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Err(StoreError::TooLarge { file: file.to_owned() }),
            Err(error) => Err(StoreError::of(file, &self.url, &error)),
        }
    }

    async fn names(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let prefix = self.url.object(folder);
        let names = match self.url.scheme() {
            Scheme::File => folder::entries(&prefix).await.map_err(error::of_host),
            Scheme::S3 | Scheme::Gs => self.objects_below(&prefix).await,
        };
        match names {
            Ok(Some(names)) => Ok(names),
            Ok(None) => Err(StoreError::Unavailable {
                file: folder.to_owned(),
                detail: format!("it contains more than {MAX_NAMES} files"),
            }),
            Err(error) => Err(StoreError::of(folder, &self.url, &error)),
        }
    }

    async fn objects_below(&self, prefix: &Path) -> object_store::Result<Option<Vec<String>>> {
        let store = self.client.store();
        let mut names = names_below(&*store, prefix).await;
        if let Err(error) = &names
            && let Some(store) = self.client.follow(&store, error).await
        {
            names = names_below(&*store, prefix).await;
        }
        Ok(names?.map(|names| names.into_iter().collect()))
    }

    async fn in_time<T>(
        &self,
        file: &str,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match timeout(&*self.clock, READ_LIMIT, request).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(StoreError::Unavailable {
                file: file.to_owned(),
                detail: elapsed.to_string(),
            }),
        }
    }
}

#[async_trait]
impl ReadFile for StateStore {
    async fn read(&self, file: &str, known: Option<&Etag>) -> Result<Read, StoreError> {
        self.in_time(file, self.get(file, known)).await
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        self.in_time(folder, self.names(folder)).await
    }
}

/// The names directly below `prefix`, or `None` if there are more than [`MAX_NAMES`] objects at any depth.
async fn names_below(store: &dyn ObjectStore, prefix: &Path) -> object_store::Result<Option<BTreeSet<String>>> {
    let mut names = BTreeSet::new();
    let mut objects = store.list(Some(prefix)).enumerate();
    while let Some((number, object)) = objects.next().await {
        if number == MAX_NAMES {
            return Ok(None);
        }
        let location = object?.location;
        let mut below = location.prefix_match(prefix).into_iter().flatten();
        if let (Some(name), None) = (below.next(), below.next()) {
            names.insert(name.as_ref().to_owned());
        }
    }
    Ok(Some(names))
}

/// The whole body, or `None` if it is too large.
async fn body(result: GetResult) -> object_store::Result<Option<Read>> {
    let (size, etag) = (result.meta.size, result.meta.e_tag.clone());
    if size > MAX_FILE_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = BytesMut::new();
    let mut chunks = result.into_stream();
    while let Some(chunk) = chunks.try_next().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_FILE_BYTES {
            return Ok(None);
        }
    }
    // A truncated YAML file is often still valid YAML.
    if bytes.len() as u64 != size {
        return Err(error::incomplete(bytes.len(), size));
    }
    Ok(Some(Read::Found {
        bytes: bytes.freeze(),
        etag: etag.map(Etag),
    }))
}

#[cfg(test)]
mod tests;
