//! The watcher: what others change is undone at once, not at the next periodic look.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tidewaiter_api::Condition;
use tokio::time::{Instant, timeout};

use crate::world::{KEYS, SOON, World};

/// A second or two where nothing else runs, and much less than until the periodic look.
const SOONER: Duration = Duration::from_secs(15);

/// A change, and its name.
type Tamper<'a> = (&'static str, &'a dyn Fn(&Path));

#[tokio::test]
async fn every_change_is_undone_at_once_and_reported() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[]).await;
    agent.has(&[(1, 0)]).await;
    agent.report(|status| status.keys == 1).await;
    let changes: [Tamper<'_>; 13] = [
        ("a user's own key before the user's line", &|file| {
            let line = format!("{} mine # break-glass\n{}", KEYS[0], fs::read_to_string(file).unwrap());
            fs::write(file, line).unwrap();
        }),
        ("an intruder's line", &|file| {
            let line = format!("{}{} intruder\n", fs::read_to_string(file).unwrap(), KEYS[1]);
            fs::write(file, line).unwrap();
        }),
        ("replaced by rename", &|file| {
            let other = file.with_file_name("other");
            fs::write(&other, format!("{}\n", KEYS[1])).unwrap();
            fs::rename(other, file).unwrap();
        }),
        ("moved away", &|file| {
            fs::rename(file, file.with_file_name("away")).unwrap();
        }),
        ("removed", &|file| fs::remove_file(file).unwrap()),
        ("truncated", &|file| {
            fs::File::options().write(true).open(file).unwrap().set_len(10).unwrap();
        }),
        ("another mode", &|file| {
            fs::set_permissions(file, fs::Permissions::from_mode(0o666)).unwrap();
        }),
        ("a link", &|file| {
            let other = file.with_file_name("other");
            symlink("/dev/null", &other).unwrap();
            fs::rename(other, file).unwrap();
        }),
        ("a folder", &|file| {
            let other = file.with_file_name("other");
            fs::create_dir(&other).unwrap();
            renameat_with(CWD, other, CWD, file, RenameFlags::EXCHANGE).unwrap();
        }),
        ("another name", &|file| {
            fs::hard_link(file, file.ancestors().nth(3).unwrap().join("copy")).unwrap();
        }),
        ("the folder moved and created again", &|file| {
            let ssh = file.parent().unwrap();
            fs::rename(ssh, ssh.with_file_name("moved")).unwrap();
            // The agent may have been faster.
            let _ = fs::create_dir(ssh);
        }),
        ("the parent removed", &|file| {
            let home = file.ancestors().nth(2).unwrap();
            fs::rename(home, home.with_file_name("gone")).unwrap();
            fs::remove_dir_all(home.with_file_name("gone")).unwrap();
        }),
        ("through a name elsewhere", &|file| {
            // Written through another name of the file: no event of its folder.
            let copy = file.ancestors().nth(3).unwrap().join("again");
            fs::hard_link(file, &copy).unwrap();
            let _ = fs::write(&copy, "x");
        }),
    ];
    for (number, (what, change)) in changes.into_iter().enumerate() {
        agent.tamper(change);
        agent.has(&[(1, 0)]).await;
        let restores = u32::try_from(number + 1).unwrap();
        println!("{what}");
        agent.restored(restores).await;
    }
    // Changes that follow each other fast are undone together.
    let report = agent.report(|status| status.restores >= 6).await;
    let tampering = report.status.unwrap().tampering;
    assert!(
        tampering.iter().any(|it| it.what.contains("was missing")),
        "{tampering:?}"
    );
    world.event(&agent.node, "AuthorizedKeysRestored").await;
}

/// Maps the file, and writes into the mapping when it is told to.
const MAPPER: &str = "\
import mmap, sys
with open(sys.argv[1], 'r+b') as file: mapping = mmap.mmap(file.fileno(), 0)
print('mapped', flush=True)
sys.stdin.readline()
mapping[:] = sys.argv[2].encode()
print('written', flush=True)
sys.stdin.readline()
";

