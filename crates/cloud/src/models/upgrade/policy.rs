//! The policy of an upgrade. Its type is that of the `ClusterUpgrade` in the cluster, so the mirror copies it, and a
//! field that is added there does not compile here until it is read. Its schema is stated here, because the other crate
//! has none for OpenAPI; a test compares the fields of both.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use tidewaiter_api::containership::{Day, MaintenanceWindow, MaxUnavailable, OnDrainTimeout, UpgradePolicy};
use tidewaiter_upgrade::{Refusal, Windows};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::models::InvalidField;
use crate::models::fields::{At, Fields, Model, Read};

/// As in the definition of `ClusterUpgrade`.
const MAX_WINDOWS: usize = 50;
const MAX_SECONDS: u32 = 24 * 60 * 60;
const MAX_DAYS: usize = 7;

/// What is added to an upgrade. Everything is off if it is absent.
#[derive(ToSchema)]
#[schema(as = UpgradePolicy, rename_all = "camelCase", examples(json!({"drain": true, "canary": 1, "maxFailures": 1})))]
#[expect(dead_code, reason = "stands for its schema alone")]
pub(super) struct PolicySchema {
    /// No further node is started until this is removed. Nodes that are in progress are finished.
    paused: Option<bool>,
    /// No further node is started, and the upgrade fails when the nodes that are in progress are finished.
    aborted: Option<bool>,
    /// How many workers of each node pool may be upgraded at once: a number, or a percentage of the pool. Absent: one
    /// worker of the cluster at a time.
    max_unavailable: Option<MaxUnavailableSchema>,
    /// The upgrade ends after this number of failed nodes; nodes in progress are finished. Absent: 1.
    #[schema(minimum = 1)]
    max_failures: Option<u32>,
    /// For how many seconds a node must be at the version and Ready, after its script has succeeded, before it is done.
    /// Absent: 30.
    #[schema(minimum = 0, maximum = 86400)]
    min_ready_seconds: Option<u32>,
    /// A node is started only while all Nodes are Ready, etcd answers the API server, and each `ClusterHealth` is
    /// Healthy.
    require_healthy: Option<bool>,
    /// A node is started only within one of these windows. Nodes that are in progress are finished. Empty: at any time.
    #[schema(max_items = 50)]
    maintenance_windows: Option<Vec<WindowSchema>>,
    /// After this number of nodes, the upgrade goes on only when the cluster has been healthy for `soakSeconds`. It
    /// ends if one of them fails.
    #[schema(minimum = 1)]
    canary: Option<u32>,
    /// For how many seconds the cluster must be healthy after the canaries. Absent: 600.
    #[schema(minimum = 1)]
    soak_seconds: Option<u32>,
    /// Each node is cordoned and drained before it is started, and uncordoned when it is done or has failed.
    drain: Option<bool>,
    /// For how many seconds the pods of a node may take to leave it. Absent: 600.
    #[schema(minimum = 1)]
    drain_timeout_seconds: Option<u32>,
    /// What happens to a node whose pods have not left it by then. Absent: `fail`.
    on_drain_timeout: Option<OnDrainTimeoutSchema>,
}

/// A number, or a percentage. Written by hand, because the derive has no type that is both.
struct MaxUnavailableSchema;

impl ToSchema for MaxUnavailableSchema {
    fn name() -> Cow<'static, str> {
        "MaxUnavailable".into()
    }
}

impl PartialSchema for MaxUnavailableSchema {
    fn schema() -> RefOr<Schema> {
        let types = SchemaType::Array(vec![Type::Integer, Type::String, Type::Null]);
        let schema = ObjectBuilder::new().schema_type(types).minimum(Some(1));
        let schema = schema.pattern(Some("^(100|[1-9][0-9]?)%$")).examples(["25%"]);
        schema.build().into()
    }
}

/// When nodes may be started, every week.
#[derive(ToSchema)]
#[schema(as = MaintenanceWindow, rename_all = "camelCase", examples(json!({"days": ["Fri", "Sat"], "start": "22:00", "end": "04:00", "timeZone": "Europe/Berlin"})))]
#[expect(dead_code, reason = "stands for its schema alone")]
struct WindowSchema {
    /// The days on which the window opens. Empty: every day.
    #[schema(max_items = 7)]
    days: Option<Vec<DaySchema>>,
    /// When it opens.
    #[schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$", examples("22:00"))]
    start: String,
    /// When it closes: on the next day if this is not after `start`.
    #[schema(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$", examples("04:00"))]
    end: String,
    /// The time zone of both, by its name in the IANA database. Absent: UTC.
    #[schema(max_length = 64, examples("Europe/Berlin"))]
    time_zone: Option<String>,
}

