//! The console as a browser without JavaScript sees it: pages of clusters, their forms, and what keeps others out.

use reqwest::Method;
use serde_json::json;
use tidewaiter_testkit::eventually;
use tokio::net::TcpStream;

use crate::browser::{Browser, COOKIE, NOWHERE, hidden};
use crate::fire::connect;
use crate::fixture::Fixture;
use crate::stream::SOON;
use crate::world::{Answer, PASSWORD, World, on_both};

on_both!(
    a_person_signs_in_and_out,
    each_page_is_for_members,
    a_form_of_others_changes_nothing,
    a_name_is_never_markup,
    a_change_is_made_as_it_was_shown,
    an_upgrade_is_created_paused_and_aborted,
    an_api_key_is_in_one_page,
    a_page_follows_its_cluster,
    a_stranger_sends_small_forms_and_few_at_once,
    two_pages_of_a_person_are_made_at_once,
    a_person_decides_about_what_a_cluster_reports,
);

/// A form as a browser sends it.
fn encoded(fields: &[(&str, &str)]) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields).finish()
}

/// The pages of the fixture's cluster, for those who may see them.
fn pages(fixture: &Fixture) -> Vec<String> {
    let cluster = "/organizations/{organization_id}/clusters/{cluster_id}";
    let pages = [
        "/organizations/{organization_id}/clusters".to_owned(),
        "/organizations/{organization_id}/attach".to_owned(),
        cluster.to_owned(),
        format!("{cluster}/pools/{{node_pool_id}}"),
        format!("{cluster}/upgrades/{{upgrade_id}}"),
    ];
    pages.iter().map(|page| fixture.near.path(page)).collect()
}

fn page(fixture: &Fixture, rest: &str) -> String {
    let path = format!("/organizations/{{organization_id}}/clusters/{{cluster_id}}{rest}");
    fixture.near.path(&path)
}

/// Asserts what holds for every page: no inline code, a strict policy, and the token of the session in each form.
#[track_caller]
fn assert_page(page: &Answer) {
    let policy = page.header("content-security-policy");
    for part in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("cache-control"), "no-store");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    for tag in page.body.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        // What is between quotes is a value; what is left are names.
        let names: Vec<_> = tag.split('"').step_by(2).collect();
        assert!(!tag.starts_with("style"), "{tag}");
        assert!(
            !tag.starts_with("script") || tag.contains("src=\"/assets/console.js\""),
            "{tag}"
        );
        assert!(
            !names
                .iter()
                .any(|name| name.contains(" style=") || name.contains(" on")),
            "{tag}"
        );
        assert!(!tag.to_lowercase().contains("=\"javascript:"), "{tag}");
    }
    for form in page.body.split("<form").skip(1) {
        let form = form.split("</form>").next().unwrap();
        let is_sign_in = form.contains("action=\"/sign-in\"");
        assert!(is_sign_in || !hidden(form, "csrf").is_empty(), "{form}");
    }
}

