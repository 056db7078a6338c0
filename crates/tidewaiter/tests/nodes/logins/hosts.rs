//! A host that takes no file: its disk is full, it has no inode left, or it is read-only. Who could log in still can, the report says
//! why a new user cannot, and when the trouble is over, nobody has to do anything.

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
    /// What the report says.
    error: &'static str,
}

const TROUBLES: [Trouble; 3] = [
    Trouble {
        name: "a full disk",
        begins: "dd if=/dev/zero of=/etc/containership/filler bs=1k 2>&1 | grep 'No space left'",
        ends: "rm /etc/containership/filler",
        error: "No space left on device",
    },
    Trouble {
        name: "no inode",
        begins: "touch /etc/containership/filler-$(seq -s ' /etc/containership/filler-' 40) 2>&1 | grep 'No space left'",
        ends: "rm /etc/containership/filler-*",
        error: "No space left on device",
    },
    Trouble {
        name: "a read-only file system",
        begins: "mount -o remount,ro /etc/containership",
        ends: "mount -o remount,rw /etc/containership",
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
        assert_eq!(node.run(["cat", AUTHORIZED_KEYS]).await, before, "{}", trouble.name);
        let said = node.logs_in(node, key, "true").await;
        assert!(said.is_ok(), "{}: {said:?}", trouble.name);

        node.run(["sh", "-ec", trouble.ends]).await;
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
