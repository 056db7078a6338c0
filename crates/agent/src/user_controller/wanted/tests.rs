use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::authorized_keys::{Desired, Format};

const A: &str = "00000000-0000-4000-8000-00000000000a";
const B: &str = "00000000-0000-4000-8000-00000000000b";
// Created for these tests; the private keys were deleted.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
const OTHER: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKohQ80ObZWEG/S9wLD9bE/4q4MIu72ixvI4d+E2rxqmYcngU41+nDB4VDTOx973z5lpwPlQcF/rXavbG3rbRao=";

fn user(id: &str, keys: &[&str]) -> Arc<User> {
    let keys: Vec<Value> = keys.iter().map(|key| json!({"key": key, "name": "laptop"})).collect();
    object(json!({"metadata": {"name": id}, "spec": {"id": id, "ssh_keys": keys}}))
}

fn object(object: Value) -> Arc<User> {
    Arc::new(serde_json::from_value(object).unwrap())
}

fn data(wanted: &Wanted) -> Vec<(String, Vec<&str>)> {
    let users = wanted.logins.iter();
    users
        .map(|(id, keys)| (id.to_string(), keys.iter().map(|key| key.data.as_str()).collect()))
        .collect()
}

fn wanted<U: AsRef<User>>(users: impl IntoIterator<Item = U>) -> Wanted {
    super::wanted(users, &Logins::new(), false)
}

#[test]
fn each_user_has_its_keys_once() {
    let with_comment = format!("{KEY} alice # break-glass");
    let users = [
        user(B, &[OTHER]),
        user(A, &[KEY, &with_comment]),
        user("00000000-0000-4000-8000-00000000000c", &[]),
    ];
    let wanted = wanted(&users);
    assert_eq!(data(&wanted), [(A.to_owned(), vec![KEY]), (B.to_owned(), vec![OTHER])]);
    assert_eq!((wanted.refused.as_slice(), wanted.users), (&[][..], 3));
}

#[test]
fn a_list_that_go_wrote_as_null_is_empty() {
    let user = object(json!({"metadata": {"name": A}, "spec": {"id": A, "ssh_keys": null}}));
    assert!(wanted([user]).logins.is_empty());
}

