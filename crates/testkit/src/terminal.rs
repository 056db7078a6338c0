//! A terminal on which a command runs: what `script` of util-linux passes on, as a terminal would show it.
//!
//! With the terminal the command ends, as when a person closes the window. A [`Scratch`]'s watchdog sees to it that the
//! terminal ends with this process.

use std::num::NonZero;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use crate::Scratch;

const ROWS: NonZero<u16> = NonZero::new(40).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(100).unwrap();

/// Longer than anything takes, on a machine that does ten things at once.
const SOON: Duration = Duration::from_mins(3);

/// A terminal with a person before it.
pub struct Terminal {
    script: Child,
    group: u32,
    scratch: Scratch,
    screen: vt100::Parser,
    raw: String,
}

impl Terminal {
    /// The text that [`of_a_shell`](Self::of_a_shell) shows at the end, if that is so.
    pub const AS_IT_WAS: &str = "the terminal is as it was";

    /// The command alone.
    #[must_use]
    pub fn start(command: &Command) -> Self {
        Self::redirected(command, "")
    }

    /// With some of its output elsewhere, as a shell writes it.
    #[must_use]
    pub fn redirected(command: &Command, redirection: &str) -> Self {
        Self::script(command, |words| format!("exec {words} {redirection}"))
    }

    /// From a shell that says afterwards how it ended (`ended with CODE`), and whether [it left the terminal as it
    /// was](Self::AS_IT_WAS).
    #[must_use]
    pub fn of_a_shell(command: &Command) -> Self {
        Self::script(command, |words| {
            let same = format!("[ \"$was\" = \"$(stty -g)\" ] && echo {}", Self::AS_IT_WAS);
            // Ctrl-C is for the command: it starts with what a signal does usually.
            format!("trap : INT; was=$(stty -g); {words}; echo \"ended with $?\"; {same}")
        })
    }

    fn script(command: &Command, line: impl FnOnce(&str) -> String) -> Self {
        let command = command.as_std();
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let quoted: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let line = format!(
            "stty sane iutf8 rows {ROWS} cols {COLUMNS}; {}",
            line(&quoted.join(" "))
        );
        // The parent of the tests may ignore these signals (nohup, a shell in the background), and a command inherits
        // that.
        let mut script = Command::new("env");
        script.args(["--default-signal=HUP,INT,QUIT", "script"]);
        let variables = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
        script
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm-256color")
            .envs(variables);
        script.args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"]);
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let scratch = Scratch::new("terminal");
        let script = script.process_group(0).spawn().expect("script of util-linux is there");
        let group = script.id().expect("nobody has waited for it");
        scratch.watch(group);
        Self {
            script,
            group,
            scratch,
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

    /// Waits until it shows all of these.
    pub async fn shows(&mut self, words: &[&str]) {
        let shows = async { while !words.iter().all(|word| self.shown().contains(word)) && self.read().await {} };
        let ended = tokio::time::timeout(SOON, shows).await;
        let missing: Vec<_> = words.iter().filter(|word| !self.shown().contains(*word)).collect();
        assert!(missing.is_empty(), "{missing:?} ({ended:?}) in:\n{}", self.shown());
    }

    /// Waits until what it shows is so; `what` completes the sentence "it did not become …".
    pub async fn becomes(&mut self, what: &str, is_so: impl Fn(&str) -> bool) {
        let becomes = async { while !is_so(&self.shown()) && self.read().await {} };
        let ended = tokio::time::timeout(SOON, becomes).await;
        let shown = self.shown();
        assert!(is_so(&shown), "it did not become {what} ({ended:?}):\n{shown}");
    }

    /// Returns the text on the screen.
    #[must_use]
    pub fn shown(&self) -> String {
        self.screen.screen().contents()
    }

    /// Everything that it was ever sent.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Returns true if it shows no cursor.
    #[must_use]
    pub fn hides_cursor(&self) -> bool {
        self.screen.screen().hide_cursor()
    }

    /// Presses these keys.
    pub async fn type_in(&mut self, text: &str) {
        let keys = self.script.stdin.as_mut().unwrap();
        keys.write_all(text.as_bytes()).await.unwrap();
    }

    /// Waits for the end.
    pub async fn ended(&mut self) -> ExitStatus {
        while self.read().await {}
        let status = self.script.wait().await.unwrap();
        self.scratch.forget(self.group);
        status
    }
}
