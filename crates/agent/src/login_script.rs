//! The script that every login runs first, because each of our lines names it in `command=`.

/// Its mode.
pub(crate) const MODE: u32 = 0o755;

/// Records the login in the journal of the node, then runs what the user asked for. The only argument comes from `authorized_keys`; what
/// the user sends is in `SSH_ORIGINAL_COMMAND`, which sshd would have given to the same shell.
pub(crate) const SCRIPT: &str = r#"#!/bin/sh
# Written by the agent of Tidewaiter; changes are undone. Records each SSH login with the id of the user:
#   journalctl -t containership-login
command -v logger >/dev/null 2>&1 &&
    logger -t containership-login -p auth.info -- "user_id=$1 account=$(id -un) from=${SSH_CONNECTION%% *} $([ -n "$SSH_ORIGINAL_COMMAND" ] && echo command || echo session)"
CONTAINERSHIP_USER_ID=$1
export CONTAINERSHIP_USER_ID
shell=${SHELL:-/bin/sh}
if [ -n "$SSH_ORIGINAL_COMMAND" ]; then
    exec "$shell" -c "$SSH_ORIGINAL_COMMAND"
fi
exec "$shell" -l
"#;
