//! The cloud's response for a plugin, divided into objects.
//!
//! JSON takes up to twenty times the memory of its text when it becomes values, and hostile JSON takes a hundred times.
//! So the text is divided into parts, which are texts, and one part at a time becomes values.

use std::fmt;

use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use tidewaiter_cloud::signed::SignedLists;

use super::refused::{Refused, refused};
use super::release::MOST_OBJECTS;

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
pub(super) struct Part(Box<RawValue>);

/// The cloud's response. Each part may be `null`.
#[derive(Deserialize)]
#[serde(expecting = "must be an object with manifests")]
pub(super) struct Sent {
    id: Option<Part>,
    version: Option<Part>,
    signature: Option<Part>,
    pub(super) manifests: Option<Part>,
    jobs: Option<Part>,
    pub(super) depends_on: Option<Part>,
    pub(super) health_checks: Option<Part>,
}

/// The jobs of a version.
#[derive(Default, Deserialize)]
pub(super) struct SentJobs {
    pub(super) pre_apply: Option<Part>,
    pub(super) post_apply: Option<Part>,
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
    pub(super) fn read(json: &[u8]) -> Result<Self, Refused> {
        serde_json::from_slice(json).map_err(|error| refused("the manifests", error.to_string()))
    }

    /// The id of the plugin, if it is there.
    pub(super) fn id(&self) -> Option<String> {
        self.id.as_ref()?.text()
    }

    /// The version, if it is there.
    pub(super) fn version(&self) -> Option<String> {
        self.version.as_ref()?.text()
    }

    /// The signature, if it is there.
    pub(super) fn signature(&self) -> Option<String> {
        self.signature.as_ref()?.text()
    }

    /// The jobs, if there are any.
    pub(super) fn jobs(&self) -> Result<SentJobs, Refused> {
        let jobs = self.jobs.as_ref();
        jobs.map_or_else(|| Ok(SentJobs::default()), |jobs| jobs.divide("jobs"))
    }

    /// The digest that is signed.
    pub(super) fn digest(&self) -> Result<String, Refused> {
        let jobs = self.jobs()?;
        let whole = |at: &str, part: &Option<Part>| list(part.as_ref(), |part| part.canonical(at));
        let each = |at: &str, part: &Option<Part>| list(part.as_ref(), |part| part.canonical_list(at, Part::canonical));
        let groups =
            |part: &Part| part.canonical_list("manifests", |group, at| group.canonical_list(at, Part::canonical));
        let lists = SignedLists {
            depends_on: whole("depends_on", &self.depends_on)?,
            health_checks: whole("health_checks", &self.health_checks)?,
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
    pub(super) fn read<T: DeserializeOwned>(&self, at: &str) -> Result<T, Refused> {
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
    pub(super) fn items(&self, at: &str) -> Result<Vec<Self>, Refused> {
        self.divide(at).map(|Items(items)| items)
    }

    /// The items of a `List`; None if it is none.
    pub(super) fn items_of_list(&self, at: &str) -> Result<Option<Self>, Refused> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_cloud::signed::manifests_digest;

    use super::*;

    #[test]
    fn the_digest_is_that_of_the_whole() {
        for json in [
            json!({}),
            json!({"manifests": [], "jobs": null, "depends_on": null}),
            json!({"manifests": [[], [{"b": 1, "a": [1.50, {"d": "é\n", "c": null}]}, 7]], "jobs": {"post_apply": [{"z": 1, "y": 2}]},
                "depends_on": ["b", "a"], "health_checks": [{"kind": "Z", "apiVersion": "v1"}], "other": 1}),
        ] {
            let spaced = serde_json::to_string_pretty(&json).unwrap();
            assert_eq!(
                Sent::read(spaced.as_bytes()).unwrap().digest().unwrap(),
                manifests_digest(&json)
            );
        }
    }

    #[test]
    fn a_list_is_one_however_its_kind_is_escaped() {
        for (kind, version, expected) in [
            ("List", "v1", true),
            (r"\u004cist", r"v\u0031", true),
            ("List", "v2", false),
            ("Lists", "v1", false),
        ] {
            let list = format!(r#"{{"kind":"{kind}","apiVersion":"{version}","items":[]}}"#);
            let part: Part = serde_json::from_str(&list).unwrap();
            assert_eq!(part.items_of_list("here").unwrap().is_some(), expected, "{list}");
        }
    }

    #[test]
    fn what_becomes_more_memory_than_it_may_is_refused() {
        const TEXT: usize = 2 * LARGEST_PART / 3;
        for item in ["0", "[]", r#"{"":0}"#] {
            let list = vec![item; TEXT / (item.len() + 1)].join(",");
            let object = format!(r#"{{"kind":"A","a":[{list}]}}"#);
            let part: Part = serde_json::from_str(&object).unwrap();
            let found = part.read::<Value>("here");
            // The others take 32 bytes each.
            assert_eq!(found.is_err(), item.starts_with('{'), "{item}");
            let manifests = format!(r#"{{"manifests":[[{list}]]}}"#);
            let sent = Sent::read(manifests.as_bytes()).unwrap();
            let group = sent.manifests.unwrap().items("manifests").unwrap().remove(0);
            let why = group.items("manifests[0]").map(|items| items.len()).unwrap_err().why;
            assert!(why.contains("4000 items"), "{why}");
        }
        let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(LARGEST_PART));
        let part: Part = serde_json::from_str(&long).unwrap();
        let refused = part.read::<Value>("here").unwrap_err();
        assert!(refused.why.contains("split it"), "{refused}");
    }
}
