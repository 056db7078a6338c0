//! The pages that the program itself prints.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Returns the page about all commands.
pub fn page(root: &Path) -> Result<String> {
    printed(root, ["manual"])
}

/// Returns what `tidewaiter` of the same build prints in the repository. No variable of the environment has an effect.
pub fn printed<'a>(root: &Path, args: impl IntoIterator<Item = &'a str>) -> Result<String> {
    let this = env::current_exe().context("the path of xtask")?;
    let mut program = Command::new(this.with_file_name("tidewaiter"));
    program.args(args).current_dir(root).env_clear();
    let output = program.output();
    let output = output.with_context(|| format!("{program:?}: run `cargo build --workspace --bins` first"))?;
    // It also warns about settings without effect.
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program:?} failed: {errors}");
    String::from_utf8(output.stdout).context("the output is text")
}
