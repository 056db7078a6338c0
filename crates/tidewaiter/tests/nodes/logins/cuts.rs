//! A node that is cut from the network, and one that loses its power while keys change: who could log in still can, and
//! the file is the old one or the new one.

use tidewaiter_testkit::site::SOON;
use tidewaiter_testkit::{AUTHORIZED_KEYS, eventually};

use super::{World, login_id};

/// The user who comes while the network is cut, and the one whose key changes all the time.
const LATE: usize = 40;
const CHANGING: usize = 41;

/// The number of changes of the keys before each power cut: never at the same time of a write. Removals that an agent
/// finds when it starts would wait for the mirror, so keys are added. One more comes after each cut.
const ROUNDS: [usize; 3] = [3, 4, 5];

/// A node without a network: its users log in, changes of others are undone, and afterwards it gets what it missed.
pub async fn the_network_is_cut(world: &World, key: &str) {
    let (one, two) = (world.one(), world.two());
    // Of its own, for who logs in on the node itself.
    let private = one.run(["cat", key]).await;
    let put = "umask 077; printf '%s' \"$1\" >/root/own";
    two.run(["sh", "-c", put, "sh", &private]).await;
    let right = two.run(["cat", AUTHORIZED_KEYS]).await;
    two.cut_network().await;
    let lost = one.ssh(two, key, &["-oConnectTimeout=1"], &["true"]).await;
    assert!(lost.is_err(), "the network is cut: {lost:?}");
    let said = two.logs_in(two, "/root/own", "echo $CONTAINERSHIP_USER_ID").await;
    assert_eq!(said.as_deref().map(str::trim), Ok(login_id(0).as_str()));

    two.run([
        "sh",
        "-c",
        "echo 'ssh-ed25519 AAAA intruder' >>\"$0\"; chmod 666 \"$0\"",
        AUTHORIZED_KEYS,
    ])
    .await;
    let whole = async |expected: &str| {
        eventually("the file to be as it was", SOON, async || {
            let look = "cat \"$0\"; stat -c %a \"$0\"";
            let found = two.run(["sh", "-c", look, AUTHORIZED_KEYS]).await;
            if found == format!("{expected}600\n") {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    };
    whole(&right).await;
    two.run([
        "sh",
        "-c",
        "sed -i -e 's/command=[^ ]* [^ ]* //' \"$0\"",
        AUTHORIZED_KEYS,
    ])
    .await;
    whole(&right).await;

    let path = format!("/root/key-{LATE}");
    let added = one.make_key(&path, "ed25519", "256").await;
    world.user(LATE, &added).await;
    // The other node shows how long it takes.
    world.logs_in(one, &path, LATE).await;
    assert_eq!(two.run(["cat", AUTHORIZED_KEYS]).await, right);
    two.heal_network().await;
    world.logs_in(two, &path, LATE).await;
}

/// The power fails while keys are added, many times in a second: then the file is as it was after one of the changes,
/// and nothing is left beside it.
pub async fn the_power_is_cut(world: &World) {
    let two = world.two();
    let mut keys = Vec::new();
    for number in 0..=ROUNDS.iter().map(|changes| changes + 1).sum() {
        let path = format!("/root/changing-{number}");
        keys.push(world.one().make_key(&path, "ed25519", "256").await);
    }
    let data = |key: &str| key.split(' ').nth(1).unwrap().to_owned();
    // The number of keys that the file has: the first ones, each in a line of its own, and the lines of others.
    let count = async || {
        let found = two.run(["cat", AUTHORIZED_KEYS]).await;
        let has = |key: &String| found.contains(&data(key));
        let number = keys.iter().take_while(|key| has(key)).count();
        assert!(!keys[number..].iter().any(has), "{found}");
        let lines = found.lines().filter(|line| line.starts_with("command=")).count();
        assert!(found.ends_with("# END tidewaiter\n"), "{found}");
        (number, lines - number)
    };
    let arrives = async |number: usize| {
        eventually("the agent to write the last state", SOON, async || {
            match count().await {
                (found, _) if found == number => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    };
    let mut added = 1;
    world.user_with(CHANGING, &keys[..added]).await;
    arrives(added).await;
    let (_, others) = count().await;
    for changes in ROUNDS {
        let before = added;
        for _ in 0..changes {
            added += 1;
            world.user_with(CHANGING, &keys[..added]).await;
        }
        two.power_cut().await;
        two.power_on().await;
        let (found, rest) = count().await;
        assert!(
            (before..=added).contains(&found) && rest == others,
            "{found} keys and {rest} of others"
        );
        // The file may have been complete before the cut. With this key, the agent that starts is known to have applied
        // the Users.
        added += 1;
        world.user_with(CHANGING, &keys[..added]).await;
        arrives(added).await;
        eventually("nothing to be left behind", SOON, async || {
            let left = two.run(["find", "/etc/containership", "-name", ".*tidewaiter*"]).await;
            if left.is_empty() { Ok(()) } else { Err(left) }
        })
        .await;
    }
}
