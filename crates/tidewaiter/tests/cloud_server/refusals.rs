//! The settings with which a server, and the programs beside it, do not start: exit code 2, one line, and in it the
//! setting and what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use rustix::process::Signal;
use tidewaiter_testkit::eventually;

use crate::interrupted::signal;
use crate::world::{On, Place, SOON};

/// Serves with `words` and expects the refusal to hold each of `wanted`.
async fn refused(place: &Place, words: &[&str], wanted: &[&str]) -> String {
    let words: Vec<&str> = ["serve"].iter().chain(words).copied().collect();
    refused_command(place, &words, wanted).await
}

async fn refused_command(place: &Place, words: &[&str], wanted: &[&str]) -> String {
    let (code, said) = place.run(words).await;
    assert_eq!(code, 2, "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("tidewaiter: "), "{said}");
    for wanted in wanted {
        assert!(last.contains(wanted), "no {wanted} in {said}");
    }
    said
}

#[tokio::test]
async fn settings_that_cannot_be_meant_are_refused_by_name() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    for database in [
        "postgres://tidewaiter:hunter2@127.0.0.1/cloud",
        "postgres://tidewaiter@127.0.0.1/cloud?sslmode=prefer&password=hunter2",
    ] {
        let wanted = ["contains a password", "databasePasswordFile"];
        let said = refused(&place, &["--database", database], &wanted).await;
        assert!(!said.contains("hunter2"), "{said}");
    }
    refused(
        &place,
        &["--database", "mysql://127.0.0.1/cloud"],
        &["database", "mysql", "sqlite:///", "postgres://"],
    )
    .await;
    refused(&place, &["--database", "cloud.db"], &["database", "sqlite:///"]).await;
    refused(
        &place,
        &["--database", "sqlite:///x/team#1"],
        &["database", "team#1", "# is written as %23"],
    )
    .await;
    for url in [
        "https://cloud.example.com?team=a",
        "https://cloud.example.com/#a",
        "https://cloud.example.com/team?",
        "cloud.example.com",
    ] {
        let wanted = ["publicUrl", url, "without a query or fragment"];
        refused(&place, &["--public-url", url], &wanted).await;
    }
    for url in [
        "https://u:hunter2@cloud.example.org/x/",
        "https://hunter2@cloud.example.org",
        "https://:hunter2@cloud.example.org",
    ] {
        for also in [&[][..], &["--print-config"]] {
            let words = [&["--public-url", url][..], also].concat();
            let said = refused(&place, &words, &["publicUrl", "must not contain a user or a password"]).await;
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
    refused(
        &place,
        &["--address", "0.0.0.0:0"],
        &["address", "tlsCertificate", "127.0.0.1"],
    )
    .await;
    refused(&place, &["--tls-key", "/nowhere.pem"], &["tlsCertificate", "tlsKey"]).await;
    refused(
        &place,
        &["--tls-key", "/no.key", "--tls-certificate", "/no.pem"],
        &["/no.pem"],
    )
    .await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&place, &["--address", &address], &["address", &address]).await;
}

#[tokio::test]
async fn limits_that_cannot_be_meant_are_refused_by_name() {
    for (setting, value, wanted) in [
        (
            "trustedProxies",
            "[10.0.0.0/8, proxy.example.com]",
            ["trustedProxies[1]", "proxy.example.com", "10.0.0.0/8"],
        ),
        ("quotas", "{cluster: 5}", ["quotas", "the key cluster,", "clusters"]),
        (
            "proxyProtocol",
            "true",
            ["proxyProtocol", "trustedProxies", "set it to the proxies"],
        ),
        (
            "acme",
            "{directory: http://acme.example.com}",
            ["acme.directory", "http://acme.example.com", "https://"],
        ),
        ("streamsPerCaller", "0", ["streamsPerCaller", "from 1", ""]),
        ("auditDays", "-1", ["auditDays", "from 1", ""]),
        (
            "signIn",
            "{providers: [{name: a, title: A, issuer: 'http://id.example.com', clientId: a, clientSecretFile: /a}]}",
            ["signIn.providers[0].issuer", "http://id.example.com", "https URL"],
        ),
        (
            "signIn",
            "{providers: [{name: a, title: A, issuer: 'https://id.example.com', clientId: a, clientSecretFile: /none}]}",
            ["clientSecretFile of a", "cannot read /none", ""],
        ),
        ("signIn", "{provider: []}", ["signIn.provider", "signIn.providers", ""]),
    ] {
        let place = Place::new(On::Sqlite).await;
        place.init().await;
        place.add_setting(setting, value);
        refused(&place, &[], &wanted).await;
    }
}

#[tokio::test]
async fn an_address_that_no_client_can_use_is_refused_without_a_public_url() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    place.without_public_url();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let wanted = ["address", address, "set publicUrl"];
        refused(&place, &["--address", address], &wanted).await;
    }
    place.add_setting("acme", "{}");
    refused(&place, &[], &["acme is set", "publicUrl"]).await;
}

