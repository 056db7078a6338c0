#![allow(clippy::disallowed_methods, reason = "files of the test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use minisign::{KeyPair, PublicKey};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tempfile::TempDir;
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeStatus};
use tidewaiter_kit::{Clock, SystemClock};
use tidewaiter_signature::{SignatureError, SigningKey};
use tidewaiter_upgrade::signed::{REPEATABLE, Statement, WAY_BACK, digest};
use tidewaiter_upgrade::{NodeState, Progress};

use super::super::files;
use super::super::install::Install;
use super::*;

mod host;

const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
const ID: &str = "eeeeeeee-0000-4000-8000-000000000001";
const OTHER_ID: &str = "eeeeeeee-0000-4000-8000-000000000002";

/// A tidewaiter and a kubelet, by what it says of its version. One below `/tmp` is refused.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/upgrade/run/tests/program");

/// A host `w1` with the kubelet v1.35.4, and its agent. A script says in the file `ran` that it ran.
struct World {
    scratch: TempDir,
    key: SigningKey,
    public: PublicKey,
    runner: Runner,
    _alone: MutexGuard<'static, ()>,
}

/// One test at a time: the process that another one starts holds the files that are written here until it runs its
/// program, and what is being written cannot be run (`ETXTBSY`).
static ALONE: Mutex<()> = Mutex::new(());

/// The agent's offer: what the cloud signed, and what the coordinator wrote.
#[derive(Clone)]
struct Offered {
    id: &'static str,
    body: String,
    signed_for: &'static str,
    version: &'static str,
    signed: i64,
    not_before: Option<i64>,
    lifetime: i64,
    node: &'static str,
    began: i64,
    timeout: i64,
    uid: &'static str,
}

impl World {
    fn new() -> Self {
        let alone = ALONE.lock();
        let scratch = tempfile::tempdir().unwrap();
        let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().unwrap();
        let text = sk.to_box(None).unwrap().into_string();
        let key = SigningKey::read::<SignatureError>(&text, || unreachable!("it has no password")).unwrap();
        let folder = scratch.path().join("containership");
        let kubelet = scratch.path().join("kubelet");
        let world = Self {
            key,
            public: pk,
            runner: Runner {
                folder,
                pinned: scratch.path().join("etc/pinned"),
                state: scratch.path().join("state"),
                script_folder: None,
                kubelet,
                clock: SystemClock::shared(),
            },
            scratch,
            _alone: alone,
        };
        fs::create_dir(world.scratch.path().join("units")).unwrap();
        world.installs(&[&world.public]).install().unwrap();
        world.kubelet("v1.35.4", "");
        world
    }

    fn installs(&self, keys: &[&PublicKey]) -> Install {
        Install {
            cluster: CLUSTER.to_owned(),
            node: "w1".parse().unwrap(),
            keys: keys.iter().map(|key| key.to_base64().parse().unwrap()).collect(),
            folder: self.runner.folder.clone(),
            agent_state: self.scratch.path().join("agent-state"),
            pinned: self.runner.pinned.clone(),
            units: self.scratch.path().join("units"),
            state: self.runner.state.clone(),
            program: PROGRAM.into(),
            kubelet: None,
            script_folder: None,
        }
    }

    fn pinned(&self, name: &str) -> PathBuf {
        self.runner.pinned.join(name)
    }

