use minisign::KeyPair;

use super::*;

const PURPOSE: &str = "tidewaiter test 1";
const TIME: i64 = 1_790_000_000;

fn pair() -> (SigningKey, TrustedKey) {
    let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().unwrap();
    (SigningKey(sk), pk.to_base64().parse().unwrap())
}

fn text(version: &str) -> String {
    statement(PURPOSE, &[("name", "a"), ("version", version)]).unwrap()
}

#[test]
fn a_signature_counts_for_its_text_and_says_when() {
    let ((key, trusted), (_, other)) = (pair(), pair());
    let signature = key.sign(&text("1"), "a-1", TIME).unwrap();
    let keys = [other, trusted];
    assert_eq!(verify(&keys, &text("1"), &signature), Ok(TIME));
    assert_eq!(verify(&keys, &text("2"), &signature), Err(SignatureError::Mismatch));
    assert!(matches!(
        verify(&keys[..1], &text("1"), &signature),
        Err(SignatureError::UnknownKey(_))
    ));
}

#[test]
fn a_key_for_which_anybody_can_sign_is_refused() {
    let (_, trusted) = pair();
    for point in small_order::POINTS {
        for sign in [0, 0x80] {
            let mut bytes = trusted.bytes();
            bytes.truncate(10);
            bytes.extend(point);
            bytes[41] |= sign;
            let error = STANDARD.encode(bytes).parse::<TrustedKey>().unwrap_err();
            assert!(error.contains("anybody can make signatures"), "{error}");
        }
    }
}

#[test]
fn no_part_of_a_statement_can_be_mistaken_for_another() {
    assert_eq!(text("1"), "tidewaiter test 1\nname a\nversion 1\n");
    for value in ["", "a b", "a\nversion 9", "\u{e4}"] {
        let error = statement(PURPOSE, &[("name", value)]).unwrap_err();
        assert_eq!(error, SignatureError::Unprintable("name"), "{value:?}");
    }
}

#[test]
fn a_digest_is_in_hexadecimal_digits() {
    // FIPS 180-2, appendix B.1.
    assert_eq!(
        sha256(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn hostile_signatures_are_refused_and_harm_nothing() {
    let (key, trusted) = pair();
    let (other, _) = pair();
    let text = text("1");
    let good = key.sign(&text, "a-1", TIME).unwrap();
    let line = |number: usize, text: &str| {
        let mut lines: Vec<&str> = good.lines().collect();
        lines[number] = text;
        lines.join("\n")
    };
    let comment = good.lines().nth(2).unwrap();
    let later = comment.replace(&TIME.to_string(), &(TIME + 1).to_string());
    let legacy = {
        let mut bytes = STANDARD.decode(good.lines().nth(1).unwrap()).unwrap();
        bytes[1] = b'd';
        line(1, &STANDARD.encode(&bytes))
    };
    let timeless = {
        let signed = minisign::sign(None, &key.0, Cursor::new(&text), Some("file:a"), None);
        signed.unwrap().into_string()
    };
    let negative = key.sign(&text, "a-1", -1).unwrap();
    let unknown = other.sign(&text, "a-1", TIME).unwrap();
    for (signature, error) in [
        (String::new(), "malformed"),
        ("\n\n\n\n".to_owned(), "malformed"),
        ("x".repeat(100_000), "malformed"),
        (line(0, ""), "malformed"),
        (line(1, ""), "malformed"),
        (line(1, "AAAA"), "malformed"),
        (line(2, ""), "malformed"),
        (line(2, "trusted comment: "), "not for this"),
        // The time is signed.
        (line(2, &later), "not for this"),
        // The library would panic.
        (line(3, ""), "malformed"),
        (line(3, "AAAA"), "malformed"),
        (line(3, &format!("{}==", "A".repeat(86))), "not for this"),
        (line(3, &format!("{}==", "\u{e4}".repeat(43))), "malformed"),
        (legacy, "malformed"),
        (timeless, "timestamp:SECONDS"),
        (negative, "timestamp:SECONDS"),
        (unknown, "which is not trusted"),
    ] {
        let found = verify(std::slice::from_ref(&trusted), &text, &signature).unwrap_err();
        assert!(found.to_string().contains(error), "{signature:?}: {found}");
    }
    assert!(verify(&[], &text, &good).is_err());
}

#[test]
fn a_key_that_is_none_is_refused() {
    let (_, trusted) = pair();
    let text = trusted.to_string();
    assert_eq!(text.parse::<TrustedKey>().unwrap(), trusted);
    for wrong in [
        String::new(),
        "RWQ".to_owned(),
        text.to_lowercase().replace('=', "a"),
        format!("AAAA{}", &text[4..]),
    ] {
        assert!(wrong.parse::<TrustedKey>().is_err(), "{wrong}");
    }
}

/// `minisign -G -W` leaves the checksum zero.
#[test]
fn a_key_of_minisign_without_a_password_and_a_checksum_signs() {
    let (pair, trusted) = pair();
    let text = pair.0.to_box(None).unwrap().into_string();
    let mut lines = text.lines();
    let (comment, encoded) = (lines.next().unwrap(), lines.next().unwrap());
    let mut bytes = STANDARD.decode(encoded).unwrap();
    assert_eq!(bytes.len(), KEY_BYTES);
    let with = |bytes: &[u8]| format!("{comment}\n{}\n", STANDARD.encode(bytes));
    let read = |text: &str| SigningKey::read(text, || Err(SignatureError::SecretKey("asked".to_owned())));
    bytes[KEY_BYTES - CHECKSUM_BYTES..].fill(0);
    let signed = read(&with(&bytes)).unwrap().sign("text", "name", 5).unwrap();
    assert_eq!(verify(&[trusted], "text", &signed).unwrap(), 5);
    // A checksum that is wrong is one that somebody damaged.
    bytes[KEY_BYTES - 1] = 1;
    assert!(read(&with(&bytes)).is_err());
    bytes.truncate(KEY_BYTES - 1);
    assert!(read(&with(&bytes)).is_err());
}

#[test]
fn a_password_is_asked_for_only_if_the_key_has_one() {
    let text = pair().0.0.to_box(None).unwrap().into_string();
    let asked = || Err(SignatureError::SecretKey("asked".to_owned()));
    SigningKey::read(&text, asked).unwrap();
    let mut lines = text.lines();
    let comment = lines.next().unwrap();
    let mut bytes = STANDARD.decode(lines.next().unwrap()).unwrap();
    bytes[2..4].copy_from_slice(b"Sc");
    let encrypted = format!("{comment}\n{}\n", STANDARD.encode(&bytes));
    assert!(
        SigningKey::read(&encrypted, asked)
            .unwrap_err()
            .to_string()
            .contains("asked")
    );
    for wrong in ["", "a", "a\nb", "manifests: []\n"] {
        let error = SigningKey::read(wrong, asked).unwrap_err().to_string();
        assert!(!error.contains("asked"), "{wrong}: {error}");
    }
}
