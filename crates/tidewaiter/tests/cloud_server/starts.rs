//! From nothing to a server that a person uses, and its end.

use std::time::{Duration, Instant};

use reqwest::{Certificate, Client};
use tidewaiter_testkit::{Program, eventually};

use crate::world::{EMAIL, Land, On, PASSWORD, Place, SOON};

#[tokio::test]
async fn a_new_user_gets_from_nothing_to_a_login() {
    let place = Place::new(On::Sqlite).await;
    let said = place.init().await;
    for wanted in [
        "Organization  Acme",
        EMAIL,
        "tidewaiter cloud serve --settings",
        "tidewaiter cloud login --server",
    ] {
        assert!(said.contains(wanted), "no {wanted} in {said}");
    }
    let server = place.serve().await;
    let land = Land::make(&server).await;
    let account = server.get(&land.token, "/v3/account").await.is(200);
    assert_eq!(account.field("email"), EMAIL);
    assert_eq!(server.get(&land.api_key, &land.labels).await.is(200).body, "[]");
    server.process.stop(SOON).await;
    // Existing files are not created again.
    let password = place.scratch.path().join("password").display().to_string();
    let words = [
        "init",
        "--organization",
        "Acme",
        "--email",
        EMAIL,
        "--password-file",
        &password,
    ];
    place.without_public_url();
    let (code, said) = place.run(&words).await;
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("already"), "{said}");
    assert!(!place.data.join("tls").exists(), "the server would change to HTTPS");
}

#[tokio::test]
async fn an_init_that_can_make_no_certificate_has_made_no_organization() {
    let place = Place::new(On::Sqlite).await;
    place.without_public_url();
    let obstacle = place.data.join("tls");
    std::fs::create_dir(&place.data).unwrap();
    std::fs::File::create(&obstacle).unwrap();
    let (code, said) = place.run_program(place.init_program()).await;
    assert!(code == 1 && said.contains("tls"), "{code}: {said}");
    std::fs::remove_file(obstacle).unwrap();
    place.init().await;
}

#[tokio::test]
async fn two_commands_serve_https_on_this_machine_and_the_printed_login_trusts_it() {
    let place = Place::new(On::Sqlite).await;
    place.without_public_url();
    let said = place.init().await;
    let (url, authority) = (
        format!("https://localhost:{}", place.port),
        place.data.join("tls/ca.crt"),
    );
    let login = said.lines().find(|line| line.contains("cloud login")).unwrap().trim();
    let wanted = format!(
        "tidewaiter cloud login --server {url} --ca-file {} {EMAIL}",
        authority.display()
    );
    assert_eq!(login, wanted);
    assert!(said.contains("browsers warn of it"), "{said}");
    // Without its file, the certificate is issued again; the server does not change to plain HTTP.
    std::fs::remove_file(place.data.join("tls/server.pem")).unwrap();
    let server = place.start();
    let client = || Client::builder().no_proxy();
    let trusted = Certificate::from_pem(&std::fs::read(&authority).unwrap()).unwrap();
    let http = client().tls_certs_only([trusted]).build().unwrap();
    let ready = format!("{url}/readyz");
    eventually("the server to be ready", SOON, async || {
        assert!(server.process.is_running(), "{}", server.process.log_tail());
        let answer = http.get(&ready).send().await;
        answer.and_then(reqwest::Response::error_for_status).map(drop)
    })
    .await;
    let stranger = client().build().unwrap();
    assert!(stranger.get(&ready).send().await.unwrap_err().is_connect());
    let words = shlex::split(login).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
        .name("login")
        .args(words.into_iter().skip(1))
        .env("XDG_CONFIG_HOME", place.scratch.path().display().to_string())
        .env("TIDEWAITER_CLOUD_PASSWORD", PASSWORD);
    let (code, said) = place.run_program(program).await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test]
