//! Lines that are not the agent's: a user's own key, and a break-glass key, which root has to pin on the host.

use tidewaiter_testkit::site::SOON;
use tidewaiter_testkit::{AUTHORIZED_KEYS, RealNode, eventually};

use super::World;

const PINNED: &str = "/etc/tidewaiter/pinned/break-glass";

/// Before the agent's lines and behind them, as an operator marked them formerly.
const AROUND: &str = "{ echo \"$1\"; cat \"$0\"; echo \"$1 x # break-glass\"; } >/root/next; cat /root/next >\"$0\"";

async fn whole(node: &RealNode, expected: &str) {
    eventually("the file to be as the agent writes it", SOON, async || {
        let found = node.run(["cat", AUTHORIZED_KEYS]).await;
        if found == expected { Ok(()) } else { Err(found) }
    })
    .await;
}

pub async fn get_in_by_a_pinned_key_alone(world: &World, user: &str) {
    let (one, two) = (world.one(), world.two());
    let right = two.run(["cat", AUTHORIZED_KEYS]).await;
    let glass = "/root/break-glass";
    let key = one.make_key(glass, "ed25519", "256").await;
    let own = one.run(["cat", &format!("{user}.pub")]).await;
    for key in [own.trim(), key.trim()] {
        two.run(["sh", "-c", AROUND, AUTHORIZED_KEYS, key]).await;
        whole(two, &right).await;
    }
    world.is_refused(glass).await;
    world.logs_in(two, user, 0).await;

    // The agent's container sees the file, and cannot write it.
    two.run(["sh", "-c", "echo \"$1\" >\"$0\"", PINNED, key.trim()]).await;
    let fingerprint = one.run(["ssh-keygen", "-lf", glass]).await;
    let fingerprint = fingerprint.split(' ').nth(1).unwrap();
    eventually("a login with the pinned key", SOON, async || {
        let said = one.logs_in(two, glass, "echo $CONTAINERSHIP_USER_ID").await?;
        if said.trim() == format!("break-glass:{fingerprint}") {
            Ok(())
        } else {
            Err(said)
        }
    })
    .await;
    world
        .reports(two, "the login", |status| {
            let last = status.break_glass_use.as_ref();
            last.is_some_and(|last| last.fingerprint == fingerprint) && status.break_glass_keys == [fingerprint]
        })
        .await;
    two.run(["rm", PINNED]).await;
    whole(two, &right).await;
    world.is_refused(glass).await;
}
