//! `tidewaiter agent` as a process, with the token of a pod on its node, the chart's permissions and the admission
//! policy, on a real API server. The host is a folder.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "what others write to the files")]

mod explain;
mod foreign;
mod monitoring;
mod policy;
mod removal;
mod tampering;
mod world;

use std::time::Duration;

use kube::api::{Api, DeleteParams};
use tidewaiter_api::NodeReport;
use tidewaiter_testkit::{Identity, eventually, throughout};
use world::{Agent, KEYS, SOON, World, id};

#[tokio::test]
async fn users_come_and_go() {
    let world = World::start().await;
    let agent = world.agent(&[]).await;
    agent.has(&[]).await;
    world.user(1, &[KEYS[0]]).await;
    world.user(2, &[KEYS[1], "no key"]).await;
    agent.has(&[(1, 0), (2, 1)]).await;
    world.user(2, &[KEYS[1], KEYS[2]]).await;
    agent.has(&[(1, 0), (2, 1), (2, 2)]).await;
    world.remove(1).await;
    agent.has(&[(2, 1), (2, 2)]).await;
}

#[tokio::test]
async fn the_report_says_what_was_done_and_nothing_is_written_at_rest() {
    let world = World::start().await;
    world.user(1, &[KEYS[0], "no key"]).await;
    let agent = world.agent(&[]).await;
    let report = agent
        .report(|status| status.keys == 1 && status.refused_keys == 1)
        .await;
    let owner = &report.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("Node", agent.node.as_str())
    );
    let status = report.status.unwrap();
    assert_eq!(
        (status.users[0].id.as_str(), status.users[0].fingerprints.len()),
        (&*id(1), 1)
    );
    assert!(
        status.refused[0].reason.contains("the key must be"),
        "{:?}",
        status.refused
    );
    assert!(!status.host.kernel.is_empty() && !status.host.boot_id.is_empty());
    assert_eq!(status.conditions[0].reason, "Applied");

    // At rest nothing is written, neither to the cluster nor to the node.
    let mark = world.cluster.audit_mark().await;
    let inode = agent.inode();
    throughout("nothing is written", Duration::from_secs(10), async || {
        let writes = world
            .cluster
            .audit()
            .await
            .since(mark)
            .writes()
            .of("nodereports")
            .count();
        if writes == 0 { Ok(()) } else { Err(writes) }
    })
    .await;
    assert_eq!(agent.inode(), inode);

    // An agent that starts again writes no other times.
    agent.process.stop(SOON).await;
    agent.process.start_again();
    agent.report(|again| again.users == status.users).await;
}

#[tokio::test]
async fn a_report_that_somebody_deleted_is_written_again() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[]).await;
    agent.report(|status| status.keys == 1).await;
    let reports: Api<NodeReport> = Api::all(world.cluster.client(&Identity::Admin));
    reports.delete(&agent.node, &DeleteParams::default()).await.unwrap();
    // The next change writes it again.
    world.user(2, &[KEYS[1]]).await;
    agent.report(|status| status.keys == 2).await;
}

#[tokio::test]
async fn a_token_without_a_node_writes_no_report_and_keys_are_applied_all_the_same() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let kubeconfig = world.cluster.kubeconfig(&world::account());
    let agent = world.agent_with(kubeconfig, &[]).await;
    agent.has(&[(1, 0)]).await;
    eventually("the reason in the log", SOON, async || {
        let log = agent.process.log();
        if log.contains("names no node") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
}

/// Reboot: the files are there before the API server is.
#[tokio::test]
async fn without_the_api_server_the_last_good_state_stays() {
    let world = World::alone().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[]).await;
    agent.has(&[(1, 0)]).await;
    world.cluster.apiserver().kill();
    agent.tamper(|file| std::fs::remove_file(file).unwrap());
    agent.has(&[(1, 0)]).await;
    agent.process.kill();
    agent.process.start_again();
    agent.is_watching().await;
    agent.tamper(|file| std::fs::remove_file(file).unwrap());
    agent.has(&[(1, 0)]).await;
    world.cluster.recover().await;
    world.user(2, &[KEYS[1]]).await;
    agent.has(&[(1, 0), (2, 1)]).await;
}

