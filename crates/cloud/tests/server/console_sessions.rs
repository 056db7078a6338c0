//! Sessions of the console end everywhere at once, no page that shows a credential is stored, and strangers have the
//! limits that they have in the API.

use reqwest::Method;
use serde_json::json;
use tidewaiter_testkit::eventually;

use crate::browser::Browser;
use crate::console_people::has;
use crate::fire::{connect, rest};
use crate::stream::SOON;
use crate::world::{PASSWORD, World, on_both};

on_both!(
    a_session_ends_everywhere_at_once,
    a_page_with_a_credential_is_not_stored,
    a_stranger_guesses_no_faster_than_in_the_api,
    a_form_arrives_in_time,
);

/// A browser with a new session of Alice.
async fn sign_in(world: &World) -> Browser<'_> {
    let login = world.log_in("alice@example.org", PASSWORD).await.is(200);
    Browser::of(world, &login.field("token"))
}

/// Asserts that the session has ended: the browser forgets it, and leads to the page to sign in.
async fn is_over(browser: &Browser<'_>) {
    let answer = browser.get("/account").await.is(303);
    assert_eq!(answer.header("location"), "/sign-in?return_to=%2Faccount");
    assert!(answer.header("set-cookie").contains("Max-Age=0"), "{answer:?}");
}

async fn a_session_ends_everywhere_at_once(world: World) {
    let owner = world.owner().await;
    let (alice, login) = world.user(&owner, &world.organization, "Alice", "member").await;
    // Each session is shown, and this one by name; one of them ends another.
    let (first, second) = (Browser::of(&world, &login), sign_in(&world).await);
    let page = first.page("/account").await;
    assert_eq!(page.matches("(this session)").count(), 1, "{page}");
    assert_eq!(page.matches("(a session)").count(), 1, "{page}");
    let tokens = world.get(&login, "/v3/account/tokens").await.is(200).json();
    let other = tokens.as_array().unwrap().last().unwrap()["id"].as_str().unwrap();
    first.change(&format!("/account/tokens/{other}/revoke"), &[]).await;
    is_over(&second).await;
    // A new password ends the others.
    let second = sign_in(&world).await;
    let changed = [
        ("secret.old_password", PASSWORD),
        ("secret.new_password", "another good password"),
    ];
    first.change("/account/password", &changed).await;
    is_over(&second).await;
    first.page("/account").await;
    // An owner of the home ends all, with what they follow.
    let mut stream = first.request(Method::GET, "~/events").send().await.unwrap();
    assert_eq!(stream.status(), 200);
    let ended = async { while stream.chunk().await.unwrap().is_some() {} };
    let by_owner = Browser::of(&world, &owner);
    let end = async {
        by_owner.change(&format!("~/people/{alice}/logins"), &[]).await;
    };
    let both = async { tokio::join!(ended, end) };
    tokio::time::timeout(SOON, both).await.expect("the end of the stream");
    is_over(&first).await;
    has(&by_owner.page("/account").await, &["(this session)"]);
}

async fn a_page_with_a_credential_is_not_stored(world: World) {
    let owner = world.owner().await;
    let account = json!({"name": "ci", "role": "admin"});
    let account = world
        .post(&owner, "~/service-accounts", account)
        .await
        .is(201)
        .field("id");
    let prod = world
        .post(&owner, "~/clusters", json!({"name": "prod"}))
        .await
        .is(201)
        .field("id");
    let browser = Browser::of(&world, &owner);
    let token = [("name", "ci"), ("days", "1")];
    let invited = [("email", "bob@example.org"), ("role", "member")];
    let [tokens, keys] = [
        format!("~/service-accounts/{account}/tokens"),
        format!("~/clusters/{prod}/keys"),
    ];
    let forms: [(&str, &[(&str, &str)]); 4] = [
        ("/account/tokens", &token),
        (&tokens, &token),
        (&keys, &[]),
        ("~/invitations", &invited),
    ];
    for (path, fields) in forms {
        let shown = browser.post(path, fields).await;
        assert!(shown.status.is_success(), "{path}: {shown:?}");
        has(&shown.body, &["<pre class=\"secret\""]);
        assert_eq!(shown.header("cache-control"), "no-store", "{path}");
        assert_eq!(shown.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(shown.header("cross-origin-opener-policy"), "same-origin", "{path}");
    }
}

async fn a_stranger_guesses_no_faster_than_in_the_api(world: World) {
    let owner = world.owner().await;
    world.user(&owner, &world.organization, "Alice", "member").await;
    let nobody = Browser::of(&world, "");
    let form = [("email", "alice@example.org"), ("password", "not this one at all")];
    let mut wrong = 0;
    eventually("no further guess", SOON, async || {
        let status = nobody.send(&world.base, "/sign-in", &form).await.status.as_u16();
        wrong += u32::from(status == 401);
        if status == 429 { Ok(()) } else { Err(status) }
    })
    .await;
    assert!((10..=30).contains(&wrong), "{wrong} guesses");
    // The guesses in the console count in the API, too.
    eventually("no guess in the API", SOON, async || {
        let answer = world.log_in("alice@example.org", "not this one at all").await;
        if answer.status == 429 {
            Ok(())
        } else {
            Err(answer.status)
        }
    })
    .await;
}

async fn a_form_arrives_in_time(world: World) {
    for path in ["/sign-in", "/invitation"] {
        let begun = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: same-origin\r\ncontent-length: 100\r\n\r\nemail"
        );
        let answer = rest(connect(&world, 1, &begun).await).await;
        assert!(answer.to_lowercase().starts_with("http/1.1 408"), "{path}: {answer}");
    }
}