async fn the_next_step_after_init_serves_the_same_database() {
    let place = Place::new(On::Sqlite).await;
    let data = place.scratch.path().join("a folder");
    let database = format!("sqlite://{}/another.db", place.scratch.path().display());
    let program = place.init_program().arg("--data").arg(&data);
    let (code, said) = place.run_program(program.args(["--database", &database])).await;
    assert_eq!(code, 0, "{said}");
    let next = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("tidewaiter cloud serve "));
    let flags = shlex::split(next.expect("the command that serves")).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_tidewaiter"))
        .name("serve")
        .args(["cloud", "serve", "--print-config"])
        .args(flags);
    let (code, printed) = place.run_program(program).await;
    assert_eq!(code, 0, "{printed}");
    for wanted in [format!("data: {}", data.display()), format!("database: {database}")] {
        assert!(printed.contains(&wanted), "no {wanted} in {printed}");
    }
}

#[tokio::test]
async fn the_database_lies_in_the_data_directory_whatever_that_is_called() {
    for name in ["team#1", "a b", "Größe", "100%41", "what?", "it's \"x\"", "a;b&c=d"] {
        let place = Place::new(On::Sqlite).await;
        let data = place.scratch.path().join("data").join(name);
        let init = async || place.run_program(place.init_program().arg("--data").arg(&data)).await;
        let (code, said) = init().await;
        assert_eq!(code, 0, "{name}: {said}");
        assert!(data.join("cloud.db").is_file(), "{name}: {said}");
        let (code, said) = init().await;
        assert!(code == 1 && said.contains("already"), "{name}: {said}");
    }
}

#[tokio::test]
async fn what_is_printed_of_the_settings_can_be_read_again() {
    let place = Place::new(On::Postgres).await;
    let (code, printed) = place.run(&["serve", "--print-config"]).await;
    assert_eq!(code, 0, "{printed}");
    assert!(
        !printed.contains(place.database_password.as_deref().unwrap()),
        "{printed}"
    );
    assert!(
        printed.contains(&format!("address: 127.0.0.1:{}", place.port)),
        "{printed}"
    );
    place.secret_file("settings.yaml", &printed);
    let again = place.run(&["serve", "--print-config"]).await;
    assert_eq!(again, (0, printed));
}

#[tokio::test]
async fn the_settings_are_printed_without_the_password_file_and_nothing_else_is_done_without_it() {
    let place = Place::new(On::Postgres).await;
    let (code, printed) = place.run(&["serve", "--print-config"]).await;
    assert_eq!(code, 0, "{printed}");
    let settings: serde_json::Value = serde_saphyr::from_str(&printed).unwrap();
    std::fs::remove_file(settings["databasePasswordFile"].as_str().unwrap()).unwrap();
    assert_eq!(place.run(&["serve", "--print-config"]).await, (0, printed));
    let copy = place.scratch.path().join("copy").display().to_string();
    for words in [&["serve"][..], &["backup", &copy], &["restore", &copy]] {
        let (code, said) = place.run(words).await;
        assert_eq!(code, 2, "{words:?}: {said}");
        assert!(
            said.contains("databasePasswordFile is ") && said.contains("cannot be read"),
            "{said}"
        );
    }
}

#[tokio::test]
async fn told_to_stop_it_ends_at_once_though_clients_hold_connections() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.serve().await;
    let land = Land::make(&server).await;
    let events = format!("{}/events", land.cluster);
    let mut stream = server.http.get(format!("{}{events}", server.base));
    stream = stream.header("authorization", format!("JWT {}", land.api_key));
    let mut stream = stream.send().await.unwrap().error_for_status().unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    let begin = Instant::now();
    let status = server.process.stop(SOON).await;
    let took = begin.elapsed();
    println!("SIGTERM to the end: {took:?}");
    assert!(status.success(), "{status}\n{}", server.process.log_tail());
    // A second where nothing else runs; what it must not be is the grace of answers that are under way, ten.
    assert!(took < Duration::from_secs(8), "{took:?}");
    // The stream ended in order: not by a connection that broke.
    while stream.chunk().await.unwrap().is_some() {}
    eventually("the port to be free", SOON, async || {
        std::net::TcpListener::bind(("127.0.0.1", place.port)).map(drop)
    })
    .await;
}
