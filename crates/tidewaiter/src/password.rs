//! A password, from where nobody else sees it: a file, the environment or a prompt. Arguments can be seen by everybody on the
//! machine, so none is taken from there.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use tidewaiter_kit::settings::environment;

/// Where a password may stand.
const VARIABLE: &str = "TIDEWAITER_CLOUD_PASSWORD";

/// Reads the password: what `file` holds, else what the environment says, else what is typed after `prompt`, `twice` where
/// nothing would tell of a typing error.
pub(crate) fn read(file: Option<&Path>, prompt: &str, twice: bool) -> Result<String> {
    let password = if let Some(path) = file {
        let text = std::fs::read_to_string(path).with_context(|| format!("--password-file {}", path.display()))?;
        text.trim_end_matches(['\r', '\n']).to_owned()
    } else if let Some((_, value)) = environment().into_iter().find(|(name, _)| name == VARIABLE) {
        value
    } else if io::stdin().is_terminal() {
        let password = rpassword::prompt_password(format!("{prompt}: ")).context("the password")?;
        if twice && rpassword::prompt_password("Once more: ").context("the password")? != password {
            bail!("the two passwords are not the same");
        }
        password
    } else {
        bail!("no password: give it in a file (--password-file) or in {VARIABLE}, or use a terminal");
    };
    if password.is_empty() {
        bail!("the password is empty");
    }
    Ok(password)
}
