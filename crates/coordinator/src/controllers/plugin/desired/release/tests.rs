use serde_json::json;

use super::*;

const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";

fn config(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn read(manifests: &Value) -> Result<Release, Refused> {
    let sent = json!({ "manifests": manifests });
    Release::read(PLUGIN, "1.0.0", &Sent::from(&sent), &["Pod".to_owned()])
}

/// One object, as `apiVersion Kind name field=VALUE …`; the fields are those of its metadata.
fn object(text: &str) -> Value {
    let mut words = text.split(' ');
    let [api_version, kind, name] = [(); 3].map(|()| words.next().unwrap_or_default());
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    for word in words {
        let (field, value) = word.split_once('=').unwrap();
        object["metadata"][field] = serde_json::from_str(value).unwrap();
    }
    object
}

/// The object, where it is refused, and why.
const REFUSED: &str = r#"
v1 ConfigMap a namespace="../x"                                  | ConfigMap ../x/a           | name of a namespace
v1 ConfigMap a generateName="a-"                                 | manifests[0][0] (ConfigMap) | give it a metadata.name
v1 ConfigMap A_b                                                 | manifests[0][0] (ConfigMap) | DNS name
v1 ConfigMap a/../b                                              | manifests[0][0] (ConfigMap) | DNS name
v1 ConfigMap a name=null                                         | manifests[0][0] (ConfigMap) | DNS name
v1 ConfigMap a ownerReferences=[{"name":"a"}]                    | ConfigMap a                | leave it out
v1 ConfigMap a finalizers=["example.com/never"]                  | ConfigMap a                | leave it out
v1 ConfigMap a labels={"containership.io/managed":"true"}        | ConfigMap a                | leave it out
v1 ConfigMap a labels="a"                                        | ConfigMap a                | must be an object
v1 ConfigMap a namespace=2024                                    | manifests[0][0] (ConfigMap) | metadata.namespace is 2024, and must be a text: numbers and true/false
v1 ConfigMap a namespace=["x"]                                   | manifests[0][0] (ConfigMap) | metadata.namespace is a list
v1 ConfigMap a namespace={"a":"x"}                               | manifests[0][0] (ConfigMap) | metadata.namespace is an object
v1 ConfigMap a name=true                                         | manifests[0][0] (ConfigMap) | metadata.name is true
v1 ConfigMap a annotations={"tidewaiter.dev/on-immutable":true}  | ConfigMap a                | on-immutable is true
 ConfigMap a                                                     | manifests[0][0]            | apiVersion
v1/../.. ConfigMap a                                             | manifests[0][0]            | apiVersion
v1 Config/Map a                                                  | manifests[0][0]            | kind must be
v1 Pod a                                                         | Pod a                      | pluginDeny has Pod
example.com/v1 pod a                                             | pod.example.com a          | pluginDeny has Pod
v1 ServiceAccount containership                                  | ServiceAccount containership | Tidewaiter's own
v1 ConfigMap tidewaiter-terminate                                | ConfigMap tidewaiter-terminate | Tidewaiter's own
containership.io/v3 Plugin a                                     | Plugin.containership.io a  | Tidewaiter's own
auth.containership.io/v3 AuthorizationRole a                     | AuthorizationRole.auth     | Tidewaiter's own
tidewaiter.dev/v1alpha1 CloudSync cloud                          | CloudSync.tidewaiter.dev cloud | Tidewaiter's own
rbac.authorization.k8s.io/v1 ClusterRole cccccccc-0000-4000-8000-000000000009 | ClusterRole.rbac | Tidewaiter's own
rbac.authorization.k8s.io/v1 RoleBinding cccccccc-0000-4000-8000-000000000009-next | RoleBinding.rbac | Tidewaiter's own
apiextensions.k8s.io/v1 CustomResourceDefinition users.containership.io | CustomResourceDefinition | own
"#;

#[test]
fn hostile_manifests_are_refused_with_the_object_and_the_remedy() {
    let mut deep = config("a");
    for _ in 0..5 {
        deep = list(&[deep]);
    }
    let many: Vec<Value> = (0..=MOST_OBJECTS).map(|number| config(&format!("a{number}"))).collect();
    let nested = "manifests[0][0].items[0].items[0].items[0].items[0]";
    let rows = [
        (json!([[7]]), "manifests[0][0]", "must be a Kubernetes object"),
        (
            json!([[{"apiVersion": 1, "kind": "ConfigMap", "metadata": {"name": "a"}}]]),
            "manifests[0][0]",
            "apiVersion is 1, and must be a text",
        ),
        (
            json!([[{"apiVersion": "v1", "kind": false, "metadata": {"name": "a"}}]]),
            "manifests[0][0]",
            "kind is false, and must be a text",
        ),
        (json!([[deep]]), nested, "fewer lists"),
        (json!([[list(&many)]]), "the manifests", "split the plugin"),
        (json!([[config("a")], [config("a")]]), "ConfigMap a", "leave out one"),
        (
            json!([[config("a"), list(&[config("a")])]]),
            "ConfigMap a",
            "leave out one",
        ),
    ];
    let single = REFUSED.lines().filter(|row| !row.is_empty()).map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let [text, at, why] = cells[..] else { panic!("{row}") };
        (json!([[object(text.trim_end())]]), at.trim(), why.trim())
    });
    for (manifests, at, why) in single.chain(rows) {
        let refused = read(&manifests).unwrap_err();
        assert!(refused.at.starts_with(at), "{refused} does not begin with {at}");
        assert!(refused.why.contains(why), "{refused} does not contain {why}");
    }
    let none = Release::read(PLUGIN, "1.0.0", &Sent::from(&json!({"version": "1.0.0"})), &[]).unwrap_err();
    assert!(none.to_string().contains("there are none"), "{none}");
}

