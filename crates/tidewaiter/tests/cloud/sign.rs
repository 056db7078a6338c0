//! Manifests and scripts are signed without the cloud.

use jiff::SignedDuration;
use minisign::KeyPair;
use serde_json::json;
use tidewaiter_cloud::signed::{Statement, TrustedKey, manifests_digest, verify};
use tidewaiter_kit::SystemClock;
use tidewaiter_upgrade::signed::{Expected, Statement as Signed, open, statements};

use crate::world::Person;

const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";
const UPGRADE: &str = "eeeeeeee-0000-4000-8000-000000000001";
const SCRIPT: &str = "#!/bin/sh\nexit 0\n";
const MANIFESTS: &str = "manifests: [[{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {'n': '1'}}]]\n";

#[tokio::test]
async fn manifests_are_signed_with_a_key_and_shown_without_one() {
    let person = Person::new().await;
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let key = person.file("minisign.key", &pair.sk.to_box(None).unwrap().into_string());
    let file = person.file("manifests.yaml", MANIFESTS);
    let sign = [
        "cloud",
        "sign",
        "--cluster",
        CLUSTER,
        "--plugin",
        PLUGIN,
        "--type",
        "metrics",
        "--implementation",
        "prometheus",
        "--plugin-version",
        "1.2.3",
        "-f",
    ];
    let with = |more: &[&str]| sign.iter().chain(more).map(ToString::to_string).collect::<Vec<_>>();
    let run = async |more: &[&str]| {
        let arguments = with(more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        person.run(&arguments).await
    };
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"n": "1"}});
    let digest = manifests_digest(&json!({"manifests": [[object]]}));
    let statement = Statement {
        cluster: CLUSTER,
        plugin: PLUGIN,
        plugin_type: "metrics",
        implementation: "prometheus",
        version: "1.2.3",
        digest: &digest,
    };
    assert_eq!(run(&[&file]).await.well(), statement.text().unwrap());
    // A list is its items, as in the catalogue.
    let list = MANIFESTS
        .replace("[[", "[[{apiVersion: v1, kind: List, items: [")
        .replace("]]", "]}]]");
    let list = person.file("list.yaml", &list);
    assert_eq!(run(&[&list]).await.well(), statement.text().unwrap());
    let signature = run(&[&file, "--secret-key", &key]).await.well();
    let trusted: TrustedKey = pair.pk.to_base64().parse().unwrap();
    assert!(verify(&[trusted], &statement, &signature).unwrap() > 1_767_225_600);
    assert!(person.cloud.seen().is_empty(), "nothing is asked of the cloud");

    // Input that the cloud would refuse is not signed.
    let wrong = person.file("wrong.yaml", "manifests: [[{kind: ConfigMap}]]\n");
    run(&[&wrong]).await.refused(1, &["wrong.yaml", "apiVersion"]);
    run(&[&file, "--secret-key", &file])
        .await
        .refused(1, &["the secret key cannot be used"]);
}

