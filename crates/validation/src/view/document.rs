//! The verdict as JSON and YAML with kOps' field names. As in kOps, empty fields are omitted.
//!
//! `instanceGroup` contains only the fields of the InstanceGroup that were read, so that `.instanceGroup.metadata.name`
//! has the same path as in kOps.

use serde::Serialize;
use tidewaiter_api::ConditionStatus;
use tidewaiter_kit::yaml::{self, WriteError};
use tidewaiter_kops::GroupSummary;

use crate::verdict::{Failure, Verdict};

#[derive(Serialize)]
struct Document<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failures: Vec<FailureDocument<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<NodeDocument<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<UnknownDocument<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FailureDocument<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_group: Option<GroupDocument<'a>>,
}

#[derive(Serialize)]
struct GroupDocument<'a> {
    metadata: Metadata<'a>,
    spec: GroupSpec<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupSpec<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    machine_type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_size: Option<u32>,
    role: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    subnets: &'a [String],
}

#[derive(Serialize)]
struct NodeDocument<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    zone: &'a str,
    role: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    hostname: &'a str,
    status: ConditionStatus,
}

#[derive(Serialize)]
struct UnknownDocument<'a> {
    part: String,
    reason: &'a str,
}

/// The verdict as indented JSON, ending with a line break.
///
/// # Errors
/// Never, for any verdict.
pub fn json(verdict: &Verdict) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string_pretty(&document(verdict))? + "\n")
}

/// The verdict as YAML.
///
/// # Errors
/// Never, for any verdict.
pub fn yaml(verdict: &Verdict) -> Result<String, WriteError> {
    yaml::to_string(&document(verdict))
}

fn document(verdict: &Verdict) -> Document<'_> {
    let nodes = verdict.nodes.iter().map(|node| NodeDocument {
        name: &node.name,
        zone: &node.zone,
        role: node.role,
        hostname: &node.hostname,
        status: node.status,
    });
    let unknown = verdict.unknown.iter().map(|unknown| UnknownDocument {
        part: unknown.part.to_string(),
        reason: &unknown.reason,
    });
    Document {
        failures: verdict
            .failures
            .iter()
            .map(|failure| failure_document(failure, verdict))
            .collect(),
        nodes: nodes.collect(),
        unknown: unknown.collect(),
    }
}

fn failure_document<'a>(failure: &'a Failure, verdict: &'a Verdict) -> FailureDocument<'a> {
    let rows = &verdict.groups;
    let group = failure.instance_group.as_ref().and_then(|name| {
        let found = rows.binary_search_by(|row| row.group.name.cmp(name)).ok()?;
        Some(group_document(&rows[found].group))
    });
    FailureDocument {
        kind: failure.kind.as_str(),
        name: &failure.name,
        message: &failure.message,
        instance_group: group,
    }
}

fn group_document(group: &GroupSummary) -> GroupDocument<'_> {
    GroupDocument {
        metadata: Metadata {
            name: group.name.as_str(),
        },
        spec: GroupSpec {
            machine_type: &group.machine_type,
            max_size: group.max_size,
            min_size: group.min_size,
            role: group.role.to_string(),
            subnets: &group.subnets,
        },
    }
}