/// The API server's words about a Secret are not shown, because they may contain a value.
#[test]
fn a_secret_with_a_value_of_the_wrong_form_is_refused_with_its_key() {
    let secret = |field: &str, value: Value| {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "labels": {}}});
        match field.strip_prefix("metadata.") {
            None => secret[field] = value,
            Some(field) => secret["metadata"][field] = value,
        }
        read(&json!([[secret]]))
    };
    for (field, value, words) in [
        (
            "data",
            json!({"ok": "YQ==", "bad": "hunter2!"}),
            "\"bad\" in data must be base64",
        ),
        (
            "data",
            json!({"bad": "aHVudGVyMg"}),
            "\"bad\" in data must be base64: encode it",
        ),
        ("data", json!({"bad": "_-8="}), "\"bad\" in data must be base64"),
        ("data", json!({"bad": 1234}), "\"bad\" in data must be base64"),
        ("data", json!(["hunter2"]), "data must be an object"),
        (
            "stringData",
            json!({"bad": true}),
            "\"bad\" in stringData must be a text: numbers and true/false",
        ),
        (
            "stringData",
            json!({"bad": ["hunter2"]}),
            "\"bad\" in stringData must be a text",
        ),
        ("stringData", json!("hunter2"), "stringData must be an object"),
        (
            "metadata.labels",
            json!({"bad": 1234}),
            "\"bad\" in metadata.labels must be a text",
        ),
        (
            "metadata.annotations",
            json!({"bad": 1234}),
            "\"bad\" in metadata.annotations must be a text",
        ),
    ] {
        let refused = secret(field, value).unwrap_err();
        assert_eq!(refused.at, "Secret a");
        assert!(refused.why.contains(words), "{refused} does not contain {words}");
        let shows = ["hunter2", "aHVudGVyMg", "1234"]
            .iter()
            .any(|value| refused.why.contains(value));
        assert!(!shows, "{refused}");
    }
    for (field, value) in [
        ("data", Value::Null),
        (
            "data",
            json!({"a": null, "b": "", "c": "YQ==", "d": "aHVu\ndGVy\r\nMg==\n", "e": "YR=="}),
        ),
        ("stringData", json!({"a": null, "b": "true", "c": ""})),
        ("metadata.annotations", json!({"a": null, "b": "true"})),
    ] {
        secret(field, value).unwrap();
    }
}

#[test]
fn what_is_usual_is_accepted() {
    read(&json!([[list(&[config("a"), list(&[config("b")])])]])).unwrap();
    for text in [
        "rbac.authorization.k8s.io/v1 ClusterRole system:metrics-server",
        "cerebral.containership.io/v1alpha1 AutoscalingEngine containership",
        "v1 Namespace monitoring",
    ] {
        read(&json!([[object(text)]])).unwrap();
    }
    // The same name in two namespaces, and of two kinds.
    let [other, secret] = ["v1 ConfigMap a namespace=\"other\"", "v1 Secret a"].map(object);
    assert_eq!(read(&json!([[config("a"), other, secret]])).unwrap().all().count(), 3);
}

#[test]
fn namespaces_and_definitions_come_first_and_the_groups_stay_in_order() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let release = read(&json!([[config("b")], [config("a"), namespace]])).unwrap();
    let order: Vec<String> = release.all().map(|object| object.id.to_string()).collect();
    assert_eq!(order, ["Namespace n", "ConfigMap b", "ConfigMap a"]);
}

#[test]
fn an_object_gets_the_label_and_loses_what_the_api_server_writes() {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "status": {"a": 1}, "data": {"a": "b"}, "metadata":
        {"name": "a", "uid": "u", "resourceVersion": "7", "creationTimestamp": null, "labels": {"containership.io/plugin-id": "forged"}}});
    let release = read(&json!([[object]])).unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
        "metadata": {"name": "a", "labels": {"containership.io/plugin-id": PLUGIN}}});
    assert_eq!(Value::Object(release.groups[0][0].manifest.value().unwrap()), expected);
}

