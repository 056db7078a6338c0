use serde_json::json;

use super::*;

/// Objects that are as they should be, by kind.
fn good(kind: &str) -> Value {
    let available = json!([{"type": "Available", "status": "True"}]);
    let mut object = match kind {
        "Deployment.apps" => {
            json!({"status": {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2,
            "conditions": available}})
        }
        "StatefulSet.apps" => {
            json!({"status": {"replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
            "currentRevision": "a", "updateRevision": "a"}})
        }
        "DaemonSet.apps" => json!({"status": {"desiredNumberScheduled": 2, "currentNumberScheduled": 2,
            "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2}}),
        "Job.batch" => json!({"status": {"startTime": "t"}}),
        "CustomResourceDefinition.apiextensions.k8s.io" => {
            json!({"status": {"conditions": [{"type": "Established", "status": "True"}]}})
        }
        "APIService.apiregistration.k8s.io" => json!({"status": {"conditions": available}}),
        "PersistentVolumeClaim" => json!({"status": {"phase": "Bound"}}),
        "Namespace" => json!({"status": {"phase": "Active"}}),
        "Service" => json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1"}}),
        "Pod" => json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        _ => json!({"status": {}}),
    };
    object["metadata"] = json!({"generation": 2});
    if kind.split_once('.').is_some_and(|(_, group)| group == "apps") {
        object["spec"] = json!({"replicas": 2});
        object["status"]["observedGeneration"] = json!(2);
    }
    object
}

/// Kind, what differs from the good object, and what it is then. `a.b=VALUE` sets a field, `-a.b` takes it away, and
/// `TYPE is STATUS: MESSAGE` is the only condition.
const TABLE: &str = "
Deployment.apps                               |                                    | current
Deployment.apps                               | -status.observedGeneration         | in progress: has not seen it yet
Deployment.apps                               | status.observedGeneration=1        | in progress: has not seen the last change
Deployment.apps                               | status.updatedReplicas=1           | in progress: 1 of 2 pods are updated
Deployment.apps                               | status.replicas=3                  | in progress: 1 old pods still run
Deployment.apps                               | -status.availableReplicas          | in progress: 0 of 2 pods are available
Deployment.apps                               | status.readyReplicas=0             | in progress: 0 of 2 pods are ready
Deployment.apps                               | -status.conditions                 | in progress: no condition Available
Deployment.apps                               | -spec.replicas                     | current
Deployment.apps                               | Available is False: no pods        | in progress: Available is False
Deployment.apps                               | Progressing is False: ProgressDeadlineExceeded | failed: ProgressDeadlineExceeded
StatefulSet.apps                              |                                    | current
StatefulSet.apps                              | -status.observedGeneration         | in progress: has not seen it yet
StatefulSet.apps                              | status.replicas=1                  | in progress: 1 of 2 pods are created
StatefulSet.apps                              | status.readyReplicas=1             | in progress: 1 of 2 pods are ready
StatefulSet.apps                              | status.currentReplicas=1           | in progress: 1 of 2 pods are of the current revision
StatefulSet.apps                              | status.updateRevision=\"b\"          | in progress: not of the last revision
StatefulSet.apps                              | spec.updateStrategy={\"type\":\"OnDelete\"}; -status | current
StatefulSet.apps                              | spec.updateStrategy={\"rollingUpdate\":{\"partition\":1}}; status.updatedReplicas=0 | in progress: 0 of 1 pods are updated
StatefulSet.apps                              | spec.updateStrategy={\"rollingUpdate\":{\"partition\":1}}; status.updatedReplicas=1 | current
DaemonSet.apps                                |                                    | current
DaemonSet.apps                                | -status.observedGeneration         | in progress: has not seen it yet
DaemonSet.apps                                | status.currentNumberScheduled=1    | in progress: 1 of 2 pods are scheduled
DaemonSet.apps                                | status.updatedNumberScheduled=1    | in progress: 1 of 2 pods are updated
DaemonSet.apps                                | status.numberAvailable=1           | in progress: 1 of 2 pods are available
DaemonSet.apps                                | status.numberReady=1               | in progress: 1 of 2 pods are ready
Job.batch                                     |                                    | current
Job.batch                                     | -status.startTime                  | in progress: not started
Job.batch                                     | -status.startTime; Complete is True: m | current
Job.batch                                     | Failed is True: DeadlineExceeded   | failed: DeadlineExceeded
CustomResourceDefinition.apiextensions.k8s.io |                                    | current
CustomResourceDefinition.apiextensions.k8s.io | -status                            | in progress: Established
CustomResourceDefinition.apiextensions.k8s.io | NamesAccepted is False: taken      | failed: taken
APIService.apiregistration.k8s.io             |                                    | current
APIService.apiregistration.k8s.io             | Available is False: no endpoints   | in progress: no endpoints
PersistentVolumeClaim                         |                                    | current
PersistentVolumeClaim                         | status.phase=\"Pending\"             | in progress: \"Pending\", not Bound
Namespace                                     |                                    | current
Namespace                                     | metadata.deletionTimestamp=\"t\"     | in progress: is being deleted
Namespace                                     | metadata.deletionTimestamp=\"t\"; NamespaceDeletionDiscoveryFailure is True: stale | in progress: deleted: stale
Namespace                                     | metadata.deletionTimestamp=\"t\"; NamespaceContentRemaining is False: all gone | in progress: deleted
Service                                       |                                    | current
Service                                       | -spec.clusterIP                    | in progress: no cluster IP
Service                                       | spec={\"type\":\"ClusterIP\"}          | current
Pod                                           |                                    | current
Pod                                           | -status                            | in progress: no condition Ready
Pod                                           | status.phase=\"Succeeded\"; -status.conditions | current
Pod                                           | status.phase=\"Failed\"              | failed: Failed
ConfigMap                                     | metadata.deletionTimestamp=\"t\"     | in progress: is being deleted
Any.example.com                               |                                    | current
Any.example.com                               | status.observedGeneration=1        | in progress: last change
Any.example.com                               | Ready is True: m                   | current
Any.example.com                               | Ready is False: no                 | in progress: no
Any.example.com                               | Ready is Unknown: who knows        | in progress: who knows
Any.example.com                               | Stalled is True: stuck             | failed: stuck
Any.example.com                               | Stalled is False: m                | current
Any.example.com                               | Reconciling is True: on the way    | in progress: on the way
";

/// Changes the object as a cell of the table says.
fn change(object: &mut Value, change: &str) {
    if let Some((type_, rest)) = change.split_once(" is ") {
        let (status, message) = rest.split_once(": ").unwrap();
        object["status"]["conditions"] =
            json!([{"type": type_, "status": status, "reason": message, "message": message}]);
        return;
    }
    let (path, value) = match change.strip_prefix('-') {
        Some(path) => (path, None),
        None => change
            .split_once('=')
            .map(|(path, value)| (path, Some(serde_json::from_str(value).unwrap())))
            .unwrap(),
    };
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = if parent.is_empty() { object } else { &mut object[parent] };
    let fields = parent.as_object_mut().unwrap();
    match value {
        Some(value) => drop(fields.insert(field.to_owned(), value)),
        None => assert!(fields.remove(field).is_some(), "{path} is not there"),
    }
}

#[test]
fn each_kind_is_judged_by_the_rules_of_kstatus() {
    for row in TABLE.lines().filter(|row| !row.is_empty()) {
        let [kind, changes, expected] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let (name, group) = kind.split_once('.').unwrap_or((kind, ""));
        let mut object = good(kind);
        for text in changes.split("; ").filter(|text| !text.is_empty()) {
            change(&mut object, text);
        }
        let found = match health(group, name, &object) {
            Health::Current => "current".to_owned(),
            Health::InProgress(what) => format!("in progress: {what}"),
            Health::Failed(what) => format!("failed: {what}"),
        };
        let (state, words) = expected.split_once(": ").unwrap_or((expected, ""));
        assert!(
            found.starts_with(state) && found.contains(words),
            "{row}\n{object}: {found}"
        );
    }
}
