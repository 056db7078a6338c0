//! docs/takeover.md, command by command: a test names each command of a section in its order, and no other.

use std::collections::VecDeque;
use std::path::PathBuf;

use tidewaiter_testkit::{ControlPlane, Identity, assets};
use tokio::process::Command;

use crate::world::repository;

/// The commands of a section that were not run yet.
pub struct Section {
    title: String,
    commands: VecDeque<String>,
    placeholders: Vec<(&'static str, String)>,
    kubeconfig: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Section {
    /// The section with this title, for an administrator of this cluster and of the cloud in `environment`, who
    /// replaces the placeholders, one after the other.
    pub fn of<const N: usize>(
        title: &str,
        cluster: &ControlPlane,
        environment: Vec<(&'static str, String)>,
        placeholders: [(&'static str, String); N],
    ) -> Self {
        let page = std::fs::read_to_string(repository().join("docs/takeover.md")).unwrap();
        let mut sections = page.split("\n## ").filter_map(|section| section.split_once('\n'));
        let (_, text) = sections
            .find(|(found, _)| *found == title)
            .unwrap_or_else(|| panic!("docs/takeover.md has no section {title:?}"));
        Self {
            title: title.to_owned(),
            commands: commands(text),
            placeholders: placeholders.into(),
            kubeconfig: cluster.kubeconfig(&Identity::Admin),
            environment,
        }
    }

    /// Runs the next command of the page, which has to be this one, from the folder of the repository. Returns what it
    /// prints.
    pub async fn run(&mut self, command: &str) -> String {
        self.skip(command);
        let command = self
            .placeholders
            .iter()
            .fold(command.to_owned(), |command, (name, value)| {
                command.replace(name, value)
            });
        let folder = |program: PathBuf| program.parent().unwrap().display().to_string();
        let path = [
            folder(assets::binary("kubectl")),
            folder(env!("CARGO_BIN_EXE_tidewaiter").into()),
            "/usr/bin:/bin".to_owned(),
        ];
        let output = Command::new("sh")
            .args(["-ec", &command])
            .current_dir(repository())
            .env_clear()
            .env("PATH", path.join(":"))
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.kubeconfig.parent().unwrap())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The next command of the page has to be this one, and is not run.
    pub fn skip(&mut self, command: &str) {
        let next = self.commands.pop_front();
        assert_eq!(next.as_deref(), Some(command), "the next command of {:?}", self.title);
    }

    /// All of the section's commands were run.
    pub fn ends(self) {
        assert!(
            self.commands.is_empty(),
            "{:?} also has {:?}",
            self.title,
            self.commands
        );
    }
}

/// Each line of the blocks `console` is one command.
fn commands(text: &str) -> VecDeque<String> {
    let mut is_console = false;
    let mut found = VecDeque::new();
    for line in text.lines().map(str::trim) {
        match line.strip_prefix("```") {
            Some(language) => is_console = language == "console",
            None if is_console => {
                let command = line.strip_prefix("$ ");
                let command = command.unwrap_or_else(|| panic!("no command in a block `console`: {line}"));
                found.push_back(command.to_owned());
            }
            None => {}
        }
    }
    found
}
