//! The cloud's response for a plugin, divided into objects, and the signature that it needs (`pluginTrust`). Pure.
//!
//! JSON takes up to twenty times the memory of its text when it becomes values, and hostile JSON takes a hundred times.
//! So the text is divided into parts, which are texts, and one part at a time becomes values.
//!
//! A trusted key must have signed the manifests for this cluster, plugin and version. A signature that is older than
//! the last accepted one is refused, because it could be that of an older version, or of older manifests of the same
//! version: anyone who wants to go back signs again. The inventory remembers the time, so a plugin that is removed and
//! added again is a new one.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tidewaiter_api::containership::PluginSpec;
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::signed::{SignatureError, SignedLists, Statement, TrustedKey, verify};

use super::record::Record;
use super::release::MOST_OBJECTS;
use super::{Refused, refused};

/// The largest part, in bytes: the API server accepts no larger object. Source: `MaxRequestBodyBytes` of
/// kube-apiserver.
const LARGEST_PART: usize = 3 * 1024 * 1024;
/// The most memory of a part as values, in bytes.
const MOST_MEMORY: usize = 96 * 1024 * 1024;
/// The memory of a map, in bytes: the smallest has a node for eleven fields.
const MAP: usize = 640;
/// The memory of another value, in bytes, in a list that grows.
const VALUE: usize = 64;
/// The most items of a list that is divided.
const MOST_ITEMS: usize = 2 * MOST_OBJECTS;

/// JSON that is not read yet.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct Part(Box<RawValue>);

/// The cloud's response. Each part may be `null`.
#[derive(Deserialize)]
#[serde(expecting = "must be an object with manifests")]
pub(crate) struct Sent {
    id: Option<Part>,
    version: Option<Part>,
    signature: Option<Part>,
    pub(crate) manifests: Option<Part>,
    jobs: Option<Part>,
    pub(crate) depends_on: Option<Part>,
}

/// The jobs of a version.
#[derive(Default, Deserialize)]
pub(crate) struct SentJobs {
    pub(crate) pre_apply: Option<Part>,
    pub(crate) post_apply: Option<Part>,
}

/// A `List`, if it is one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    api_version: Option<Part>,
    kind: Option<Part>,
    items: Option<Part>,
}

/// The items of a list.
struct Items(Vec<Part>);

impl Sent {
    /// Divides a response of the cloud, or what is stored of it.
    pub(crate) fn read(json: &[u8]) -> Result<Self, Refused> {
        serde_json::from_slice(json).map_err(|error| refused("the manifests", error.to_string()))
    }

    /// The id of the plugin, if it is there.
    pub(crate) fn id(&self) -> Option<String> {
        self.id.as_ref()?.text()
    }

    /// The version, if it is there.
    pub(crate) fn version(&self) -> Option<String> {
        self.version.as_ref()?.text()
    }

    /// The signature, if it is there.
    pub(crate) fn signature(&self) -> Option<String> {
        self.signature.as_ref()?.text()
    }

    /// The jobs, if there are any.
    pub(crate) fn jobs(&self) -> Result<SentJobs, Refused> {
        let jobs = self.jobs.as_ref();
        jobs.map_or_else(|| Ok(SentJobs::default()), |jobs| jobs.divide("jobs"))
    }

    /// The digest that is signed.
    pub(crate) fn digest(&self) -> Result<String, Refused> {
        let jobs = self.jobs()?;
        let whole = |at: &str, part: &Option<Part>| list(part.as_ref(), |part| part.canonical(at));
        let each = |at: &str, part: &Option<Part>| list(part.as_ref(), |part| part.canonical_list(at, Part::canonical));
        let groups =
            |part: &Part| part.canonical_list("manifests", |group, at| group.canonical_list(at, Part::canonical));
        let lists = SignedLists {
            depends_on: whole("depends_on", &self.depends_on)?,
            manifests: list(self.manifests.as_ref(), groups)?,
            post_apply: each("jobs.post_apply", &jobs.post_apply)?,
            pre_apply: each("jobs.pre_apply", &jobs.pre_apply)?,
        };
        Ok(lists.digest())
    }
}

/// A list as it is signed: a missing one is empty.
fn list(part: Option<&Part>, canonical: impl Fn(&Part) -> Result<String, Refused>) -> Result<String, Refused> {
    part.map_or_else(|| Ok("[]".to_owned()), canonical)
}

impl Part {
    /// Reads it. `at` is its place in the manifests.
    pub(crate) fn read<T: DeserializeOwned>(&self, at: &str) -> Result<T, Refused> {
        let text = self.0.get();
        let memory = text.bytes().map(|byte| match byte {
            b'{' => MAP,
            b'[' | b',' => VALUE,
            _ => 0,
        });
        if text.len() > LARGEST_PART || memory.sum::<usize>() > MOST_MEMORY {
            let why = format!(
                "is larger than {} MiB, or has very many fields, which the API server does not accept: split it",
                LARGEST_PART / 1024 / 1024
            );
            return Err(refused(at, why));
        }
        self.divide(at)
    }

