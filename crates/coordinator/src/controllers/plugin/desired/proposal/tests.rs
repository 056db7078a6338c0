use serde_json::{Value, json};

use super::*;
use crate::controllers::plugin::desired::sent::Sent;
use crate::controllers::plugin::report::Problem;

const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";

fn config(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": data}})
}

fn in_namespace(name: &str, namespace: &str) -> Value {
    let mut object = config(name, "1");
    object["metadata"]["namespace"] = json!(namespace);
    object
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn widget() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}})
}

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}})
}

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"activeDeadlineSeconds": 9}})
}

#[expect(clippy::needless_pass_by_value, reason = "most tests give it away")]
fn release(groups: Value, before: &[Value]) -> Release {
    let sent = json!({"manifests": groups, "jobs": {"pre_apply": before}});
    Release::read(PLUGIN, "1.0.0", &Sent::from(&sent), &[]).unwrap()
}

fn cluster(widgets: bool) -> Observed {
    let kind = |group: &str, kind: &str| (group.to_owned(), "v1".to_owned(), kind.to_owned());
    let mut observed = Observed {
        kinds: [
            (kind("", "ConfigMap"), true),
            (kind("", "Namespace"), false),
            (kind("batch", "Job"), true),
            (kind("apiextensions.k8s.io", "CustomResourceDefinition"), false),
        ]
        .into(),
        ..Observed::default()
    };
    if widgets {
        observed.kinds.insert(kind("example.com", "Widget"), true);
    }
    observed
}

fn live() -> Live {
    Live::created("u".to_owned(), "ours".to_owned())
}

/// The release is applied, and its jobs have succeeded.
fn applied(release: &Release, observed: &mut Observed) -> Record {
    let mut record = Record::default();
    for object in release.all() {
        let id = observed.place(object).unwrap();
        record.expect(id.clone(), &object.version, 0);
        record.apply(&id, &object.digest, "ours".to_owned());
        observed.seen.insert(id, Seen::Ours(live()));
    }
    for job in &release.before {
        record.complete(&job.id.name);
    }
    record
}

fn words(steps: &[Step<'_>]) -> Vec<String> {
    // The names of jobs end with a digest.
    fn short(id: &ObjectId) -> &str {
        id.name.split_once("-job").map_or(&*id.name, |(start, _)| start)
    }
    let applied = |word: &str, applied: &Applied<'_>| {
        let unrendered = if applied.unrendered.is_some() { "?" } else { "" };
        format!("{word} {}{unrendered}", short(&applied.id))
    };
    let word = |step: &Step<'_>| match step {
        Step::Apply(object) if object.live.is_some() => applied("change", object),
        Step::Apply(object) => applied("create", object),
        Step::Run(object) => applied("run", object),
        Step::Delete { id } => format!("delete {}", short(id)),
        Step::Blocked { id, .. } => format!("blocked {}", short(id)),
    };
    steps.iter().map(word).collect()
}

fn found(release: &Release, record: &Record, observed: &Observed) -> Vec<String> {
    words(&proposal(release, record, observed, PluginDrift::Correct))
}

#[test]
fn a_first_version_is_shown_whole_and_what_the_server_cannot_render_yet_is_marked() {
    let release = release(
        json!([
            [config("a", "1"), in_namespace("b", "n"), widget()],
            [namespace("n"), definition()]
        ]),
        &[job("prepare-job")],
    );
    assert_eq!(
        found(&release, &Record::default(), &cluster(false)),
        [
            "create n",
            "create widgets.example.com",
            "run prepare",
            "create a",
            "create b?",
            "create w?"
        ]
    );
    // The kind is served, and this version changes its definition.
    let mut observed = cluster(true);
    let id = |object: &Object| observed.place(object).unwrap();
    let ids: Vec<ObjectId> = release.prerequisites.iter().map(id).collect();
    for id in ids {
        observed.seen.insert(id, Seen::Ours(live()));
    }
    let steps = found(&release, &Record::default(), &observed);
    assert_eq!(steps[..2], ["change n", "change widgets.example.com"]);
    assert_eq!(steps[4..], ["create b", "create w?"]);
}

#[test]
fn an_upgrade_shows_what_changes_and_at_the_end_what_goes() {
    let old = release(
        json!([[
            namespace("gone-with-all"),
            config("same", "1"),
            config("other", "1"),
            config("gone", "1")
        ]]),
        &[job("prepare-job")],
    );
    let mut observed = cluster(false);
    let record = applied(&old, &mut observed);
    assert_eq!(found(&old, &record, &observed), [""; 0]);
    let new = release(
        json!([[config("same", "1"), config("other", "2"), config("new", "1")]]),
        &[],
    );
    let steps = [
        "change other",
        "create new",
        "delete gone",
        "delete prepare",
        "delete gone-with-all",
    ];
    assert_eq!(found(&new, &record, &observed), steps);

    // What others do to it shows, unless it is not to be corrected.
    let same = ObjectId {
        kind: "ConfigMap".to_owned(),
        namespace: "default".to_owned(),
        name: "same".to_owned(),
        ..ObjectId::default()
    };
    let fields = "other".to_owned();
    observed
        .seen
        .insert(same.clone(), Seen::Ours(Live { fields, ..live() }));
    assert_eq!(found(&new, &record, &observed)[0], "change same");
    let report = proposal(&new, &record, &observed, PluginDrift::Report);
    assert_eq!(words(&report), steps);
    observed.seen.insert(
        same,
        Seen::Ours(Live {
            deleting: true,
            ..live()
        }),
    );
    assert_eq!(found(&new, &record, &observed)[0], "create same?");
}

#[test]
fn what_is_in_the_way_is_said() {
    let release = release(
        json!([[namespace("n"), config("a", "1"), widget()]]),
        &[job("prepare-job")],
    );
    let problem = Problem::stalling("Denied", "no".to_owned());
    for (seen, expected) in [
        (Seen::Foreign, vec!["blocked prepare", "blocked a", "blocked w"]),
        (
            Seen::OtherPlugin("b".to_owned()),
            vec!["blocked prepare", "blocked a", "blocked w"],
        ),
        (
            Seen::Unreadable(problem),
            vec!["blocked n", "blocked prepare", "blocked a", "blocked w"],
        ),
    ] {
        let mut observed = cluster(false);
        for object in release.all() {
            if let Some(id) = observed.place(object) {
                observed.seen.insert(id, seen.clone());
            }
        }
        let steps = proposal(&release, &Record::default(), &observed, PluginDrift::Correct);
        assert_eq!(words(&steps), expected, "{seen:?}");
    }
}

#[test]
fn each_change_of_what_decides_has_another_fingerprint() {
    let release = release(json!([[config("a", "1")]]), &[]);
    let mut observed = cluster(false);
    let id = observed.place(&release.groups[0][0]).unwrap();
    let mut fingerprints = Vec::new();
    for seen in [
        None,
        Some(live()),
        Some(Live {
            uid: "v".to_owned(),
            ..live()
        }),
        Some(Live {
            writes: "by somebody".to_owned(),
            ..live()
        }),
    ] {
        observed.seen.extend(seen.map(|live| (id.clone(), Seen::Ours(live))));
        let steps = proposal(&release, &Record::default(), &observed, PluginDrift::Correct);
        fingerprints.push(steps[0].fingerprint());
    }
    fingerprints.sort();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 4);
}