#[tokio::test]
async fn a_script_is_signed_for_its_nodes_and_with_two_keys() {
    let person = Person::new().await;
    let [old, new] = [(), ()].map(|()| KeyPair::generate_unencrypted_keypair().unwrap());
    let secret = |name: &str, pair: &KeyPair| person.file(name, &pair.sk.to_box(None).unwrap().into_string());
    let (old_key, new_key) = (secret("old.key", &old), secret("new.key", &new));
    let sign = async |file: &str, key: &str, more: &[&str]| {
        let words = [
            "cloud",
            "sign-script",
            "--cluster",
            CLUSTER,
            "--upgrade",
            UPGRADE,
            "--target-version",
            "v1.36.3",
            "--node",
            "w1",
            "--node",
            "w2",
            "-f",
            file,
            "--secret-key",
            key,
        ];
        person.run(&[&words[..], more].concat()).await
    };
    let once = sign(&person.file("upgrade.sh", SCRIPT), &old_key, &[]).await.well();
    let twice = sign(&person.file("signed.sh", &once), &new_key, &["--expires-in", "1h"])
        .await
        .well();
    assert!(twice.starts_with(&once));
    assert!(person.cloud.seen().is_empty(), "nothing is asked of the cloud");
    let now = SystemClock::shared().now();
    let opened = |text: &str, pair: &KeyPair, node: &str, hours| {
        let (node, version) = (node.parse().unwrap(), "v1.36.3".parse().unwrap());
        let expected = Expected {
            keys: &[pair.pk.to_base64().parse().unwrap()],
            cluster: CLUSTER,
            node: &node,
            upgrade: UPGRADE,
            version: &version,
            newest: 0,
            now: now + SignedDuration::from_hours(hours),
        };
        open(text, &expected).map(|script| script.body().to_owned())
    };
    for node in ["w1", "w2"] {
        assert_eq!(opened(&twice, &old, node, 23).as_deref(), Ok(SCRIPT), "{node}");
        assert_eq!(opened(&twice, &new, node, 0).as_deref(), Ok(SCRIPT), "{node}");
        assert!(
            opened(&twice, &new, node, 2)
                .unwrap_err()
                .to_string()
                .contains("expired")
        );
        assert!(
            opened(&once, &new, node, 0)
                .unwrap_err()
                .to_string()
                .contains("not trusted")
        );
    }
    assert!(opened(&twice, &new, "w3", 0).is_err());

    // The script is on standard output, and what comes next beside it.
    let signing = sign(&person.file("upgrade.sh", SCRIPT), &old_key, &[]).await;
    for words in [
        "signed for w1 until ",
        "signed for w2 until ",
        "give those of the control plane with --control-plane",
        &format!("tidewaiter cloud set-script {UPGRADE} -f FILE"),
    ] {
        assert!(signing.err.contains(words), "{words} in {}", signing.err);
    }

    // Input that the cloud would refuse is not signed.
    let wrong = person.file("wrong.sh", "echo\n");
    sign(&wrong, &old_key, &[])
        .await
        .refused(1, &["wrong.sh", "must begin with #!/"]);
    let windows = person.file("windows.sh", "#!/bin/sh\r\nexit 0\r\n");
    sign(&windows, &old_key, &[])
        .await
        .refused(1, &["windows.sh", "carriage return"]);
    let file = person.file("upgrade.sh", SCRIPT);
    sign(&file, &file, &[])
        .await
        .refused(1, &["the secret key cannot be used"]);
    let public = person.file("minisign.pub", &old.pk.to_box().unwrap().into_string());
    sign(&file, &public, &[])
        .await
        .refused(1, &["minisign.pub", "it is a public key", "the other file"]);
    let long = sign(&file, &old_key, &["--expires-in", "721h"]).await;
    assert!(long.code == 2 && long.err.contains("from 1m to 30d"), "{}", long.err);
}

