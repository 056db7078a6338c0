//! The manifests of a plugin's version: groups of Kubernetes objects, applied in order, and jobs before and after them.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::fields::{At, Read, model};
use super::values::PluginReference;
use super::{Fields, InvalidField, Model, OpenObject, schema};

/// The maximum depth of a manifest: the schema of a custom resource is deeper than what people write.
const MAX_LEVELS: usize = 64;

const TEXT: &str = "a text, or the API server refuses the object";

/// The response of `GET …/plugins/ID`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PluginManifests {
    /// Groups, applied in this order.
    pub manifests: Vec<Vec<Manifest>>,
    /// Jobs that must succeed before and after.
    #[schema(value_type = Option<Jobs>)]
    pub jobs: Jobs,
    /// The plugins of the cluster that must be ready before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<PluginReference>>)]
    pub depends_on: Vec<PluginReference>,
}

model! {
    /// Jobs around the manifests.
    #[derive(Default)]
    Jobs, "a plugin's jobs" =>
    /// Before the first group.
    or_default pre_apply: Vec<Job>,
    /// After the last one.
    or_default post_apply: Vec<Job>,
}

/// A Kubernetes object. Only its identity and the types in its metadata are validated; the rest is validated by the API
/// server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Manifest(OpenObject);

/// A `Job` of `batch/v1` with `activeDeadlineSeconds`, so that it ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Job(Manifest);

impl Manifest {
    #[must_use]
    pub fn object(&self) -> &Map<String, Value> {
        &self.0.0
    }
}

impl Job {
    #[must_use]
    pub fn object(&self) -> &Map<String, Value> {
        self.0.object()
    }
}

impl ToSchema for Manifest {}

impl PartialSchema for Manifest {
    fn schema() -> RefOr<Schema> {
        let (version, kind) = (schema::text(WORD, "v1"), schema::text(WORD, "Namespace"));
        manifest("A Kubernetes object.", version, kind).into()
    }
}

impl ToSchema for Job {}

impl PartialSchema for Job {
    fn schema() -> RefOr<Schema> {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1));
        let spec = open("")
            .property("activeDeadlineSeconds", seconds)
            .required("activeDeadlineSeconds");
        let (version, kind) = (schema::text("^batch/v1$", "batch/v1"), schema::text("^Job$", "Job"));
        let job = manifest("A job that completes.", version, kind);
        job.property("spec", spec).required("spec").into()
    }
}

/// The pattern of a path segment; `word` is the same rule in code.
const WORD: &str = "^[!-$&-~]{1,253}$";

fn open(description: &str) -> ObjectBuilder {
    schema::object(description).additional_properties(Some(AdditionalProperties::FreeForm(true)))
}

fn manifest(description: &str, api_version: ObjectBuilder, kind: ObjectBuilder) -> ObjectBuilder {
    let metadata = open("")
        .property("name", schema::text(WORD, "migrate"))
        .required("name");
    open(description)
        .property("apiVersion", api_version)
        .property("kind", kind)
        .property("metadata", metadata)
        .required("apiVersion")
        .required("kind")
        .required("metadata")
}

impl Model for PluginManifests {
    const KIND: &'static str = "a plugin's manifests";
    const MAX_BYTES: usize = 16 * 1024 * 1024;

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            manifests: fields.required("manifests")?,
            jobs: fields.or_default("jobs")?,
            depends_on: fields.or_default("depends_on")?,
        })
    }
}

impl Read for Manifest {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        word(&at.field("apiVersion")?, "an API version, for example v1")?;
        word(&at.field("kind")?, "a kind, for example Job")?;
        let metadata = at.field("metadata")?;
        word(&metadata.field("name")?, "the name of the object")?;
        // An older version may have stored others.
        if at.is_input() {
            check_texts(&metadata)?;
        }
        OpenObject::with_levels(at, MAX_LEVELS).map(Self)
    }
}

/// A text that is valid as a path segment: the names of some kinds are not DNS names.
fn word(at: &At<'_>, wanted: &str) -> Result<(), InvalidField> {
    let text = at.text(wanted)?;
    let ok = (1..=253).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && b != b'%');
    if ok { Ok(()) } else { Err(at.must_be(wanted)) }
}

/// Checks the types of the namespace, the labels and the annotations: YAML reads `namespace: 2024` as a number.
fn check_texts(metadata: &At<'_>) -> Result<(), InvalidField> {
    let check = |at: &At<'_>| {
        if at.value.is_null() {
            Ok(())
        } else {
            at.text(TEXT).map(drop)
        }
    };
    check(&metadata.field("namespace")?)?;
    for field in ["labels", "annotations"] {
        let texts = metadata.field(field)?;
        if !texts.value.is_null() {
            let mut values = texts.map()?.iter();
            values.try_for_each(|(key, value)| check(&texts.at(key, value)))?;
        }
    }
    Ok(())
}

impl Read for Job {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let manifest = Manifest::read(at)?;
        for (key, wanted) in [("apiVersion", "batch/v1"), ("kind", "Job")] {
            let at = at.field(key)?;
            if at.value.as_str() != Some(wanted) {
                return Err(at.must_be(wanted));
            }
        }
        let deadline = at.field("spec")?.field("activeDeadlineSeconds")?;
        if deadline.value.as_i64().is_some_and(|seconds| seconds > 0) {
            return Ok(Self(manifest));
        }
        let wanted = "a whole number of at least 1: a job without a deadline could block the plugin forever";
        Err(deadline.must_be(wanted))
    }
}
