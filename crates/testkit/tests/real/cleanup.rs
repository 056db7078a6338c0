//! Nothing outlives its test: neither processes nor files, however the test ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tidewaiter_testkit::{Process, Program, Scratch, Terminal, eventually};
use tokio::process::Command;

use crate::SOON;

/// All processes that run in the folder or were told its name, the watchdog too.
fn processes_of(folder: &Path) -> Vec<u32> {
    let name = folder.to_str().unwrap().as_bytes();
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        let cwd = Path::new(cwd.to_str().unwrap_or_default().trim_end_matches(" (deleted)"));
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        cwd.starts_with(folder) || command.windows(name.len()).any(|part| part == name)
    })
    .collect()
}

/// A killed process that is not our own child ends a moment after its signal.
async fn assert_gone(folder: &Path) {
    eventually("all processes to be gone", SOON, async || {
        let left = processes_of(folder);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
    assert!(!folder.exists());
}

async fn assert_only_watchdog(scratch: &Scratch) {
    eventually("all processes but the watchdog to be gone", SOON, async || {
        let left = processes_of(scratch.path());
        if left.len() == 1 {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
}

/// A process with a child in the background, which is told by two lines in its log.
fn family(scratch: &Scratch) -> Process {
    Process::start(
        scratch,
        Program::new("/bin/sh").args(["-c", "sleep 600 & echo child; echo parent; wait"]),
    )
}

async fn started(process: &Process) {
    eventually("both processes to run", SOON, async || {
        let log = process.log();
        if log.lines().count() == 2 { Ok(()) } else { Err(log) }
    })
    .await;
}

#[tokio::test]
async fn a_dropped_process_takes_its_children_along() {
    let scratch = Scratch::new("drop");
    let folder = scratch.path().to_owned();
    let process = family(&scratch);
    started(&process).await;
    assert_eq!(processes_of(&folder).len(), 3, "the watchdog, the parent and the child");
    drop(process);
    drop(scratch);
    assert_gone(&folder).await;
}

#[tokio::test]
async fn a_process_that_exits_leaves_no_children_behind() {
    let scratch = Scratch::new("exit");
    let process = Process::start(&scratch, Program::new("/bin/sh").args(["-c", "sleep 600 & exit 3"]));
    assert_eq!(process.exited(SOON).await.code(), Some(3));
    assert_only_watchdog(&scratch).await;
}

#[tokio::test]
async fn a_panic_leaves_nothing() {
    let mut folder = PathBuf::new();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let scratch = Scratch::new("panic");
        scratch.path().clone_into(&mut folder);
        let _process = family(&scratch);
        panic!("as a failing test does");
    }));
    assert!(panicked.is_err());
    assert_gone(&folder).await;
}

/// Waits until the control plane that the process owns runs, and returns its folder.
async fn folder_of(owner: &Process) -> PathBuf {
    eventually("the control plane to run", SOON * 3, async || {
        assert!(owner.is_running(), "{}", owner.log());
        owner
            .log()
            .lines()
            .find_map(|line| line.strip_prefix("folder: ").map(PathBuf::from))
            .ok_or_else(|| owner.log())
    })
    .await
}

#[tokio::test]
async fn a_killed_owner_leaves_nothing() {
    let scratch = Scratch::new("owner");
    let owner = Process::start(&scratch, Program::new(env!("CARGO_BIN_EXE_control-plane")));
    let folder = folder_of(&owner).await;
    assert_eq!(processes_of(&folder).len(), 3, "the watchdog, etcd and kube-apiserver");
    owner.kill();
    eventually("everything to be gone", SOON, async || {
        let left = processes_of(&folder);
        if left.is_empty() && !folder.exists() {
            Ok(())
        } else {
            Err(format!("{left:?} in {}", folder.display()))
        }
    })
    .await;
}

#[tokio::test]
async fn a_stopped_owner_leaves_nothing() {
    let scratch = Scratch::new("owner");
    let owner = Process::start(
        &scratch,
        Program::new(env!("CARGO_BIN_EXE_control-plane")).arg("--controller-manager"),
    );
    let folder = folder_of(&owner).await;
    assert_eq!(processes_of(&folder).len(), 4, "the watchdog and three servers");
    assert!(owner.stop(SOON).await.success());
    assert_gone(&folder).await;
}

#[tokio::test]
async fn a_closed_terminal_ends_its_command() {
    let scratch = Scratch::new("terminal");
    let mut command = Command::new("/bin/sh");
    let line = format!("echo begun; sleep 600; : {}", scratch.path().display());
    command.args(["-c", &line]);
    let mut terminal = Terminal::start(&command);
    terminal.shows(&["begun"]).await;
    // The watchdog is one.
    assert!(processes_of(scratch.path()).len() > 1);
    drop(terminal);
    assert_only_watchdog(&scratch).await;
}

#[tokio::test]
async fn what_is_missing_is_named_with_its_remedy() {
    let scratch = Scratch::new("assets");
    let program = Program::new(env!("CARGO_BIN_EXE_control-plane")).env("KUBEBUILDER_ASSETS", scratch.path());
    let owner = Process::start(&scratch, program);
    assert!(!owner.exited(SOON).await.success());
    assert!(
        owner
            .log()
            .contains("lacks etcd: unset it and run hack/kube-assets/build"),
        "{}",
        owner.log()
    );
}

#[tokio::test]
async fn a_paused_process_stands_still_until_it_is_resumed() {
    let scratch = Scratch::new("pause");
    let process = Process::start(
        &scratch,
        Program::new("/bin/sh").args(["-c", "while :; do echo tick; sleep 0.01; done"]),
    );
    let ticks = async || {
        eventually("a tick", SOON, async || {
            if process.log().is_empty() { Err("none") } else { Ok(()) }
        })
        .await;
    };
    ticks().await;
    process.pause();
    let state = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
    assert_eq!(state.split(' ').nth(2), Some("T"), "{state}");
    assert!(process.is_running());
    let before = process.log().len();
    process.resume();
    eventually("more ticks", SOON, async || {
        if process.log().len() > before {
            Ok(())
        } else {
            Err("none")
        }
    })
    .await;
    process.kill();
    assert!(!process.is_running());
    process.start_again();
    assert!(process.is_running());
    ticks().await;
}