    /// The files with keys.
    fn key_files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.runner.pinned).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|it| it == "pub"))
            .collect();
        files.sort();
        files
    }

    fn kubelet(&self, version: &str, more: &str) {
        let text = format!("#!/bin/sh\n{more}\necho Kubernetes {version}\n");
        fs::write(&self.runner.kubelet, text).unwrap();
        fs::set_permissions(&self.runner.kubelet, Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.runner.folder.join(name)
    }

    fn upgrade_file(&self, name: &str) -> PathBuf {
        self.path("scripts/upgrade").join(name)
    }

    fn offered(&self) -> Offered {
        let now = self.runner.clock.now().as_second();
        let ran = self.scratch.path().join("ran");
        Offered {
            id: ID,
            body: format!("#!/bin/sh\necho $TIDEWAITER_VERSION >> {}\necho done\n", ran.display()),
            signed_for: "w1",
            version: "v1.36.3",
            signed: now,
            not_before: None,
            lifetime: 3600,
            node: "w1",
            began: now,
            timeout: 600,
            uid: "uid-1",
        }
    }

    fn signed(&self, offered: &Offered) -> String {
        let statement = Statement {
            cluster: CLUSTER.to_owned(),
            node: offered.signed_for.parse().unwrap(),
            upgrade: offered.id.to_owned(),
            generation: offered.signed,
            version: offered.version.parse().unwrap(),
            sha256: digest(&offered.body),
            not_before: offered.not_before.map(|time| Timestamp::from_second(time).unwrap()),
            expires: Timestamp::from_second(offered.signed + offered.lifetime).unwrap(),
        };
        format!("{}{}", offered.body, statement.block(&self.key).unwrap())
    }

    fn offer_text(&self, offered: &Offered, script: String) {
        let since = Timestamp::from_second(offered.began).unwrap();
        let node: NodeName = offered.node.parse().unwrap();
        let progress = Progress {
            cluster: UpgradeStatus::InProgress,
            nodes: [(node.clone(), NodeState::InProgress { since: Some(since) })].into(),
            current: Some(node),
            ..Progress::default()
        };
        let upgrade: ClusterUpgrade = serde_json::from_value(json!({
            "apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade",
            "metadata": {"name": offered.id, "uid": offered.uid, "generation": 3},
            "spec": {"id": offered.id, "type": "kubernetes", "targetVersion": "v1.36.3", "labelSelector": [],
                "nodeTimeoutSeconds": offered.timeout, "status": form::write(&progress)},
        }))
        .unwrap();
        let name = files::script_name(&"v1.36.3".parse().unwrap(), offered.id);
        Host::of_root(&self.runner.folder)
            .offer(&name, &Order { upgrade, script })
            .unwrap();
    }

    fn offer(&self, offered: &Offered) {
        self.offer_text(offered, self.signed(offered));
    }

    fn run(&self) -> Option<RunResult> {
        self.runner.run().unwrap()
    }

    /// The number of runs of a script.
    fn runs(&self) -> usize {
        fs::read_to_string(self.scratch.path().join("ran")).map_or(0, |text| text.lines().count())
    }

    fn refused(&self) -> String {
        let result = self.run().unwrap();
        let is_refused = matches!(result.outcome, Outcome::Refused | Outcome::Blocked);
        assert!(is_refused && self.runs() == 0, "{result:?}");
        assert_eq!(
            Host::of_root(&self.runner.folder).result().unwrap(),
            Some(result.clone())
        );
        result.message
    }

    /// The process ends just after it has recorded the run.
    fn interrupt(&self, offered: &Offered) {
        let state = opened(&self.runner.state).unwrap();
        let mut record = Record::read(&state).unwrap();
        record.begin(&[], offered.id, Some(offered.signed), None);
        record.write(&state).unwrap();
    }
}

#[test]
fn a_signed_script_runs_once_and_the_host_says_what_became_of_it() {
    let world = World::new();
    assert_eq!(world.run(), None);
    world.offer(&world.offered());
    let result = world.run().unwrap();
    assert_eq!(
        (
            result.outcome,
            result.exit_code,
            result.tail.as_str(),
            result.id.as_str()
        ),
        (Outcome::Succeeded, Some(0), "done\n", ID)
    );
    assert_eq!(
        fs::read_to_string(world.scratch.path().join("ran")).unwrap(),
        "v1.36.3\n"
    );
    // After a reboot, `current` is still there.
    assert_eq!((world.run(), world.runs()), (None, 1));
}

#[test]
fn a_script_that_fails_is_reported_with_its_status_and_does_not_run_again() {
    let world = World::new();
    let offered = world.offered();
    let body = format!("{}echo oops >&2\nexit 3\n", offered.body);
    world.offer(&Offered { body, ..offered });
    let result = world.run().unwrap();
    assert_eq!((result.outcome, result.exit_code), (Outcome::Failed, Some(3)));
    assert!(result.tail.ends_with("oops\n"), "{result:?}");
    assert_eq!((world.run(), world.runs()), (None, 1));
}

/// A script with this way back. It prints `there` and `back`, and both count as runs.
fn with_way_back(offered: &Offered, there: &str, back: &str) -> String {
    let body = offered.body.replace("#!/bin/sh\n", &format!("#!/bin/sh\n{WAY_BACK}\n"));
    format!(
        "{body}if [ -n \"$TIDEWAITER_WAY_BACK\" ]; then\necho back\n{back}\nexit 0\nfi\necho there\n{there}\nexit 3\n"
    )
}