/// A write through a mapping is no event.
#[tokio::test]
async fn a_write_through_a_mapping_is_undone() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[]).await;
    agent.has(&[(1, 0)]).await;
    agent.report(|status| status.keys == 1).await;
    for round in 1..=3 {
        let intruder = over(&agent.content());
        let mut mapper = Command::new("python3")
            .args(["-c", MAPPER])
            .arg(agent.file())
            .arg(&intruder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut told, mut said) = (
            mapper.stdin.take().unwrap(),
            BufReader::new(mapper.stdout.take().unwrap()),
        );
        for word in ["mapped\n", "written\n"] {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert_eq!(line, word);
            told.write_all(b"\n").unwrap();
        }
        let undone = timeout(SOONER, agent.has(&[(1, 0)])).await;
        undone.expect("the intruder's line to be gone");
        agent.restored(round).await;
        mapper.wait().unwrap();
    }
}

/// The line of an intruder, as long as this content.
fn over(content: &str) -> String {
    format!("{:#<width$}", format!("{} intruder\n", KEYS[1]), width = content.len())
}

#[tokio::test]
async fn on_a_full_disk_one_change_after_the_other_is_undone() {
    const ROUNDS: u32 = 9;
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent_on_small_disk().await;
    agent.has(&[(1, 0)]).await;
    agent.report(|status| status.keys == 1).await;
    let file = agent.file_inside();
    let ballast = file.ancestors().nth(3).unwrap().join("ballast");
    // Were each retried twice as late as the one before, the last would take five seconds or more.
    for round in 1..=ROUNDS {
        let mut filled = fs::File::options().append(true).create(true).open(&ballast).unwrap();
        while filled.write_all(&[0; 512]).is_ok() {}
        let intruder = over(&agent.content());
        let mut opened = fs::File::options().write(true).open(&file).unwrap();
        opened.write_all(intruder.as_bytes()).unwrap();
        let undone = timeout(Duration::from_millis(4_500), agent.has(&[(1, 0)])).await;
        undone.expect("the intruder's line to be gone");
        agent.restored(round).await;
    }
    let report = agent
        .report(|status| {
            let is_told = |it: &Condition| it.message.contains("was overwritten in place");
            status.restores >= ROUNDS && status.conditions.iter().any(is_told)
        })
        .await;
    let status = report.status.unwrap();
    assert_eq!(status.conditions[0].reason, "NotWritten", "{status:?}");
    fs::remove_file(&ballast).unwrap();
    agent
        .report(|status| status.conditions.iter().any(|it| it.reason == "Applied"))
        .await;
    agent.has(&[(1, 0)]).await;
}

/// Its container may have 128 MiB.
#[tokio::test]
async fn a_flooded_file_fills_no_memory() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[("TIDEWAITER_FOREIGN_LINES", "keep")]).await;
    agent.has(&[(1, 0)]).await;
    let peak = || {
        let status = fs::read_to_string(format!("/proc/{}/status", agent.process.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u32>().unwrap()
    };
    let before = peak();
    for line in ["a\n", "a ", &format!("{} intruder\n", KEYS[1])] {
        let flood = line.repeat(8_000_000 / line.len());
        agent.tamper(|file| fs::write(file, fs::read_to_string(file).unwrap() + &flood).unwrap());
        agent.has(&[(1, 0)]).await;
    }
    let grown = peak() - before;
    assert!(grown < 64 * 1024, "{grown} kB more than {before} kB");
    agent
        .report(|status| {
            let mut changes = status.tampering.iter();
            changes.any(|it| it.what.contains("that are not the agent's, more than 1000 lines"))
        })
        .await;
}

/// More events than the queue of inotify takes.
#[tokio::test]
async fn an_overflow_of_the_queue_loses_nothing() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[]).await;
    agent.has(&[(1, 0)]).await;
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    agent.process.pause();
    let noise = agent.file().with_file_name("noise");
    for _ in 0..=(most / 2) {
        drop(fs::File::create(&noise).unwrap());
        fs::remove_file(&noise).unwrap();
    }
    agent.tamper(|file| fs::remove_file(file).unwrap());
    agent.process.resume();
    agent.has(&[(1, 0)]).await;
}

