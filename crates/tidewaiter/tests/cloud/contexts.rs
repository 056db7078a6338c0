//! Logging in, and where that is remembered.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use http::StatusCode;
use tidewaiter_testkit::ConnectProxy;

use crate::world::{CLUSTER, ORGANIZATION, PASSWORD, Person, TOKEN};

/// The variable with the token of a program.
const PROGRAM: &str = "TIDEWAITER_CLOUD_TOKEN";

#[tokio::test]
async fn a_login_is_remembered_where_its_owner_alone_may_read() {
    let person = Person::logged_in().await;
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(person.contexts()), 0o600);
    assert_eq!(mode(person.path("config/tidewaiter")), 0o700);
    let text = fs::read_to_string(person.contexts()).unwrap();
    for word in [TOKEN, ORGANIZATION, "production", "current: test"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(!text.contains(PASSWORD), "{text}");
    assert_eq!(
        fs::read_dir(person.path("config/tidewaiter")).unwrap().count(),
        1,
        "nothing else is left"
    );
    let out = person.run(&["cloud", "whoami"]).await.well();
    for word in ["alice@example.com", "acme", "owner", ORGANIZATION] {
        assert!(out.contains(word), "{word} in {out}");
    }
    let wide = person.run(&["cloud", "whoami", "-o", "wide"]).await.well();
    assert!(
        wide.contains("2027-01-15T08:00:00Z") && !out.contains("2027"),
        "{wide}{out}"
    );
    assert_eq!(
        person.run(&["cloud", "whoami", "-o", "name"]).await.well(),
        "alice@example.com\n"
    );
}