/// Those of the control plane one after the other, and then the others.
#[tokio::test]
async fn the_nodes_of_the_control_plane_have_windows_that_follow_each_other() {
    let person = Person::new().await;
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let key = person.file("minisign.key", &pair.sk.to_box(None).unwrap().into_string());
    let script = person.file("upgrade.sh", SCRIPT);
    let base = format!(
        "cloud sign-script --cluster {CLUSTER} --upgrade {UPGRADE} --target-version v1.36.3 -f {script} --secret-key {key}"
    );
    let run_on = async |base: &str, more: &str| {
        let line = format!("{base} {more}");
        let words: Vec<&str> = line.split_whitespace().collect();
        person.run(&words).await
    };
    let run = async |more: &str| run_on(&base, more).await;
    // The begin and the end of each, in minutes after the beginning.
    let begin = SystemClock::shared().now().as_second() + 3600;
    let begin = jiff::Timestamp::from_second(begin).unwrap();
    let minutes = |signed: &str| {
        let minutes = |time: jiff::Timestamp| time.duration_since(begin).as_secs().div_euclid(60);
        let of = |signed: &Signed| {
            let begin = signed.not_before.map(minutes);
            format!("{} {begin:?} {}", signed.node, minutes(signed.expires))
        };
        statements(signed).unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let later = format!("--control-plane b --control-plane a --node w1 --node w2 --not-before {begin}");
    let signed = run(&later).await.well();
    let expected = ["b Some(0) 20", "a Some(20) 40", "w1 Some(40) 1380", "w2 Some(40) 1380"];
    assert_eq!(minutes(&signed)[..2], expected[..2]);
    for (found, expected) in minutes(&signed).iter().zip(expected) {
        // The others expire a day after the signing, to the second.
        assert!(
            found[..8] == expected[..8] && found.contains("13") == expected.contains("13"),
            "{found}"
        );
    }
    let short = run("--control-plane b --control-plane a --stagger 5m").await;
    assert!(
        short.err.contains("signed for b from ") && !short.err.contains("give those"),
        "{}",
        short.err
    );
    let windows = statements(&short.well()).unwrap();
    assert_eq!(windows[0].expires, windows[1].not_before.unwrap());
    assert_eq!((windows[1].expires - windows[0].not_before.unwrap()).get_seconds(), 600);
    // Signed again, also with another key, each has the time that it has, and another one comes after them.
    let other = KeyPair::generate_unencrypted_keypair().unwrap();
    let other = person.file("other.key", &other.sk.to_box(None).unwrap().into_string());
    let again = person.file("again.sh", &signed);
    let base_again = base.replace(&script, &again).replace(&key, &other);
    let run_again = async |more: &str| run_on(&base_again, more).await;
    let twice = run_again("--control-plane c --control-plane a --control-plane b --node w1 --node w2").await;
    let twice = twice.well();
    assert_eq!(
        minutes(&twice)[4..7],
        ["c Some(40) 60", "a Some(20) 40", "b Some(0) 20"]
    );
    // One that is not named may be of the control plane, and could run it beside the new one.
    for (more, words) in [
        ("", "run it then: b. Name"),
        (" --control-plane b --node w1", "run it then: a. Name"),
        (
            " --control-plane a --control-plane b --node w1",
            "run it then: w2. Name",
        ),
    ] {
        let refused = run_again(&format!("--control-plane c --not-before {begin}{more}")).await;
        refused.refused(1, &["the time of c would be from", words, "--control-plane", "--node"]);
    }
    // Also one that is named without its group.
    let kept = run_again("--control-plane b --node a --node w1").await.well();
    assert_eq!(minutes(&kept)[4..6], ["b Some(0) 20", "a Some(20) 40"]);
    assert_eq!(minutes(&kept)[6], minutes(&signed)[2]);
    assert_eq!(minutes(&run_again("--node a").await.well())[4..], ["a Some(20) 40"]);
    // One that may run it at any time would run it beside them.
    let free = person.file("free.sh", &run("--node a --node b").await.well());
    run_on(&base.replace(&script, &free), "--control-plane a")
        .await
        .refused(
            1,
            &["a signature for a that has no beginning", "without its signatures"],
        );
    // Workers alone have no beginning, as before.
    assert_eq!(statements(&run("--node w1").await.well()).unwrap()[0].not_before, None);
    for (wrong, code, words) in [
        ("", 2, "<--node <NAME>|--control-plane <NAME>>"),
        ("--control-plane a --stagger 1m", 2, "from 2m to 24h"),
        ("--node a --stagger 20m", 2, "--control-plane"),
        ("--control-plane a --expires-in 10m", 1, "give more"),
        ("--control-plane a --node w1 --expires-in 20m", 1, "give more"),
        ("--node w1 --not-before 2026-01-01T00:00:00Z", 1, "it is over"),
        ("--node w1 --node w1", 1, "w1 is named twice"),
        ("--control-plane a --node a", 1, "a is named twice"),
        ("--node w1 --not-before tomorrow", 2, "for example 2026-11-28T02:00:00Z"),
        (
            "--node w1 --not-before 2126-01-01T00:00:00Z --expires-in 30d",
            1,
            "it counts from now",
        ),
    ] {
        let refused = run(wrong).await;
        assert!(
            refused.code == code && refused.err.contains(words),
            "{wrong}: {} {}",
            refused.code,
            refused.err
        );
    }
}

/// The password of an account is not tried on a key.
#[tokio::test]
async fn the_password_of_a_key_has_a_variable_of_its_own() {
    let person = Person::new().await;
    let (right, other) = ("hunter2-of-the-key", "hunter2-of-the-account");
    let pair = KeyPair::generate_encrypted_keypair(Some(right.to_owned())).unwrap();
    let key = person.file("minisign.key", &pair.sk.to_box(None).unwrap().into_string());
    let script = person.file("upgrade.sh", SCRIPT);
    let manifests = person.file("manifests.yaml", MANIFESTS);
    let script = format!(
        "cloud sign-script --cluster {CLUSTER} --upgrade {UPGRADE} --target-version v1.36.3 --node w1 -f {script} --secret-key {key}"
    );
    let manifests = format!(
        "cloud sign --cluster {CLUSTER} --plugin {PLUGIN} --type a --implementation b --plugin-version 1.2.3 -f {manifests} --secret-key {key}"
    );
    for line in [script, manifests] {
        let words: Vec<&str> = line.split(' ').collect();
        let account = ("TIDEWAITER_CLOUD_PASSWORD", other);
        let run = async |variables: &[(&str, &str)]| person.run_with(&words, variables).await;
        let signing = run(&[account, ("TIDEWAITER_SIGNING_PASSWORD", right)]).await;
        assert!(signing.err.contains("takes some seconds"), "{}", signing.err);
        signing.well();
        run(&[("TIDEWAITER_CLOUD_PASSWORD", right)])
            .await
            .refused(1, &["no password", "--password-file", "TIDEWAITER_SIGNING_PASSWORD"]);
        let wrong = run(&[("TIDEWAITER_SIGNING_PASSWORD", other)]).await;
        assert!(
            wrong.code == 1 && wrong.err.contains("minisign.key: the secret key cannot be used"),
            "{}",
            wrong.err
        );
    }
    // Nor is it taken for a setting of the server.
    let serve = ["cloud", "serve", "--print-config"];
    let printed = person.run_with(&serve, &[("TIDEWAITER_SIGNING_PASSWORD", right)]).await;
    assert_eq!((printed.code, &*printed.err), (0, ""));
}