#[tokio::test]
async fn a_certificate_that_clients_refuse_is_refused() {
    type Change = fn(&mut CertificateParams);
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let cases: [(&str, Change, &str); 3] = [
        (
            "cloud.example.org",
            |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
            "CA:FALSE",
        ),
        (
            "cloud.example.org",
            |params| params.not_after = date_time_ymd(2020, 1, 1),
            "renew it",
        ),
        ("example.org", |_| {}, "it is not for cloud.example.org"),
    ];
    for (name, change, wanted) in cases {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = place.secret_file("tls.crt", &params.self_signed(&key).unwrap().pem());
        let key = place.secret_file("tls.key", &key.serialize_pem());
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let words = ["--tls-certificate", &certificate, "--tls-key", &key];
        refused(&place, &words, &["tls.crt", "clients refuse", wanted]).await;
    }
}

#[tokio::test]
async fn a_new_certificate_that_clients_refuse_does_not_replace_the_one_in_use() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let write = |name: &str| {
        let tls = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        place.secret_file("tls.pem", &(tls.cert.pem() + &tls.signing_key.serialize_pem()))
    };
    let file = write("cloud.example.org");
    let server = place.start_as(|program| program.arg("--tls-certificate").arg(&file).arg("--tls-key").arg(&file));
    eventually("the server to be ready", SOON, async || {
        let answer = server.http.get(format!("{}/readyz", server.admin)).send().await;
        answer.and_then(reqwest::Response::error_for_status).map(drop)
    })
    .await;
    write("example.org");
    signal(server.process.pid(), Signal::HUP);
    eventually("the new certificate to be refused", SOON, async || {
        let log = server.process.log();
        if log.contains("it is not for cloud.example.org") {
            Ok(())
        } else {
            Err(log)
        }
    })
    .await;
    server.get("", "/readyz").await.is(200);
}

#[tokio::test]
async fn no_command_begins_with_settings_that_cannot_be_meant() {
    let place = Place::new(On::Sqlite).await;
    let password = place.scratch.path().join("password").display().to_string();
    let init = |organization, email, file| {
        let flags = [
            "--organization",
            organization,
            "--email",
            email,
            "--password-file",
            file,
        ];
        ["init"].into_iter().chain(flags).collect::<Vec<_>>()
    };
    let good = init("Acme", "olivia@example.org", &password);
    let copy = place.scratch.path().join("copy").display().to_string();
    for (words, wanted) in [
        (good.clone(), "mysql"),
        (vec!["backup", &copy], "mysql"),
        (vec!["restore", &copy], "mysql"),
    ] {
        let words: Vec<_> = words
            .into_iter()
            .chain(["--database", "mysql://127.0.0.1/cloud"])
            .collect();
        refused_command(&place, &words, &["database", wanted]).await;
    }
    // Of what the words say alone.
    refused_command(&place, &init("Acme", "olivia@example.org", "/no-file"), &["/no-file"]).await;
    refused_command(&place, &["restore", &copy], &[&copy]).await;
    refused_command(&place, &["backup", &password], &[&password, "already"]).await;
    for (organization, email, flag) in [
        ("", "olivia@example.org", "--organization"),
        ("Acme", "olivia", "--email"),
    ] {
        let (code, said) = place.run(&init(organization, email, &password)).await;
        assert!(code == 2 && said.contains(flag), "{code} {said}");
    }
    let (code, said) = place.run(&[&good[..], &["--host", "cloud lan"]].concat()).await;
    assert!(code == 2 && said.contains("--host"), "{code} {said}");
    let data = place.data.display().to_string();
    for keys in ["rotate", "retire", "reseal"] {
        refused_command(&place, &["keys", keys], &[&data, "init"]).await;
    }
    assert!(!place.data.exists(), "nothing was begun");
    place.add_setting("colour", "blue");
    for words in [good, vec!["backup", &copy], vec!["restore", &password]] {
        refused_command(&place, &words, &["colour"]).await;
    }
    for keys in ["rotate", "retire", "reseal"] {
        refused_command(&place, &["keys", keys], &["colour"]).await;
    }
}

#[tokio::test]
async fn keys_that_are_missing_or_that_others_can_read_are_refused() {
    let place = Place::new(On::Sqlite).await;
    fs::create_dir(&place.data).unwrap();
    refused(&place, &[], &[&place.data.join("keys").display().to_string()]).await;
    fs::remove_dir(&place.data).unwrap();
    place.init().await;
    let sealing = place.data.join("sealing-keys");
    fs::set_permissions(&sealing, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&place, &[], &["sealing-keys", "chmod 600"]).await;
    fs::set_permissions(&sealing, fs::Permissions::from_mode(0o600)).unwrap();
    let key = fs::read_dir(place.data.join("keys"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    refused(&place, &[], &[&key.display().to_string(), "chmod 600"]).await;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(&sealing).unwrap();
    refused(&place, &[], &["sealing-keys"]).await;
}

#[tokio::test]
async fn a_file_is_served_by_one_process_alone() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let first = place.serve().await;
    refused(
        &place,
        &["--address", "127.0.0.1:0"],
        &["database", "cloud.db", "another process"],
    )
    .await;
    first.get("", "/readyz").await.is(200);
    // A process that was killed holds nothing.
    first.process.kill();
    place.serve().await;
}
