//! Invitations: a link in place of a password that an admin knows.

use jiff::SignedDuration;

use crate::real::real;
use crate::world::after;

const IVY: (&str, &str) = ("TIDEWAITER_CLOUD_NEW_PASSWORD", "hunter2-of-ivy");

/// The link that is printed in quotes for a shell.
fn unquoted(printed: &str) -> &str {
    let quoted = printed.trim().strip_prefix('\'');
    quoted.and_then(|link| link.strip_suffix('\'')).expect("quotes")
}

#[tokio::test]
async fn a_person_is_invited_and_chooses_the_password() {
    let real = real().await;
    let person = &real.person;
    let soon = after(SignedDuration::from_hours(60)).to_string();
    let invite = [
        "cloud",
        "invite",
        "ivy@example.com",
        "--role",
        "read_only",
        "--expires-at",
        &soon,
    ];
    let link = person.run(&invite).await;
    assert!(link.err.contains("it works once"), "{}", link.err);
    let link = link.well();
    let link = unquoted(&link);
    assert!(
        link.starts_with(&format!("{}/invitation?secret=twi_", real.url)),
        "{link}"
    );
    let listed = person.run(&["cloud", "invitations", "list"]).await.well();
    assert!(
        listed.contains("ivy@example.com") && !listed.contains("twi_"),
        "{listed}"
    );
    let accept = ["cloud", "accept", link, "--name", "Ivy"];
    person
        .run(&accept)
        .await
        .refused(1, &["no password", "--password-file"]);
    person.run(&accept[..3]).await.refused(1, &["--name"]);
    let accepted = person.run_with(&accept, &[IVY]).await.well();
    assert!(
        accepted.contains(&format!("--server {} ivy@example.com", real.url)),
        "{accepted}"
    );
    person
        .run_with(&accept, &[IVY])
        .await
        .refused(1, &["it was used or revoked"]);
    let ran = person.log_in(&real.url, "ivy@example.com", "ivy", IVY.1).await;
    let told = "your membership of the organization ends in 2d";
    assert!(ran.err.contains(told), "{}", ran.err);
    ran.well();
    let whoami = person.run(&["cloud", "whoami"]).await;
    assert!(whoami.err.contains(told), "{}", whoami.err);

    // With an account of another organization, and only at its own server.
    let alice = ["--context", "127.0.0.1"];
    let other = person.create_organization("other", &alice).await;
    let place = ["--organization", &other, "--context", "127.0.0.1"];
    let link = person.run(&[&invite[..], &place].concat()).await.well();
    let link = unquoted(&link);
    let accept = ["cloud", "accept", link, "--with-login"];
    let strange = link.replace(&real.url, "https://cloud.example.com");
    let elsewhere = ["cloud", "accept", &strange, "--with-login"];
    person.run(&elsewhere).await.refused(1, &["you are logged in to"]);
    person.run(&accept).await.well();
    let shown = person.run(&["cloud", "whoami", "-o", "json"]).await.well();
    assert!(shown.contains(&other), "{shown}");

    let bob = ["cloud", "invite", "bob@example.com", "--context", "127.0.0.1"];
    person.run(&bob).await.well();
    let revoke = ["cloud", "invitations", "revoke", "bob@example.com"];
    person.run(&[&revoke[..], &["--yes"], &alice].concat()).await.well();
    let again = person.run(&[&revoke[..], &["--yes"], &alice].concat()).await;
    again.refused(1, &["no open invitation"]);
}
