//! The actions of root on a host: it installs, changes keys, and removes everything; and what somebody in the agent's
//! container can do beside it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::io::Errno;

use super::super::super::uninstall::Uninstall;
use super::super::super::{install, keys, trust};
use super::*;
use crate::host::{Call, HostCalls};

fn pair() -> (PublicKey, SigningKey) {
    let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().unwrap();
    let text = sk.to_box(None).unwrap().into_string();
    let key = SigningKey::read::<SignatureError>(&text, || unreachable!("it has no password")).unwrap();
    (pk, key)
}

impl World {
    /// The pins of an earlier version, or of somebody who controls the agent's container.
    fn pins_formerly(&self, keys: &[&PublicKey]) {
        let former = self.path("trust");
        fs::create_dir(&former).unwrap();
        for (name, text) in [("cluster", CLUSTER), ("node", "w1"), ("unsigned-scripts", "allow")] {
            fs::write(former.join(name), text).unwrap();
        }
        for (number, key) in keys.iter().enumerate() {
            fs::write(former.join(format!("key-{number}.pub")), key.to_base64()).unwrap();
        }
    }

    fn uninstalls(&self) -> Uninstall {
        Uninstall {
            folder: self.runner.folder.clone(),
            pinned: self.runner.pinned.clone(),
            units: self.scratch.path().join("units"),
            state: self.runner.state.clone(),
            script_folder: None,
        }
    }

    fn is_installed(&self) -> bool {
        self.pinned("cluster").exists() || self.scratch.path().join("units/tidewaiter-upgrade.service").exists()
    }

    /// An order that this key has signed.
    fn offers_by(&mut self, key: SigningKey, offered: &Offered) {
        let own = std::mem::replace(&mut self.key, key);
        self.offer(offered);
        self.key = own;
    }
}

#[test]
fn what_the_agent_can_write_pins_nothing() {
    let mut world = World::new();
    let (foreign, key) = pair();
    world.pins_formerly(&[&foreign]);
    let offered = world.offered();
    world.offers_by(key, &offered);
    assert!(world.refused().contains("which is not trusted"));
    let unsigned = Offered {
        id: OTHER_ID,
        ..offered
    };
    world.offer_text(&unsigned, unsigned.body.clone());
    assert!(world.refused().contains("the script is not signed"));
    // Nor before the new folder is there.
    fs::remove_dir_all(&world.runner.pinned).unwrap();
    let said = Trust::read(&Host::of_root(&world.runner.pinned))
        .unwrap_err()
        .to_string();
    assert!(
        said.contains("/etc/containership/trust, which do not count any more"),
        "{said}"
    );
}

