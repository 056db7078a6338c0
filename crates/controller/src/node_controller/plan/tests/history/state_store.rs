//! A state store whose files are whole, or broken in some way.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use tidewaiter_kops::StoreError;
use tidewaiter_kops::store::{Etag, Read, ReadFile};

/// Why a file is no good.
#[derive(Clone, Copy, Debug)]
pub enum Broken {
    /// It is no YAML.
    Garbage,
    /// It is not there.
    Missing,
    /// The store does not answer.
    Away,
}

#[derive(Debug, Default)]
pub struct Files(Mutex<BTreeMap<String, File>>);

#[derive(Debug, Default)]
pub struct File {
    pub content: String,
    pub broken: Option<Broken>,
}

impl Files {
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<String, File>> {
        self.0.lock().unwrap()
    }

    pub fn put(&self, file: &str, content: String) {
        let broken = None;
        self.lock().insert(file.to_owned(), File { content, broken });
    }
}

fn away(file: &str) -> StoreError {
    StoreError::Unavailable {
        file: file.to_owned(),
        detail: String::new(),
    }
}

#[async_trait]
impl ReadFile for Files {
    async fn read(&self, file: &str, _: Option<&Etag>) -> Result<Read, StoreError> {
        let files = self.lock();
        let text = match &files[file] {
            File {
                broken: Some(Broken::Away),
                ..
            } => return Err(away(file)),
            File {
                broken: Some(Broken::Missing),
                ..
            } => {
                return Err(StoreError::Missing {
                    file: file.to_owned(),
                    detail: String::new(),
                });
            }
            File {
                broken: Some(Broken::Garbage),
                ..
            } => "spec: [",
            File { content, broken: None } => content,
        };
        Ok(Read::Found {
            bytes: text.to_owned().into_bytes().into(),
            etag: None,
        })
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let files = self.lock();
        if files.values().any(|file| matches!(file.broken, Some(Broken::Away))) {
            return Err(away(folder));
        }
        let there = files
            .iter()
            .filter(|(_, file)| !matches!(file.broken, Some(Broken::Missing)));
        let names = there.filter_map(|(name, _)| name.strip_prefix(folder)?.strip_prefix('/'));
        Ok(names.map(str::to_owned).collect())
    }
}
