//! Encryption: which values can be decrypted, and which files are valid.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;

const VALUE: &[u8] = br#"{"username":"robot","password":"swordfish"}"#;

fn owner() -> Owner<'static> {
    Owner {
        kind: "registry.credentials",
        object: Uuid::from_u128(1),
        organization: Uuid::from_u128(2),
    }
}

fn keys() -> (TempDir, PathBuf, Sealer) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sealing.key");
    let keys = Sealer::create(&path).unwrap();
    (folder, path, keys)
}

#[test]
fn what_was_sealed_opens() {
    let (_folder, path, keys) = keys();
    for value in [VALUE, b"", &vec![0; 100_000]] {
        let sealed = keys.seal(owner(), value).unwrap();
        assert_eq!(sealed.len(), 1 + 4 + 12 + value.len() + 16);
        assert_eq!(sealed[0], 1);
        assert_eq!(**keys.open(owner(), &sealed).unwrap(), *value);
        assert_eq!(**Sealer::load(&path).unwrap().open(owner(), &sealed).unwrap(), *value);
    }
}

#[test]
fn a_value_shows_neither_itself_nor_that_it_came_twice() {
    let (_folder, _, keys) = keys();
    let (one, other) = (keys.seal(owner(), VALUE).unwrap(), keys.seal(owner(), VALUE).unwrap());
    assert_ne!(one[5..17], other[5..17], "the nonces");
    assert_ne!(one[17..], other[17..]);
    for sealed in [one, other] {
        assert!(!sealed.windows(9).any(|window| window == b"swordfish"));
    }
}

#[test]
fn a_value_opens_only_where_it_belongs() {
    let (_folder, _, keys) = keys();
    let sealed = keys.seal(owner(), VALUE).unwrap();
    let own = owner().kind;
    for (kind, object, organization) in [
        ("provider.credentials", 1, 2),
        ("", 1, 2),
        (own, 3, 2),
        (own, 1, 3),
        (own, 2, 1),
    ] {
        let (object, organization) = (Uuid::from_u128(object), Uuid::from_u128(organization));
        let other = Owner {
            kind,
            object,
            organization,
        };
        let refusal = keys.open(other, &sealed).unwrap_err();
        assert!(
            matches!(refusal, SealingError::Refused { .. }),
            "{other:?}: {refusal:?}"
        );
    }
}

#[test]
fn no_byte_may_change_and_none_may_be_missing() {
    let (_folder, _, keys) = keys();
    let sealed = keys.seal(owner(), VALUE).unwrap();
    for nth in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[nth] ^= 1;
        assert!(keys.open(owner(), &changed).is_err(), "byte {nth}");
        assert!(keys.open(owner(), &sealed[..nth]).is_err(), "{nth} bytes");
    }
    let longer = [&sealed[..], b"x"].concat();
    assert!(keys.open(owner(), &longer).is_err());
    for nothing in [&b""[..], VALUE, &sealed[..16]] {
        assert!(matches!(keys.open(owner(), nothing), Err(SealingError::Malformed)));
    }
}

