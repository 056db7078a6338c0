use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidewaiter_api::containership::PluginSpec;

use super::*;
use crate::controllers::plugin::desired::Sent;

const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";

fn config(name: &str, data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": data}})
}

fn plugin() -> PluginSpec {
    PluginSpec {
        id: PLUGIN.to_owned(),
        added_at: String::new(),
        description: String::new(),
        type_: "metrics".to_owned(),
        version: "1.0.0".to_owned(),
        implementation: "prometheus".to_owned(),
    }
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
}

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"activeDeadlineSeconds": 9}})
}

#[expect(clippy::needless_pass_by_value, reason = "most tests give it away")]
fn release(groups: Value, before: &[Value], after: &[Value]) -> Release {
    let sent = json!({"manifests": groups, "jobs": {"pre_apply": before, "post_apply": after}});
    Release::read(PLUGIN, "1.0.0", &Sent::from(&sent), &[]).unwrap()
}

/// A cluster that serves the kinds.
fn cluster() -> Observed {
    let kind = |group: &str, kind: &str| (group.to_owned(), "v1".to_owned(), kind.to_owned());
    Observed {
        kinds: [
            (kind("", "ConfigMap"), true),
            (kind("", "Namespace"), false),
            (kind("batch", "Job"), true),
        ]
        .into(),
        seen: BTreeMap::new(),
    }
}

fn live() -> Live {
    Live::created("u".to_owned(), "ours".to_owned())
}

/// A plugin in a simulated cluster.
struct World {
    release: Release,
    record: Record,
    observed: Observed,
    drift: PluginDrift,
}

impl World {
    fn new(release: Release) -> Self {
        Self {
            release,
            record: Record::default(),
            observed: cluster(),
            drift: PluginDrift::Correct,
        }
    }

    /// The plan, and the end if that is empty.
    fn plan(&mut self) -> (Vec<Vec<String>>, End) {
        let plan = plan(&self.release, &self.record, &self.observed, self.drift);
        let word = |action: &Action<'_>| match action {
            Action::Apply { id, uid: None, .. } => format!("create {id}"),
            Action::Apply { id, drift: true, .. } => format!("correct {id}"),
            Action::Apply { id, .. } => format!("change {id}"),
            Action::Run { id, .. } => format!("run {}", id.name.split('-').next().unwrap()),
            Action::Delete { id, .. } => format!("delete {id}"),
        };
        let words = plan
            .actions
            .iter()
            .map(|group| group.iter().map(word).collect())
            .collect();
        self.record = plan.record;
        (words, plan.end)
    }

    /// Plans and does it, until nothing is left to do; what was done, and the end.
    fn settle(&mut self) -> (Vec<String>, End) {
        let mut done = Vec::new();
        loop {
            let release = self.release.clone();
            let plan = plan(&release, &self.record, &self.observed, self.drift);
            self.record = plan.record;
            if plan.actions.is_empty() {
                return (done, plan.end);
            }
            for action in plan.actions.into_iter().flatten() {
                match action {
                    Action::Apply { id, object, .. } => {
                        done.push(format!("apply {id}"));
                        self.observed.seen.insert(id.clone(), Seen::Ours(live()));
                        self.record.apply(&id, &object.digest, "ours".to_owned());
                    }
                    Action::Run { id, .. } => {
                        done.push(format!("run {}", id.name.split('-').next().unwrap()));
                        let job = Some(JobState::Succeeded);
                        self.observed.seen.insert(id, Seen::Ours(Live { job, ..live() }));
                    }
                    Action::Delete { id, .. } => {
                        done.push(format!("delete {id}"));
                        self.observed.seen.remove(&id);
                    }
                }
            }
        }
    }

    fn live(&mut self, name: &str) -> &mut Live {
        let seen = self
            .observed
            .seen
            .iter_mut()
            .find(|(id, _)| id.name.starts_with(name))
            .unwrap()
            .1;
        let Seen::Ours(live) = seen else {
            panic!("{name} is not ours")
        };
        live
    }

    fn put(&mut self, name: &str, seen: Seen) {
        let id = self.release.all().find(|object| object.id.name == name).unwrap();
        let id = self.observed.place(id).unwrap();
        self.observed.seen.insert(id, seen);
    }
}

