//! A state store whose files are valid, or broken in some way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidewaiter_kops::StoreError;
use tidewaiter_kops::store::{Etag, Read, ReadFile};
use tidewaiter_testkit::sim::Process;

use crate::world::sleep;

/// The defect of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The file is not YAML.
    Garbage,
    /// The file is missing.
    Missing,
    /// The store does not respond.
    Away,
}

#[derive(Clone, Debug, Default)]
struct File {
    content: String,
    version: u64,
    broken: Option<Broken>,
}

#[derive(Clone, Debug, Default)]
pub struct Files(Arc<Mutex<BTreeMap<String, File>>>);

impl Files {
    /// Sets the content of a file and repairs it.
    pub fn put(&self, file: &str, content: String) {
        let mut files = self.0.lock().unwrap();
        let found = files.entry(file.to_owned()).or_default();
        if found.content != content || found.broken.is_some() {
            found.version += 1;
        }
        (found.content, found.broken) = (content, None);
    }

    pub fn spoil(&self, file: &str, broken: Broken) {
        self.0.lock().unwrap().get_mut(file).unwrap().broken = Some(broken);
    }

    fn get(&self, file: &str) -> File {
        self.0.lock().unwrap()[file].clone()
    }
}

/// The access of one process to the files.
#[derive(Debug)]
pub struct Bucket {
    pub files: Files,
    pub process: Process,
}

impl Bucket {
    async fn travel(&self) {
        sleep(Duration::from_millis(20)).await;
        self.process.running().await;
    }
}

fn away(file: &str) -> StoreError {
    StoreError::Unavailable {
        file: file.to_owned(),
        detail: String::new(),
    }
}

#[async_trait]
impl ReadFile for Bucket {
    async fn read(&self, file: &str, known: Option<&Etag>) -> Result<Read, StoreError> {
        let found = self.files.get(file);
        self.travel().await;
        let etag = Etag::from(format!("{}{:?}", found.version, found.broken));
        let text = match found.broken {
            Some(Broken::Away) => return Err(away(file)),
            Some(Broken::Missing) => {
                return Err(StoreError::Missing {
                    file: file.to_owned(),
                    detail: String::new(),
                });
            }
            Some(Broken::Garbage) => "spec: [".to_owned(),
            None => found.content,
        };
        if known == Some(&etag) {
            return Ok(Read::NotModified);
        }
        Ok(Read::Found {
            bytes: text.into_bytes().into(),
            etag: Some(etag),
        })
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let files = self.files.0.lock().unwrap().clone();
        self.travel().await;
        if files.values().any(|file| file.broken == Some(Broken::Away)) {
            return Err(away(folder));
        }
        let there = files.iter().filter(|(_, file)| file.broken != Some(Broken::Missing));
        let names = there.filter_map(|(name, _)| name.strip_prefix(folder)?.strip_prefix('/'));
        Ok(names.map(str::to_owned).collect())
    }
}