    /// The items of a list, which are not read yet.
    pub(crate) fn items(&self, at: &str) -> Result<Vec<Self>, Refused> {
        self.divide(at).map(|Items(items)| items)
    }

    /// The items of a `List`; None if it is none.
    pub(crate) fn items_of_list(&self, at: &str) -> Result<Option<Self>, Refused> {
        let is = |part: &Option<Self>, text: &str| part.as_ref().and_then(Self::text).as_deref() == Some(text);
        match serde_json::from_str::<List>(self.0.get()) {
            Ok(list) if is(&list.kind, "List") && is(&list.api_version, "v1") => {
                list.items.map(Some).ok_or_else(|| refused(at, "a List needs items"))
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }

    fn divide<T: DeserializeOwned>(&self, at: &str) -> Result<T, Refused> {
        serde_json::from_str(self.0.get()).map_err(|error| refused(at, error.to_string()))
    }

    fn text(&self) -> Option<String> {
        serde_json::from_str(self.0.get()).ok()
    }

    /// The signed form: without spaces, with sorted keys.
    fn canonical(&self, at: &str) -> Result<String, Refused> {
        self.read::<Value>(at).map(|value| value.to_string())
    }

    fn canonical_list(
        &self,
        at: &str,
        canonical: impl Fn(&Self, &str) -> Result<String, Refused>,
    ) -> Result<String, Refused> {
        let items = self.items(at)?.into_iter().enumerate();
        let items = items.map(|(place, item)| canonical(&item, &format!("{at}[{place}]")));
        let items = items.collect::<Result<Vec<String>, Refused>>()?;
        Ok(format!("[{}]", items.join(",")))
    }
}

impl<'de> Deserialize<'de> for Items {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Items;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Items, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element()? {
            if read.len() == MOST_ITEMS {
                let why =
                    format!("has more than {MOST_ITEMS} items, and a plugin may have at most {MOST_OBJECTS} objects");
                return Err(A::Error::custom(why));
            }
            read.push(item);
        }
        Ok(Items(read))
    }
}

#[cfg(test)]
impl From<&Value> for Sent {
    fn from(json: &Value) -> Self {
        Self::read(json.to_string().as_bytes()).unwrap()
    }
}

/// The maximum time by which the signer's clock may be ahead.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// The keys, and the cluster that signatures must be for.
pub(crate) struct Trust {
    keys: Vec<TrustedKey>,
    cluster: String,
}

/// The reason why manifests are not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Untrusted {
    #[error(
        "the manifests are not signed, and pluginTrust is set: sign them with tidewaiter cloud sign, and set signature of the plugin"
    )]
    Unsigned,
    #[error("{0}. Sign them with a key of pluginTrust (tidewaiter cloud sign), and set signature of the plugin")]
    Invalid(SignatureError),
    #[error(
        "the signature is of {signed}, and one of {last} was accepted already: it could be that of older manifests. To go back to them, sign them again"
    )]
    Older { signed: Timestamp, last: Timestamp },
    #[error(
        "the signature is of {0}, which is in the future: correct the clock of the machine that signs, and sign again"
    )]
    Future(Timestamp),
    #[error(transparent)]
    Manifests(#[from] Refused),
}

impl From<SignatureError> for Untrusted {
    fn from(error: SignatureError) -> Self {
        Self::Invalid(error)
    }
}

impl Trust {
    pub(crate) fn new(keys: Vec<TrustedKey>, cluster: Cluster) -> Self {
        Self {
            keys,
            cluster: cluster.id.to_string(),
        }
    }

    /// The time when the manifests of the cloud were signed; None if no signature is needed.
    pub(crate) fn verify(
        &self,
        plugin: &PluginSpec,
        sent: &Sent,
        record: &Record,
        now: Timestamp,
    ) -> Result<Option<i64>, Untrusted> {
        let time = self.signed_at(plugin, sent, now)?;
        let of = |time: Option<i64>| time.and_then(|time| Timestamp::from_second(time).ok());
        match (of(time), of(record.signed_at())) {
            (Some(signed), Some(last)) if signed < last => Err(Untrusted::Older { signed, last }),
            _ => Ok(time),
        }
    }

    /// The time when the manifests were signed, however long ago; None if no signature is needed.
    pub(crate) fn signed_at(&self, plugin: &PluginSpec, sent: &Sent, now: Timestamp) -> Result<Option<i64>, Untrusted> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let signature = sent.signature().filter(|signature| !signature.is_empty());
        let signature = signature.ok_or(Untrusted::Unsigned)?;
        let statement = Statement {
            cluster: &self.cluster,
            plugin: &plugin.id,
            plugin_type: &plugin.type_,
            implementation: &plugin.implementation,
            version: &plugin.version,
            digest: &sent.digest()?,
        };
        let time = verify(&self.keys, &statement, &signature)?;
        let signed = Timestamp::from_second(time).map_err(|_| SignatureError::NoTime)?;
        if signed > now + AHEAD {
            return Err(Untrusted::Future(signed));
        }
        Ok(Some(time))
    }
}

#[cfg(test)]
mod tests {
    mod sent;
    mod trust;
}