#[tokio::test]
async fn a_password_comes_from_a_file_or_the_environment_and_a_wrong_one_leaves_nothing() {
    let person = Person::new().await;
    let url = person.cloud.url.clone();
    let login = ["cloud", "login", "--server", &url, "alice@example.com"];
    person
        .run(&login)
        .await
        .refused(1, &["no password", "--password-file", "TIDEWAITER_CLOUD_PASSWORD"]);
    let wrong = person
        .run_with(&login, &[("TIDEWAITER_CLOUD_PASSWORD", "hunter2-wrong")])
        .await;
    wrong.refused(
        1,
        &["cannot log in to", &url, "401", "wrong e-mail address or password"],
    );
    assert!(!person.contexts().exists());
    person
        .run_with(&login, &[("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)])
        .await
        .well();
    assert!(fs::read_to_string(person.contexts()).unwrap().contains("127.0.0.1"));
    let flag = person
        .run_open(&[&login[..], &["--password", PASSWORD]].concat(), &[])
        .await;
    assert_eq!(flag.code, 2, "there is no such flag");
}

#[tokio::test]
async fn who_is_not_logged_in_is_told_what_to_do() {
    let person = Person::new().await;
    person
        .run(&["cloud", "get", "users"])
        .await
        .refused(1, &["not logged in", "tidewaiter cloud login --server"]);
    let person = Person::logged_in().await;
    person
        .run(&["cloud", "get", "users", "--context", "other"])
        .await
        .refused(1, &["\"other\"", "existing contexts: test"]);
    person.run(&["cloud", "logout"]).await.well();
    assert!(!fs::read_to_string(person.contexts()).unwrap().contains(TOKEN));
    person
        .run(&["cloud", "get", "users"])
        .await
        .refused(1, &["logged out of test", "tidewaiter cloud login --context test"]);
    // Only that the token is revoked.
    assert_eq!(person.cloud.seen().len(), 1);
}

#[tokio::test]
async fn a_logout_fails_if_the_server_does_not_revoke_the_token() {
    let person = Person::logged_in().await;
    person
        .cloud
        .refuse("DELETE /v3/account/tokens/current", StatusCode::CONFLICT);
    let ran = person.run(&["cloud", "logout"]).await;
    assert_eq!(ran.out, "logged out of test\n");
    ran.refused(1, &["did not revoke the token"]);
    assert!(!fs::read_to_string(person.contexts()).unwrap().contains(TOKEN));
}

#[tokio::test]
async fn a_login_takes_server_and_address_from_the_context() {
    let person = Person::new().await;
    let login = ["cloud", "login"];
    let password = [("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)];
    person
        .run_with(&login, &password)
        .await
        .refused(1, &["not logged in", "tidewaiter cloud login --server"]);
    let person = Person::logged_in().await;
    person.run(&["cloud", "logout"]).await.well();
    person.run_with(&login, &password).await.well();
    let text = fs::read_to_string(person.contexts()).unwrap();
    assert!(text.contains(TOKEN) && text.contains("production"), "{text}");
    let named = [&login[..], &["--context", "test"]].concat();
    person.run_with(&named, &password).await.well();
    // Another server is another context, for which nothing is known.
    let other = [&login[..], &["--server", "http://localhost:1"]].concat();
    person
        .run_with(&other, &password)
        .await
        .refused(1, &["no e-mail address", "http://localhost:1"]);
}

/// A demonstration, or a cloud that was set up again, has the address of one that is gone.
#[tokio::test]
async fn a_login_at_a_new_cloud_forgets_what_the_old_one_had() {
    let person = Person::logged_in().await;
    let old = "99999999-9999-4999-8999-999999999999";
    let before = fs::read_to_string(person.contexts())
        .unwrap()
        .replace(ORGANIZATION, old);
    assert!(before.contains("production"), "{before}");
    let password = [("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)];
    for (answer, is_kept) in [
        (None, true),
        (Some(StatusCode::SERVICE_UNAVAILABLE), true),
        (Some(StatusCode::NOT_FOUND), false),
        (Some(StatusCode::FORBIDDEN), false),
    ] {
        person.file("config/tidewaiter/cloud.yaml", &before);
        if let Some(status) = answer {
            person.cloud.refuse(&format!("GET /v3/organizations/{old}"), status);
        }
        let out = person.run_with(&["cloud", "login"], &password).await.well();
        let text = fs::read_to_string(person.contexts()).unwrap();
        assert_eq!(
            text.contains(old) && text.contains("production"),
            is_kept,
            "{answer:?} {text}"
        );
        assert_eq!(text.contains(ORGANIZATION), !is_kept, "{answer:?} {text}");
        assert_eq!(
            out.contains("the context forgets it and its cluster"),
            !is_kept,
            "{out}"
        );
    }
    // A cluster is of one organization.
    person.file("config/tidewaiter/cloud.yaml", &before);
    let named = ["cloud", "login", "--organization", ORGANIZATION];
    person.run_with(&named, &password).await.well();
    let text = fs::read_to_string(person.contexts()).unwrap();
    assert!(text.contains(ORGANIZATION) && !text.contains("production"), "{text}");
}

#[tokio::test]
async fn a_program_has_its_token_in_the_environment_and_needs_no_context() {
    const SERVER: &str = "TIDEWAITER_CLOUD_SERVER";
    const PLACE: &str = "TIDEWAITER_CLOUD_ORGANIZATION";
    let person = Person::new().await;
    let get = ["cloud", "get", "users"];
    let [token, server, place] = [(PROGRAM, TOKEN), (SERVER, &*person.cloud.url), (PLACE, ORGANIZATION)];
    let out = person.run_with(&get, &[token, server, place]).await.well();
    assert!(out.contains("alice@example.com"), "{out}");
    let flag = [&get[..], &["--organization", ORGANIZATION]].concat();
    person.run_with(&flag, &[token, server]).await.well();
    for (variables, words) in [
        (
            &[(PROGRAM, ""), server, place][..],
            &["TIDEWAITER_CLOUD_TOKEN is empty", "unset it"][..],
        ),
        (&[token, place], &["set TIDEWAITER_CLOUD_SERVER too"]),
        (&[token, (SERVER, ""), place], &["TIDEWAITER_CLOUD_SERVER is empty"]),
        (
            &[token, (SERVER, "http://cloud.example.com"), place],
            &["plain HTTP", "https://"],
        ),
        (
            &[token, server],
            &["no organization is selected", "or set TIDEWAITER_CLOUD_ORGANIZATION"],
        ),
        (&[token, server, (PLACE, "acme")], &["TIDEWAITER_CLOUD_ORGANIZATION: "]),
        (
            &[(PROGRAM, "hunter2 hunter2"), server, place],
            &["TIDEWAITER_CLOUD_TOKEN: (not shown)"],
        ),
        (
            &[(PROGRAM, "hunter2-revoked"), server, place],
            &["the token in TIDEWAITER_CLOUD_TOKEN has expired", "tokens create"],
        ),
        (
            &[token, server, place, ("TIDEWAITER_CLOUD_CONTEXT", "test")],
            &["TIDEWAITER_CLOUD_TOKEN is set, and the context \"test\" is selected"],
        ),
    ] {
        person.run_with(&get, variables).await.refused(1, words);
    }
    assert!(!person.contexts().exists());
}

#[tokio::test]
async fn the_token_of_a_program_takes_the_place_of_the_context_and_leaves_it_as_it_is() {
    let person = Person::logged_in().await;
    let url = person.cloud.url.clone();
    let program = [(PROGRAM, "hunter2-program"), ("TIDEWAITER_CLOUD_SERVER", &*url)];
    // The server does not know this token.
    let ran = person.run_with(&["cloud", "whoami"], &program).await;
    ran.refused(1, &["the token in TIDEWAITER_CLOUD_TOKEN has expired"]);
    let out = person.run_with(&["cloud", "context", "list"], &program).await.well();
    assert!(out.contains("test") && !out.contains("program"), "{out}");
    let set = ["cloud", "context", "set", "--cluster", "production"];
    let ran = person.run_with(&set, &program).await;
    assert!(ran.code == 0 && ran.err.is_empty(), "{}", ran.err);
    person.cloud.seen();
    person.run_with(&["cloud", "logout"], &program).await.well();
    let revoked = person.cloud.seen();
    assert!(
        revoked.len() == 1 && revoked[0].line == "DELETE /v3/account/tokens/current",
        "{revoked:?}"
    );
}

#[tokio::test]
async fn contexts_are_listed_and_changed() {
    let person = Person::logged_in().await;
    let out = person.run(&["cloud", "context", "list"]).await.well();
    assert!(
        out.lines().nth(1).unwrap().starts_with('*') && out.contains("production"),
        "{out}"
    );
    let list = ["cloud", "context", "list", "-o"];
    let named = async |format| person.run(&[&list[..], &[format]].concat()).await.well();
    assert_eq!(named("name").await, "Context/test\n");
    assert_eq!(named("jsonpath={[*].email}").await, "alice@example.com");
    person
        .run(&["cloud", "context", "use", "nowhere"])
        .await
        .refused(1, &["\"nowhere\""]);
    let other = "99999999-9999-4999-8999-999999999999";
    person
        .run(&["cloud", "context", "set", "--organization", other])
        .await
        .well();
    let text = fs::read_to_string(person.contexts()).unwrap();
    assert!(
        text.contains(other) && !text.contains("production"),
        "the cluster was the other organization's: {text}"
    );
}

#[tokio::test]
async fn a_cluster_that_does_not_exist_is_not_set() {
    let person = Person::logged_in().await;
    let run = async |cluster: &str| person.run(&["cloud", "context", "set", "--cluster", cluster]).await;
    let before = fs::read_to_string(person.contexts()).unwrap();
    for wrong in ["prodution", "99999999-9999-4999-8999-999999999999"] {
        let words = [wrong, "--cluster is ", "the organization has \"production\""];
        run(wrong).await.refused(1, &words);
    }
    for wrong in ["", "two\nlines"] {
        run(wrong).await.refused(1, &["--cluster is "]);
    }
    assert_eq!(fs::read_to_string(person.contexts()).unwrap(), before);
    run(CLUSTER).await.well();
    assert!(fs::read_to_string(person.contexts()).unwrap().contains(CLUSTER));

    // Nobody can say that it does not exist.
    person
        .cloud
        .refuse("GET /v3/organizations/", StatusCode::SERVICE_UNAVAILABLE);
    let ran = run("staging").await;
    assert!(
        ran.err.contains("it is not checked that the cluster exists") && ran.err.contains("503"),
        "{}",
        ran.err
    );
    ran.well();
    assert!(fs::read_to_string(person.contexts()).unwrap().contains("staging"));
}

#[tokio::test]
async fn a_file_that_others_may_read_or_that_is_broken_is_refused() {
    let person = Person::logged_in().await;
    fs::set_permissions(person.contexts(), fs::Permissions::from_mode(0o640)).unwrap();
    person
        .run(&["cloud", "whoami"])
        .await
        .refused(1, &["readable by other users", "chmod 600"]);
    fs::set_permissions(person.contexts(), fs::Permissions::from_mode(0o600)).unwrap();
    person.file("config/tidewaiter/cloud.yaml", &format!("contexts: {TOKEN} [\n"));
    person
        .run(&["cloud", "whoami"])
        .await
        .refused(1, &["is not a contexts file"]);
}

#[tokio::test]
async fn a_token_does_not_go_in_plain_text_to_another_host() {
    let person = Person::new().await;
    let login = [
        "cloud",
        "login",
        "--server",
        "http://cloud.example.com",
        "alice@example.com",
    ];
    let ran = person
        .run_with(&login, &[("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)])
        .await;
    ran.refused(1, &["plain HTTP", "https://"]);
}

/// The context has this server from now on.
pub fn moved(person: &Person, url: &str) {
    let text = fs::read_to_string(person.contexts()).unwrap();
    let path = person.contexts();
    person.file(
        path.strip_prefix(person.home.path()).unwrap().to_str().unwrap(),
        &text.replace(&person.cloud.url, url),
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_and_a_port_without_tls_name_the_remedy() {
    let person = Person::new().await;
    let plain = person.cloud.url.replace("http://", "https://");
    let server = ConnectProxy::start_with_tls(([127, 0, 0, 1], 1).into()).await;
    let untrusted = format!("https://{}", server.address());
    let password = [("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)];
    for (url, remedy) in [
        (&plain, "without TLS: correct the port"),
        (&untrusted, "--ca-file FILE"),
    ] {
        let login = ["cloud", "login", "--server", url, "alice@example.com"];
        let ran = person.run_with(&login, &password).await;
        ran.refused(1, &["cannot log in to", url, remedy]);
    }
    let link = format!("{untrusted}/invitation?secret=twi_a");
    let accept = ["cloud", "accept", &link, "--name", "Ivy"];
    let ran = person
        .run_with(&accept, &[("TIDEWAITER_CLOUD_NEW_PASSWORD", PASSWORD)])
        .await;
    ran.refused(1, &["tidewaiter cloud accept --ca-file FILE"]);
    // An error says whether it is about the file or about the certificate of the server.
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (text, wanted) in [
        (
            other.cert.pem().as_str(),
            "no authority in the file of --ca-file issued it",
        ),
        ("no certificate", "ca.crt (--ca-file)"),
        (broken, "ca.crt (--ca-file)"),
    ] {
        let file = person.file("ca.crt", text);
        let login = [
            "cloud",
            "login",
            "--server",
            &untrusted,
            "--ca-file",
            &file,
            "alice@example.com",
        ];
        let ran = person.run_with(&login, &password).await;
        ran.refused(1, &[wanted]);
        let is_of_server = ran.err.contains("the certificate of the server");
        assert_eq!(is_of_server, wanted.contains("issued it"), "{}", ran.err);
    }
    // So does a login that was made before.
    let person = Person::logged_in().await;
    moved(&person, &untrusted);
    let ran = person.run(&["cloud", "get", "users"]).await;
    ran.refused(1, &["certificate of the server is not trusted", "--ca-file FILE"]);
}

#[tokio::test]
async fn a_kubeconfig_that_does_not_exist_names_the_remedy() {
    let person = Person::new().await;
    let plan = ["upgrade", "plan", "u"];
    let ran = person.run_with(&plan, &[("KUBECONFIG", "/nowhere")]).await;
    ran.refused(
        1,
        &["KUBECONFIG is \"/nowhere\", and there is no such file", "--kubeconfig"],
    );
    let ran = person.run(&plan).await;
    ran.refused(1, &["no cluster to work in: use --kubeconfig FILE or KUBECONFIG"]);
}

#[tokio::test]
async fn an_upgrade_of_the_standard_input_is_read_before_the_cluster() {
    let person = Person::new().await;
    let ran = person
        .run_fed(&["upgrade", "plan", "-f", "-"], "a: 1\n---\nb: 2\n")
        .await;
    ran.refused(1, &["the standard input must contain exactly one document"]);
}

#[tokio::test]
async fn a_server_that_is_away_is_said_within_seconds() {
    let person = Person::logged_in().await;
    let closed = format!("http://127.0.0.1:{}", tidewaiter_testkit::free_port());
    moved(&person, &closed);
    let ran = tokio::time::timeout(Duration::from_mins(1), person.run(&["cloud", "whoami"]))
        .await
        .unwrap();
    ran.refused(1, &["GET /v3/account failed: cannot connect to", &closed]);
}

#[tokio::test]
async fn a_login_is_tried_once_because_the_server_counts() {
    let person = Person::new().await;
    person.cloud.refuse("POST /v3/login", StatusCode::SERVICE_UNAVAILABLE);
    let login = ["cloud", "login", "--server", &person.cloud.url, "alice@example.com"];
    let ran = person
        .run_with(&login, &[("TIDEWAITER_CLOUD_PASSWORD", PASSWORD)])
        .await;
    ran.refused(1, &["503", "not now"]);
    assert_eq!(person.cloud.logins(), 1);
}

#[tokio::test]
async fn the_version_of_a_part_that_does_not_answer_is_unknown() {
    let person = Person::new().await;
    let own = env!("CARGO_PKG_VERSION");
    let client = person.run(&["version", "--client", "-o", "json"]).await.well();
    assert_eq!(
        client.split_whitespace().collect::<String>(),
        format!("{{\"client\":\"{own}\",\"programs\":[]}}")
    );
    let all = person.run(&["version"]).await.well();
    assert!(
        all.contains(own) && all.contains("unknown: you are not logged in"),
        "{all}"
    );
    assert_eq!(all.matches("unknown: ").count(), 2, "{all}");
}