fn words(groups: &[&[&str]]) -> Vec<Vec<String>> {
    groups
        .iter()
        .map(|group| group.iter().map(ToString::to_string).collect())
        .collect()
}

#[test]
fn an_installation_goes_in_order_and_a_second_pass_does_nothing() {
    let groups = json!([[config("a", "1")], [config("b", "1"), namespace()]]);
    let mut world = World::new(release(groups, &[job("pre")], &[job("post")]));
    let (done, end) = world.settle();
    let expected = [
        "apply Namespace n",
        "run pre",
        "apply ConfigMap default/a",
        "apply ConfigMap default/b",
        "run post",
    ];
    assert_eq!((done, end), (expected.map(str::to_owned).to_vec(), End::Done));
    assert_eq!(world.plan(), (vec![], End::Done));
    // Every object is in the record, jobs included, and a job that is gone does not run again.
    assert_eq!(world.record.len(), 5);
    world.observed.seen.retain(|id, _| id.kind != "Job");
    assert_eq!(world.plan(), (vec![], End::Done));
}

#[test]
fn the_record_has_only_the_jobs_of_the_version() {
    let mut world = World::new(release(json!([]), &[job("pre")], &[]));
    world.settle();
    assert_eq!(world.record.write().completed_jobs.len(), 1);
    // The next version never comes to its end.
    let strange = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    world.release = release(json!([[strange]]), &[job("next")], &[]);
    let (_, end) = world.settle();
    assert!(matches!(end, End::Problems(_)), "{end:?}");
    let names = world.record.write().completed_jobs;
    assert!(names.len() == 1 && names[0].starts_with("next-"), "{names:?}");
}

#[test]
fn what_is_to_be_created_is_in_the_record_before() {
    let mut world = World::new(release(json!([[config("a", "1")]]), &[], &[job("post")]));
    assert_eq!(world.plan().0, words(&[&["create ConfigMap default/a"]]));
    assert_eq!(world.record.len(), 2);
}

#[test]
fn prerequisites_and_jobs_are_awaited() {
    let mut world = World::new(release(json!([[namespace(), config("a", "1")]]), &[job("pre")], &[]));
    assert_eq!(world.plan().0, words(&[&["create Namespace n"]]));
    let pending = Health::InProgress("its phase is \"\"".to_owned());
    world.put(
        "n",
        Seen::Ours(Live {
            health: pending,
            ..live()
        }),
    );
    let digest = world.release.prerequisites[0].digest.clone();
    let id = world.record.ids().find(|id| id.name == "n").unwrap().clone();
    world.record.apply(&id, &digest, "ours".to_owned());
    let (actions, end) = world.plan();
    assert!(actions.is_empty());
    assert!(
        matches!(
            end,
            End::Waits(Waits {
                reason: "Prerequisites",
                ..
            })
        ),
        "{end:?}"
    );
    world.live("n").health = Health::Current;
    assert_eq!(world.plan().0, words(&[&["run pre"]]));
    let name = world.release.before[0].id.name.clone();
    let states = [
        (true, JobState::Running, "JobRuns"),
        (true, JobState::Failed, "failed"),
        (false, JobState::Running, "JobRuns"),
        (false, JobState::Failed, "failed"),
        (true, JobState::Succeeded, "goes on"),
    ];
    for (is_labelled, state, expected) in states {
        let job = Live {
            job: Some(state),
            ..live()
        };
        let seen = if is_labelled {
            Seen::Ours(job)
        } else {
            Seen::Adoptable(job, Claim::Unlabelled)
        };
        world.put(&name, seen);
        let found = match world.plan() {
            (actions, _) if !actions.is_empty() => "goes on",
            (_, End::Waits(waits)) => waits.reason,
            (_, End::JobFailed(_)) => "failed",
            (_, end) => panic!("{end:?}"),
        };
        assert_eq!(found, expected);
    }
}

