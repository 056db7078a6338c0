//! Commands of this machine.

use tokio::process::Command;

/// Returns the output of a command.
///
/// # Panics
/// When it fails, with what it says.
pub async fn printed(command: &mut Command) -> String {
    tried(command).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the output of a command.
///
/// # Errors
/// The failure, with the output of the command.
pub async fn tried(command: &mut Command) -> Result<String, String> {
    let output = command.kill_on_drop(true).output().await;
    let output = output.map_err(|error| format!("{:?}: {error}", command.as_std()))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{:?}: {}\n{printed}{errors}", command.as_std(), output.status))
}
