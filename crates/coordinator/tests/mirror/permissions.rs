//! A permission that is taken away while the coordinator runs is visible in `CloudSync`, with the remedy.

use tidewaiter_testkit::{Action, ApiProxy};

use crate::script::user;
use crate::world::{World, coordinator};

#[tokio::test]
async fn a_write_and_a_watch_that_are_refused_are_named_with_the_remedy() {
    let world = World::start().await;
    let proxy = ApiProxy::start(&world.plane, &coordinator());
    world.cloud.list("/ssh-users", [user(1, "Ada")]);
    let _running = world.coordinator_through(&proxy).await;
    world.condition("Synced", "True Applied").await;

    let refuse = |verb: &'static str| {
        move || {
            let message = format!("users.containership.io is forbidden: User \"us\" cannot {verb} resource \"users\"");
            Action::refuse(403, "Forbidden", &message)
        }
    };
    proxy.on(|it| it.is_write() && it.resource() == "users", refuse("patch"));
    world.cloud.list("/ssh-users", [user(1, "Grace")]);
    let message = world.condition("Synced", "False WriteFailed").await;
    for words in [
        "User: ",
        "403",
        "cannot patch resource \"users\"",
        "Apply Tidewaiter's role",
    ] {
        assert!(message.contains(words), "{words} in {message}");
    }
    proxy.clear_hook();
    world.condition("Synced", "True Applied").await;
    world.users_are(&["Grace"]).await;

    proxy.on(|it| !it.is_write() && it.resource() == "users", refuse("watch"));
    proxy.cut_watches();
    let message = world.condition("Synced", "False ReadFailed").await;
    for words in [
        "User: ",
        "403",
        "cannot watch resource \"users\"",
        "apply Tidewaiter's role",
    ] {
        assert!(message.contains(words), "{words} in {message}");
    }
    proxy.clear_hook();
    world.condition("Synced", "True Applied").await;
}