#[test]
fn an_installation_removes_what_an_earlier_one_has_pinned_and_trusts_only_its_flags() {
    let mut world = World::new();
    let ((own, _), (foreign, key)) = (pair(), pair());
    world.pins_formerly(&[&own, &foreign]);
    fs::create_dir_all(world.path("trust/a\x1b[31m/b")).unwrap();
    symlink("/etc/passwd", world.path("trust/link.pub")).unwrap();
    let said = world.installs(&[&own]).install().unwrap().join("\n");
    for words in [
        format!("the key {} is pinned in the new folder", own.to_base64()),
        format!("the key {} is not pinned in the new one", foreign.to_base64()),
        "unsigned-scripts, which the agent's pod could write: scripts without a signature do not run any more"
            .to_owned(),
        "trust/a\\u{1b}[31m, which".to_owned(),
        "trust/link.pub, which the agent's pod could write: it does not count any more".to_owned(),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    assert!(!world.path("trust").exists() && Path::new("/etc/passwd").exists());
    assert!(!world.pinned("unsigned-scripts").exists());
    let offered = world.offered();
    world.offers_by(key, &offered);
    assert!(world.refused().contains("which is not trusted"));
}

#[test]
fn an_installation_pins_the_new_keys_and_takes_the_others_away() {
    let world = World::new();
    let [one, two, three] = [pair().0, pair().0, pair().0];
    world.installs(&[&one, &two]).install().unwrap();
    assert_eq!(world.key_files().len(), 2);
    let mut again = world.installs(&[&three]);
    again.kubelet = Some(PROGRAM.into());
    again.script_folder = Some(world.scratch.path().join("scripts"));
    let said = again.install().unwrap().join("\n");
    assert_eq!(
        said.matches("scripts that this key signed do not run any more").count(),
        2,
        "{said}"
    );
    assert_eq!(world.key_files().len(), 1);
    for (unit, verb) in [("upgrade", ""), ("upgrade-way-back", " --way-back")] {
        let unit = world.scratch.path().join(format!("units/tidewaiter-{unit}.service"));
        let unit = fs::read_to_string(unit).unwrap();
        let [folder, pinned] = [&world.runner.folder, &world.runner.pinned].map(|path| path.display());
        let command = format!(
            "ExecStart={PROGRAM} host run{verb} --folder {folder} --pinned {pinned} --kubelet {PROGRAM} --script-folder {}/scripts\n",
            world.scratch.path().display()
        );
        assert!(unit.contains(&command), "{unit}");
        let settles = unit.contains(&command.replace("ExecStart", "ExecStopPost"));
        assert_eq!(settles, !verb.is_empty(), "{unit}");
    }
    world.offer(&world.offered());
    assert!(world.refused().contains("which is not trusted"));
}

/// Among them a program below `/tmp`: anyone who creates it after the folder was cleaned would be root at the next
/// boot.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn everything_is_checked_before_anything_is_written() {
    type Change = fn(&World, &mut Install);
    let changes: [(Change, &str); 23] = [
        (
            |world, it| it.program = world.scratch.path().join("open/program"),
            "so others than root could replace",
        ),
        (
            |world, it| it.kubelet = Some(world.scratch.path().join("open/program")),
            "so others than root could replace",
        ),
        (
            |_, it| it.program = "/opt/tide waiter".into(),
            "must be an absolute path",
        ),
        (|_, it| it.units = "/etc/../etc/systemd/system".into(), "without '..'"),
        (
            |world, it| it.pinned = world.scratch.path().join("open/pinned"),
            "so others than root could change",
        ),
        (
            |world, it| it.units = world.scratch.path().join("open"),
            "so others than root could change",
        ),
        (
            |world, it| it.pinned = world.path("other/trust"),
            "which the agent's pod can write",
        ),
        (
            |world, it| it.pinned = world.scratch.path().join("into/trust"),
            "which the agent's pod can write",
        ),
        (
            |world, it| it.program = world.path("other/program"),
            "which the agent's pod can write",
        ),
        (
            |world, it| it.script_folder = Some(world.path("other")),
            "which the agent's pod can write",
        ),
        (
            |world, it| it.agent_state = world.scratch.path().join("new"),
            "which the agent's pod can write: use another place, or another --agent-state-folder",
        ),
        (
            |_, it| it.agent_state = it.folder.clone(),
            "and --agent-state-folder is",
        ),
        (
            |_, it| it.agent_state = it.folder.join("state"),
            "each needs a folder of its own",
        ),
        (
            |world, it| it.agent_state = world.scratch.path().into(),
            "none may be in the other",
        ),
        (
            |_, it| it.agent_state = "state".into(),
            "state must be an absolute path",
        ),
        (
            |world, it| it.units = world.scratch.path().join("kubelet/units"),
            "kubelet/units",
        ),
        // Nothing can be created there, as in the agent's container.
        (|_, it| it.pinned = "/proc/sys/pinned".into(), "/proc/sys"),
        (
            |_, it| it.script_folder = Some("/proc".into()),
            "/proc cannot be written",
        ),
        (
            |_, it| it.script_folder = Some("scripts".into()),
            "scripts must be an absolute path",
        ),
        // Arguments that cannot work.
        (
            |_, it| it.kubelet = Some("/usr/bin/id".into()),
            "--kubelet /usr/bin/id is another program",
        ),
        (
            |_, it| it.program = "/usr/bin/id".into(),
            "--program /usr/bin/id is another program",
        ),
        (
            |world, it| it.units = world.scratch.path().join("new/units"),
            "new/units is no folder",
        ),
        (
            |world, it| it.pinned = world.scratch.path().into(),
            "has files of others",
        ),
    ];
    for (change, words) in changes {
        let world = World::new();
        let scratch = world.scratch.path();
        for folder in ["open", "containership/other"] {
            fs::create_dir(scratch.join(folder)).unwrap();
            fs::write(scratch.join(folder).join("program"), "").unwrap();
        }
        fs::set_permissions(scratch.join("open"), Permissions::from_mode(0o1777)).unwrap();
        symlink(world.path("other"), scratch.join("into")).unwrap();
        let (key, _) = pair();
        let mut install = world.installs(&[&key]);
        install.pinned = scratch.join("new/pinned");
        install.units = scratch.join("fresh");
        fs::create_dir(&install.units).unwrap();
        change(&world, &mut install);
        let said = Chain(&install.install().unwrap_err()).to_string();
        assert!(said.contains(words), "{words}: {said}");
        assert!(!scratch.join("new").exists(), "nothing is written: {words}");
        for (folder, entries) in [("open", 1), ("containership/other", 1), ("fresh", 0)] {
            assert_eq!(fs::read_dir(scratch.join(folder)).unwrap().count(), entries, "{words}");
        }
    }
}

