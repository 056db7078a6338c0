//! The source of the labels of Nodes: the operator's setting, or the one of the version of kOps.
//!
//! Decided once, at the start: an upgrade of kOps replaces the machines of the control plane. A state store that is
//! slow or unavailable delays the start by at most [`VERSION_TIMEOUT`], and moves no Node from one source to the other.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewaiter_controller::node_controller::{ForeignLabels, LabelsFrom};
use tidewaiter_kit::Clock;
use tidewaiter_kit::clock::timeout;
use tidewaiter_kops::store::ReadFile;
use tidewaiter_kops::version::VERSION_FILE;
use tidewaiter_kops::{Cloud, KopsVersion, StoreError, VersionError};

use super::settings::ControllerSettings;

/// The time for which the start waits for the version of kOps.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// The setting `labelSource`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LabelSource {
    /// As kops-controller of the kOps that updated the cluster last.
    #[default]
    Auto,
    /// The files of the state store.
    Store,
    /// The tags of the instance (AWS). The state store is not read.
    Tags,
    /// The files; the tags while the file of group or Cluster was never available since the start and never defined a
    /// label of the Node (AWS).
    StoreThenTags,
}

/// The source of labels, and its reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LabelDecision {
    pub(crate) from: LabelsFrom,
    pub(crate) why: String,
}

/// Decides for a cluster on this cloud with this state store.
pub(crate) async fn decide(
    settings: &ControllerSettings,
    cloud: Cloud,
    store: &dyn ReadFile,
    clock: &dyn Clock,
) -> LabelDecision {
    let decided = |from, why: &str| LabelDecision {
        from,
        why: why.to_owned(),
    };
    match settings.label_source {
        LabelSource::Store => return decided(LabelsFrom::Store, "labelSource is store"),
        LabelSource::Tags => return decided(LabelsFrom::Tags, "labelSource is tags"),
        LabelSource::StoreThenTags => return decided(LabelsFrom::StoreThenTags, "labelSource is store-then-tags"),
        LabelSource::Auto => {}
    }
    if cloud != Cloud::Aws {
        return decided(LabelsFrom::Store, &format!("cloud is {cloud}"));
    }
    if settings.foreign_labels == ForeignLabels::Remove {
        let why = "foreignLabels is remove, and only the state store defines which group owns a label";
        return decided(LabelsFrom::Store, why);
    }
    match timeout(clock, VERSION_TIMEOUT, KopsVersion::read(store)).await {
        Ok(Ok(version)) if version.labels_from_tags() => {
            decided(LabelsFrom::TagsThenStore, &format!("kOps is {version}"))
        }
        Ok(Ok(version)) => decided(LabelsFrom::Store, &format!("kOps is {version}, older than 1.36")),
        Ok(Err(VersionError::Store(StoreError::Missing { .. }))) => decided(
            LabelsFrom::Store,
            &format!("there is no {VERSION_FILE} in the state store"),
        ),
        Ok(Err(error)) => decided(LabelsFrom::AsRecorded, &error.to_string()),
        Err(elapsed) => decided(LabelsFrom::AsRecorded, &format!("{VERSION_FILE}: {elapsed}")),
    }
}

