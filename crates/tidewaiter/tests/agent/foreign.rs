//! Lines of others in `authorized_keys`: the grace of a first start, and break-glass keys, by the commands of
//! docs/agent.md.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use tidewaiter_api::node_report::FOREIGN_LINES;
use tidewaiter_testkit::eventually;

use crate::world::{Agent, KEYS, SOON, World};

const FOREIGN: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4hoRzVPA3U8qoef7QtvY6RmkwgDL47zndwzs8V+7J7";
const PRINT: &str = "SHA256:ejSqEeYysqjpey3wN8VSaYQ7Znv7eJ/dD62E39TtUeY";

fn host(agent: &Agent, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
    command.args(["host", "break-glass"]).args(arguments);
    let output = command.arg("--pinned").arg(agent.pinned()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_marked_line_is_reported_with_the_command_that_pins_it() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let line = format!("{FOREIGN} admin@vault # break-glass\n");
    let agent = world.agent_on(&line, &[]).await;
    let report = agent.report(|status| status.foreign_lines == 1).await;
    let condition = report.condition(FOREIGN_LINES).unwrap().clone();
    let status = report.status.unwrap();
    assert_eq!(condition.reason, "Grace");
    assert!(status.foreign_lines_until.is_some() && status.foreign_keys[0].fingerprint == PRINT);
    assert!(
        agent
            .metric(&format!("tidewaiter_agent_foreign_key{{fingerprint=\"{PRINT}\"}}"))
            .await
            > 0.0
    );
    assert!(
        agent
            .metric("tidewaiter_agent_foreign_lines_removal_timestamp_seconds")
            .await
            > 0.0
    );
    let (_, command) = condition.message.split_once("tidewaiter host break-glass ").unwrap();
    let folder = agent.folder.to_str().unwrap();
    let arguments: Vec<&str> = command.split(' ').chain(["--folder", folder]).collect();
    let said = host(&agent, &arguments);
    assert!(said.starts_with(&format!("pinned {PRINT}")), "{said}");
    agent
        .report(|status| status.foreign_lines == 0 && status.break_glass_keys == [PRINT])
        .await;
    let content = agent.content();
    assert!(
        content.contains(&format!("break-glass:{PRINT}\" {FOREIGN}\n")),
        "{content}"
    );
    // It logs in: the line runs the script, and the agent tells.
    let script = agent.folder.join("scripts/containership_login.sh");
    let login = Command::new(script)
        .arg(format!("break-glass:{PRINT}"))
        .env("SSH_ORIGINAL_COMMAND", "echo $CONTAINERSHIP_USER_ID")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(login.stdout).unwrap(),
        format!("break-glass:{PRINT}\n")
    );
    agent
        .report(|status| {
            status
                .break_glass_use
                .as_ref()
                .is_some_and(|used| used.fingerprint == PRINT)
        })
        .await;
    world.event(&agent.node, "BreakGlassUsed").await;
    // A restart changes nothing, and a line that is taken away comes back.
    agent.process.stop(SOON).await;
    fs::write(agent.file(), "").unwrap();
    agent.process.start_again();
    eventually("the pinned key to be back", SOON, async || {
        let found = agent.content();
        if found == content { Ok(()) } else { Err(found) }
    })
    .await;
    let said = host(&agent, &["list"]);
    assert!(said.starts_with(&format!("{PRINT} {FOREIGN}")), "{said}");
    let said = host(&agent, &["remove", PRINT]);
    assert!(said.contains("the agent removes its line"), "{said}");
    agent.has(&[(1, 0)]).await;
}

/// A command that root has pinned would look like that of an intruder.
#[test]
fn only_root_runs_the_commands_of_a_host() {
    // An open file can be run by those who may not enter its folder.
    let program = fs::File::open(env!("CARGO_BIN_EXE_tidewaiter")).unwrap();
    let program = format!("/proc/self/fd/{}", program.as_raw_fd());
    for arguments in [
        &["keys", "list"][..],
        &["break-glass", "remove", PRINT],
        &["run"],
        &["uninstall"],
    ] {
        let mut command = Command::new(&program);
        let output = command.arg("host").args(arguments).uid(65_534).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(2) && said.contains("run it as root"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn foreign_lines_go_after_the_grace_which_no_restart_extends() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let line = format!("{FOREIGN} colleague\n");
    let none = world.agent_on(&line, &[("TIDEWAITER_FOREIGN_LINES_GRACE", "0s")]).await;
    none.has(&[(1, 0)]).await;
    let agent = world.agent_on(&line, &[]).await;
    let until = async || {
        eventually("the end of the grace", SOON, async || {
            let series = "tidewaiter_agent_foreign_lines_removal_timestamp_seconds";
            match agent.metric(series).await {
                end if end > 0.0 => Ok(end.to_string()),
                _ => Err("none"),
            }
        })
        .await
    };
    let first = until().await;
    agent.process.kill();
    // Its owner can write the file, and nothing that decides on it.
    fs::write(agent.file(), format!("{line}{} later\n", KEYS[1])).unwrap();
    agent.process.start_again();
    eventually(
        "the line that came later to go, and the other to stay",
        SOON,
        async || {
            let found = agent.content();
            let expected = format!("{}{line}", agent.expected(&[(1, 0)]));
            if found == expected { Ok(()) } else { Err(found) }
        },
    )
    .await;
    assert_eq!(until().await, first);
}

/// `cat new >authorized_keys` empties the file before it writes: the agent may replace it in between.
#[tokio::test]
async fn no_line_of_an_editor_is_lost_where_lines_of_others_stay() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[("TIDEWAITER_FOREIGN_LINES", "keep")]).await;
    agent.has(&[(1, 0)]).await;
    for number in 0..20 {
        let lines = format!("{} first-{number}\n{} second-{number}\n", KEYS[1], KEYS[2]);
        let new = agent.folder.join("new");
        fs::write(&new, &lines).unwrap();
        let edit = "{ sleep 0.00$2; cat \"$1\"; } >\"$0\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", edit])
            .arg(agent.file())
            .arg(new)
            .arg((number % 10).to_string());
        assert!(command.status().unwrap().success());
        let expected = format!("{}{lines}", agent.expected(&[(1, 0)]));
        eventually(format!("the lines of edit {number}"), SOON, async || {
            let found = agent.content();
            if found == expected { Ok(()) } else { Err(found) }
        })
        .await;
    }
}
