use super::*;

// Created for these tests; the private key was deleted. The cloud's type has the tests of all key types.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";

#[test]
fn the_comment_can_be_left_out() {
    for text in [
        KEY.to_owned(),
        format!("{KEY} alice # break-glass"),
        format!("  {KEY}  "),
        format!("{KEY}\r"),
        format!("{KEY} José@laptop \r\n"),
        format!("{KEY} Jose\u{301}@laptop"),
    ] {
        let key = SshKeyLine::parse(&text).unwrap();
        assert_eq!(key.without_comment(), KEY, "{text}");
        assert_eq!(key.as_str(), text.trim());
        assert_eq!(key.fingerprint(), "SHA256:m17ZU7hsyzWBFKqJ1CFX9iV5aFCCCwvuDg+IdcK5NY4");
    }
}

#[test]
fn nothing_but_one_key_is_parsed() {
    for text in [
        format!("{KEY}\nssh-ed25519 AAAA"),
        format!("{KEY}\r{KEY}"),
        format!("{KEY}\0"),
        format!("command=\"/bin/sh\" {KEY}"),
        format!("{KEY} \u{202e}evil"),
        KEY.replace("ssh-ed25519 ", "ѕsh-ed25519 "),
        "x".repeat(MAX_BYTES + 1),
    ] {
        assert!(SshKeyLine::parse(&text).is_err(), "{text:?}");
    }
}

#[test]
fn the_rule_says_which_part_is_wrong() {
    for kind in TYPES {
        assert!(TYPE.contains(kind.trim_start_matches("ecdsa-sha2")), "{kind}");
    }
    let (kind, data) = KEY.split_once(' ').unwrap();
    for (text, rule) in [
        (format!("{kind} {}", &data[..40]), DATA),
        (format!("ssh-rsa {data}"), DATA),
        (format!("ssh-ed25519-cert-v01@openssh.com {data}"), TYPE),
        (format!("ssh-ed448 {data}"), TYPE),
        (format!("no-pty {KEY}"), FORM),
        (data.to_owned(), FORM),
    ] {
        assert_eq!(SshKeyLine::parse(&text).unwrap_err(), rule, "{text}");
    }
}

#[test]
fn a_key_for_which_anybody_can_sign_is_refused() {
    use ssh_key::public::Ed25519PublicKey;
    for point in small_order::POINTS {
        for sign in [0, 0x80] {
            let mut point = point;
            point[31] |= sign;
            let key = PublicKey::from(KeyData::Ed25519(Ed25519PublicKey(point)));
            let error = SshKeyLine::parse(&key.to_openssh().unwrap()).unwrap_err();
            assert!(error.contains("anybody can make signatures"), "{error}");
        }
    }
    let zero = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    assert!(SshKeyLine::parse(zero).is_err());
}

mod oracle;
