//! The script that every login runs first, because each of our lines names it in `command=`.

pub(crate) const MODE: u32 = 0o755;

/// The file beside it with the last use of a break-glass key: the time and the fingerprint.
pub(crate) const BREAK_GLASS_USE: &str = "break-glass-use";

/// Records the login in the journal of the node, then runs the command of the user. The only argument comes from
/// `authorized_keys`; what the user sends is in `SSH_ORIGINAL_COMMAND`, which sshd would have given to the same shell.
/// A session with a break-glass key waits neither for the journal nor for the disk: both may be what it is to repair.
pub(crate) const SCRIPT: &str = r#"#!/bin/sh
# Written by the agent of Tidewaiter; changes are undone. Records each SSH login with the id of the user:
#   journalctl -t containership-login
record() {
    command -v logger >/dev/null 2>&1 &&
        logger -t containership-login -p auth.info -- "user_id=$1 account=$(id -un) from=${SSH_CONNECTION%% *} $([ -n "$SSH_ORIGINAL_COMMAND" ] && echo command || echo session)"
}
case $1 in
break-glass:*)
    {
        echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) ${1#break-glass:}" >"${0%/*}/break-glass-use"
        record "$1"
    } </dev/null >/dev/null 2>&1 &
    ;;
*) record "$1" ;;
esac
CONTAINERSHIP_USER_ID=$1
export CONTAINERSHIP_USER_ID
shell=${SHELL:-/bin/sh}
if [ -n "$SSH_ORIGINAL_COMMAND" ]; then
    exec "$shell" -c "$SSH_ORIGINAL_COMMAND"
fi
exec "$shell" -l
"#;
