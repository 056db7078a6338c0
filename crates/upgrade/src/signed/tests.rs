use minisign::KeyPair;
use tidewaiter_signature::SigningKey;

use super::*;
use crate::testing::{name, version};

const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
const UPGRADE: &str = "eeeeeeee-0000-4000-8000-000000000001";
const SCRIPT: &str = "#!/bin/sh\nexit 0\n";
/// When the scripts of the tests are signed.
const SIGNED: i64 = 1_790_000_000;
const HOUR: i64 = 3600;

fn pair() -> (SigningKey, TrustedKey) {
    let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().unwrap();
    let text = sk.to_box(None).unwrap().into_string();
    let key = SigningKey::read::<SignatureError>(&text, || unreachable!("it has no password"));
    (key.unwrap(), pk.to_base64().parse().unwrap())
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn statement_of(script: &str) -> Statement {
    Statement {
        cluster: CLUSTER.to_owned(),
        node: name("w1"),
        upgrade: UPGRADE.to_owned(),
        generation: SIGNED,
        version: version("v1.36.3"),
        sha256: digest(script),
        not_before: None,
        expires: at(SIGNED + HOUR),
    }
}

fn signed_as(statement: &Statement, key: &SigningKey) -> String {
    format!("{SCRIPT}{}", statement.block(key).unwrap())
}

/// The host `w1`, which verifies a text a minute after it was signed.
struct World {
    keys: Vec<TrustedKey>,
    newest: i64,
    seconds: i64,
}

impl World {
    fn trusting(key: &TrustedKey) -> Self {
        Self {
            keys: vec![key.clone()],
            newest: 0,
            seconds: SIGNED + 60,
        }
    }

    fn says<'a>(&self, text: &'a str) -> Result<VerifiedScript<'a>, Untrusted> {
        let (node, target) = (name("w1"), version("v1.36.3"));
        let expected = Expected {
            keys: &self.keys,
            cluster: CLUSTER,
            node: &node,
            upgrade: UPGRADE,
            version: &target,
            newest: self.newest,
            now: at(self.seconds),
        };
        open(text, &expected)
    }

    fn refuses(&self, text: &str) -> String {
        self.says(text).unwrap_err().to_string()
    }
}

#[test]
fn the_text_of_a_statement_is_as_documented() {
    let text = format!(
        "tidewaiter upgrade script 1\ncluster {CLUSTER}\nnode w1\nupgrade {UPGRADE}\ngeneration 1790000000\ntype kubernetes\n\
         version v1.36.3\nsha256 {}\nexpires 2026-09-21T15:13:20Z\n",
        digest(SCRIPT)
    );
    assert_eq!(statement_of(SCRIPT).text().unwrap(), text);
}

#[test]
fn the_text_of_a_statement_with_a_beginning_is_as_documented() {
    let statement = Statement {
        not_before: Some(at(SIGNED + 1200)),
        ..statement_of(SCRIPT)
    };
    let before = statement_of(SCRIPT).text().unwrap();
    let text = before.replace("script 1\n", "script 2\n");
    let text = text.replace("expires ", "notbefore 2026-09-21T14:33:20Z\nexpires ");
    assert_eq!(statement.text().unwrap(), text);
    let (key, _) = pair();
    let signed = signed_as(&statement, &key);
    assert!(is_signed(&signed));
    assert_eq!(body(&signed), SCRIPT);
    // Both forms, in one text.
    let both = format!("{signed}{}", statement_of(SCRIPT).block(&key).unwrap());
    assert_eq!(statements(&both).unwrap(), [statement, statement_of(SCRIPT)]);
}

/// The error of two clocks is thirty seconds.
#[test]
fn nodes_whose_windows_follow_each_other_never_run_at_once() {
    let (key, trusted) = pair();
    let window = |node: &str, begin| Statement {
        node: name(node),
        not_before: Some(at(SIGNED + begin)),
        expires: at(SIGNED + begin + 600),
        ..statement_of(SCRIPT)
    };
    let blocks = [window("w1", 0), window("w2", 600)].map(|window| window.block(&key).unwrap());
    let text = format!("{SCRIPT}{}", blocks.concat());
    let runs = |node: &str, time| {
        let (node, target) = (name(node), version("v1.36.3"));
        let expected = Expected {
            keys: std::slice::from_ref(&trusted),
            cluster: CLUSTER,
            node: &node,
            upgrade: UPGRADE,
            version: &target,
            newest: 0,
            now: at(SIGNED + time),
        };
        // Whatever the order says.
        let end = open(&text, &expected).map(|script| script.limit(at(SIGNED + 999_999)));
        end.map(|end| end.as_second() - SIGNED)
    };
    for time in [0, 1, 569] {
        assert_eq!(runs("w1", time), Ok(570), "{time}");
        assert_eq!(runs("w2", time), Err(Untrusted::Early(at(SIGNED + 600))), "{time}");
    }
    for time in [570, 599, 600, 1169] {
        assert_eq!(runs("w1", time), Err(Untrusted::Expired(at(SIGNED + 600))), "{time}");
        let second = if time < 600 {
            Err(Untrusted::Early(at(SIGNED + 600)))
        } else {
            Ok(1170)
        };
        assert_eq!(runs("w2", time), second, "{time}");
    }
    assert!(runs("w2", 1170).unwrap_err().is_final() && !runs("w2", 0).unwrap_err().is_final());
}