#[test]
fn a_value_names_its_key_and_no_other() {
    let key = STANDARD.encode([7; 32]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sealing.key");
    secret_file::create(&path, &format!("00000001:{key}\n00000002:{key}")).unwrap();
    let keys = Sealer::load(&path).unwrap();
    let mut sealed = keys.seal(owner(), VALUE).unwrap();
    assert_eq!(sealed[1..5], [0, 0, 0, 1]);
    sealed[4] = 2;
    let refusal = keys.open(owner(), &sealed).unwrap_err();
    assert!(matches!(refusal, SealingError::Refused { .. }), "{refusal:?}");
}

#[test]
fn a_new_key_seals_and_the_old_ones_open() {
    let (_folder, path, old) = keys();
    let before = old.seal(owner(), VALUE).unwrap();
    let new = Sealer::add_key(&path).unwrap();
    let after = new.seal(owner(), VALUE).unwrap();
    assert_eq!(**new.open(owner(), &before).unwrap(), *VALUE);
    assert_eq!(**new.open(owner(), &after).unwrap(), *VALUE);
    assert!(new.is_current(&after) && !new.is_current(&before) && old.is_current(&before));
    assert!(!new.is_current(b""));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    // The error contains the id of the missing key.
    let refusal = old.open(owner(), &after).unwrap_err();
    let id = new.keys[0].0.to_string();
    assert!(matches!(refusal, SealingError::NoKey { .. }), "{refusal:?}");
    let text = refusal.to_string();
    assert!(text.contains(&id) && text.contains(path.to_str().unwrap()), "{text}");

    // Another key with the same id decrypts nothing.
    let lines = std::fs::read_to_string(&path).unwrap();
    let line = lines
        .lines()
        .nth(1)
        .unwrap()
        .replacen(&old.keys[0].0.to_string(), &id, 1);
    secret_file::replace(&path, &line).unwrap();
    let refusal = Sealer::load(&path).unwrap().open(owner(), &after).unwrap_err();
    assert!(matches!(refusal, SealingError::Refused { .. }), "{refusal:?}");
}

#[test]
fn the_file_is_made_once_and_read_by_nobody_else() {
    let (_folder, path, keys) = keys();
    let refusal = Sealer::create(&path).unwrap_err();
    assert!(
        matches!(refusal, SealingError::File(SecretFileError::Exists { .. })),
        "{refusal:?}"
    );
    let sealed = keys.seal(owner(), VALUE).unwrap();
    assert!(
        Sealer::load(&path).unwrap().open(owner(), &sealed).is_ok(),
        "the key is the same"
    );
    std::fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
    for refusal in [Sealer::load(&path), Sealer::add_key(&path)] {
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains(&format!("chmod 600 {}", path.display())), "{refusal}");
    }
}

#[test]
fn a_line_that_is_no_key_is_refused_without_showing_it() {
    let key = STANDARD.encode([7; 32]);
    let good = format!("0badcafe:{key}");
    let table = [
        (key.clone(), 1),
        (format!("{good}\n\n"), 2),
        (format!("{good}\n{good}"), 2),
        (format!("0BADCAFE:{key}"), 1),
        (format!("badcafe:{key}"), 1),
        (format!("+badcafe:{key}"), 1),
        (format!("0badcafe0:{key}"), 1),
        (format!("0badcafe:{key} "), 1),
        (format!("0badcafe:{}", key.trim_end_matches('=')), 1),
        (format!("0badcafe:{}", STANDARD.encode([7; 31])), 1),
        (format!("0badcafe:{}", STANDARD.encode([7; 16])), 1),
        (format!("0badcafe:{}", STANDARD.encode([7; 33])), 1),
        ("0badcafe:".to_owned(), 1),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sealing.key");
    secret_file::create(&path, &good).unwrap();
    assert!(Sealer::load(&path).is_ok());
    for (content, expected) in table {
        secret_file::replace(&path, &content).unwrap();
        let refusal = Sealer::load(&path).unwrap_err();
        assert!(
            matches!(refusal, SealingError::Line { line, .. } if line == expected),
            "{content}: {refusal:?}"
        );
        let text = format!("{refusal} {refusal:?}");
        assert!(
            text.contains(path.to_str().unwrap()) && !text.contains(&key[..20]),
            "{text}"
        );
    }
    secret_file::replace(&path, "").unwrap();
    assert!(matches!(Sealer::load(&path), Err(SealingError::Empty { .. })));
}

#[test]
fn nothing_shows_a_key() {
    let (_folder, path, keys) = keys();
    let text = std::fs::read_to_string(&path).unwrap();
    let (id, key) = text.trim().split_once(':').unwrap();
    let shown = format!("{keys:?}");
    assert!(shown.contains(id) && !shown.contains(key), "{shown}");
}

#[test]
fn keys_of_another_database_are_refused() {
    let [(_a, path, own), (_b, _, other)] = [keys(), keys()];
    let new = Sealer::add_key(&path).unwrap();
    let values = [own.seal(owner(), VALUE).unwrap(), new.seal(owner(), VALUE).unwrap()];
    let [of_own, of_both] = [&values[..1], &values[..]];
    for (keys, sealed, last, is_accepted) in [
        (&own, of_own, None, true),
        (&other, &[], None, true),
        (&other, of_own, None, false),
        // One was lost before.
        (&own, of_both, None, true),
        (&own, of_both, Some(&own), true),
        (&own, of_both, Some(&new), false),
        (&new, of_both, Some(&own), true),
        (&other, of_own, Some(&own), false),
        (&other, of_own, Some(&other), true),
    ] {
        let checked = keys.check(sealed, last);
        assert_eq!(checked.is_ok(), is_accepted, "{keys:?} {last:?} {checked:?}");
    }
}
