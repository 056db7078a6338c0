//! The health of an object, by the rules of kstatus, and the outcome of a job. Pure.
//!
//! Source: sigs.k8s.io/cli-utils, pkg/kstatus/status (`core.go`, `generic.go`).

use serde_json::Value;

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// As desired.
    Current,
    /// On the way; what is missing.
    InProgress(String),
    /// It will not get there by itself; why.
    Failed(String),
}

/// The kinds whose health needs no more than their existence. Their content is not read.
pub(crate) fn is_inert(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "ConfigMap" | "Secret" | "ServiceAccount" | "LimitRange")
            | (
                "rbac.authorization.k8s.io",
                "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding"
            )
            | (
                "admissionregistration.k8s.io",
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration"
            )
            | ("scheduling.k8s.io", "PriorityClass")
            | ("storage.k8s.io", "StorageClass")
    )
}

/// The health of the object.
pub(crate) fn health(group: &str, kind: &str, object: &Value) -> Health {
    if object["metadata"].get("deletionTimestamp").is_some() {
        return Health::InProgress(deleting(group, kind, object));
    }
    let generation = object["metadata"]["generation"].as_i64();
    let observed = object["status"]["observedGeneration"].as_i64();
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        return Health::InProgress("its controller has not seen the last change".to_owned());
    }
    match (group, kind) {
        ("apps", "Deployment") => deployment(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("batch", "Job") => job(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("apiregistration.k8s.io", "APIService") => needs(object, "Available"),
        ("", "Namespace") => phase(object, "Active"),
        ("", "PersistentVolumeClaim") => phase(object, "Bound"),
        ("", "Service") => service(object),
        ("", "Pod") => pod(object),
        _ => by_conditions(object),
    }
}

/// The obstacles to the deletion of a namespace, from its conditions: an `APIService` that is not available, finalizers
/// of what is in it.
fn deleting(group: &str, kind: &str, object: &Value) -> String {
    let mut text = "is being deleted".to_owned();
    let conditions = object["status"]["conditions"].as_array();
    let conditions = conditions.filter(|_| (group, kind) == ("", "Namespace"));
    for condition in conditions.into_iter().flatten().filter(|it| it["status"] == "True") {
        text.push_str(": ");
        text.push_str(condition["message"].as_str().unwrap_or_default());
    }
    text
}

struct Condition<'a> {
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<Condition<'a>> {
    let all = object["status"]["conditions"].as_array()?;
    let found = all.iter().find(|condition| condition["type"] == type_)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    Some(Condition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
    })
}

impl Condition<'_> {
    fn words(&self, type_: &str) -> String {
        let (reason, message) = (self.reason, self.message);
        format!("its condition {type_} is {}: {reason}: {message}", self.status)
    }
}

fn by_conditions(object: &Value) -> Health {
    if let Some(stalled) = condition(object, "Stalled").filter(|it| it.status == "True") {
        return Health::Failed(stalled.words("Stalled"));
    }
    if let Some(reconciling) = condition(object, "Reconciling").filter(|it| it.status == "True") {
        return Health::InProgress(reconciling.words("Reconciling"));
    }
    match condition(object, "Ready").filter(|it| it.status != "True") {
        Some(ready) => Health::InProgress(ready.words("Ready")),
        None => Health::Current,
    }
}

/// The condition must be there and true.
fn needs(object: &Value, type_: &str) -> Health {
    match condition(object, type_) {
        Some(found) if found.status == "True" => Health::Current,
        Some(found) => Health::InProgress(found.words(type_)),
        None => Health::InProgress(format!("it has no condition {type_} yet")),
    }
}

fn phase(object: &Value, wanted: &str) -> Health {
    match object["status"]["phase"].as_str() {
        Some(phase) if phase == wanted => Health::Current,
        phase => Health::InProgress(format!("its phase is {:?}, not {wanted}", phase.unwrap_or_default())),
    }
}

/// A number below `status`; 0 if it is missing, as the API leaves it out.
fn count(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or_default()
}