/// A day of the week.
#[derive(ToSchema)]
#[schema(as = Day)]
#[expect(dead_code, reason = "stands for its schema alone")]
enum DaySchema {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// What happens to a node whose pods have not left it in time: it fails without a script, or its pods are deleted and
/// it is started.
#[derive(ToSchema)]
#[schema(as = OnDrainTimeout, rename_all = "lowercase")]
#[expect(dead_code, reason = "stands for its schema alone")]
enum OnDrainTimeoutSchema {
    Fail,
    Force,
}

impl Fields<'_> {
    /// A policy; one that adds nothing is like none.
    pub(super) fn policy(&mut self, key: &'static str) -> Result<Option<UpgradePolicy>, InvalidField> {
        let policy: Option<UpgradePolicy> = self.nullable(key)?;
        Ok(policy.filter(|policy| *policy != UpgradePolicy::default()))
    }
}

impl Model for UpgradePolicy {
    const KIND: &'static str = "the policy of an upgrade";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let policy = Self {
            paused: fields.or_default("paused")?,
            aborted: fields.or_default("aborted")?,
            max_unavailable: fields.nullable("maxUnavailable")?,
            max_failures: fields.optional_number("maxFailures", 1, u32::MAX)?,
            min_ready_seconds: fields.optional_number("minReadySeconds", 0, MAX_SECONDS)?,
            require_healthy: fields.or_default("requireHealthy")?,
            maintenance_windows: fields.or_default("maintenanceWindows")?,
            canary: fields.optional_number("canary", 1, u32::MAX)?,
            soak_seconds: fields.optional_number("soakSeconds", 1, u32::MAX)?,
            drain: fields.or_default("drain")?,
            drain_timeout_seconds: fields.optional_number("drainTimeoutSeconds", 1, u32::MAX)?,
            on_drain_timeout: fields.nullable("onDrainTimeout")?,
        };
        bound(
            fields,
            "maintenanceWindows",
            policy.maintenance_windows.len(),
            MAX_WINDOWS,
        )?;
        Ok(policy)
    }
}

impl Model for MaintenanceWindow {
    const KIND: &'static str = "a maintenance window";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let window = Self {
            days: fields.or_default("days")?,
            start: fields.required::<Text>("start")?.0,
            end: fields.required::<Text>("end")?.0,
            time_zone: fields.optional::<Text>("timeZone")?.map(|text| text.0),
        };
        bound(fields, "days", window.days.len(), MAX_DAYS)?;
        // The coordinator reads it with the same function.
        match Windows::new(std::slice::from_ref(&window)) {
            Err(Refusal::Window { field, value, wanted }) => {
                let field = field.rsplit('.').next().unwrap_or_default();
                Err(fields.invalid(field, format!("is {value}, must be {wanted}")))
            }
            _ => Ok(window),
        }
    }
}

/// A text that [`Windows::new`] checks.
struct Text(String);

impl Read for Text {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        Ok(Self(at.text("a text")?.to_owned()))
    }
}

fn bound(fields: &Fields<'_>, key: &str, items: usize, most: usize) -> Result<(), InvalidField> {
    if items > most {
        return Err(fields.invalid(key, format!("has {items} items, may have at most {most}")));
    }
    Ok(())
}

impl Read for MaxUnavailable {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let number = at.value.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| *number > 0).map(Self::Number);
        let is_percent = |text: &&str| (1..=100).any(|percent: u8| format!("{percent}%") == **text);
        let percent = at.value.as_str().filter(is_percent);
        let found = number.or_else(|| percent.map(|text| Self::Percent(text.to_owned())));
        found.ok_or_else(|| at.must_be("a whole number from 1, or a percentage such as 25%"))
    }
}

impl Read for OnDrainTimeout {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        word(at, "what happens after the time for a drain: fail or force")
    }
}

impl Read for Day {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        word(at, "a day of the week: one of Mon, Tue, Wed, Thu, Fri, Sat, Sun")
    }
}

/// A word as it is in the cluster. Serde would also take an object with the word as its key.
fn word<T: DeserializeOwned>(at: &At<'_>, wanted: &str) -> Result<T, InvalidField> {
    let word = T::deserialize(at.value).ok().filter(|_| at.value.is_string());
    word.ok_or_else(|| at.must_be(wanted))
}