impl World {
    fn links(&self, version: &str) -> String {
        format!("echo 'echo Kubernetes {version}' >> {}", self.runner.kubelet.display())
    }

    fn failed(&self, body: String) -> RunResult {
        self.offer(&Offered { body, ..self.offered() });
        let result = self.run().unwrap();
        let ends = result
            .message
            .ends_with("its way back begins when what it left has ended");
        assert!(
            ends && result.outcome == Outcome::RollingBack && self.runs() == 1,
            "{result:?}"
        );
        result
    }

    fn way_back(&self) -> RunResult {
        let result = self.runner.way_back().unwrap().unwrap();
        assert_eq!(
            (result.outcome, result.exit_code),
            (Outcome::Failed, Some(3)),
            "{result:?}"
        );
        // It is over, also after a reboot.
        assert_eq!((self.runner.way_back().unwrap(), self.run()), (None, None));
        result
    }
}

#[test]
fn the_way_back_of_a_script_that_failed_runs_and_is_verified() {
    for (there, back, rolled_back, runs, words) in [
        (
            "",
            "",
            true,
            2,
            "ended with the status 0, and the kubelet is at v1.35.4 as before",
        ),
        (
            "",
            "exit 4",
            false,
            2,
            "its way back did not end well: the script failed: exit status: 4",
        ),
        ("", "v1.35.5", false, 2, "but the version of the kubelet is v1.35.5 now"),
        (
            "v1.36.3",
            "",
            false,
            1,
            "its way back does not run: the kubelet is at v1.36.3",
        ),
    ] {
        let world = World::new();
        let command = |what: &str| {
            if what.starts_with('v') {
                world.links(what)
            } else {
                what.to_owned()
            }
        };
        world.failed(with_way_back(&world.offered(), &command(there), &command(back)));
        let result = world.way_back();
        assert_eq!((result.rolled_back, world.runs()), (rolled_back, runs), "{result:?}");
        assert!(result.message.contains(words), "{result:?}");
        assert!(result.tail.contains("there\n"), "{result:?}");
    }
}

/// A way back requires that the conditions of the first run still hold, and that the script is the one that failed.
#[test]
fn a_way_back_does_not_begin_when_its_order_is_gone_changed_or_over() {
    type Change = fn(&World);
    let changes: [(Change, &str); 4] = [
        (
            |world| fs::remove_file(world.upgrade_file("current")).unwrap(),
            "current was changed or removed",
        ),
        (|world| world.offer(&world.offered()), "current was changed or removed"),
        (
            |world| fs::remove_file(&world.key_files()[0]).unwrap(),
            "its way back does not run",
        ),
        (
            |world| {
                let body = with_way_back(&world.offered(), "", "");
                let began = world.offered().began - 3600;
                world.offer(&Offered {
                    body,
                    began,
                    ..world.offered()
                });
            },
            "its way back does not run",
        ),
    ];
    for (change, words) in changes {
        let world = World::new();
        world.failed(with_way_back(&world.offered(), "", ""));
        change(&world);
        let result = world.runner.way_back().unwrap().unwrap();
        assert_eq!((result.rolled_back, world.runs()), (false, 1), "{result:?}");
        assert!(result.message.contains(words), "{result:?}");
    }
}

/// While it runs, the record does not say any more that it is due: a process that ends then begins no second one.
#[test]
fn a_way_back_begins_once() {
    let world = World::new();
    let (record, seen) = (
        world.scratch.path().join("state/upgrades.json"),
        world.scratch.path().join("seen"),
    );
    let looks = format!("cp {} {}", record.display(), seen.display());
    world.failed(with_way_back(&world.offered(), "", &looks));
    let due = |path: &PathBuf| {
        serde_json::from_str::<Record>(&fs::read_to_string(path).unwrap())
            .unwrap()
            .way_back
    };
    assert!(due(&record).is_some());
    world.way_back();
    assert_eq!((due(&seen), due(&record)), (None, None));
}

/// A way back that was interrupted leaves another version: the one before the first beginning counts.
#[test]
fn the_version_of_before_is_that_of_the_first_beginning() {
    let world = World::new();
    let offered = world.offered();
    let repeatable = |body: String| body.replace(WAY_BACK, &format!("{REPEATABLE}\n{WAY_BACK}"));
    // The first run was interrupted when it had installed a version in between.
    let state = opened(&world.runner.state).unwrap();
    let mut record = Record::read(&state).unwrap();
    let before: Version = "v1.35.4".parse().unwrap();
    record.begin(&[], offered.id, Some(offered.signed), Some(&before));
    record.write(&state).unwrap();
    world.kubelet("v1.36.0", "");
    world.failed(repeatable(with_way_back(&offered, "", "")));
    let result = world.way_back();
    assert!(
        !result.rolled_back && result.message.contains("is v1.36.0 now"),
        "{result:?}"
    );
}