/// The loser of a fight is neither the disk nor the processor, and the file is right in the end.
#[tokio::test]
async fn a_fight_with_another_writer_is_bounded() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[]).await;
    agent.has(&[(1, 0)]).await;
    let file = agent.file();
    let mut fought = 0;
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        let _ = fs::write(&file, "");
        fought += 1;
        tokio::task::yield_now().await;
    }
    agent.has(&[(1, 0)]).await;
    let restores = agent
        .metric("tidewaiter_agent_restores_total{file=\"authorized_keys\"}")
        .await;
    assert!(fought > 200, "{fought}");
    assert!(
        (1.0..200.0).contains(&restores),
        "{restores} restores, {fought} changes"
    );
}

/// Every inotify instance of the node is in use, as after a reboot: changes are found all the same, and the report says
/// what is missing.
#[tokio::test]
async fn without_an_inotify_instance_the_files_are_read_again_and_again() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    world.user(2, &[KEYS[1]]).await;
    let agent = world.agent_without_inotify().await;
    agent.has(&[(1, 0), (2, 1)]).await;
    let report = agent.report(|status| !status.conditions.is_empty()).await;
    let condition = &report.status.unwrap().conditions[0];
    assert!(
        condition.reason == "NotWritten" && condition.message.contains("raise fs.inotify.max_user_instances"),
        "{condition:?}"
    );
    agent.tamper(|file| fs::remove_file(file).unwrap());
    agent.has(&[(1, 0), (2, 1)]).await;
    world.user(1, &[KEYS[2]]).await;
    agent.has(&[(1, 2), (2, 1)]).await;
}

/// Root on the node mounts something over the folder, and over the file. The agent is in a mount namespace of its own,
/// as in its container.
#[tokio::test]
async fn a_mount_is_undone() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent_in_namespace().await;
    agent.has(&[(1, 0)]).await;
    let mount = |arguments: &[&str], over: &Path| {
        let pid = agent.process.pid().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid, "--user", "--preserve-credentials", "--mount", "mount"]);
        command.args(arguments).arg(over);
        assert!(command.status().unwrap().success(), "{command:?}");
    };
    mount(&["-t", "tmpfs", "none"], agent.file().parent().unwrap());
    agent.has(&[(1, 0)]).await;
    mount(&["--bind", "/dev/null"], &agent.file());
    agent.has(&[(1, 0)]).await;
    let moved = fs::read_dir(&agent.folder).unwrap().filter_map(Result::ok);
    let moved: Vec<_> = moved.map(|entry| entry.file_name()).collect();
    assert!(
        moved
            .iter()
            .any(|name| name.to_string_lossy().starts_with(".tidewaiter-displaced-")),
        "{moved:?}"
    );
}

/// The folder around it is the agent's own, which it cannot move.
#[tokio::test]
async fn a_mount_over_a_folder_in_the_agents_own_is_reported() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent_in_namespace().await;
    agent.has(&[(1, 0)]).await;
    let enter = |arguments: &[&str]| {
        let pid = agent.process.pid().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid, "--user", "--preserve-credentials", "--mount"]);
        command.args(arguments).arg(agent.folder.join("home"));
        assert!(command.status().unwrap().success(), "{command:?}");
    };
    enter(&["mount", "-t", "tmpfs", "none"]);
    agent
        .report(|status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|it| it.reason == "NotWritten" && it.message.contains("home is covered by a mount"))
        })
        .await;
    enter(&["umount"]);
    agent.has(&[(1, 0)]).await;
    agent
        .report(|status| status.conditions.iter().any(|it| it.reason == "Applied"))
        .await;
}

#[tokio::test]
async fn an_agent_whose_folder_was_moved_on_the_host_ends() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let (agent, host) = world.agent_in_container().await;
    agent.has(&[(1, 0)]).await;
    // Its mount follows the folder, and sshd reads the one at the path.
    fs::rename(&host, host.with_extension("old")).unwrap();
    fs::create_dir(&host).unwrap();
    let status = agent.process.exited(SOON).await;
    let log = agent.process.log();
    assert!(
        !status.success() && log.contains("was moved or removed on the host"),
        "{status}: {log}"
    );
}