#[test]
fn drift_is_corrected_or_reported() {
    let mut world = World::new(release(json!([[config("a", "1"), config("b", "1")]]), &[], &[]));
    world.settle();
    world.live("a").fields = "less".to_owned();
    world.observed.seen.retain(|id, _| id.name != "b");
    let found = words(&[&["correct ConfigMap default/a", "create ConfigMap default/b"]]);
    assert_eq!(world.plan().0, found);
    world.drift = PluginDrift::Report;
    assert_eq!(world.plan(), (vec![], End::Done));
    let plan = super::plan(&world.release, &world.record, &world.observed, world.drift);
    assert_eq!(plan.drifted.len(), 2);
    // A new version is applied all the same.
    let next = release(json!([[config("a", "2"), config("b", "2")]]), &[], &[]);
    world.release = next;
    let found = words(&[&["change ConfigMap default/a", "create ConfigMap default/b"]]);
    assert_eq!(world.plan().0, found);
}

#[test]
fn what_is_removed_goes_last_and_namespaces_after_all_else() {
    let mut world = World::new(release(
        json!([[namespace(), config("a", "1"), config("b", "1")]]),
        &[],
        &[],
    ));
    world.settle();
    world.release = release(json!([[config("b", "2")]]), &[], &[]);
    let (done, end) = world.settle();
    let expected = [
        "apply ConfigMap default/b",
        "delete ConfigMap default/a",
        "delete Namespace n",
    ];
    assert_eq!((done, end), (expected.map(str::to_owned).to_vec(), End::Done));
    assert_eq!(world.record.len(), 1);
    // Without a release, everything goes; what is kept by a finalizer is named.
    world.release = Release::default();
    world.live("b").deleting = true;
    world.live("b").finalizers = vec!["example.com/f".to_owned()];
    let (_, end) = world.plan();
    assert!(
        matches!(&end, End::Waits(waits) if waits.message.contains("example.com/f")),
        "{end:?}"
    );
    world.live("b").deleting = false;
    assert_eq!(
        world.settle(),
        (vec!["delete ConfigMap default/b".to_owned()], End::Done)
    );
    assert_eq!(world.record.len(), 0);
}

#[test]
fn what_others_have_is_left_alone_and_keeps_nothing_but_what_follows() {
    let groups = json!([[config("a", "1"), config("b", "1")], [config("c", "1")]]);
    for seen in [Seen::Foreign, Seen::OtherPlugin("other".to_owned())] {
        let mut world = World::new(release(groups.clone(), &[], &[]));
        world.put("a", seen);
        assert_eq!(world.plan().0, words(&[&["create ConfigMap default/b"]]));
        let (_, end) = world.settle();
        assert!(
            matches!(&end, End::Problems(all) if all[0].note.contains("ConfigMap default/a")),
            "{end:?}"
        );
        assert!(
            world.record.ids().all(|id| id.name != "a"),
            "it would be removed with the plugin"
        );
        // Neither when it goes.
        world.release = Release::default();
        let (done, _) = world.settle();
        assert_eq!(done, ["delete ConfigMap default/b"]);
    }
    // A namespace of others is used.
    let mut world = World::new(release(json!([[namespace(), config("a", "1")]]), &[], &[]));
    world.put("n", Seen::Foreign);
    let (done, end) = world.settle();
    assert_eq!((done, end), (vec!["apply ConfigMap default/a".to_owned()], End::Done));
    assert!(world.record.ids().all(|id| id.name != "n"));
}

#[test]
fn an_unknown_kind_is_a_problem_that_names_it() {
    let strange = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let mut world = World::new(release(json!([[config("a", "1"), strange]]), &[], &[]));
    assert_eq!(world.plan().0, words(&[&["create ConfigMap default/a"]]));
    let (_, end) = world.settle();
    assert!(
        matches!(&end, End::Problems(all) if all[0].note.contains("Widget.example.com w")
            && all[0].note.contains("--api-group=example.com)")),
        "{end:?}"
    );
}