/// A script that has ended does not run again, also if it is repeatable and its result was removed.
#[test]
fn what_has_ended_does_not_run_again_without_its_result() {
    let world = World::new();
    let offered = world.offered();
    let body = offered
        .body
        .replace("#!/bin/sh\n", &format!("#!/bin/sh\n{REPEATABLE}\n"));
    world.offer(&Offered { body, ..offered });
    assert_eq!(world.run().unwrap().outcome, Outcome::Succeeded);
    fs::remove_file(world.upgrade_file("result.json")).unwrap();
    assert_eq!((world.run().unwrap().outcome, world.runs()), (Outcome::Succeeded, 1));
}

/// A script without a way back is not run again, and one that has succeeded has nothing to take back.
#[test]
fn no_way_back_runs_that_is_not_declared_or_not_needed() {
    for (declared, end) in [("", "exit 3"), (WAY_BACK, "exit 0")] {
        let world = World::new();
        let offered = world.offered();
        let body = offered.body.replace("#!/bin/sh\n", &format!("#!/bin/sh\n{declared}\n"));
        world.offer(&Offered {
            body: format!("{body}{end}\n"),
            ..offered
        });
        world.run().unwrap();
        assert_eq!((world.runner.way_back().unwrap(), world.runs()), (None, 1));
    }
}

#[test]
fn a_kubelet_that_hangs_has_no_version() {
    let world = World::new();
    world.kubelet("v1.35.4", "exec sleep 600");
    world.offer(&world.offered());
    assert!(world.refused().contains("the version of the kubelet cannot be read"));
}

