//! The systemd unit of the server and the file of its user, with what docs/cloud.md says of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tidewaiter_testkit::{Process, Program, Scratch};

use crate::world::SOON;

const UNIT: &str = "tidewaiter-cloud.service";
const USERS: &str = "tidewaiter-sysusers.conf";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn deployed(name: &str) -> String {
    fs::read_to_string(repository().join("deploy/cloud").join(name)).unwrap()
}

/// The settings of the unit, by section and name. None of it is there twice.
fn unit() -> BTreeMap<String, String> {
    let (mut section, mut settings) = (String::new(), BTreeMap::new());
    for line in deployed(UNIT)
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line}"));
        let before = settings.insert(format!("{section}.{name}"), value.to_owned());
        assert_eq!(before, None, "{line}");
    }
    settings
}

/// The block of docs/cloud.md that contains `text`.
pub fn block(text: &str) -> String {
    let page = fs::read_to_string(repository().join("docs/cloud.md")).unwrap();
    let found = page
        .split("\n```")
        .skip(1)
        .step_by(2)
        .find(|block| block.contains(text));
    found
        .unwrap_or_else(|| panic!("no {text}"))
        .split_once('\n')
        .unwrap()
        .1
        .to_owned()
}

/// Returns the settings of the unit's command, with the file of the documentation in place of its own.
async fn printed(scratch: &Scratch, command: &str) -> Value {
    let words: Vec<&str> = command.split(' ').collect();
    let [program, rest @ ..] = &*words else {
        panic!("{command}")
    };
    assert_eq!(*program, "/usr/local/bin/tidewaiter");
    let file = scratch.path().join("cloud.yaml");
    let text = block("publicUrl: https://cloud.example.com");
    assert!(text.contains("/etc/tidewaiter/cloud.yaml"), "{text}");
    fs::write(&file, text).unwrap();
    let rest: Vec<String> = rest
        .iter()
        .map(|word| word.replace("/etc/tidewaiter/cloud.yaml", &file.display().to_string()))
        .collect();
    let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
        .args(rest)
        .arg("--print-config");
    let process = Process::start(scratch, program);
    let status = process.exited(SOON).await;
    assert!(status.success(), "{}", process.log());
    serde_saphyr::from_str(&process.log()).unwrap()
}

#[tokio::test]
async fn the_unit_runs_the_server_as_its_user_in_its_folder() {
    let unit = unit();
    let scratch = Scratch::new("unit");
    let settings = printed(&scratch, &unit["Service.ExecStart"]).await;
    assert_eq!(settings["publicUrl"], "https://cloud.example.com/");
    let folder = format!("/var/lib/{}", unit["Service.StateDirectory"]);
    assert_eq!(settings["data"], folder.as_str());
    let users = deployed(USERS);
    let user = users.lines().find(|line| line.starts_with("u ")).unwrap();
    let words: Vec<&str> = user.split_whitespace().collect();
    assert_eq!(words[1], unit["Service.User"]);
    assert_eq!(words.last(), Some(&&*folder));
    // Each client of the change stream uses a connection.
    let files: u64 = unit["Service.LimitNOFILE"].parse().unwrap();
    assert!(files > 20_000, "{files}");
    let commands = block("systemctl enable --now tidewaiter-cloud");
    for part in [
        format!("deploy/cloud/{USERS} /etc/sysusers.d/"),
        format!("deploy/cloud/{UNIT} /etc/systemd/system/"),
        format!("-o {0} -g {0} {folder}\n", words[1]),
        format!("runuser -u {} ", words[1]),
    ] {
        assert!(commands.contains(&part), "{part} in {commands}");
    }
}

/// Returns true if this machine has a program of systemd. Where it has not, a program of a real node would be needed.
fn has(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|ran| ran.status.success())
}

#[test]
fn systemd_accepts_the_unit_and_the_file_of_its_user() {
    let scratch = Scratch::new("unit-verify");
    if has("systemd-analyze") {
        // It checks that the program exists.
        let text = deployed(UNIT).replace("/usr/local/bin/tidewaiter", env!("CARGO_BIN_EXE_tidewaiter"));
        let path = scratch.path().join(UNIT);
        fs::write(&path, text).unwrap();
        let ran = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        // Other units of the machine are none of ours.
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("tidewaiter-cloud")).collect();
        assert!(ours.is_empty(), "{said}");
        let security = ["security", "--offline=yes", "--threshold=50"];
        let ran = Command::new("systemd-analyze")
            .args(security)
            .arg(&path)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    }
    if has("systemd-sysusers") {
        let root = scratch.path().join("root");
        let folder = root.join("etc/sysusers.d");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("tidewaiter.conf"), deployed(USERS)).unwrap();
        let root = format!("--root={}", root.display());
        let ran = Command::new("systemd-sysusers").arg(root).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let users = fs::read_to_string(scratch.path().join("root/etc/passwd")).unwrap();
        assert!(users.contains(":/var/lib/tidewaiter:"), "{users}");
    }
}