#[test]
fn a_user_that_is_being_deleted_asks_for_nothing() {
    let gone = json!({"metadata": {"name": A, "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"id": A, "ssh_keys": [{"key": KEY}]}});
    let before = wanted([user(A, &[KEY])]).logins;
    for is_mirrored in [false, true] {
        let wanted = super::wanted([object(gone.clone())], &before, is_mirrored);
        assert_eq!((data(&wanted), wanted.users), (vec![], 0));
        assert!(wanted.refused[0].user == A && wanted.refused[0].reason.contains("finalizer"));
    }
}

#[test]
fn a_bad_key_affects_nobody_else() {
    for bad in [
        format!("{KEY}\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5"),
        format!("{KEY}\0"),
        format!("no-pty {KEY}"),
        format!("command=\"/bin/sh\" {KEY}"),
        "x".repeat(10 * 1024 * 1024),
        KEY.replace("ssh-ed25519 ", "\u{455}sh-ed25519 "),
        "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned(),
        String::new(),
    ] {
        let wanted = wanted([user(A, &[&bad, OTHER]), user(B, &[KEY])]);
        assert_eq!(data(&wanted), [(A.to_owned(), vec![OTHER]), (B.to_owned(), vec![KEY])]);
        let [refused] = &wanted.refused[..] else {
            panic!("{:?}", wanted.refused)
        };
        assert_eq!((refused.user.as_str(), refused.key.as_str()), (A, "laptop"));
        assert!(refused.reason.starts_with("the key must be "), "{}", refused.reason);
    }
}

#[test]
fn a_key_ends_with_its_user_or_before_and_a_malformed_end_has_passed() {
    let end = |user: &str, key: &str| {
        let user = object(json!({"metadata": {"name": A}, "spec": {"id": A, "expires_at": user,
            "ssh_keys": [{"key": KEY, "expires_at": key}]}}));
        wanted([user]).logins.values().flatten().next().unwrap().end
    };
    let (early, late) = ("2027-01-31T18:00:00Z", "2027-02-28T18:00:00Z");
    for (user, key, expected) in [
        ("", "", None),
        (early, "", Some(early)),
        ("", early, Some(early)),
        (early, late, Some(early)),
        (late, early, Some(early)),
    ] {
        assert_eq!(end(user, key), expected.and_then(EndTime::of_field), "{user} {key}");
    }
    for (user, key) in [("never", ""), (late, "never"), ("never", late)] {
        assert!(
            end(user, key).unwrap().has_passed(jiff::Timestamp::UNIX_EPOCH),
            "{user} {key}"
        );
    }
}

#[test]
fn an_id_is_a_uuid_or_nothing() {
    let upper = A.to_uppercase();
    let simple = A.replace('-', "");
    for id in [
        "",
        "..",
        "a/b",
        "x\" ssh-ed25519 AAAA\n",
        "$(id)",
        "`id`",
        "x;id",
        "-x",
        &upper,
        &simple,
        "{00000000-0000-4000-8000-00000000000a}",
        "urn:uuid:00000000-0000-4000-8000-00000000000a",
    ] {
        let wanted = wanted([user(id, &[KEY]), user(B, &[OTHER])]);
        assert_eq!(data(&wanted), [(B.to_owned(), vec![OTHER])], "{id}");
        assert_eq!(wanted.refused.len(), 1, "{id}");
    }
    // The API server compares the two; an object that was stored before has not been compared.
    let other = json!({"metadata": {"name": B}, "spec": {"id": A, "ssh_keys": [{"key": KEY}]}});
    assert!(wanted([object(other)]).logins.is_empty());
}

#[test]
fn a_key_of_two_users_is_that_of_the_first() {
    let wanted = wanted([user(B, &[KEY, OTHER]), user(A, &[KEY])]);
    assert_eq!(data(&wanted), [(A.to_owned(), vec![KEY]), (B.to_owned(), vec![OTHER])]);
    assert!(wanted.refused[0].reason.contains(A), "{:?}", wanted.refused);
}

#[test]
fn a_name_reaches_no_terminal_as_it_is() {
    let name = "\u{1b}[2J\u{202e}".to_owned() + &"x".repeat(100);
    let user = object(json!({"metadata": {"name": A}, "spec": {"id": A, "ssh_keys": [{"key": "x", "name": name}]}}));
    let wanted = wanted([user]);
    let shown = &wanted.refused[0].key;
    assert!(
        shown.len() <= 64 && shown.is_ascii() && !shown.contains('\u{1b}'),
        "{shown:?}"
    );
}

/// 4,096 bytes of key each, all of another number.
fn rsa(number: usize) -> String {
    let mut blob = vec![0, 0, 0, 7];
    blob.extend_from_slice(b"ssh-rsa");
    blob.extend_from_slice(&[0, 0, 0, 3, 1, 0, 1]);
    let mut modulus = vec![0_u8; 1 + 2048];
    modulus[1] = 0x80;
    modulus[2048 - 7..=2048].copy_from_slice(&number.to_be_bytes());
    blob.extend_from_slice(&u32::try_from(modulus.len()).unwrap().to_be_bytes());
    blob.extend_from_slice(&modulus);
    format!("ssh-rsa {}", base64(&blob))
}

/// Users whose keys are more than are written.
fn crowd() -> Vec<Arc<User>> {
    let member = |number: usize| {
        let id = format!("00000000-0000-4000-8000-0000000000{number:02x}");
        let keys: Vec<String> = (0..100).map(|key| rsa(number * 1000 + key)).collect();
        user(&id, &keys.iter().map(String::as_str).collect::<Vec<_>>())
    };
    (0..20).map(member).collect()
}

#[test]
fn keys_that_end_take_no_place_of_keys_that_end_later() {
    let (ended, late) = ("2020-01-01T00:00:00Z", "2027-01-31T18:00:00Z");
    let key = |number: usize, end: &str| json!({"key": rsa(number), "expires_at": end});
    let mut keys: Vec<Value> = (0..MAX_KEYS).map(|number| key(number, ended)).collect();
    keys.extend([key(MAX_KEYS, late), key(MAX_KEYS + 1, "")]);
    let one = wanted([object(
        json!({"metadata": {"name": A}, "spec": {"id": A, "ssh_keys": keys}}),
    )]);
    let ends: Vec<_> = one.logins.values().flatten().map(|key| key.end).collect();
    assert_eq!(ends.len(), MAX_KEYS);
    assert_eq!(ends[..2], [None, EndTime::of_field(late)]);

    // The same of the keys of all users.
    let ending = |user: Arc<User>| {
        let mut user = Arc::unwrap_or_clone(user);
        user.spec.expires_at = ended.to_owned();
        Arc::new(user)
    };
    let last = user("ffffffff-0000-4000-8000-000000000000", &[&rsa(5_000_000)]);
    let id = last.id().unwrap();
    let all = wanted(crowd().into_iter().map(ending).chain([last]));
    assert!(!all.refused.is_empty() && all.logins.contains_key(&id));
}

#[test]
fn a_user_with_very_many_keys_does_not_fill_the_file() {
    let keys: Vec<String> = (0..100).map(rsa).collect();
    let users = crowd();
    let one = wanted([user(A, &keys.iter().map(String::as_str).collect::<Vec<_>>())]);
    assert_eq!(one.logins.values().map(Vec::len).sum::<usize>(), MAX_KEYS);
    assert_eq!(one.refused.len(), 1);
    let all = wanted(&users);
    let format = Format::new("/etc/containership/scripts/containership_login.sh");
    let desired = Desired {
        logins: Arc::clone(&all.logins),
        ..Desired::default()
    };
    let content = format.render(&format.parse(b""), &desired);
    assert!(content.len() <= MAX_BYTES + 4096, "{}", content.len());
    assert!(all.refused.iter().any(|refused| refused.reason.contains("more than")));
    // New Users take nobody's place, whatever their ids are.
    let last = user("ffffffff-0000-4000-8000-000000000000", &[&rsa(5_000_000)]);
    let id = last.id().unwrap();
    let users = || users.iter().chain([&last]);
    assert!(!wanted(users()).logins.contains_key(&id));
    let first = Logins::from([(id, vec![])]);
    assert!(super::wanted(users(), &first, false).logins.contains_key(&id));
}

#[test]
fn beside_a_mirror_what_somebody_else_has_written_changes_nothing() {
    let by = |manager: &str, fields: &Value, id: &str, key: &str| {
        let entry =
            json!({"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": fields}});
        let keys = json!([{"key": key, "name": "laptop"}]);
        object(json!({"metadata": {"name": id, "managedFields": [entry]}, "spec": {"id": id, "ssh_keys": keys}}))
    };
    let (mirror, all) = ("tidewaiter/sync-users", json!({"f:id": {}, "f:ssh_keys": {}}));
    let first = wanted([user(A, &[KEY])]).logins;
    for (edited, kept) in [
        (by(mirror, &all, A, OTHER), None),
        (by(mirror, &json!({"f:id": {}}), A, OTHER), Some(KEY)),
        (by(mirror, &json!({"f:ssh_keys": {}}), A, OTHER), Some(KEY)),
        (by("kubectl", &all, A, OTHER), Some(KEY)),
        (user(A, &[OTHER]), Some(KEY)),
    ] {
        let wanted = super::wanted([&edited], &first, true);
        assert_eq!(
            data(&wanted),
            [(A.to_owned(), vec![kept.unwrap_or(OTHER)])],
            "{edited:?}"
        );
        assert_eq!((wanted.refused.len(), wanted.users), (usize::from(kept.is_some()), 1));
        assert_eq!(
            data(&super::wanted([edited], &first, false)),
            [(A.to_owned(), vec![OTHER])]
        );
    }
    // A new one gets no key, and takes none from the one who has it.
    assert!(super::wanted([user(B, &[OTHER])], &first, true).logins.is_empty());
    let stolen = super::wanted([by(mirror, &all, B, KEY), user(A, &[OTHER])], &first, true);
    assert_eq!(data(&stolen), [(A.to_owned(), vec![KEY])]);
}

/// RFC 4648, for lengths that are any.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..4 {
            let symbol = ALPHABET[(word >> (18 - 6 * index)) as usize & 63] as char;
            text.push(if index <= chunk.len() { symbol } else { '=' });
        }
    }
    text
}