#[test]
fn a_kind_that_the_plugin_defines_is_awaited() {
    let strange = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}});
    let mut world = World::new(release(json!([[strange], [definition]]), &[], &[]));
    let kind = |group: &str, kind: &str| (group.to_owned(), "v1".to_owned(), kind.to_owned());
    let definitions = kind("apiextensions.k8s.io", "CustomResourceDefinition");
    world.observed.kinds.insert(definitions, false);
    let (done, end) = world.settle();
    assert_eq!(
        done,
        ["apply CustomResourceDefinition.apiextensions.k8s.io widgets.example.com"]
    );
    assert!(
        matches!(&end, End::Waits(waits) if waits.message.contains("Widget.example.com w")),
        "{end:?}"
    );
    world.observed.kinds.insert(kind("example.com", "Widget"), true);
    assert_eq!(
        world.settle(),
        (vec!["apply Widget.example.com default/w".to_owned()], End::Done)
    );
}

#[test]
fn an_object_that_is_being_deleted_is_created_again_when_it_is_gone() {
    let mut world = World::new(release(json!([[config("a", "1")]]), &[], &[]));
    world.settle();
    world.live("a").deleting = true;
    let (actions, end) = world.plan();
    assert!(actions.is_empty() && matches!(end, End::Waits(_)), "{end:?}");
    world.observed.seen.clear();
    assert_eq!(world.plan().0, words(&[&["create ConfigMap default/a"]]));
}

#[test]
fn what_may_not_be_read_is_neither_written_nor_forgotten() {
    let unreadable = || {
        Seen::Unreadable(Problem {
            reason: "Denied",
            note: "cannot read ConfigMap default/a".to_owned(),
            is_transient: false,
        })
    };
    let denied = |end: &End| matches!(end, End::Problems(all) if all[0].reason == "Denied");
    // One that is not remembered is not remembered then: nothing was written.
    let mut world = World::new(release(
        json!([[namespace(), config("a", "1"), config("b", "1")]]),
        &[],
        &[],
    ));
    world.put("a", unreadable());
    let (done, end) = world.settle();
    assert_eq!(done, ["apply Namespace n", "apply ConfigMap default/b"]);
    assert!(denied(&end), "{end:?}");
    assert!(world.record.ids().all(|id| id.name != "a"));

    // One that is stays, also when the plugin goes, and so does its namespace, if that is the plugin's. Nothing else
    // does.
    for (own, expected) in [
        (false, &["delete ConfigMap default/b", "delete Namespace n"][..]),
        (true, &["delete ConfigMap default/b"]),
    ] {
        let mut a = config("a", "1");
        a["metadata"]["namespace"] = json!(if own { "n" } else { "default" });
        let mut world = World::new(release(json!([[namespace(), a, config("b", "1")]]), &[], &[]));
        world.settle();
        world.put("a", unreadable());
        world.release = Release::default();
        let (done, end) = world.settle();
        assert_eq!(done, expected);
        assert!(denied(&end), "{end:?}");
        assert!(world.record.ids().any(|id| id.name == "a"));
        assert_eq!(world.record.ids().any(|id| id.name == "n"), own);
    }
}

#[test]
fn an_object_becomes_the_plugins_by_an_apply_and_is_not_deleted_before() {
    let mut world = World::new(release(json!([[namespace(), config("a", "1")]]), &[], &[]));
    let kubectls = Live {
        is_kubectls: true,
        ..live()
    };
    for name in ["n", "a"] {
        world.put(name, Seen::Adoptable(kubectls.clone(), Claim::Inherited));
    }
    let plan = super::plan(&world.release, &world.record, &world.observed, world.drift);
    let namespace = &plan.actions[0][0];
    assert!(
        matches!(
            namespace,
            Action::Apply {
                uid: Some(_),
                claim: Some(_),
                moves_fields: true,
                ..
            }
        ),
        "{namespace:?}"
    );
    let (done, end) = world.settle();
    assert_eq!(done, ["apply Namespace n", "apply ConfigMap default/a"]);
    assert_eq!(end, End::Done);
    // The fields are moved once: what somebody applies later is drift.
    world.put(
        "a",
        Seen::Ours(Live {
            fields: "less".to_owned(),
            ..kubectls.clone()
        }),
    );
    let plan = super::plan(&world.release, &world.record, &world.observed, world.drift);
    assert!(matches!(
        plan.actions[0][0],
        Action::Apply {
            drift: true,
            moves_fields: false,
            ..
        }
    ));
    world.put("a", Seen::Adoptable(kubectls, Claim::Unlabelled));
    world.release = Release::default();
    assert_eq!(world.settle(), (vec!["delete Namespace n".to_owned()], End::Done));
}