async fn a_person_signs_in_and_out(world: World) {
    let nobody = Browser::of(&world, "");
    let to = nobody.get(&format!("{NOWHERE}?a=b")).await.is(303);
    assert!(
        to.header("location")
            .starts_with("/sign-in?return_to=%2Forganizations%2F"),
        "{to:?}"
    );
    assert!(to.header("location").ends_with("%2Fclusters%3Fa%3Db"), "{to:?}");
    assert_page(&nobody.get("/sign-in").await.is(200));
    let sign_in = async |password: &str, return_to: &str| {
        let fields = [
            ("email", "olivia@example.org"),
            ("password", password),
            ("return_to", return_to),
        ];
        nobody.send(&world.base, "/sign-in", &fields).await
    };
    let refused = sign_in("wrong password", "/").await.is(401);
    assert_page(&refused);
    assert!(
        refused.body.contains("role=\"alert\"") && refused.body.contains("olivia@example.org"),
        "{refused:?}"
    );
    assert!(
        !refused.body.contains("wrong password") && refused.header("set-cookie").is_empty(),
        "{refused:?}"
    );
    for (return_to, location) in [
        ("/account", "/account"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
    ] {
        let answer = sign_in(PASSWORD, return_to).await.is(303);
        assert_eq!(answer.header("location"), location);
    }
    let answer = sign_in(PASSWORD, "/").await.is(303);
    let cookie = answer.header("set-cookie");
    for attribute in ["HttpOnly", "Secure", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(attribute), "{cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    let token = cookie.split(['=', ';']).nth(1).unwrap();
    let person = Browser::of(&world, token);
    let home = person.get("/").await.is(303);
    let clusters = format!("/organizations/{}/clusters", world.organization);
    assert_eq!(home.header("location"), clusters);
    let page = person.get(&clusters).await.is(200);
    assert!(!page.body.contains(token), "the token is in a page");
    assert!(page.body.contains("href=\"/operators\""), "{page:?}");
    let out = person.post("/sign-out", &[]).await.is(303);
    assert!(out.header("set-cookie").contains("Max-Age=0"), "{out:?}");
    // The session is over everywhere, not only in this browser.
    let again = person.get(&clusters).await.is(303);
    assert!(again.header("location").starts_with("/sign-in?"), "{again:?}");
    // With an invitation, the person can make an account.
    let link = person.get("/invitation?secret=twi_none").await.is(303);
    let form = person.get(&link.header("location")).await.is(200);
    assert!(
        form.body.contains("Become a member") && form.body.contains("twi_none"),
        "{form:?}"
    );
    assert!(form.header("set-cookie").contains("Max-Age=0"), "{form:?}");
    world.get(token, "/v3/account").await.is(401);
}

async fn each_page_is_for_members(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    for path in pages(&fixture) {
        for (role, status) in [
            ("owner", 200),
            ("member", 200),
            ("read_only", 200),
            ("stranger", 404),
            ("nobody", 303),
        ] {
            let answer = Browser::of(world, fixture.token(role)).get(&path).await;
            assert_eq!(answer.status.as_u16(), status, "{role} {path}: {answer:?}");
            if status != 303 {
                assert_page(&answer);
            }
        }
        // A key of a cluster is no session of a person.
        let cluster = Browser::of(world, fixture.token("cluster")).get(&path).await;
        assert!(!cluster.status.is_success(), "{path}: {cluster:?}");
    }
    let cluster = page(&fixture, "");
    let shown = async |role: &str| Browser::of(world, fixture.token(role)).get(&cluster).await.body;
    let (owner, member, reader) = (shown("owner").await, shown("member").await, shown("read_only").await);
    for (button, may) in [
        ("Create an API key", [true, false, false]),
        ("Upgrade the cluster", [true, false, false]),
        ("Add a label", [true, true, false]),
    ] {
        assert_eq!(
            [&owner, &member, &reader].map(|page| page.contains(button)),
            may,
            "{button}"
        );
    }
    assert!(!reader.contains("href=\"/operators\""), "{reader}");
    // The button is not the permission.
    let reader = Browser::of(world, fixture.token("read_only"));
    let label = [
        ("key", "cluster.containership.io/zone"),
        ("value", "a"),
        ("confirmed", "yes"),
    ];
    reader.post(&page(&fixture, "/labels"), &label).await.is(403);
    reader.post(&page(&fixture, "/keys"), &[]).await.is(403);
    let upgrade = [("version", "v1.31.0"), ("timeout", "900"), ("confirmed", "yes")];
    reader.post(&page(&fixture, "/upgrades"), &upgrade).await.is(403);
    let stranger = Browser::of(world, fixture.token("stranger"));
    stranger.post(&page(&fixture, "/labels"), &label).await.is(404);
}

async fn a_form_of_others_changes_nothing(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let browser = Browser::of(world, owner);
    let before = world
        .get(owner, &fixture.near("/clusters/{cluster_id}/labels"))
        .await
        .body;
    let path = page(&fixture, "/labels");
    let csrf = hidden(&browser.get(NOWHERE).await.body, "csrf");
    let other = Browser::of(world, fixture.token("admin"));
    let of_other = hidden(&other.get(NOWHERE).await.body, "csrf");
    let label = [
        ("key", "cluster.containership.io/zone"),
        ("value", "a"),
        ("confirmed", "yes"),
    ];
    let own = world.base.clone();
    for (origin, csrf) in [
        (&*own, None),
        (&*own, Some("")),
        (&*own, Some(&*of_other)),
        ("https://evil.example", Some(&*csrf)),
        ("null", Some(&*csrf)),
    ] {
        let token = csrf.map(|csrf| ("csrf", csrf));
        let fields = [&label[..], token.as_slice()].concat();
        browser.send(origin, &path, &fields).await.is(403);
    }
    // A browser says where a request begins, and older ones say it with their origin alone.
    let fields = [&label[..], &[("csrf", &*csrf)]].concat();
    let request = || browser.request(Method::POST, &path).body(encoded(&fields));
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("x-none", ""),
    ] {
        world.send(request().header(name, value)).await.is(403);
    }
    let after = world
        .get(owner, &fixture.near("/clusters/{cluster_id}/labels"))
        .await
        .body;
    assert_eq!(before, after);
    // Nobody is signed in by a form of others, as somebody else.
    let login = [("email", "olivia@example.org"), ("password", PASSWORD)];
    let forced = Browser::of(world, "");
    let answer = forced.send("https://evil.example", "/sign-in", &login).await.is(403);
    assert!(answer.header("set-cookie").is_empty(), "{answer:?}");
    world
        .send(request().header("sec-fetch-site", "same-origin"))
        .await
        .is(303);
}

async fn a_name_is_never_markup(world: World) {
    const NAME: &str = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>";
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let named = json!({ "name": NAME });
    for (path, body) in [
        ("", &named),
        ("/clusters/{cluster_id}", &named),
        ("/clusters/{cluster_id}/node-pools/{node_pool_id}", &named),
        (
            "/clusters/{cluster_id}/upgrades/{upgrade_id}",
            &json!({ "description": NAME }),
        ),
        ("/clusters/{cluster_id}/plugins/{id}", &json!({ "description": NAME })),
        ("/clusters/{cluster_id}/autoscaling-policies/{id}", &named),
    ] {
        world.patch(owner, &fixture.near(path), body.clone()).await.is(200);
    }
    let status = json!({"status": {"type": "RUNNING", "message": NAME, "percent": 0}});
    world
        .put(owner, &fixture.near("/clusters/{cluster_id}/status"), status)
        .await
        .is(200);
    world.patch(owner, "/v3/account", named).await.is(200);
    let browser = Browser::of(world, owner);
    for path in pages(&fixture) {
        let answer = browser.get(&path).await.is(200);
        assert_page(&answer);
        assert!(answer.body.contains("&lt;script&gt;"), "{path}: {answer:?}");
    }
    let asked = [("version", NAME), ("description", NAME), ("canary", NAME)];
    let review = browser.post(&page(&fixture, "/upgrades"), &asked).await.is(200);
    assert_page(&review);
    let refused = [("email", NAME), ("password", "wrong"), ("return_to", NAME)];
    assert_page(&Browser::of(world, "").send(&world.base, "/sign-in", &refused).await);
    // An id is no path of another object, and no markup either.
    let missing = browser.get(&page(&fixture, "/pools/%22%3E%3Cscript%3E")).await.is(404);
    assert_page(&missing);
}

async fn a_change_is_made_as_it_was_shown(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let browser = Browser::of(world, fixture.token("member"));
    for (inside, rest, id) in [
        ("/clusters/{cluster_id}/labels", "", "labels"),
        (
            "/clusters/{cluster_id}/node-pools/{node_pool_id}/labels",
            "/pools/{node_pool_id}",
            "pool labels",
        ),
    ] {
        let id = fixture.near.of(id);
        let item = fixture.near(&format!("{inside}/{id}"));
        let value = async || world.get(owner, &item).await.is(200).field("value");
        let path = page(&fixture, &format!("{rest}/labels/{id}"));
        let before = value().await;
        let was = format!(">{before}<");
        let fields = [("value", "shown")];
        let review = browser.post(&path, &fields).await.is(200);
        assert_page(&review);
        for part in ["This is what will change", was.as_str(), ">shown<"] {
            assert!(review.body.contains(part), "{part}: {review:?}");
        }
        assert_eq!(value().await, before);
        // Somebody else is faster: nothing changes, and the page shows the new state.
        world.patch(owner, &item, json!({"value": "other"})).await.is(200);
        let stale = browser.confirm(&path, &review, &fields).await.is(412);
        assert!(
            stale.body.contains("role=\"alert\"") && stale.body.contains(">other<"),
            "{stale:?}"
        );
        assert_eq!(value().await, "other");
        let made = browser.confirm(&path, &stale, &fields).await.is(303);
        assert_eq!(value().await, "shown");
        let shown = browser.get(&made.header("location")).await.is(200);
        assert!(shown.body.contains("role=\"status\""), "{shown:?}");
        let review = browser.post(&format!("{path}/delete"), &[]).await.is(200);
        browser.confirm(&format!("{path}/delete"), &review, &[]).await.is(303);
        world.get(owner, &item).await.is(404);
    }
    let path = page(&fixture, "/labels");
    let refused = [("key", "zone"), ("value", "a"), ("confirmed", "yes")];
    let refused = browser.post(&path, &refused).await.is(422);
    assert!(refused.body.contains("cluster.containership.io/"), "{refused:?}");
}

async fn an_upgrade_is_created_paused_and_aborted(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let browser = Browser::of(world, fixture.token("admin"));
    let path = page(&fixture, "/upgrades");
    let fields = [
        ("version", "v1.31.0"),
        ("timeout", "600"),
        ("canary", "1"),
        ("drain", "yes"),
    ];
    let review = browser.post(&path, &fields).await.is(200);
    for part in ["workers", "v1.31.0", "has not ended", "1.30.1"] {
        assert!(review.body.contains(part), "{part}: {review:?}");
    }
    let list = fixture.near("/clusters/{cluster_id}/upgrades");
    assert_eq!(world.get(owner, &list).await.json().as_array().unwrap().len(), 1);
    browser.confirm(&path, &review, &fields).await.is(303);
    let upgrades = world.get(owner, &list).await.json();
    let made = upgrades
        .as_array()
        .unwrap()
        .iter()
        .find(|upgrade| upgrade["nodeTimeoutSeconds"] == 600)
        .unwrap();
    assert_eq!(
        (&made["policy"]["canary"], &made["policy"]["drain"]),
        (&json!(1), &json!(true)),
        "{made}"
    );
    let id = made["id"].as_str().unwrap();
    let item = format!("{list}/{id}");
    let state = async || {
        browser
            .get(&page(&fixture, &format!("/upgrades/{id}")))
            .await
            .is(200)
            .body
    };
    assert!(state().await.contains(">Waiting<"));
    for (action, shown, paused) in [("pause", ">Paused<", true), ("resume", ">Waiting<", false)] {
        let path = page(&fixture, &format!("/upgrades/{id}/{action}"));
        let review = browser.post(&path, &[]).await.is(200);
        browser.confirm(&path, &review, &[]).await.is(303);
        assert!(state().await.contains(shown), "{action}");
        let found = world.get(owner, &item).await.json();
        assert_eq!(found["policy"]["paused"] == true, paused, "{found}");
        assert_eq!(found["policy"]["canary"], 1, "{found}");
    }
    let report = json!({"status": {"clusterStatus": "InProgress", "nodeStatuses": {"node-1": "InProgress"},
        "currentNode": "node-1", "nodes": 3, "done": 1, "message": "waits for node-1"}});
    world.put(owner, &format!("{item}/status"), report).await.is(200);
    let shown = state().await;
    for part in ["waits for node-1", "1 of 3", "<progress", ">InProgress<"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let path = page(&fixture, &format!("/upgrades/{id}/abort"));
    let review = browser.post(&path, &[]).await.is(200);
    // The cluster reports while the person reads the review.
    let report = json!({"status": {"clusterStatus": "InProgress", "nodeStatuses": {"node-1": "Success"},
        "nodes": 3, "done": 2}});
    world.put(owner, &format!("{item}/status"), report).await.is(200);
    browser.confirm(&path, &review, &[]).await.is(303);
    let shown = state().await;
    assert!(shown.contains(">Aborted<") && !shown.contains(">Resume<"), "{shown}");
}

async fn an_api_key_is_in_one_page(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let browser = Browser::of(world, owner);
    let answer = browser.post(&page(&fixture, "/keys"), &[]).await.is(200);
    assert_page(&answer);
    let key = answer
        .body
        .split("<pre")
        .nth(1)
        .unwrap()
        .split(['<', '>'])
        .nth(3)
        .unwrap();
    let known = world.get(key, "/v3/authenticate").await.is(200).json();
    assert_eq!(known["cluster_id"], fixture.near.of("cluster"));
    for path in pages(&fixture) {
        assert!(!browser.get(&path).await.body.contains(key), "{path}");
    }
    let list = fixture.near("/clusters/{cluster_id}/api-keys");
    let keys = world.get(owner, &list).await.json();
    // The keys are in their order, and this one is the last.
    let id = keys.as_array().unwrap().last().unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = page(&fixture, &format!("/keys/{id}/delete"));
    let review = browser.post(&path, &[]).await.is(200);
    assert!(review.body.contains(&id), "{review:?}");
    world.get(key, "/v3/authenticate").await.is(200);
    browser.confirm(&path, &review, &[]).await.is(303);
    world.get(key, "/v3/authenticate").await.is(401);
}

async fn a_page_follows_its_cluster(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let events = page(&fixture, "/events");
    for (role, status) in [("read_only", 200), ("stranger", 404), ("nobody", 303)] {
        let answer = Browser::of(world, fixture.token(role)).get(&events).await;
        assert_eq!(answer.status.as_u16(), status, "{role}: {answer:?}");
        assert_eq!(
            answer.header("content-type") == "text/event-stream",
            status == 200,
            "{role}: {answer:?}"
        );
    }
    let cluster = Browser::of(world, fixture.token("read_only"))
        .get(&page(&fixture, ""))
        .await;
    assert!(
        cluster.body.contains(&format!("data-stream=\"{events}\"")),
        "{cluster:?}"
    );
    assert_eq!(cluster.body.matches("data-live").count(), 7, "{cluster:?}");
}

/// Begins to send a form of 60,000 bytes, as a page of this server does.
async fn unfinished(world: &World, path: &str, token: &str, begun: &str) -> TcpStream {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: same-origin\r\ncookie: {COOKIE}={token}\r\n\
         content-length: 60000\r\n\r\n{begun}"
    );
    connect(world, 1, &head).await
}

/// Waits until a request is refused because there are too many.
async fn refused(request: impl AsyncFn() -> Answer) {
    eventually("too many requests", SOON, async || {
        match request().await.status.as_u16() {
            429 => Ok(()),
            status => Err(status),
        }
    })
    .await;
}

async fn a_stranger_sends_small_forms_and_few_at_once(world: World) {
    let nobody = Browser::of(&world, "");
    let large = "a".repeat(8 * 1024);
    for path in ["/sign-in", "/invitation"] {
        for fields in [vec![("secret", &*large)], vec![("a", ""); 65]] {
            nobody.send(&world.base, path, &fields).await.is(413);
        }
        let read = nobody.send(&world.base, path, &[("a", ""); 64]).await;
        assert_ne!(read.status.as_u16(), 413, "{path}: {read:?}");
    }
    // Forms that do not arrive take the places of their address.
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(unfinished(&world, "/sign-in", "", "").await);
    }
    refused(async || nobody.send(&world.base, "/sign-in", &[("email", "a")]).await).await;
}

