//! `tidewaiter explain group`: the labels that the state store defines for the nodes of a group.
//!
//! It reads only the state store, so that a change can be checked before it is applied.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;
use tidewaiter_api::LabelSource;
use tidewaiter_api::values::quoted;
use tidewaiter_kit::settings::environment;
use tidewaiter_kit::{Metrics, SystemClock};
use tidewaiter_kops::{
    Definition, Definitions, DefinitionsSettings, NodeLabels, RejectedLabel, StateStore, StateUrl, StoreOptions,
    WantedLabel, node_labels,
};

use super::output::{Table, print};
use crate::Failure;
use crate::cli::ExplainGroupArgs;
use crate::controller::state_store::{google_credentials, with_own_s3};

/// Prints the labels. Labels that cannot be set make it fail, after it has printed everything.
pub(super) async fn explain(args: &ExplainGroupArgs) -> Result<(), Failure> {
    let store = open(args).map_err(Failure::Configuration)?;
    let definition = read(args, store).await.map_err(Failure::Running)?;
    let labels = node_labels(&definition, args.lifecycle.into(), &[]);
    let explained = Explained::new(&definition, &labels);
    print(&args.output, &explained, || explained.tables()).map_err(Failure::Running)?;
    match explained.rejected.len() {
        0 => Ok(()),
        1 => Err(Failure::Running(anyhow!("1 label is invalid"))),
        several => Err(Failure::Running(anyhow!("{several} labels are invalid"))),
    }
}

fn open(args: &ExplainGroupArgs) -> Result<StateStore> {
    let base: StateUrl = format!("{}/{}", args.state.trim_end_matches('/'), args.name).parse()?;
    let environment = environment();
    let options = StoreOptions {
        endpoint: args.state_endpoint.clone(),
        google_credentials: google_credentials(&environment),
        likely_region: args.region.clone(),
        ..StoreOptions::default()
    };
    let options = with_own_s3(options, base.scheme(), &environment)?;
    Ok(StateStore::open(&base, options)?)
}

async fn read(args: &ExplainGroupArgs, store: StateStore) -> Result<Arc<Definition>> {
    let clock = SystemClock::shared();
    let metrics = Metrics::new(&clock)?;
    let settings = DefinitionsSettings::default();
    let definitions = Definitions::new(Arc::new(store), args.name.clone(), settings, clock, &metrics)?;
    let found = definitions.get(&args.group).await;
    found.with_context(|| {
        format!(
            "cannot read InstanceGroup {} of cluster {} in {}: check the group's name, --name and --state, and whether you may read there",
            args.group, args.name, args.state
        )
    })
}

/// The output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    group: String,
    role: String,
    labels: Vec<Label>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rejected: Vec<Rejected>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Label {
    key: String,
    value: String,
    source: LabelSource,
    file: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rejected {
    key: String,
    value: String,
    source: LabelSource,
    file: String,
    field: String,
    reason: String,
}

impl Explained {
    fn new(definition: &Definition, labels: &NodeLabels) -> Self {
        let roles: Vec<String> = definition.group.roles.iter().map(ToString::to_string).collect();
        Self {
            group: definition.group.name.to_string(),
            role: roles.join(","),
            labels: labels.wanted.iter().map(Label::from).collect(),
            rejected: labels.rejected.iter().map(Rejected::from).collect(),
        }
    }

    fn tables(&self) -> Vec<Table> {
        let mut about = Table::new("", &["GROUP", "ROLE"]);
        about.row([&self.group, &self.role]);
        let mut labels = Table::new("LABELS", &["KEY", "VALUE", "SOURCE", "FILE"]);
        for label in &self.labels {
            labels.row([&label.key, &label.value, &format!("{:?}", label.source), &label.file]);
        }
        let mut rejected = Table::new("CANNOT BE SET", &["KEY", "VALUE", "FIELD", "FILE", "REASON"]);
        for label in &self.rejected {
            rejected.row([
                &quoted(&label.key),
                &label.value,
                &label.field,
                &label.file,
                &label.reason,
            ]);
        }
        let mut tables = vec![about, labels];
        tables.extend((!self.rejected.is_empty()).then_some(rejected));
        tables
    }
}

impl From<&WantedLabel> for Label {
    fn from(label: &WantedLabel) -> Self {
        Self {
            key: label.key.to_string(),
            value: label.value.to_string(),
            source: label.source,
            file: label.file.clone(),
        }
    }
}

impl From<&RejectedLabel> for Rejected {
    fn from(label: &RejectedLabel) -> Self {
        Self {
            key: label.key.clone(),
            value: label.value.clone(),
            source: label.source,
            file: label.file.clone(),
            field: label.field.clone(),
            reason: label.reason.clone(),
        }
    }
}