#[test]
fn a_key_that_the_agent_could_have_exchanged_is_not_read() {
    let world = World::new();
    let (key, _) = pair();
    world.pins_formerly(&[&key]);
    let refused = |path: &Path| {
        Chain(&install::read_key(path, &world.runner.folder, &world.path("../agent-state")).unwrap_err()).to_string()
    };
    for path in ["trust/key-0.pub", "../agent-state/key.pub"] {
        let said = refused(&world.path(path));
        assert!(said.contains("which the agent's pod can write"), "{said}");
    }
    let file = world.scratch.path().join("minisign.pub");
    assert!(refused(&file).contains("cannot be read"));
    fs::write(&file, "no key\n").unwrap();
    assert!(refused(&file).contains("minisign.pub must be"));
    fs::write(&file, format!("untrusted comment: x\n{}\n", key.to_base64())).unwrap();
    let read = install::read_key(&file, &world.runner.folder, &world.path("../agent-state")).unwrap();
    assert_eq!(read.to_string(), key.to_base64());
    // As minisign names it.
    let said = refused(Path::new("minisign.pub"));
    assert!(said.contains("minisign.pub cannot be read"), "{said}");
}

#[test]
fn a_new_key_counts_beside_the_old_one_until_that_is_removed() {
    let mut world = World::new();
    let (new, key) = pair();
    let new: tidewaiter_signature::TrustedKey = new.to_base64().parse().unwrap();
    let pinned = world.runner.pinned.clone();
    let listed = || {
        keys::list(&pinned)
            .unwrap()
            .into_iter()
            .filter(|line| line.starts_with("key "))
            .count()
    };
    let old = trust::keys(&Host::of_root(&pinned)).unwrap().remove(0).1;
    let said = keys::remove(&pinned, &old, false).unwrap_err().to_string();
    assert!(said.contains("is the last key") && listed() == 1, "{said}");
    for words in ["wrote", "is pinned already"] {
        let said = keys::add(&pinned, std::slice::from_ref(&new)).unwrap().join("\n");
        assert!(said.contains(words) && listed() == 2, "{said}");
    }
    // As a refusal names it.
    let id = format!("key {new} with the id {} in", new.id());
    assert!(keys::list(&pinned).unwrap().join("\n").contains(&id), "{id}");
    let first = world.offered();
    world.offer(&first);
    assert_eq!(world.run().unwrap().outcome, Outcome::Succeeded);
    let second = Offered {
        id: OTHER_ID,
        ..first.clone()
    };
    world.offers_by(key, &second);
    assert_eq!((world.run().unwrap().outcome, world.runs()), (Outcome::Succeeded, 2));

    keys::remove(&pinned, &old, false).unwrap();
    assert!(
        keys::remove(&pinned, &old, true)
            .unwrap_err()
            .to_string()
            .contains("is not pinned")
    );
    let third = Offered {
        id: "eeeeeeee-0000-4000-8000-000000000003",
        ..first
    };
    world.offer(&third);
    let result = world.run().unwrap();
    assert_eq!((result.outcome, world.runs()), (Outcome::Refused, 2), "{result:?}");
    let said = keys::remove(&pinned, &new, true).unwrap().join("\n");
    assert!(
        said.contains("no script with a signature runs") && listed() == 0,
        "{said}"
    );
    fs::remove_file(world.pinned("cluster")).unwrap();
    let said = keys::add(&pinned, &[new]).unwrap_err().to_string();
    assert!(said.contains("run tidewaiter host install"), "{said}");
}

