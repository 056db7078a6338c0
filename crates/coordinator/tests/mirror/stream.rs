//! Changes arrive in each state of the change stream, and requests stay bounded.

use std::time::{Duration, Instant};

use crate::script::{INTERVAL, Script, Stream, user};
use crate::world::World;

/// The time for which each stream is observed.
const OBSERVED: Duration = Duration::from_secs(6);

#[tokio::test]
async fn changes_arrive_whatever_becomes_of_the_stream() {
    for stream in [
        Stream::Absent,
        Stream::Silent,
        Stream::CutEach(Duration::from_secs(1)),
        Stream::Resets,
        Stream::Repeats,
        Stream::Nothing,
        Stream::Hangs,
        Stream::Fails,
    ] {
        let start = now();
        let cloud = Script::start(true).await;
        cloud.streams(stream);
        let world = World::with(cloud).await;
        let _running = world.coordinator().await;
        world.condition("Synced", "True Applied").await;
        let before = world.cloud.requests("/ssh-users");
        let begin = now();
        for name in ["Ada", "Grace", "Edsger"] {
            world.cloud.list("/ssh-users", [user(1, name)]);
            world.cloud.changed(&["users"]);
            if [Stream::Silent, Stream::Nothing, Stream::Hangs].contains(&stream) {
                // Nothing is announced: the poll finds it, which comes after four intervals.
                world.polled("/ssh-users", 1).await;
            }
            world.users_are(&[name]).await;
        }
        tokio::time::timeout_at((begin + OBSERVED).into(), std::future::pending::<()>())
            .await
            .unwrap_err();
        let requests = world.cloud.requests("/ssh-users") - before;
        // A list each half second at most, plus one.
        let most = begin.elapsed().as_millis() / 500 + 2;
        assert!(
            requests as u128 <= most,
            "{stream:?}: {requests} requests in {:?}, most {most}",
            begin.elapsed()
        );
        let streams = world.cloud.requests("/events") as u64;
        let most = match stream {
            Stream::Absent => 1,
            // A second and a half after each on the average, and one when the cloud responds to a list.
            _ => start.elapsed().as_secs() + 3,
        };
        assert!(streams <= most, "{stream:?}: {streams} streams, most {most}");
        assert!(begin.elapsed() < 60 * INTERVAL, "{stream:?}: {:?}", begin.elapsed());
    }
}

/// With several replicas of the cloud, the stream of one may be ahead of the list of another.
#[tokio::test]
async fn a_change_that_is_in_the_list_only_after_its_announcement_arrives_soon() {
    let cloud = Script::start(true).await;
    cloud.list("/ssh-users", [user(1, "Ada")]);
    let mut world = World::with(cloud).await;
    // The next poll is beyond the patience of the test.
    world.interval = Duration::from_mins(1);
    let _running = world.coordinator().await;
    world.users_are(&["Ada"]).await;
    world.condition("Synced", "True Applied").await;
    world.cloud.changed(&["users"]);
    world.polled("/ssh-users", 1).await;
    world.cloud.list("/ssh-users", [user(1, "Grace")]);
    world.users_are(&["Grace"]).await;
}

#[expect(clippy::disallowed_methods, reason = "requests are counted in real time")]
fn now() -> Instant {
    Instant::now()
}