fn replicas(object: &Value) -> i64 {
    object["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Compares the number `have` with `want`; None if all are there.
fn some_of(have: i64, want: i64, what: &str) -> Option<Health> {
    (have < want).then(|| Health::InProgress(format!("{have} of {want} pods are {what}")))
}

fn unseen(object: &Value) -> Option<Health> {
    let seen = object["status"].get("observedGeneration").is_some();
    (!seen).then(|| Health::InProgress("its controller has not seen it yet".to_owned()))
}

fn deployment(object: &Value) -> Health {
    if let Some(progress) = condition(object, "Progressing").filter(|it| it.reason == "ProgressDeadlineExceeded") {
        return Health::Failed(progress.words("Progressing"));
    }
    let wanted = replicas(object);
    let surplus = count(object, "replicas") - count(object, "updatedReplicas");
    unseen(object)
        .or_else(|| some_of(count(object, "updatedReplicas"), wanted, "updated"))
        .or_else(|| (surplus > 0).then(|| Health::InProgress(format!("{surplus} old pods still run"))))
        .or_else(|| some_of(count(object, "availableReplicas"), wanted, "available"))
        .or_else(|| some_of(count(object, "readyReplicas"), wanted, "ready"))
        .unwrap_or_else(|| needs(object, "Available"))
}

fn stateful_set(object: &Value) -> Health {
    if object["spec"]["updateStrategy"]["type"] == "OnDelete" {
        return Health::Current;
    }
    let wanted = replicas(object);
    let waits = unseen(object)
        .or_else(|| some_of(count(object, "replicas"), wanted, "created"))
        .or_else(|| some_of(count(object, "readyReplicas"), wanted, "ready"));
    if let Some(waits) = waits {
        return waits;
    }
    let partition = object["spec"]["updateStrategy"]["rollingUpdate"]["partition"].as_i64();
    if let Some(partition) = partition.filter(|partition| *partition > 0) {
        return some_of(count(object, "updatedReplicas"), wanted - partition, "updated").unwrap_or(Health::Current);
    }
    let status = &object["status"];
    some_of(count(object, "currentReplicas"), wanted, "of the current revision")
        .or_else(|| {
            let same = status["currentRevision"] == status["updateRevision"];
            (!same).then(|| Health::InProgress("its pods are not of the last revision yet".to_owned()))
        })
        .unwrap_or(Health::Current)
}

fn daemon_set(object: &Value) -> Health {
    let wanted = count(object, "desiredNumberScheduled");
    unseen(object)
        .or_else(|| some_of(count(object, "currentNumberScheduled"), wanted, "scheduled"))
        .or_else(|| some_of(count(object, "updatedNumberScheduled"), wanted, "updated"))
        .or_else(|| some_of(count(object, "numberAvailable"), wanted, "available"))
        .or_else(|| some_of(count(object, "numberReady"), wanted, "ready"))
        .unwrap_or(Health::Current)
}

fn job(object: &Value) -> Health {
    if let Some(failed) = condition(object, "Failed").filter(|it| it.status == "True") {
        return Health::Failed(failed.words("Failed"));
    }
    // kstatus: a job that runs is as it should be.
    if object["status"].get("startTime").is_none() && condition(object, "Complete").is_none() {
        return Health::InProgress("it has not started yet".to_owned());
    }
    Health::Current
}

fn definition(object: &Value) -> Health {
    if let Some(names) = condition(object, "NamesAccepted").filter(|it| it.status == "False") {
        return Health::Failed(names.words("NamesAccepted"));
    }
    needs(object, "Established")
}

fn service(object: &Value) -> Health {
    let spec = &object["spec"];
    if spec["type"] == "LoadBalancer" && spec["clusterIP"].as_str().unwrap_or_default().is_empty() {
        return Health::InProgress("it has no cluster IP yet".to_owned());
    }
    Health::Current
}

fn pod(object: &Value) -> Health {
    match object["status"]["phase"].as_str() {
        Some("Succeeded") => Health::Current,
        Some("Failed") => Health::Failed("its phase is Failed".to_owned()),
        _ => needs(object, "Ready"),
    }
}

/// The outcome of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    Running,
    Succeeded,
    Failed,
}

impl JobState {
    /// Of a `Job` of batch/v1.
    pub(crate) fn of(job: &Value) -> Self {
        let conditions = job["status"]["conditions"].as_array();
        let has = |type_: &str| {
            let mut all = conditions.into_iter().flatten();
            all.any(|condition| condition["type"] == type_ && condition["status"] == "True")
        };
        if has("Complete") {
            Self::Succeeded
        } else if has("Failed") {
            Self::Failed
        } else {
            Self::Running
        }
    }
}

#[cfg(test)]
mod tests;