#[tokio::test]
async fn a_stop_keeps_the_keys_or_clears_them() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    for (on_stop, left) in [("keep", &[(1, 0)][..]), ("clear", &[])] {
        let agent = world.agent(&[("TIDEWAITER_ON_STOP", on_stop)]).await;
        agent.has(&[(1, 0)]).await;
        let status = agent.process.stop(SOON).await;
        assert!(status.success(), "{}", agent.process.log_tail());
        assert_eq!(agent.content(), agent.expected(left), "{on_stop}");
    }
}

/// A replaced pod may overlap with the one that replaces it. Whichever sees a User later may undo the write of the
/// other once, and then they agree.
#[tokio::test]
async fn two_agents_on_one_node_agree() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let one = world.agent(&[]).await;
    one.has(&[(1, 0)]).await;
    let two = world.beside(&one).await;
    for number in 2..8 {
        world.user(number, &[KEYS[1]]).await;
    }
    two.is_watching().await;
    // A key of several users is the first one's.
    let expected = one.expected(&[(1, 0), (2, 1)]);
    eventually("both to agree for a while", SOON, async || {
        one.has(&[(1, 0), (2, 1)]).await;
        let inode = one.inode();
        for _ in 0..10 {
            throughout("nothing", Duration::from_millis(200), async || Ok::<_, String>(())).await;
            if one.inode() != inode || one.content() != expected {
                return Err(one.content());
            }
        }
        Ok(())
    })
    .await;
    throughout("the file to stay", Duration::from_secs(3), async || {
        let content = one.content();
        if content == expected { Ok(()) } else { Err(content) }
    })
    .await;
    // Anyone who is left goes on.
    assert!(one.process.stop(SOON).await.success());
    world.user(8, &[KEYS[2]]).await;
    two.has(&[(1, 0), (2, 1), (8, 2)]).await;
}

#[tokio::test]
async fn wrong_settings_are_refused() {
    for (variables, words) in [
        (&[][..], "nodeName is not set"),
        (
            &[("NODE_NAME", "n"), ("TIDEWAITER_FOLDER", "/does/not/tidewaiter")],
            "folder is \"/does/not/tidewaiter\": it must be a folder that the agent can open",
        ),
        (
            &[("NODE_NAME", "n"), ("TIDEWAITER_FOLDER", "/etc/ssh")],
            "folder is \"/etc/ssh\": must be a folder of the agent's own",
        ),
        (
            &[("NODE_NAME", "n"), ("TIDEWAITER_KEYS_EXPIRE_AFTER", "1h")],
            "keysExpireAfter is \"1h\": must be a duration with units (w, d, h, m, s or ms), from 12h to 365d",
        ),
        (
            &[("NODE_NAME", "n"), ("TIDEWAITER_FOREIGN_LINES", "drop")],
            "foreignLines",
        ),
        (
            &[
                ("NODE_NAME", "n"),
                ("TIDEWAITER_UPGRADES", "enabled"),
                ("TIDEWAITER_OWNER_UID", "2000000"),
            ],
            "upgrades is enabled, and ownerUid is 2000000: set ownerUid to 0, or upgrades to disabled",
        ),
        (
            &[
                ("NODE_NAME", "n"),
                ("TIDEWAITER_FOLDER", "/tmp/tidewaiter"),
                ("TIDEWAITER_PINNED_FOLDER", "/tmp/tidewaiter/pinned"),
            ],
            "pinnedFolder is \"/tmp/tidewaiter/pinned\", and folder is \"/tmp/tidewaiter\": each needs a folder of its own",
        ),
    ] {
        let world = World::start().await;
        let process = world.unready(world.cluster.kubeconfig(&world::account()), variables);
        let status = process.exited(SOON).await;
        assert_eq!(status.code(), Some(2), "{}", process.log_tail());
        assert!(process.log().contains(words), "{words}: {}", process.log_tail());
    }
}

/// A limit between what is promised and what waiting for the periodic look (a minute) would take.
const AT_ONCE: Duration = Duration::from_secs(40);

impl Agent {
    /// Waits until the file is as these users and keys say.
    async fn has(&self, users: &[(u32, usize)]) {
        let expected = self.expected(users);
        eventually(format!("the file of {users:?}"), AT_ONCE, async || {
            let content = self.content();
            if content == expected { Ok(()) } else { Err(content) }
        })
        .await;
    }
}