#[test]
fn a_script_that_hangs_is_killed_at_the_deadline_with_what_it_started() {
    let world = World::new();
    let pid = world.scratch.path().join("pid");
    let offered = world.offered();
    let body = format!("#!/bin/sh\nsleep 600 &\necho $! > {}\nwait\n", pid.display());
    // The margin is half of the timeout: it ends five to six seconds from now.
    world.offer(&Offered {
        body,
        timeout: 12,
        ..offered
    });
    let result = world.run().unwrap();
    assert_eq!(
        (result.outcome, result.exit_code),
        (Outcome::TimedOut, None),
        "{result:?}"
    );
    let pid = fs::read_to_string(pid).unwrap();
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

/// The window of the signature applies to each order: so no writer of upgrades starts two nodes at once.
#[test]
fn a_script_runs_in_the_window_of_its_signature_alone() {
    let world = World::new();
    let offered = world.offered();
    let now = offered.signed;
    let early = Offered {
        not_before: Some(now + 600),
        ..offered.clone()
    };
    world.offer(&early);
    let refused = world.refused();
    assert!(refused.contains("counts from"), "{refused}");
    // It is not the last word.
    let body = "#!/bin/sh\nsleep 600\n".to_owned();
    world.offer(&Offered {
        body,
        not_before: Some(now),
        // The window ends in six seconds, but for the error of clocks.
        lifetime: 36,
        ..offered
    });
    let result = world.run().unwrap();
    assert_eq!(result.outcome, Outcome::TimedOut, "{result:?}");
}

#[test]
fn a_way_back_ends_with_the_window_of_the_signature() {
    let world = World::new();
    let offered = world.offered();
    let hangs = with_way_back(&offered, "exit 1", "sleep 600");
    world.offer(&Offered {
        body: hangs.clone(),
        not_before: Some(offered.signed),
        lifetime: 38,
        ..offered
    });
    assert_eq!(world.run().unwrap().outcome, Outcome::RollingBack, "{hangs}");
    let result = world.runner.way_back().unwrap().unwrap();
    assert!(result.message.contains("deadline") && !result.rolled_back, "{result:?}");
}

#[test]
fn what_attackers_do_to_the_order_is_refused_and_the_refusal_names_the_check() {
    type Attack = fn(&World, &mut Offered);
    let attacks: [(Attack, &str); 8] = [
        (
            |_, offered| offered.signed_for = "w2",
            "is signed for the node w2, and this is w1",
        ),
        (
            |_, offered| offered.version = "v1.36.2",
            "is signed for the version v1.36.2",
        ),
        (
            |_, offered| {
                offered.signed -= 3600;
                offered.lifetime = 60;
            },
            "the signature expired",
        ),
        (|_, offered| offered.signed += 3600, "which is in the future"),
        (|_, offered| offered.node = "w2", "it is not the turn of this node"),
        (|_, offered| offered.began -= 600, "is over or too near"),
        (|world, _| world.kubelet("v1.37.0", ""), "the kubelet is at v1.37.0"),
        (
            |world, _| world.kubelet("", ""),
            "the version of the kubelet cannot be read",
        ),
    ];
    for (attack, why) in attacks {
        let world = World::new();
        let mut offered = world.offered();
        attack(&world, &mut offered);
        world.offer(&offered);
        let refused = world.refused();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn what_attackers_do_to_the_files_is_refused_and_the_refusal_names_the_check() {
    type Attack = fn(&World);
    fn replaced(path: &Path, by: impl AsRef<Path>) {
        fs::rename(path, path.with_extension("moved")).unwrap();
        symlink(by, path).unwrap();
    }
    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let attacks: [(Attack, &str); 13] = [
        (
            |world| replaced(&world.upgrade_file("current"), world.upgrade_file("current.moved")),
            "current is a symbolic link, and must be a file",
        ),
        (
            |world| mode(&world.upgrade_file("current"), 0o666),
            "current belongs to another user, has a second name, or other users can write it",
        ),
        (
            |world| mode(&world.path("scripts/upgrade"), 0o777),
            "scripts/upgrade belongs to another user",
        ),
        (
            |world| fs::write(world.upgrade_file("current"), "/tmp/upgrade-x.sh\n").unwrap(),
            "must be the path of a script",
        ),
        (
            |world| {
                let path = world.upgrade_file("../x/upgrade-x.sh");
                fs::write(world.upgrade_file("current"), path.to_str().unwrap()).unwrap();
            },
            "must be the path of a script",
        ),
        (
            |world| {
                let script = world.upgrade_file(&format!("upgrade-kubernetes-v1.36.3-{ID}.sh"));
                let text = fs::read_to_string(&script).unwrap();
                fs::write(&script, text.replace("echo done", "echo gone")).unwrap();
            },
            "is not the one that was signed",
        ),
        (
            |world| {
                let script = world.upgrade_file(&format!("upgrade-kubernetes-v1.36.3-{ID}.sh"));
                fs::hard_link(&script, script.with_extension("link")).unwrap();
            },
            "belongs to another user, has a second name, or other users can write it",
        ),
        (
            |world| fs::write(world.pinned("cluster"), "33333333-2222-4222-8222-222222222222\n").unwrap(),
            "is signed for the cluster 22222222",
        ),
        (
            |world| fs::remove_file(&world.key_files()[0]).unwrap(),
            "which is not trusted",
        ),
        (
            |world| mode(&world.key_files()[0], 0o664),
            ".pub belongs to another user, has a second name",
        ),
        (
            |world| mode(&world.runner.pinned, 0o777),
            "etc/pinned belongs to another user, or other users can write it",
        ),
        (
            |world| fs::remove_dir_all(&world.runner.pinned).unwrap(),
            "nothing is pinned",
        ),
        (
            |world| fs::write(world.pinned("unsigned-scripts"), "yes\n").unwrap(),
            "etc/pinned/unsigned-scripts must be the word allow",
        ),
    ];
    for (attack, why) in attacks {
        let world = World::new();
        world.offer(&world.offered());
        attack(&world);
        let refused = world.refused();
        assert!(refused.contains(why), "{why}: {refused}");
    }
}

#[test]
fn a_script_that_was_interrupted_does_not_run_again_unless_it_says_that_it_may() {
    let world = World::new();
    let offered = world.offered();
    world.interrupt(&offered);
    world.offer(&offered);
    let result = world.run().unwrap();
    assert_eq!((result.outcome, world.runs()), (Outcome::Interrupted, 0), "{result:?}");
    assert!(result.message.contains("begun before"), "{result:?}");
    assert_eq!(world.run(), None);
    drop(world);

    let world = World::new();
    let offered = world.offered();
    world.interrupt(&offered);
    let body = offered
        .body
        .replace("#!/bin/sh\n", &format!("#!/bin/sh\n{REPEATABLE}\n"));
    world.offer(&Offered { body, ..offered });
    assert_eq!((world.run().unwrap().outcome, world.runs()), (Outcome::Succeeded, 1));
}

impl World {
    /// The power is away while the script of this order runs, for so long that `began` lies this far back.
    fn power_cut(&self, repeatable: bool, began: i64) {
        let mut offered = self.offered();
        offered.began += began;
        if repeatable {
            offered.body = offered
                .body
                .replace("#!/bin/sh\n", &format!("#!/bin/sh\n{REPEATABLE}\n"));
        }
        self.interrupt(&offered);
        self.offer(&offered);
        self.tells(Outcome::Running);
    }

    fn tells(&self, outcome: Outcome) {
        let result = RunResult {
            id: ID.to_owned(),
            outcome,
            message: "m".to_owned(),
            exit_code: None,
            rolled_back: false,
            at: self.runner.clock.now(),
            until: None,
            tail: String::new(),
        };
        Host::of_root(&self.runner.folder).write_result(&result).unwrap();
    }

    fn withdraw(&self) {
        Host::of_root(&self.runner.folder).withdraw().unwrap();
    }
}

/// The version of the kubelet does not say that the last steps of the script were done. A script that says so runs
/// again, also with half a kubelet.
#[test]
fn a_power_cut_interrupts_a_script_whatever_the_kubelet_is_then() {
    for (version, repeatable, began, expected, runs, words) in [
        (
            "v1.36.3",
            false,
            0,
            Outcome::Interrupted,
            0,
            "does not run again: the script of this upgrade was begun before",
        ),
        (
            "v1.35.4",
            false,
            0,
            Outcome::Interrupted,
            0,
            "does not run again: the script of this upgrade was begun before",
        ),
        ("v1.36.3", false, -3600, Outcome::Interrupted, 0, "is over or too near"),
        ("v1.36.3", true, -3600, Outcome::Interrupted, 0, "is over or too near"),
        ("v1.36.3", true, 0, Outcome::Succeeded, 1, "the status 0"),
        ("v1.35.4", true, 0, Outcome::Succeeded, 1, "the status 0"),
        ("", true, 0, Outcome::Succeeded, 1, "the status 0"),
        ("v1.37.0", true, 0, Outcome::Interrupted, 0, "the kubelet is at v1.37.0"),
    ] {
        let world = World::new();
        let state = opened(&world.runner.state).unwrap();
        world.power_cut(repeatable, began);
        let mut record = Record::read(&state).unwrap();
        record.begin(&[], ID, None, Some(&"v1.35.4".parse().unwrap()));
        record.write(&state).unwrap();
        world.kubelet(version, "");
        let result = world.run().unwrap();
        assert_eq!(
            (result.outcome, world.runs()),
            (expected, runs),
            "{version} {repeatable}: {result:?}"
        );
        assert!(result.message.contains(words), "{result:?}");
        assert_eq!(world.run(), None, "it is over");
    }
}

/// The folder of the agent was full when the script ended.
#[test]
fn an_outcome_that_could_not_be_written_is_told_later() {
    for is_ordered in [true, false] {
        let world = World::new();
        world.offer(&world.offered());
        let ended = world.run().unwrap();
        assert_eq!(ended.outcome, Outcome::Succeeded, "{ended:?}");
        world.tells(Outcome::Running);
        if !is_ordered {
            world.withdraw();
        }
        assert_eq!(world.run(), Some(ended.clone()), "{is_ordered}");
        assert_eq!(Host::of_root(&world.runner.folder).result().unwrap(), Some(ended));
        assert_eq!((world.run(), world.runs()), (None, 1));
    }
}

/// The coordinator has taken the order back meanwhile: what is recorded as running would do so for ever.
#[test]
fn what_was_interrupted_is_settled_without_its_order() {
    let world = World::new();
    world.power_cut(true, 0);
    world.withdraw();
    let result = world.run().unwrap();
    assert_eq!((result.outcome, world.runs()), (Outcome::Interrupted, 0), "{result:?}");
    assert_eq!(result.id, ID);
    assert_eq!(Host::of_root(&world.runner.folder).result().unwrap(), Some(result));
    assert_eq!(world.run(), None);
}

/// The unit was killed and the host goes on: systemd starts that of the way back. It need not wait for the deadline.
#[test]
fn what_was_killed_is_settled_at_once() {
    for (repeatable, told, expected, words) in [
        (
            false,
            Outcome::Running,
            Outcome::Interrupted,
            "the unit ended while the script ran",
        ),
        (
            true,
            Outcome::Running,
            Outcome::Interrupted,
            "the unit ended while the script ran",
        ),
        (
            false,
            Outcome::RollingBack,
            Outcome::Failed,
            "its way back was interrupted",
        ),
    ] {
        let world = World::new();
        world.power_cut(repeatable, 0);
        world.tells(told);
        let result = world.runner.way_back().unwrap().unwrap();
        assert_eq!((result.outcome, result.id.as_str()), (expected, ID), "{result:?}");
        assert!(result.message.contains(words), "{result:?}");
        assert_eq!(Host::of_root(&world.runner.folder).result().unwrap(), Some(result));
        assert_eq!(
            (world.runner.way_back().unwrap(), world.run(), world.runs()),
            (None, None, 0)
        );
    }
}

/// Somebody else upgraded the kubelet: there is nothing to do, and what is newer is refused.
#[test]
fn a_kubelet_at_the_version_has_nothing_to_run() {
    for (version, expected) in [("v1.36.3", Outcome::Succeeded), ("v1.36.4", Outcome::Refused)] {
        let world = World::new();
        world.offer(&world.offered());
        world.kubelet(version, "");
        let result = world.run().unwrap();
        assert_eq!((result.outcome, world.runs()), (expected, 0), "{result:?}");
        assert!(result.message.contains("nothing to do"), "{result:?}");
    }
}

/// The coordinator starts the next node after it: what would make the script run comes too late, also without the
/// result.
#[test]
fn a_refusal_because_of_the_script_or_the_keys_is_final() {
    for removes_result in [false, true] {
        let world = World::new();
        let key = world.key_files().remove(0);
        let aside = key.with_extension("aside");
        fs::rename(&key, &aside).unwrap();
        let mut offered = world.offered();
        offered.body = offered
            .body
            .replace("#!/bin/sh\n", &format!("#!/bin/sh\n{REPEATABLE}\n"));
        world.offer(&offered);
        assert_eq!(world.run().unwrap().outcome, Outcome::Refused);
        fs::rename(&aside, &key).unwrap();
        world.offer(&offered);
        if removes_result {
            fs::remove_file(world.upgrade_file("result.json")).unwrap();
            assert_eq!(world.run().unwrap().outcome, Outcome::Interrupted);
        }
        assert_eq!((world.run(), world.runs()), (None, 0));
    }
    // An order that is not for this node, or not yet whole, is not the last word.
    let world = World::new();
    let offered = world.offered();
    world.offer(&Offered {
        node: "w2",
        ..offered.clone()
    });
    assert_eq!(world.run().unwrap().outcome, Outcome::Blocked);
    world.offer(&offered);
    assert_eq!((world.run().unwrap().outcome, world.runs()), (Outcome::Succeeded, 1));
}

/// After a reboot: one that has not begun begins in its unit, because this process fails; one that had begun does not
/// run again.
#[test]
fn a_way_back_that_was_interrupted_is_settled() {
    let world = World::new();
    world.failed(with_way_back(&world.offered(), "", ""));
    for told in [Outcome::RollingBack, Outcome::Running] {
        // The process may have ended before it could say it.
        world.tells(told);
        let result = world.run().unwrap();
        assert_eq!(
            (result.outcome, result.exit_code),
            (Outcome::RollingBack, Some(3)),
            "{result:?}"
        );
    }
    let state = opened(&world.runner.state).unwrap();
    let due = Record::read(&state).unwrap();
    for (is_due, is_withdrawn, words) in [
        (true, true, "its way back does not run: current was changed or removed"),
        (false, false, "its way back was interrupted"),
        (false, true, "its way back was interrupted"),
    ] {
        let mut record = due.clone();
        record.way_back = record.way_back.filter(|_| is_due);
        record.write(&state).unwrap();
        world.tells(Outcome::RollingBack);
        if is_withdrawn {
            world.withdraw();
        }
        let result = world.run().unwrap();
        assert_eq!(result.outcome, Outcome::Failed, "{result:?}");
        assert!(
            result.message.ends_with(words) || result.message.contains(words),
            "{result:?}"
        );
        assert_eq!(
            (world.runner.way_back().unwrap(), world.run(), world.runs()),
            (None, None, 1)
        );
        world.offer(&Offered {
            body: with_way_back(&world.offered(), "", ""),
            ..world.offered()
        });
    }
}

/// A clock that the script puts back: the deadline would be an hour later.
#[test]
fn a_clock_that_is_put_back_while_a_script_runs_does_not_lengthen_it() {
    let mut world = World::new();
    let put_back = world.scratch.path().join("put-back");
    world.runner.clock = Arc::new(PutBack(put_back.clone()));
    let offered = world.offered();
    let body = format!("#!/bin/sh\n: > {}\nexec sleep 600\n", put_back.display());
    world.offer(&Offered {
        body,
        timeout: 12,
        ..offered
    });
    assert_eq!(world.run().unwrap().outcome, Outcome::TimedOut);
}

/// It is an hour earlier once there is this file.
#[derive(Debug)]
struct PutBack(PathBuf);

impl Clock for PutBack {
    fn now(&self) -> Timestamp {
        let back = if self.0.exists() { 3600 } else { 0 };
        SystemClock.now() - jiff::SignedDuration::from_secs(back)
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        SystemClock.sleep(duration)
    }
}

/// systemd kills what the first script has left before the second one starts in another process.
#[test]
fn a_process_runs_one_script() {
    let world = World::new();
    let (first, second) = (world.offered(), world.scratch.path().join("second"));
    let folder = world.path("scripts/upgrade");
    world.offer(&Offered {
        id: OTHER_ID,
        ..first.clone()
    });
    // The first script offers the second one.
    fs::rename(world.upgrade_file("current"), &second).unwrap();
    let body = format!("{}mv {} {}/current\n", first.body, second.display(), folder.display());
    world.offer(&Offered { body, ..first });
    let result = world.run().unwrap();
    assert_eq!((result.id.as_str(), world.runs()), (ID, 1));
    let result = world.run().unwrap();
    assert_eq!((result.id.as_str(), world.runs()), (OTHER_ID, 2));
}

#[test]
fn an_upgrade_that_is_created_again_under_its_id_does_not_run_again() {
    let world = World::new();
    world.offer(&world.offered());
    world.run().unwrap();
    fs::remove_file(world.upgrade_file("result.json")).unwrap();
    world.offer(&Offered {
        uid: "uid-2",
        signed: world.offered().signed + 1,
        ..world.offered()
    });
    let result = world.run().unwrap();
    assert_eq!((result.outcome, world.runs()), (Outcome::Succeeded, 1), "{result:?}");
}

#[test]
fn a_script_that_was_signed_before_the_last_one_is_refused() {
    let world = World::new();
    let first = world.offered();
    world.offer(&first);
    world.run().unwrap();
    world.offer(&Offered {
        id: OTHER_ID,
        signed: first.signed - 1,
        ..first
    });
    let result = world.run().unwrap();
    assert_eq!((result.outcome, world.runs()), (Outcome::Refused, 1));
    assert!(result.message.contains("was run on this host"), "{result:?}");
}

#[test]
fn an_order_that_is_taken_back_while_it_is_checked_does_not_run() {
    let world = World::new();
    let remove = format!("rm -f {}", world.upgrade_file("current").display());
    world.kubelet("v1.35.4", &remove);
    world.offer(&world.offered());
    let refused = world.refused();
    assert!(refused.contains("current was changed or removed"), "{refused}");
}

#[test]
fn scripts_without_a_signature_run_only_where_the_host_permits_it() {
    let world = World::new();
    let offered = world.offered();
    world.offer_text(&offered, offered.body.clone());
    assert!(world.refused().contains("the script is not signed"));
    fs::write(world.pinned("unsigned-scripts"), "allow\n").unwrap();
    let offered = Offered {
        id: OTHER_ID,
        ..offered
    };
    world.offer_text(&offered, offered.body.clone());
    assert_eq!((world.run().unwrap().outcome, world.runs()), (Outcome::Succeeded, 1));
}

#[test]
fn a_damaged_record_is_not_an_empty_one() {
    let world = World::new();
    world.offer(&world.offered());
    let state = opened(&world.runner.state).unwrap();
    Record::default().write(&state).unwrap();
    fs::write(world.runner.state.join("upgrades.json"), "{").unwrap();
    assert!(world.refused().contains("upgrades.json is malformed"));
}

#[test]
fn one_script_runs_at_a_time() {
    let world = World::new();
    world.offer(&world.offered());
    let state = opened(&world.runner.state).unwrap();
    let held = record::lock(&state).unwrap();
    assert_eq!((world.run(), world.runs()), (None, 0));
    drop(held);
    assert!(world.run().is_some());
}
