//! Reads a password from a file, the environment or a terminal. Other users of the machine can see arguments, so none
//! is read from there. The terminal does not echo, and its settings are restored afterwards, also after Ctrl-C.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use tidewaiter_kit::settings::environment;

use crate::text_file;

/// The environment variable of a password. What the password opens decides which one it is, so that no password is
/// tried on something else.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Variable {
    /// An account of the cloud.
    Account,
    /// The password that an account is to have from now on.
    NewPassword,
    /// A secret key that signs.
    SigningKey,
}

impl Variable {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Account => "TIDEWAITER_CLOUD_PASSWORD",
            Self::NewPassword => "TIDEWAITER_CLOUD_NEW_PASSWORD",
            Self::SigningKey => "TIDEWAITER_SIGNING_PASSWORD",
        }
    }
}

/// The maximum length of a line on a terminal.
const MAX_LINE_BYTES: usize = 4096;

/// Returns true if the variable has a password.
pub(crate) fn is_set(variable: Variable) -> bool {
    environment().iter().any(|(name, _)| name == variable.name())
}

/// Reads the password from `file`, else from the variable, else from the terminal after `prompt`; `twice` if nothing
/// else would reveal a typing error.
pub(crate) fn read(variable: Variable, file: Option<&Path>, prompt: &str, twice: bool) -> Result<String> {
    read_from("--password-file", file, variable, prompt, twice)
}

/// Reads the current password of somebody who sets another one.
pub(crate) fn current(file: Option<&Path>, prompt: &str) -> Result<String> {
    read_from("--old-password-file", file, Variable::Account, prompt, false)
}

fn read_from(flag: &str, file: Option<&Path>, variable: Variable, prompt: &str, twice: bool) -> Result<String> {
    let variable = variable.name();
    let password = if let Some(path) = file {
        from(flag, path)?
    } else if let Some((_, value)) = environment().into_iter().find(|(name, _)| name == variable) {
        value
    } else if io::stdin().is_terminal() {
        typed(prompt, twice)?
    } else {
        bail!("no password: use {flag} FILE, set {variable}, or run in a terminal");
    };
    if password.is_empty() {
        bail!("the password is empty");
    }
    Ok(password)
}

fn from(flag: &str, path: &Path) -> Result<String> {
    let text = text_file::read(path).with_context(|| format!("{flag} {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn typed(prompt: &str, twice: bool) -> Result<String> {
    let terminal = File::options().read(true).write(true).open("/dev/tty");
    let terminal = terminal.context("the terminal")?;
    let before = tcgetattr(&terminal).context("the terminal")?;
    let mut silent = before.clone();
    silent
        .local_modes
        .remove(LocalModes::ECHO | LocalModes::ECHONL | LocalModes::ISIG);
    // As a signal it would end the process before the terminal is restored: here it ends the line.
    let interrupt = before.special_codes[SpecialCodeIndex::VINTR];
    silent.special_codes[SpecialCodeIndex::VEOL] = interrupt;
    // Before the prompt: nothing is seen either of what is typed at once, or ahead.
    tcsetattr(&terminal, OptionalActions::Now, &silent).context("the terminal")?;
    let answer = ask(&terminal, prompt, twice, interrupt);
    tcsetattr(&terminal, OptionalActions::Now, &before).context("the terminal")?;
    answer?.ok_or_else(|| {
        // The parent process learns how this one ended, so that a loop in a shell ends too.
        let _ = kill_process(getpid(), Signal::INT);
        anyhow!("interrupted")
    })
}

/// The typed password; `None` after an interruption.
fn ask(mut terminal: &File, prompt: &str, twice: bool, interrupt: u8) -> Result<Option<String>> {
    let mut keys = BufReader::new(terminal);
    let mut line = |prompt: &str| {
        write!(terminal, "{prompt}: ")?;
        let line = line(&mut keys, interrupt);
        writeln!(terminal)?;
        line
    };
    let Some(password) = line(prompt).context("the password")? else {
        return Ok(None);
    };
    if twice && !password.is_empty() {
        match line("Once more").context("the password")? {
            None => return Ok(None),
            Some(again) if again != password => bail!("the two passwords differ"),
            Some(_) => {}
        }
    }
    String::from_utf8(password)
        .map(Some)
        .map_err(|_| anyhow!("the password is not valid UTF-8"))
}

/// A line without its end; None when it ends with the interruption.
fn line(keys: impl BufRead, interrupt: u8) -> io::Result<Option<Vec<u8>>> {
    // One allocation, so that nothing is left where the text grew.
    let mut line = Vec::with_capacity(MAX_LINE_BYTES);
    for byte in keys.bytes() {
        match byte? {
            b'\n' => return Ok(Some(line)),
            byte if byte == interrupt => return Ok(None),
            byte => line.push(byte),
        }
    }
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the input ended"))
}