impl LabelDecision {
    /// The sources in words.
    pub(crate) fn sources(&self) -> &'static str {
        match self.from {
            LabelsFrom::Store => "the state store",
            LabelsFrom::Tags => "the tags of instances",
            LabelsFrom::StoreThenTags => "the state store, else the tags of instances",
            LabelsFrom::TagsThenStore => "the tags of instances, else the state store",
            LabelsFrom::AsRecorded => {
                "the source in the record of each Node, else the state store, else the tags of instances"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use tidewaiter_kit::ManualClock;
    use tidewaiter_kops::store::{Etag, Read};

    use super::*;

    /// The answer of the state store.
    #[derive(Clone, Copy, Debug)]
    enum Store {
        Holds(&'static str),
        Fails(fn(String) -> StoreError),
        /// Takes this number of seconds to respond.
        IsSilent,
        /// Must not be read.
        IsNotAsked,
    }

    #[async_trait]
    impl ReadFile for Store {
        async fn read(&self, file: &str, _: Option<&Etag>) -> Result<Read, StoreError> {
            match self {
                Self::Holds(text) => Ok(Read::Found {
                    bytes: text.as_bytes().into(),
                    etag: None,
                }),
                Self::Fails(error) => Err(error(file.to_owned())),
                Self::IsSilent => std::future::pending().await,
                Self::IsNotAsked => panic!("{file} is read"),
            }
        }

        async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
            panic!("{folder} is listed")
        }
    }

    fn missing(file: String) -> StoreError {
        let detail = "not found".to_owned();
        StoreError::Missing { file, detail }
    }

    fn denied(file: String) -> StoreError {
        let detail = "AccessDenied".to_owned();
        StoreError::Denied { file, detail }
    }

    fn away(file: String) -> StoreError {
        let detail = "connection refused".to_owned();
        StoreError::Unavailable { file, detail }
    }

    #[tokio::test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    async fn the_version_of_kops_decides_where_nobody_else_does() {
        use LabelsFrom::{AsRecorded, TagsThenStore};
        use Store::{Fails, Holds, IsNotAsked, IsSilent};
        const AWS: Cloud = Cloud::Aws;
        let auto = ControllerSettings::default();
        let remove = ControllerSettings {
            foreign_labels: ForeignLabels::Remove,
            ..auto.clone()
        };
        let set = |label_source| ControllerSettings {
            label_source,
            ..remove.clone()
        };
        let newer = Holds("1.36.0\n");
        for (settings, cloud, store, from, why) in [
            (&auto, AWS, newer, TagsThenStore, "kOps is 1.36.0"),
            (
                &auto,
                AWS,
                Holds("1.36.0-alpha.1"),
                TagsThenStore,
                "kOps is 1.36.0-alpha.1",
            ),
            (
                &auto,
                AWS,
                Holds("1.35.4"),
                LabelsFrom::Store,
                "kOps is 1.35.4, older than 1.36",
            ),
            (
                &auto,
                AWS,
                Fails(missing),
                LabelsFrom::Store,
                "there is no kops-version.txt in the state store",
            ),
            (
                &auto,
                AWS,
                Fails(denied),
                AsRecorded,
                "kops-version.txt: the state store denies access (AccessDenied)",
            ),
            (
                &auto,
                AWS,
                Fails(away),
                AsRecorded,
                "kops-version.txt: the state store does not return the file (connection refused)",
            ),
            (
                &auto,
                AWS,
                Holds("<html>"),
                AsRecorded,
                "kops-version.txt: is \"<html>\", must be a version of kOps such as 1.36.0",
            ),
            (
                &auto,
                AWS,
                IsSilent,
                AsRecorded,
                "kops-version.txt: no answer within 5s",
            ),
            (&auto, Cloud::Gce, IsNotAsked, LabelsFrom::Store, "cloud is gce"),
            (&auto, Cloud::Hetzner, IsNotAsked, LabelsFrom::Store, "cloud is hetzner"),
            (
                &remove,
                AWS,
                IsNotAsked,
                LabelsFrom::Store,
                "foreignLabels is remove, and only the state store defines which group owns a label",
            ),
            (
                &set(LabelSource::Store),
                AWS,
                IsNotAsked,
                LabelsFrom::Store,
                "labelSource is store",
            ),
            (
                &set(LabelSource::Tags),
                AWS,
                IsNotAsked,
                LabelsFrom::Tags,
                "labelSource is tags",
            ),
            (
                &set(LabelSource::StoreThenTags),
                AWS,
                IsNotAsked,
                LabelsFrom::StoreThenTags,
                "labelSource is store-then-tags",
            ),
        ] {
            let clock = ManualClock::default();
            let (decision, ()) = tokio::join!(decide(settings, cloud, &store, &clock), async {
                clock.advance(VERSION_TIMEOUT);
            });
            let expected = LabelDecision {
                from,
                why: why.to_owned(),
            };
            assert_eq!(decision, expected, "{store:?}");
        }
    }
}
