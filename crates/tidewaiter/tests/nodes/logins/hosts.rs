//! A host that takes no file: its disk is full, it has no inode left, or it is read-only. Who could log in still can,
//! the report says why a new user cannot, and when the trouble is over, nobody has to do anything; but an agent that
//! has started on a read-only file system must be started again.

use tidewaiter_api::node_report::{APPLIED, NodeReportStatus};
use tidewaiter_testkit::{AUTHORIZED_KEYS, RealNode};

use super::World;

/// Before the agent starts: its folder is on a file system of its own, of one MiB and 32 inodes.
const SMALL: &str = "
image=/var/lib/containership.img
truncate --size=1M $image
mkfs.ext4 -q -m 0 -N 32 -O ^has_journal $image
mkdir /etc/containership
mount -o loop $image /etc/containership
rmdir /etc/containership/lost+found
";

struct Trouble {
    name: &'static str,
    begins: &'static str,
    ends: &'static str,
    /// The mount of an agent that starts meanwhile stays as it is.
    is_mounted_so: bool,
    /// The error in the report.
    error: &'static str,
}

/// An agent has a copy of its file, which it gives up when it cannot write: then there is room for one more file. So a
/// unit goes on to take what becomes free, and another agent begins without a copy.
const TROUBLES: [Trouble; 3] = [
    Trouble {
        name: "a full disk",
        begins: "systemd-run --quiet --collect --unit=fill sh -c \
            'while :; do dd if=/dev/zero bs=1k >>/etc/containership/filler 2>/dev/null; sleep 0.02; done'; \
            until ! echo x 2>/dev/null >/etc/containership/filler-probe; do sleep 0.02; done",
        ends: "systemctl stop fill; rm /etc/containership/filler*",
        is_mounted_so: false,
        error: "No space left on device",
    },
    Trouble {
        name: "no inode",
        begins: "systemd-run --quiet --collect --unit=fill sh -c \
            'while :; do n=$$((n + 1)); touch /etc/containership/filler-$$n 2>/dev/null || sleep 0.02; done'; \
            until ! touch /etc/containership/filler-probe 2>/dev/null; do rm -f /etc/containership/filler-probe; done",
        ends: "systemctl stop fill; rm /etc/containership/filler-*",
        is_mounted_so: false,
        error: "No space left on device",
    },
    Trouble {
        name: "a read-only file system",
        // While an agent has its copy, the file system is in use.
        begins: "systemd-run --quiet --collect --unit=remount sh -c \
            'until mount -o remount,ro /etc/containership; do sleep 0.01; done'",
        ends: "mount -o remount,rw /etc/containership",
        is_mounted_so: true,
        error: "Read-only file system",
    },
];

pub async fn small_file_system(node: &RealNode) {
    node.run(["sh", "-ec", SMALL]).await;
}

pub async fn trouble_passes(world: &World, key: &str) {
    let node = world.one();
    for (number, trouble) in (10..).zip(&TROUBLES) {
        let before = node.run(["cat", AUTHORIZED_KEYS]).await;
        node.run(["sh", "-ec", trouble.begins]).await;
        world.another_agent(node).await;
        let path = format!("/root/key-{number}");
        let added = node.make_key(&path, "ed25519", "256").await;
        world.user(number, &added).await;
        // The other node shows how long it takes.
        world.logs_in(world.two(), &path, number).await;
        let says = |status: &NodeReportStatus| {
            let mut conditions = status.conditions.iter();
            let applied = conditions.find(|condition| condition.type_ == APPLIED);
            applied.is_some_and(|it| it.reason == "NotWritten" && it.message.contains(trouble.error))
        };
        world.reports(node, trouble.name, says).await;
        let now = node.run(["cat", AUTHORIZED_KEYS]).await;
        if trouble.is_mounted_so {
            assert_eq!(now, before, "{}", trouble.name);
        } else {
            // If the blocks of the file are enough, it is overwritten in place.
            let is_whole = before.lines().all(|line| now.lines().any(|it| it == line));
            assert!(is_whole, "{}: {now}", trouble.name);
        }
        let said = node.logs_in(node, key, "true").await;
        assert!(said.is_ok(), "{}: {said:?}", trouble.name);

        node.run(["sh", "-ec", trouble.ends]).await;
        if trouble.is_mounted_so {
            world.another_agent(node).await;
        }
        world.logs_in(node, &path, number).await;
        let is_well = |status: &NodeReportStatus| {
            status
                .conditions
                .iter()
                .any(|it| it.type_ == APPLIED && it.reason == "Applied")
        };
        world.reports(node, "that all is well", is_well).await;
        let left = node.run(["find", "/etc/containership", "-name", ".*tidewaiter*"]).await;
        assert_eq!(left, "", "{}", trouble.name);
    }
}