/// An earlier one that has expired says less, and one that counts is enough.
#[test]
fn of_several_signatures_of_a_node_one_that_counts_later_is_waited_for() {
    let (key, trusted) = pair();
    let world = World::trusting(&trusted);
    let block = |not_before: Option<i64>, expires| {
        let not_before = not_before.map(|time| at(SIGNED + time));
        let expires = at(SIGNED + expires);
        let statement = Statement {
            not_before,
            expires,
            ..statement_of(SCRIPT)
        };
        statement.block(&key).unwrap()
    };
    let (early, expired, good) = (block(Some(600), 1200), block(None, 30), block(None, HOUR));
    for (blocks, expected) in [
        ([&early, &expired], Err(Untrusted::Early(at(SIGNED + 600)))),
        ([&expired, &early], Err(Untrusted::Early(at(SIGNED + 600)))),
        ([&early, &good], Ok(None)),
        ([&good, &early], Ok(None)),
    ] {
        let text = format!("{SCRIPT}{}{}", blocks[0], blocks[1]);
        let opened = world.says(&text).map(|script| script.statement.unwrap().not_before);
        assert_eq!(opened, expected, "{text}");
    }
    // Without a beginning, the signature limits no run.
    let plain = format!("{SCRIPT}{good}");
    assert_eq!(
        world.says(&plain).unwrap().limit(at(SIGNED + 999_999)),
        at(SIGNED + 999_999)
    );
}

#[test]
fn a_script_runs_with_its_signature_and_without_the_blocks() {
    let (key, trusted) = pair();
    let text = signed_as(&statement_of(SCRIPT), &key);
    let world = World::trusting(&trusted);
    let script = world.says(&text).unwrap();
    assert_eq!((script.body(), script.generation()), (SCRIPT, Some(SIGNED)));
    assert_eq!(script.repeatable(), Repeatable::No);
    for (newest, seconds) in [
        (SIGNED, SIGNED),
        (SIGNED - 1, SIGNED + HOUR - 1),
        // The clock of the signer may be ahead by five minutes.
        (0, SIGNED - 300),
    ] {
        let keys = world.keys.clone();
        let host = World { keys, newest, seconds };
        assert!(host.says(&text).is_ok(), "{newest} {seconds}");
    }
    assert!(is_signed(&text) && !is_signed(SCRIPT));
}

