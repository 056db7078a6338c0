//! Objects of the shape and size that plugins have. They are written here, and their size is generated.

use serde_json::{Map, Value, json};

/// An object; `place` is its name, or its namespace and name as `kube-system/metrics-server`. `rest` are its other
/// fields.
pub fn object(api_version: &str, kind: &str, place: &str, rest: Value) -> Value {
    let (namespace, name) = match place.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, place),
    };
    // Names of roles may have colons, labels may not.
    let label = name.replace(':', "-");
    let mut object = json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": label, "app.kubernetes.io/part-of": "a-plugin"}}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let Value::Object(rest) = rest else { panic!("{rest}") };
    object.as_object_mut().unwrap().extend(rest);
    object
}

pub fn namespace(name: &str) -> Value {
    object("v1", "Namespace", name, json!({}))
}

pub fn account(place: &str) -> Value {
    object("v1", "ServiceAccount", place, json!({}))
}

/// A ConfigMap with keys of this many kilobytes.
pub fn config(place: &str, keys: usize, kilobytes: usize) -> Value {
    let text = |key: usize| format!("panel {key}: ").repeat(kilobytes * 1024 / 9);
    let data: Map<String, Value> = (0..keys)
        .map(|key| (format!("key-{key}.json"), json!(text(key))))
        .collect();
    object("v1", "ConfigMap", place, json!({ "data": data }))
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// A Role or, without a namespace, a `ClusterRole`, with this many rules.
pub fn role(place: &str, rules: usize) -> Value {
    let kind = if place.contains('/') { "Role" } else { "ClusterRole" };
    let rule = |number: usize| {
        json!({"apiGroups": ["", format!("g{number}.example.com")], "resources": [format!("things{number}"), "pods"],
        "verbs": ["get", "list", "watch", "update", "patch"]})
    };
    let rules: Vec<Value> = (0..rules).map(rule).collect();
    object(&format!("{RBAC}/v1"), kind, place, json!({ "rules": rules }))
}

/// A `RoleBinding` or, without a namespace, a `ClusterRoleBinding`, of a role of its own scope, or of this
/// `ClusterRole`.
pub fn binding(place: &str, role: &str, account: &str) -> Value {
    let (namespace, name) = account.split_once('/').unwrap();
    let kind = if place.contains('/') {
        "RoleBinding"
    } else {
        "ClusterRoleBinding"
    };
    let (role_kind, role) = match role.split_once('/') {
        Some((_, role)) => ("Role", role),
        None => ("ClusterRole", role),
    };
    let rest = json!({"roleRef": {"apiGroup": RBAC, "kind": role_kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]});
    object(&format!("{RBAC}/v1"), kind, place, rest)
}

/// The pod template of a Deployment, a DaemonSet, a `StatefulSet` and a Job: one container with arguments, probes and
/// limits. The image has this tag.
fn template(place: &str, tag: &str) -> Value {
    let name = place.split_once('/').unwrap().1;
    let arguments: Vec<String> = (0..12)
        .map(|number| format!("--flag-{number}=value-{number}"))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8443, "scheme": "HTTPS"}, "periodSeconds": 10, "failureThreshold": 3});
    let container = json!({"name": "main", "image": format!("registry.example.org/{name}:{tag}"), "args": arguments,
        "ports": [{"name": "https", "containerPort": 8443, "protocol": "TCP"}],
        "livenessProbe": probe, "readinessProbe": probe,
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"cpu": "1000m", "memory": "0.5Gi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]});
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "nodeSelector": {"kubernetes.io/os": "linux"},
        "volumes": [{"name": "tmp", "emptyDir": {}}]}})
}

/// A Deployment, a DaemonSet or a `StatefulSet`.
pub fn workload(kind: &str, place: &str, tag: &str) -> Value {
    let name = place.split_once('/').unwrap().1;
    let mut spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template(place, tag)});
    match kind {
        "DaemonSet" => {}
        "StatefulSet" => {
            spec["replicas"] = json!(1);
            spec["serviceName"] = json!(name);
        }
        _ => spec["replicas"] = json!(1),
    }
    object("apps/v1", kind, place, json!({ "spec": spec }))
}

pub fn job(place: &str) -> Value {
    let mut template = template(place, "1");
    template["spec"]["restartPolicy"] = json!("Never");
    object(
        "batch/v1",
        "Job",
        place,
        json!({"spec": {"activeDeadlineSeconds": 600, "template": template}}),
    )
}

pub fn service(place: &str, type_: &str) -> Value {
    let name = place.split_once('/').unwrap().1;
    let rest = json!({"spec": {"type": type_, "selector": {"app": name},
        "ports": [{"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}]}});
    object("v1", "Service", place, rest)
}

/// A `ValidatingWebhookConfiguration` or a `MutatingWebhookConfiguration` that asks a Service about these resources.
pub fn webhooks(kind: &str, name: &str, service: &str, group: &str, resources: &[&str]) -> Value {
    let (namespace, service) = service.split_once('/').unwrap();
    let webhook = json!({"name": format!("check.{group}"), "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "matchPolicy": "Equivalent", "timeoutSeconds": 10,
        "clientConfig": {"service": {"name": service, "namespace": namespace, "path": "/validate"}},
        "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": resources}]});
    object(
        "admissionregistration.k8s.io/v1",
        kind,
        name,
        json!({ "webhooks": [webhook] }),
    )
}

/// A definition with these versions (the first one is stored; those after `-` are not served) and a schema of some
/// kilobytes.
pub fn definition(group: &str, kind: &str, scope: &str, versions: &[&str], kilobytes: usize) -> Value {
    let singular = kind.to_lowercase();
    let plural = match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        _ if singular.ends_with('s') => format!("{singular}es"),
        _ => format!("{singular}s"),
    };
    let fields: Map<String, Value> = (0..kilobytes)
        .map(|number| (format!("field{number}"), field(number)))
        .collect();
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": fields});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"},
        "metadata": {"type": "object"}, "spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}});
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(number, version)| {
            json!({"name": version.trim_start_matches('-'), "served": !version.starts_with('-'), "storage": number == 0,
            "subresources": {"status": {}}, "schema": schema})
        })
        .collect();
    let rest = json!({"spec": {"group": group, "scope": scope, "versions": versions,
        "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular}}});
    object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &format!("{plural}.{group}"),
        rest,
    )
}

/// The schema of a field, of about one kilobyte in three levels.
fn field(number: usize) -> Value {
    let text = |words: &str| format!("{words} {number} says what the operator does with it. ").repeat(3);
    let leaf = json!({"type": "string", "description": text("The value")});
    let item = json!({"type": "object", "description": text("Each item"), "properties": {"key": leaf, "operator": {"type": "string"},
        "optional": {"type": "boolean"}, "seconds": {"type": "integer", "format": "int64"}}});
    json!({"type": "object", "description": text("The field"), "properties": {"enabled": {"type": "boolean"},
        "items": {"type": "array", "items": item}, "limit": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true}}})
}
