//! Reads one file, or the names in one folder, from the state store.
//!
//! A read always ends: within [`READ_LIMIT`], with at most [`MAX_FILE_BYTES`] or [`MAX_NAMES`] and a handful of
//! requests. A truncated response never counts as a file or a folder. Nothing is written, nothing is cached, and no
//! message contains anything that differs between requests, so that equal failures have equal messages. Credentials are
//! loaded when a request first needs them, so `file://` and `gs://` work on a machine without AWS configuration.
//!
//! A folder of this host can contain what an object store cannot: folders, pipes, devices. They are named, never left
//! out and never opened: a pipe that nobody writes to would block its reader for ever.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore};
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kit::files::name_of;
use tokio::fs;

use crate::document::MAX_BYTES;

mod client;
mod credentials;
mod error;
mod http;
mod url;

pub use client::StoreOptions;
pub use error::{OpenError, StoreError};
pub use url::{InvalidStateUrl, Scheme, StateUrl};

/// The maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: usize = MAX_BYTES;

/// The maximum number of files in a folder: a hundred times the number of groups in the largest clusters.
pub const MAX_NAMES: usize = 10_000;

/// The timeout of one read, including retries and loading credentials.
pub const READ_LIMIT: Duration = Duration::from_secs(20);

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
            && let Some(found) = in_place_of(&object).await
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
            Scheme::File => entries(&prefix).await.map_err(error::of_host),
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

/// Returns the object in place of a file on this host, in words; `None` if it is a file or nothing.
async fn in_place_of(object: &Path) -> Option<&'static str> {
    let found = fs::metadata(on_host(object)).await.ok()?.file_type();
    (!found.is_file()).then(|| name_of(found))
}

/// The names of all entries of a folder of this host, or `None` if there are more than [`MAX_NAMES`]. A folder that
/// does not exist is empty.
async fn entries(folder: &Path) -> io::Result<Option<Vec<String>>> {
    let mut entries = match fs::read_dir(on_host(folder)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Vec::new())),
        entries => entries?,
    };
    let mut names = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        if names.len() == MAX_NAMES {
            return Ok(None);
        }
        // No file of kOps has a name that is not UTF-8.
        names.extend(entry.file_name().into_string());
    }
    names.sort_unstable();
    Ok(Some(names))
}

/// Objects are named from the root of the host.
fn on_host(object: &Path) -> PathBuf {
    PathBuf::from("/").join(object.as_ref())
}

#[cfg(test)]
mod tests;