#[test]
fn a_signature_for_anything_else_is_refused_and_the_refusal_names_the_check() {
    let (key, trusted) = pair();
    let world = World::trusting(&trusted);
    let good = statement_of(SCRIPT);
    for (statement, why) in [
        (
            Statement {
                cluster: "33333333-2222-4222-8222-222222222222".to_owned(),
                ..good.clone()
            },
            "is signed for the cluster 33333333",
        ),
        (
            Statement {
                node: name("w2"),
                ..good.clone()
            },
            "is signed for the node w2, and this is w1",
        ),
        (
            Statement {
                upgrade: "other".to_owned(),
                ..good.clone()
            },
            "is signed for the upgrade other",
        ),
        (
            Statement {
                version: version("v1.35.4"),
                ..good.clone()
            },
            "is signed for the version v1.35.4, and this is v1.36.3",
        ),
        (
            Statement {
                sha256: digest("#!/bin/sh\nrm -rf /\n"),
                ..good.clone()
            },
            "is not the one that was signed",
        ),
        (
            Statement {
                expires: at(SIGNED + 60),
                ..good.clone()
            },
            "the signature expired at 2026-09-21T14:14:20Z",
        ),
        (
            Statement {
                generation: SIGNED + 361,
                ..good.clone()
            },
            "which is in the future",
        ),
    ] {
        let refused = world.refuses(&signed_as(&statement, &key));
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_script_that_was_signed_before_the_newest_one_is_a_replay() {
    let (key, trusted) = pair();
    let text = signed_as(&statement_of(SCRIPT), &key);
    let world = World {
        newest: SIGNED + 1,
        ..World::trusting(&trusted)
    };
    let refused = world.refuses(&text);
    assert!(
        refused.contains("that was signed at 2026-09-21T14:13:21Z was run on this host"),
        "{refused}"
    );
}

#[test]
fn hostile_texts_are_refused_and_the_refusal_names_the_check() {
    let ((key, trusted), (other, _)) = (pair(), pair());
    let world = World::trusting(&trusted);
    let good = signed_as(&statement_of(SCRIPT), &key);
    let lines: Vec<&str> = good.lines().collect();
    // The script has two lines, so the statement begins at the third one.
    let with = |number: usize, line: &str| {
        let mut changed = lines.clone();
        changed[number] = line;
        format!("{}\n", changed.join("\n"))
    };
    let until = |count: usize| format!("{}\n", lines[..count].join("\n"));
    let typed = {
        let text = statement_of(SCRIPT).text().unwrap().replace("kubernetes", "etcd");
        let signature = key.sign(&text, "a", SIGNED).unwrap();
        let block = format!("{text}{signature}")
            .lines()
            .fold(String::new(), |block, line| block + "# " + line + "\n");
        format!("{SCRIPT}{block}")
    };
    let cases = [
        (SCRIPT.to_owned(), "is not signed"),
        (String::new(), "is not signed"),
        (signed_as(&statement_of(SCRIPT), &other), "which is not trusted"),
        (
            format!("#!/bin/sh\nid\n{}", until(15).split_at(SCRIPT.len()).1),
            "is not the one that was signed",
        ),
        (until(14), "truncated"),
        (until(3), "truncated"),
        (with(3, "# cluster other"), "not for this cluster"),
        (with(6, "# generation 1790000009"), "not for this cluster"),
        (with(10, "# expires 2036-09-21T15:13:20Z"), "not for this cluster"),
        (with(12, "# AAAA"), "the signature is malformed"),
        // A line that would run.
        (with(11, "rm -rf /"), "the signature is malformed"),
        (with(5, "rm -rf /"), "not for this cluster"),
        (typed, "is signed for the type etcd, and this is kubernetes"),
    ];
    for (text, why) in cases {
        let refused = world.refuses(&text);
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

#[test]
fn a_host_with_two_keys_trusts_both_and_a_key_that_is_not_pinned_any_more_is_revoked() {
    let ((old, old_trusted), (new, new_trusted)) = (pair(), pair());
    let statement = statement_of(SCRIPT);
    let both = format!("{}{}", signed_as(&statement, &old), statement.block(&new).unwrap());
    for (keys, text, counts) in [
        (vec![&old_trusted], &both, true),
        (vec![&new_trusted], &both, true),
        (vec![&old_trusted, &new_trusted], &signed_as(&statement, &new), true),
        (vec![&new_trusted], &signed_as(&statement, &old), false),
        (vec![], &both, false),
    ] {
        let world = World {
            keys: keys.into_iter().cloned().collect(),
            ..World::trusting(&new_trusted)
        };
        assert_eq!(world.says(text).is_ok(), counts, "{text}");
    }
}

#[test]
fn one_text_may_be_signed_for_several_nodes_and_the_refusal_is_about_this_one() {
    let (key, trusted) = pair();
    let of = |node: &str, expires| Statement {
        node: name(node),
        expires: at(expires),
        ..statement_of(SCRIPT)
    };
    let blocks = |expires| {
        let nodes = [("w0", SIGNED), ("w1", expires), ("w2", SIGNED + HOUR)];
        nodes
            .map(|(node, expires)| of(node, expires).block(&key).unwrap())
            .concat()
    };
    let world = World::trusting(&trusted);
    let text = format!("{SCRIPT}{}", blocks(SIGNED + HOUR));
    assert_eq!(world.says(&text).unwrap().body(), SCRIPT);
    let refused = world.refuses(&format!("{SCRIPT}{}", blocks(SIGNED + 30)));
    assert!(refused.contains("expired at 2026-09-21T14:13:50Z"), "{refused}");
}

#[test]
fn a_script_declares_itself_that_it_may_run_again() {
    for (script, repeatable, has_way_back) in [
        ("#!/bin/sh\n# tidewaiter: repeatable\n", Repeatable::Yes, false),
        ("#!/bin/sh\necho '# tidewaiter: repeatable'\n", Repeatable::No, false),
        ("#!/bin/sh\n # tidewaiter: repeatable\n", Repeatable::No, false),
        ("#!/bin/sh\n# tidewaiter: way back\n", Repeatable::No, true),
        ("#!/bin/sh\n# tidewaiter: way back to nowhere\n", Repeatable::No, false),
        (
            "#!/bin/sh\n\n# It is\n# tidewaiter: repeatable\n# tidewaiter: way back\n",
            Repeatable::Yes,
            true,
        ),
        (
            "#!/bin/sh\ncat <<X\n# tidewaiter: repeatable\n# tidewaiter: way back\nX\n",
            Repeatable::No,
            false,
        ),
    ] {
        let opened = open_unsigned(script);
        assert_eq!(
            (opened.repeatable(), opened.has_way_back()),
            (repeatable, has_way_back),
            "{script}"
        );
    }
}

#[test]
fn a_host_that_permits_unsigned_scripts_runs_none_of_the_blocks() {
    let (key, _) = pair();
    let text = signed_as(&statement_of(SCRIPT), &key);
    let script = open_unsigned(&text);
    assert_eq!((script.body(), script.generation()), (SCRIPT, None));
}
