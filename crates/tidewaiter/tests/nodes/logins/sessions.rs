//! The contract of the login script: each session, of whatever kind, runs it, is recorded with the id of the user, and
//! then does what the user asked for. It does not restrict what a user does: who logs in as root is root.

use tidewaiter_testkit::site::SOON;
use tidewaiter_testkit::{RealNode, eventually};

use super::{World, login_id};

/// Each line is printed as it is: nothing is left out, added or run by another shell before.
const AWKWARD: &str =
    "printf '%s' \"$SSH_ORIGINAL_COMMAND\"\n: '$(touch /tmp/escaped) `touch /tmp/escaped` \"; touch /tmp/escaped; \\'";

/// As ssh, sftp and scp take them.
const OPTIONS: &str = "-oBatchMode=yes -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null -oLogLevel=ERROR -i";

pub async fn each_is_recorded(world: &World, key: &str) {
    let (one, two) = (world.one(), world.two());
    let journal = journal(two).await;
    let line = format!("user_id={} account=root from={} command", login_id(0), one.address());
    assert!(journal.contains(&line), "{journal}");

    let own = "echo $CONTAINERSHIP_USER_ID";
    let environment = "-oSetEnv=CONTAINERSHIP_USER_ID=intruder BASH_ENV=/dev/stdin SHELL=/bin/false";
    for (options, words, expected) in [
        (&[][..], &["--", AWKWARD][..], AWKWARD),
        (&[environment], &["--", own], &login_id(0)),
        (&["-tt"], &["--", own], &login_id(0)),
        (&[], &["--", "exit 7"], "exit status: 7"),
        // A session without a command: its input is at its end.
        (&["-T"], &[], ""),
    ] {
        let before = recorded(two).await;
        let said = one.ssh(two, key, options, words).await;
        match &said {
            Ok(said) => assert_eq!(said.trim_end(), expected, "{options:?} {words:?}"),
            Err(said) => assert!(
                said.contains(expected) && !expected.is_empty(),
                "{options:?} {words:?}: {said}"
            ),
        }
        is_recorded(two, words, before).await;
    }
    let escaped = two.try_run(["test", "-e", "/tmp/escaped"]).await;
    assert!(escaped.is_err(), "a part of the command was run before it");
    copies_are_recorded(world, key).await;
    forwarding_without_a_session_is_not_recorded(world, key).await;
}

/// sftp, scp by way of it, scp by itself, and a session with the agent of the user.
async fn copies_are_recorded(world: &World, key: &str) {
    let (one, two) = (world.one(), world.two());
    for command in [
        "echo 'get /etc/hostname /tmp/copy' | sftp $1 $2 -b - root@$3 && cat /tmp/copy",
        "scp $1 $2 root@$3:/etc/hostname /tmp/copy && cat /tmp/copy",
        "scp -O $1 $2 root@$3:/etc/hostname /tmp/copy && cat /tmp/copy",
        "ssh-agent ssh -A $1 $2 root@$3 'test -S $SSH_AUTH_SOCK && cat /etc/hostname'",
    ] {
        let before = recorded(two).await;
        let host = two.address().to_string();
        let said = one.run(["sh", "-ec", command, "sh", OPTIONS, key, &host]).await;
        assert!(said.contains(two.name()), "{command}: {said}");
        is_recorded(two, &[command], before).await;
    }
}

/// docs/agent.md says so: sshd runs the script for sessions only. Its own log has the login, with the fingerprint of
/// the key.
async fn forwarding_without_a_session_is_not_recorded(world: &World, key: &str) {
    let (one, two) = (world.one(), world.two());
    let before = recorded(two).await;
    let said = one.ssh(two, key, &["-W", "127.0.0.1:22"], &[]).await.unwrap();
    assert!(said.starts_with("SSH-2.0-"), "{said}");
    let fingerprint = one.run(["ssh-keygen", "-lf", key]).await;
    let fingerprint = fingerprint.split(' ').nth(1).unwrap();
    eventually("sshd to have logged it", SOON, async || {
        let log = two.run(["journalctl", "-u", "ssh", "--no-pager", "-q"]).await;
        let last = log
            .lines()
            .rfind(|line| line.contains("Accepted publickey for root"))
            .unwrap_or_default();
        if last.ends_with(fingerprint) { Ok(()) } else { Err(log) }
    })
    .await;
    assert_eq!(recorded(two).await, before);
}

async fn is_recorded(node: &RealNode, what: &[&str], before: usize) {
    eventually(format!("{what:?} to be recorded"), SOON, async || {
        match recorded(node).await {
            now if now == before + 1 => Ok(()),
            now => Err(format!("{now} records, {before} before")),
        }
    })
    .await;
}

async fn recorded(node: &RealNode) -> usize {
    let journal = journal(node).await;
    journal.matches(&format!("user_id={} ", login_id(0))).count()
}

/// The command of docs/agent.md.
async fn journal(node: &RealNode) -> String {
    node.run(["journalctl", "-t", "containership-login", "--no-pager", "-q"])
        .await
}