/// A mount that goes with the test.
struct Mounted(PathBuf);

impl Mounted {
    fn with(options: &str, path: &Path) -> Self {
        fs::create_dir_all(path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(path)
            .status();
        assert!(
            mounted.unwrap().success(),
            "this test mounts a file system: run it as root"
        );
        Self(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.unwrap().success());
    }
}

#[test]
fn a_script_that_cannot_run_where_its_copy_is_waits_and_is_not_lost() {
    let mut world = World::new();
    let mounted = Mounted::with("noexec", &world.runner.state);
    world.offer(&world.offered());
    for _ in 0..2 {
        let result = world.run().unwrap();
        assert_eq!((result.outcome, world.runs()), (Outcome::Blocked, 0), "{result:?}");
        assert!(
            result.message.contains("mounted with noexec") && result.message.contains("--script-folder"),
            "{result:?}"
        );
    }
    let mut install = world.installs(&[&world.public]);
    let said = install.install().unwrap_err().to_string();
    assert!(
        said.contains("mounted with noexec") && said.contains("--script-folder"),
        "{said}"
    );
    let folder = world.scratch.path().join("scripts");
    install.script_folder = Some(folder.clone());
    install.install().unwrap();
    // The record stays where it is.
    world.runner.script_folder = Some(folder.clone());
    assert_eq!((world.run().unwrap().outcome, world.runs()), (Outcome::Succeeded, 1));
    assert_eq!(
        fs::metadata(folder.join("script.sh")).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!((world.run(), world.runs()), (None, 1));
    drop(mounted);
}

/// The output and effect of the script are known, and the disk is full. Somebody makes room when the host has looked
/// for it in vain: with the first try of a copy of the result, or with that of the record if both are on one disk.
#[test]
fn an_outcome_is_told_when_there_is_room_again() {
    for (both, way_back) in [(false, false), (true, false), (false, true)] {
        let mut world = World::new();
        let disk = world.scratch.path().join("disk");
        let mounted = Mounted::with("size=256k,mode=755", &disk);
        world.runner.folder = disk.join("containership");
        if both {
            world.runner.state = disk.join("state");
        }
        world.installs(&[&world.public]).install().unwrap();
        let offered = world.offered();
        let filler = disk.join("filler").display().to_string();
        let fill = format!("cat /dev/zero > {filler} 2> /dev/null || true");
        // The process that makes room is not in the group of the script, and has none of its files.
        let room = format!("setsid sh -c 'sleep 1; rm {filler}' > /dev/null 2>&1 < /dev/null &");
        let body = if way_back {
            with_way_back(&offered, "true", &format!("{fill}\n{room}"))
        } else {
            format!("{}{fill}\n{room}\n", offered.body)
        };
        let expected = if way_back {
            world.failed(body);
            world.runner.way_back().unwrap().unwrap()
        } else {
            world.offer(&Offered { body, ..offered });
            world.run().unwrap()
        };
        assert_eq!(expected.outcome == Outcome::Succeeded, !way_back, "{expected:?}");
        assert_eq!(
            Host::of_root(&world.runner.folder).result().unwrap(),
            Some(expected),
            "{both} {way_back}"
        );
        // It is recorded, too: it is no power cut.
        world.tells(Outcome::Running);
        let again = world.run().map(|result| result.outcome);
        assert_eq!(again.is_some_and(|it| it != Outcome::Interrupted), !way_back, "{both}");
        drop(mounted);
    }
}

/// The process that ran the script is gone, and the outcome is only in the record.
#[test]
fn what_is_settled_is_told_when_there_is_room_again() {
    let mut world = World::new();
    let disk = world.scratch.path().join("disk");
    let mounted = Mounted::with("size=256k,mode=755", &disk);
    world.runner.folder = disk.join("containership");
    world.installs(&[&world.public]).install().unwrap();
    world.power_cut(false, 0);
    let filler = disk.join("filler");
    fs::write(&filler, vec![0; 256 * 1024]).unwrap_err();
    let room = Command::new("sh")
        .args(["-c", "sleep 1; rm \"$0\""])
        .arg(&filler)
        .spawn();
    let settled = world.runner.way_back().unwrap().unwrap();
    assert_eq!(settled.outcome, Outcome::Interrupted);
    assert_eq!(Host::of_root(&world.runner.folder).result().unwrap(), Some(settled));
    room.unwrap().wait().unwrap();
    drop(mounted);
}

/// Lets so many calls take place that change something, and none after them, as if the process had been killed.
#[derive(Debug)]
struct Until(AtomicI64);

impl HostCalls for Until {
    fn before(&self, call: Call) -> Result<(), Errno> {
        let cost = i64::from(!matches!(call, Call::Open | Call::Read | Call::Sync));
        let left = self.0.fetch_sub(cost, Ordering::SeqCst);
        if left >= cost { Ok(()) } else { Err(Errno::IO) }
    }
}

/// The names and the texts of all files of an installation.
fn files_of(world: &World) -> BTreeMap<PathBuf, String> {
    let folders = [world.runner.pinned.clone(), world.scratch.path().join("units")];
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = entries.map(|entry| entry.unwrap().path());
    files
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn an_installation_that_was_killed_is_completed_and_removed() {
    let world = World::new();
    let (mut fresh, [one, two]) = (world.installs(&[]), [pair().0, pair().0]);
    let keys = |key: &PublicKey| vec![key.to_base64().parse().unwrap()];
    let mut kills = 0;
    for is_upgrade in [false, true] {
        for calls in 0.. {
            world.uninstalls().uninstall().unwrap();
            assert_eq!(files_of(&world), BTreeMap::new());
            if is_upgrade {
                fresh.keys = keys(&one);
                fresh.node = "w0".parse().unwrap();
                fresh.install().unwrap();
            }
            (fresh.keys, fresh.node) = (keys(&two), "w1".parse().unwrap());
            let calls: Arc<dyn HostCalls> = Arc::new(Until(calls.into()));
            let killed = fresh.install_in(|folder| Ok(install::at(folder)?.with_calls(Arc::clone(&calls))));
            let found = files_of(&world);
            let is_next = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().contains(".tidewaiter-");
            kills += usize::from(found.keys().any(is_next));
            // A removal leaves nothing of it either.
            if is_upgrade {
                world.uninstalls().uninstall().unwrap();
                assert_eq!(files_of(&world), BTreeMap::new(), "{found:?}");
                for (path, text) in &found {
                    fs::write(path, text).unwrap();
                }
            }
            fresh.install().unwrap();
            let whole = files_of(&world);
            assert_eq!(whole.len(), 8, "{found:?}: {whole:?}");
            assert!(!whole.keys().any(is_next));
            let trust = Trust::read(&Host::of_root(&world.runner.pinned)).unwrap();
            assert_eq!((trust.node().as_str(), world.key_files().len()), ("w1", 1));
            if killed.is_ok() {
                break;
            }
        }
    }
    assert!(
        kills > 20,
        "it was killed {kills} times while a file had no name of its own"
    );
}

#[test]
fn what_was_installed_is_removed_and_what_lets_people_in_stays() {
    let world = World::new();
    world.pins_formerly(&[]);
    world.offer(&world.offered());
    world.run().unwrap();
    let wanted = world.scratch.path().join("units/multi-user.target.wants");
    fs::create_dir(&wanted).unwrap();
    for unit in ["tidewaiter-upgrade.path", "tidewaiter-upgrade.service", "other.service"] {
        symlink(format!("../{unit}"), wanted.join(unit)).unwrap();
    }
    let kept = [world.pinned("break-glass"), world.path("home/.ssh/authorized_keys")];
    fs::create_dir_all(world.path("home/.ssh")).unwrap();
    for file in &kept {
        fs::write(file, "line\n").unwrap();
    }
    fs::write(world.pinned("unsigned-scripts"), "allow\n").unwrap();

    let done = world.uninstalls().uninstall().unwrap();
    let said = done.join("\n");
    for gone in [
        world.pinned("cluster"),
        world.pinned("node"),
        world.pinned("folder"),
        world.pinned("state-folder"),
        world.pinned("unsigned-scripts"),
        world.scratch.path().join("units/tidewaiter-upgrade.path"),
        world.scratch.path().join("units/tidewaiter-upgrade.service"),
        world.scratch.path().join("units/tidewaiter-upgrade-way-back.service"),
        wanted.join("tidewaiter-upgrade.path"),
        world.upgrade_file("current"),
        world.upgrade_file("result.json"),
        world.path("scripts/upgrade"),
        world.path("trust"),
        world.runner.state.join("script.sh"),
    ] {
        assert!(fs::symlink_metadata(&gone).is_err(), "{}", gone.display());
        assert!(
            said.contains(&format!("removed {}", gone.display())),
            "{}: {said}",
            gone.display()
        );
    }
    assert_eq!(fs::read_dir(&wanted).unwrap().count(), 1);
    assert!(kept.iter().all(|file| fs::read_to_string(file).unwrap() == "line\n"));
    assert_eq!(world.uninstalls().uninstall().unwrap(), Vec::<String>::new());

    // A script that ran does not run again.
    world.installs(&[&world.public]).install().unwrap();
    world.offer(&world.offered());
    assert_eq!(world.run().unwrap().outcome, Outcome::Succeeded);
    assert_eq!(world.runs(), 1);
}

#[test]
fn nothing_is_removed_while_a_script_runs_or_its_way_back_is_due() {
    let world = World::new();
    let offered = world.offered();
    let held = {
        let state = opened(&world.runner.state).unwrap();
        record::lock(&state).unwrap().unwrap()
    };
    let said = world.uninstalls().uninstall().unwrap_err().to_string();
    assert!(
        said.contains("an upgrade script runs") && world.is_installed(),
        "{said}"
    );
    drop(held);
    world.failed(with_way_back(&offered, "true", "true"));
    let said = world.uninstalls().uninstall().unwrap_err().to_string();
    assert!(
        said.contains("its way back has not begun") && world.is_installed(),
        "{said}"
    );
    world.way_back();
    world.uninstalls().uninstall().unwrap();
    assert!(!world.is_installed());
}

/// An attacker in the agent's container leaves links and folders where root removes files.
#[test]
fn a_removal_follows_no_links() {
    let world = World::new();
    world.offer(&world.offered());
    let beside = world.scratch.path().join("beside");
    fs::create_dir_all(beside.join("upgrade")).unwrap();
    fs::write(beside.join("upgrade/current"), "").unwrap();
    fs::rename(world.path("scripts/upgrade"), world.path("scripts/aside")).unwrap();
    symlink(beside.join("upgrade"), world.path("scripts/upgrade")).unwrap();
    symlink(&beside, world.path("trust")).unwrap();
    world.uninstalls().uninstall().unwrap();
    assert!(beside.join("upgrade/current").exists());
    assert!(!world.path("trust").exists() && !world.path("scripts/upgrade").exists());
    fs::create_dir_all(world.upgrade_file("folder/inner")).unwrap();
    for _ in 0..2 {
        let said = world.uninstalls().uninstall().unwrap().join("\n");
        assert!(said.contains("scripts/upgrade: look at the folders in it"), "{said}");
    }
}