#[test]
fn a_job_that_expires_does_not_run_again_after_it_has_succeeded() {
    let expiring = |image: &str| {
        let mut job = job("patch");
        job["spec"]["ttlSecondsAfterFinished"] = json!(0);
        job["spec"]["image"] = json!(image);
        json!([[job, config("a", "1")]])
    };
    let mut world = World::new(release(expiring("one"), &[], &[]));
    world.settle();
    let id = world.observed.seen.keys().find(|id| id.is_job()).cloned().unwrap();
    let put = |world: &mut World, state: JobState, deleting: bool| {
        let job = Some(state);
        let live = Live {
            deleting,
            job,
            ..live()
        };
        world.observed.seen.insert(id.clone(), Seen::Ours(live));
    };
    // While it runs, and when it has failed, it is an object as any other.
    for state in [JobState::Running, JobState::Failed] {
        put(&mut world, state, false);
        assert_eq!(world.plan(), (vec![], End::Done));
        world.observed.seen.remove(&id);
        assert_eq!(world.plan().0, words(&[&["create Job.batch default/patch"]]));
    }
    for deleting in [false, true] {
        put(&mut world, JobState::Succeeded, deleting);
        assert_eq!(world.plan(), (vec![], End::Done));
    }
    // The inventory says it before the Job is gone.
    let before = world.record.clone();
    world.observed.seen.remove(&id);
    assert_eq!(world.plan(), (vec![], End::Done));
    assert_eq!(world.record, before);
    assert!(world.record.has_succeeded(&id, &world.release.groups[0][0].digest));
    // Another manifest is another Job.
    world.release = release(expiring("two"), &[], &[]);
    assert_eq!(world.plan().0, words(&[&["create Job.batch default/patch"]]));
    // Another version has another Job, once the one that has ended is gone; an update of Tidewaiter does not.
    let of = |version: &str| {
        let sent = Sent::from(&json!({ "manifests": expiring("two") }));
        Release::read(PLUGIN, version, &sent, &[]).unwrap()
    };
    for (state, expected) in [
        (JobState::Succeeded, "delete"),
        (JobState::Failed, "delete"),
        (JobState::Running, "change"),
    ] {
        world.release = of("1.0.0");
        world.settle();
        world.release = of("2.0.0");
        put(&mut world, state, false);
        let expected = format!("{expected} Job.batch default/patch");
        assert_eq!(world.plan().0, words(&[&[expected.as_str()]]));
        world.observed.seen.remove(&id);
        assert_eq!(world.plan().0, words(&[&["create Job.batch default/patch"]]));
    }
    world.settle();
    put(&mut world, JobState::Succeeded, false);
    world.plan();
    let expiring = world.release.groups[0].iter().find(|object| object.expires).unwrap();
    for (revision, expected) in [("", 1), (&*world.release.revision, 0)] {
        let mut earlier = world.record.clone();
        earlier.update(&id, &expiring.digest, &expiring.sent);
        let finished = Release {
            revision: revision.to_owned(),
            ..Release::default()
        };
        earlier.finish(&plugin(), &finished);
        let observed = Observed {
            seen: BTreeMap::new(),
            ..world.observed.clone()
        };
        let plan = super::plan(&world.release, &earlier, &observed, PluginDrift::Correct);
        let created = plan.actions.iter().flatten().filter(|action| *action.id() == id);
        assert_eq!(created.count(), expected, "{revision}");
    }
    // Without the field, a Job that is gone runs again.
    world.release = release(json!([[job("patch"), config("a", "1")]]), &[], &[]);
    world.settle();
    put(&mut world, JobState::Succeeded, false);
    assert_eq!(world.plan(), (vec![], End::Done));
    world.observed.seen.remove(&id);
    assert_eq!(world.plan().0, words(&[&["create Job.batch default/patch"]]));
}