async fn two_pages_of_a_person_are_made_at_once(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, member) = (&fixture.world, fixture.token("member"));
    // A form with so many bytes has eight seconds, and a page waits for five.
    let begun = "a".repeat(50_000);
    let _open = [
        unfinished(world, "/account", member, &begun).await,
        unfinished(world, "/account", member, &begun).await,
    ];
    let (browser, other) = (Browser::of(world, member), Browser::of(world, fixture.token("owner")));
    refused(async || browser.get("/account").await).await;
    other.get("/account").await.is(200);
}

async fn a_person_decides_about_what_a_cluster_reports(world: World) {
    const PLUGIN: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";
    const REVISION: &str = "0123456789ab";
    let fixture = Fixture::new(world).await;
    let (world, cluster) = (&fixture.world, fixture.token("cluster"));
    let browser = |name| Browser::of(world, fixture.token(name));
    let inside = fixture.near("/clusters/{cluster_id}");
    let report = async |revision: &str| {
        let held = json!({"revision": revision, "deletions": 6, "names": ["zone-a"], "reason": "many at once"});
        let waiting = json!({"version": "1.1.0", "digest": "abc", "creates": 1, "diff": ["create ConfigMap a/b"]});
        let report = json!({
            "synced": false, "accepts_releases": true,
            "kinds": [{"kind": "ClusterLabel", "held": held},
                {"kind": "User", "held": held, "refused_objects": 1, "refused": [{"id": "bob", "reason": "no key"}]}],
            "plugins": [{"id": PLUGIN, "name": "metrics/prometheus", "state": "Blocked", "waiting": waiting}],
            "agents": {"nodes": 5, "reporting": 4},
        });
        world.put(cluster, &format!("{inside}/report"), report).await.is(200);
    };
    report(REVISION).await;
    let list = fixture.near.path("/organizations/{organization_id}/clusters");
    let list = browser("read_only").get(&list).await.is(200);
    for part in [
        "Not synced",
        "6 ClusterLabel, 6 User",
        "0/1, 1 to approve",
        "4/5",
        "just now",
    ] {
        assert!(list.body.contains(part), "{part}: {list:?}");
    }
    // What takes access away is an owner's.
    for (name, releases, approvals) in [("owner", 2, 1), ("admin", 1, 1), ("read_only", 0, 0)] {
        let shown = browser(name).get(&page(&fixture, "")).await.is(200);
        assert_page(&shown);
        let buttons = ["/releases\"", "/approvals\""].map(|path| shown.body.matches(path).count());
        assert_eq!(buttons, [releases, approvals], "{name}: {shown:?}");
        for part in ["many at once", "bob: no key", "create ConfigMap a/b", "Blocked"] {
            assert!(shown.body.contains(part), "{part}: {shown:?}");
        }
    }
    let release = [("kind", "User"), ("revision", REVISION)];
    let approval = [("plugin", PLUGIN), ("digest", "abc")];
    let owner = browser("owner");
    for (list, fields, part) in [
        ("/releases", &release, "zone-a"),
        ("/approvals", &approval, "create ConfigMap a/b"),
    ] {
        let path = page(&fixture, list);
        let review = owner.post(&path, fields).await.is(200);
        assert_page(&review);
        assert!(review.body.contains(part), "{review:?}");
        browser("member").confirm(&path, &review, fields).await.is(403);
        owner.confirm(&path, &review, fields).await.is(303);
    }
    let decisions = world.get(cluster, &format!("{inside}/decisions")).await.is(200).json();
    assert_eq!(decisions.as_array().unwrap().len(), 2, "{decisions}");
    report("ffffffffffff").await;
    let path = page(&fixture, "/releases");
    let stale = owner.post(&path, &release).await.is(200);
    assert!(stale.body.contains("meanwhile"), "{stale:?}");
    owner.confirm(&path, &stale, &release).await.is(409);
}