#[test]
fn a_version_has_at_most_so_many_jobs_in_a_place() {
    let job = |number: usize| json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("j{number}")}, "spec": {"activeDeadlineSeconds": 9}});
    let read = |count: usize| {
        let jobs: Vec<Value> = (0..count).map(job).collect();
        Release::read(
            PLUGIN,
            "1.0.0",
            &Sent::from(&json!({"manifests": [], "jobs": {"post_apply": jobs}})),
            &[],
        )
    };
    assert_eq!(read(MOST_JOBS).unwrap().after.len(), MOST_JOBS);
    let refused = read(MOST_JOBS + 1).unwrap_err().to_string();
    assert!(refused.starts_with("jobs.post_apply: has 33 jobs"), "{refused}");
}

#[test]
fn a_job_has_a_deadline_and_another_name_for_each_version() {
    let job = |deadline: Value| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate"},
            "spec": {"activeDeadlineSeconds": deadline, "ttlSecondsAfterFinished": 0}})
    };
    let read = |version: &str, deadline: Value| {
        let sent = json!({"manifests": [], "jobs": {"pre_apply": [job(deadline)]}});
        Release::read(PLUGIN, version, &Sent::from(&sent), &[])
    };
    let one = read("1.0.0", json!(60)).unwrap().before.remove(0);
    assert_eq!(
        one.manifest.value().unwrap()["spec"],
        json!({"activeDeadlineSeconds": 60, "backoffLimit": 1})
    );
    assert_eq!(
        (one.id.namespace.as_str(), one.id.name.len()),
        ("default", "migrate-01234567".len())
    );
    assert_eq!(read("1.0.0", json!(90)).unwrap().before[0].id, one.id);
    assert_ne!(read("1.0.1", json!(60)).unwrap().before[0].id, one.id);
    for deadline in [Value::Null, json!(0), json!("60")] {
        let refused = read("1.0.0", deadline).unwrap_err();
        assert!(refused.to_string().contains("activeDeadlineSeconds"), "{refused}");
    }
}

#[test]
fn what_the_api_server_writes_is_not_applied() {
    let object =
        object(r#"v1 ConfigMap a deletionTimestamp="2026-01-01T00:00:00Z" deletionGracePeriodSeconds=0 uid="x""#);
    let release = read(&json!([[object]])).unwrap();
    let manifest = release.groups[0][0].manifest.value().unwrap();
    let fields: Vec<&String> = manifest["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["labels", "name"]);
}

/// The type of an accepted version chooses its limits and its service account, and lies in the inventory, which others
/// may be able to write.
#[test]
fn another_type_is_another_revision() {
    let revision = |type_: &str, implementation: &str| {
        let plugin = json!({"id": PLUGIN, "version": "1.0.0", "type": type_, "implementation": implementation});
        let plugin: PluginSpec = serde_json::from_value(plugin).unwrap();
        read(&json!([[config("a")]])).unwrap().bound_to(&plugin).revision
    };
    let own = revision("gated", "app");
    assert_eq!(revision("gated", "app"), own);
    for (type_, implementation) in [("auto", "app"), ("gated", "other"), ("gatedapp", "")] {
        assert_ne!(revision(type_, implementation), own, "{type_}/{implementation}");
    }
}

#[test]
fn a_job_that_expires_stays_until_the_next_version() {
    let job = |ttl: Value| {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "patch"}, "spec": {}});
        job["spec"]["ttlSecondsAfterFinished"] = ttl;
        read(&json!([[job]])).unwrap().groups.remove(0).remove(0)
    };
    for (ttl, expires) in [
        (json!(0), true),
        (json!(86_400), true),
        (json!(-1), true),
        (Value::Null, false),
    ] {
        let object = job(ttl.clone());
        let manifest = object.manifest.value().unwrap();
        assert_eq!(manifest["spec"], json!({}), "{ttl}");
        assert_eq!((object.expires, object.replaces), (expires, expires), "{ttl}");
    }
    // Stored versions have the revision that they had.
    assert_ne!(job(json!(0)).sent, job(json!(1)).sent);
    // It runs for each version; another Job does not.
    for (ttl, is_another) in [(json!(0), true), (Value::Null, false)] {
        let mut job = object("batch/v1 Job patch");
        job["spec"] = json!({ "ttlSecondsAfterFinished": ttl });
        let sent = Sent::from(&json!({"manifests": [[job]]}));
        let of = |version: &str| {
            Release::read(PLUGIN, version, &sent, &[])
                .unwrap()
                .groups
                .remove(0)
                .remove(0)
        };
        let (one, two) = (of("1.0.0"), of("2.0.0"));
        assert_eq!(one.sent, two.sent);
        assert_eq!(one.digest != two.digest, is_another);
    }
}

#[test]
fn a_list_may_be_larger_than_an_object() {
    let large = |name: &str, mebibytes: usize| {
        let mut object = config(name);
        object["data"] = json!({"a": "x".repeat(mebibytes << 20)});
        object
    };
    let two = list(&[large("a", 2), large("b", 2)]);
    assert_eq!(read(&json!([[two]])).unwrap().all().count(), 2);
    let refused = read(&json!([[list(&[large("a", 3)])]])).unwrap_err();
    assert_eq!(refused.at, "manifests[0][0].items[0]");
}
