//! On a terminal: a view of what is missing while one waits, nothing of it afterwards, and colours.

use std::num::NonZero;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::world::{CLUSTER, SOON, World};

const ROWS: NonZero<u16> = NonZero::new(40).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(100).unwrap();

/// A terminal on which the command runs: what `script` of util-linux passes on, as a terminal would show it.
struct Terminal {
    script: Child,
    screen: vt100::Parser,
    raw: String,
}

impl Terminal {
    fn start(command: &Command) -> Self {
        Self::redirected(command, "")
    }

    /// With some of its output elsewhere, as a shell writes it.
    fn redirected(command: &Command, redirection: &str) -> Self {
        let command = command.as_std();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let quoted: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let line = format!(
            "stty rows {ROWS} cols {COLUMNS}; exec {} {redirection}",
            quoted.join(" ")
        );
        let mut script = Command::new("script");
        let variables = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
        script
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm-256color")
            .envs(variables);
        script.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        Self {
            script: script.spawn().expect("script of util-linux is there"),
            screen: vt100::Parser::new(ROWS, COLUMNS, 0),
            raw: String::new(),
        }
    }

    /// Shows what comes next; says whether anything came.
    async fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let out = self.script.stdout.as_mut().unwrap();
        let read = tokio::time::timeout(SOON, out.read(&mut bytes))
            .await
            .expect("something comes")
            .unwrap();
        self.screen.process(&bytes[..read]);
        self.raw += &String::from_utf8_lossy(&bytes[..read]);
        read > 0
    }

    async fn shows(&mut self, words: &[&str]) {
        let shows = async { while !words.iter().all(|word| self.shown().contains(word)) && self.read().await {} };
        let ended = tokio::time::timeout(SOON, shows).await;
        let missing: Vec<_> = words.iter().filter(|word| !self.shown().contains(*word)).collect();
        assert!(missing.is_empty(), "{missing:?} ({ended:?}) in:\n{}", self.shown());
    }

    fn shown(&self) -> String {
        self.screen.screen().contents()
    }

    async fn type_in(&mut self, text: &str) {
        self.script
            .stdin
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .await
            .unwrap();
    }

    async fn ended(&mut self) -> ExitStatus {
        while self.read().await {}
        self.script.wait().await.unwrap()
    }
}

#[tokio::test]
async fn what_is_missing_is_shown_with_its_age_and_ctrl_c_leaves_nothing_of_it() {
    let world = World::start().await;
    for number in 0..15 {
        world.pending_pod(&format!("dns-{number:02}")).await;
    }
    let mut terminal = Terminal::start(&world.command(&["--wait", "10m", "--interval", "1s"]));
    terminal
        .shows(&[
            "of 10m",
            &format!("{CLUSTER} is not ready"),
            "2s  system-cluster-critical pod \"dns-00\" is pending",
            "pod \"dns-11\" is pending",
            "and 3 more",
        ])
        .await;
    let view = terminal.shown();
    assert!(
        !view.contains("dns-12") && view.matches("is not ready").count() == 1,
        "drawn in its place:\n{view}"
    );
    terminal.type_in("\u{3}").await;
    assert_eq!(terminal.ended().await.code(), Some(130));
    let screen = terminal.screen.screen();
    assert!(!screen.hide_cursor(), "the cursor is there");
    let left = terminal.shown();
    assert!(!left.contains("of 10m") && !left.contains("more"), "{left}");
    let start = left.find("Validating cluster").expect("the verdict is there");
    assert!(
        left[..start].trim().is_empty() && left.contains("Validation Failed"),
        "{left}"
    );
}

#[tokio::test]
async fn with_the_verdict_in_a_file_ctrl_c_leaves_an_empty_terminal() {
    let world = World::start().await;
    world.pending_pod("dns").await;
    let command = world.command(&["--wait", "10m"]);
    let mut terminal = Terminal::redirected(&command, ">/dev/null");
    terminal.shows(&["of 10m", "pod \"dns\" is pending"]).await;
    terminal.type_in("\u{3}").await;
    assert_eq!(terminal.ended().await.code(), Some(130));
    assert!(terminal.raw.contains("^C"), "the terminal says what was typed");
    assert_eq!(terminal.shown(), "");
}

#[tokio::test]
async fn a_terminal_has_colours_unless_one_wants_none() {
    let world = World::start().await;
    world.pending_pod("dns").await;
    let mut colored = Terminal::start(&world.command(&[]));
    assert_eq!(colored.ended().await.code(), Some(2));
    assert!(
        colored.raw.contains("\u{1b}[31mValidation Failed\u{1b}[0m"),
        "{:?}",
        colored.raw
    );
    for (key, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut command = world.command(&[]);
        command.env(key, value);
        let mut plain = Terminal::start(&command);
        assert_eq!(plain.ended().await.code(), Some(2));
        assert!(plain.shown().contains("Validation Failed"));
        assert!(!plain.raw.contains("\u{1b}[3"), "{key}: {:?}", plain.raw);
    }
}
