//! The key ring: the signing key over time, the published keys, and the errors.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384};
use tempfile::TempDir;

use super::*;

fn at(minutes: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_mins(minutes)
}

fn kids(ring: &KeyRing) -> Vec<String> {
    ring.keys.iter().map(|key| key.id.clone()).collect()
}

fn file(folder: &TempDir) -> PathBuf {
    let mut files = std::fs::read_dir(folder).unwrap();
    files.next().unwrap().unwrap().path()
}

/// Three keys, created after 0, 120 and 150 minutes.
fn three() -> (TempDir, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    KeyRing::create(folder.path(), at(0)).unwrap();
    KeyRing::rotate(folder.path(), at(120)).unwrap();
    let ring = KeyRing::rotate(folder.path(), at(150)).unwrap();
    let kids = kids(&ring);
    (folder, kids)
}

#[test]
fn a_key_signs_when_it_has_been_published_for_the_delay() {
    let (folder, kids) = three();
    let ring = KeyRing::load(folder.path()).unwrap();
    for (minutes, signer) in [
        (-60, 0),
        (0, 0),
        (60, 0),
        (150, 0),
        (179, 0),
        (180, 1),
        (209, 1),
        (210, 2),
        (9_999, 2),
    ] {
        assert_eq!(
            ring.signer(at(minutes)).unwrap().id,
            kids[signer],
            "after {minutes} minutes"
        );
    }
}

#[test]
fn a_first_key_signs_at_once_and_a_second_one_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let ring = KeyRing::create(folder.path(), at(0)).unwrap();
    let first = ring.signer(at(0)).unwrap().id.clone();
    let ring = KeyRing::rotate(folder.path(), at(1)).unwrap();
    assert_eq!(ring.signer(at(1)).unwrap().id, first);
    assert_eq!(ring.jwks().keys.len(), 2, "the second is published all the same");
}

#[test]
fn keys_of_one_second_follow_each_other_as_they_were_made() {
    let folder = tempfile::tempdir().unwrap();
    let ring = KeyRing::create(folder.path(), at(0)).unwrap();
    let mut made = kids(&ring);
    // The clock may also go back.
    for now in [at(0), at(0), at(0), at(-5), at(0)] {
        let ring = KeyRing::rotate(folder.path(), now).unwrap();
        assert_eq!(kids(&ring)[..made.len()], made);
        made = kids(&ring);
    }
    let ring = KeyRing::load(folder.path()).unwrap();
    assert_eq!(ring.signer(at(60)).unwrap().id, made[0]);
    assert_eq!(ring.signer(at(61)).unwrap().id, made[5]);
}

#[test]
fn of_files_of_one_second_the_kid_decides() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        let other = folder.path().join(name);
        KeyRing::create(&other, at(0)).unwrap();
        let file = std::fs::read_dir(&other).unwrap().next().unwrap().unwrap().path();
        std::fs::rename(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let ring = KeyRing::load(folder.path()).unwrap();
    assert!(kids(&ring).is_sorted());
    assert_eq!(ring.signer(at(60)).unwrap().id, kids(&ring)[4]);
}

#[test]
fn a_key_is_retired_when_no_token_of_it_can_be_valid() {
    let (folder, kids) = three();
    let life = SignedDuration::from_mins(30);
    // The first key signed until minute 180, the second until 210.
    assert!(KeyRing::retire(folder.path(), at(209), life).unwrap().is_empty());
    assert_eq!(KeyRing::retire(folder.path(), at(210), life).unwrap(), kids[..1]);
    let ring = KeyRing::load(folder.path()).unwrap();
    assert_eq!(ring.find(&kids[0]).map(|key| &key.id), None);
    assert_eq!(KeyRing::retire(folder.path(), at(9_999), life).unwrap(), kids[1..2]);
    assert!(KeyRing::retire(folder.path(), at(9_999), life).unwrap().is_empty());
    let ring = KeyRing::load(folder.path()).unwrap();
    assert_eq!(ring.signer(at(9_999)).unwrap().id, kids[2]);
}

#[test]
fn what_is_published_has_no_private_part() {
    let (folder, kids) = three();
    let ring = KeyRing::load(folder.path()).unwrap();
    let jwks = serde_json::to_value(ring.jwks()).unwrap();
    let keys = jwks["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 3);
    for (key, kid) in keys.iter().zip(&kids) {
        let fields: Vec<_> = key.as_object().unwrap().keys().map(String::as_str).collect();
        let mut sorted = fields.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, ["alg", "crv", "kid", "kty", "use", "x", "y"]);
        assert_eq!((&key["kty"], &key["crv"]), (&"EC".into(), &"P-256".into()));
        assert_eq!((&key["alg"], &key["use"]), (&"ES256".into(), &"sig".into()));
        assert_eq!(key["kid"], kid.as_str());
        // RFC 7638, 3.2 and 3.3, computed by hand.
        let canonical = format!(r#"{{"crv":"P-256","kty":"EC","x":{},"y":{}}}"#, key["x"], key["y"]);
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, canonical.as_bytes());
        let thumbprint = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest.as_ref());
        assert_eq!(kid, &thumbprint);
    }
}

#[test]
fn nothing_shows_a_private_key() {
    let folder = tempfile::tempdir().unwrap();
    let ring = KeyRing::create(folder.path(), at(0)).unwrap();
    let pem = std::fs::read_to_string(file(&folder)).unwrap();
    let secret = pem.lines().nth(1).unwrap();
    let shown = format!("{ring:?}");
    assert!(
        shown.contains(&ring.keys[0].id) && !shown.contains("private") && !shown.contains(secret),
        "{shown}"
    );
}

#[test]
fn a_file_is_a_key_in_pem_that_only_we_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let ring = KeyRing::create(folder.path(), at(0)).unwrap();
    let path = file(&folder);
    let name = format!("20260101T000000Z-{}.pem", ring.keys[0].id);
    assert_eq!(path.file_name().unwrap().to_str().unwrap(), name);
    let pem = std::fs::read_to_string(&path).unwrap();
    assert!(KeyPair::from_pem(&pem).is_ok(), "another library reads it");
    assert!(pem.lines().all(|line| line.len() <= 64), "RFC 7468");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let refusal = KeyRing::load(folder.path()).unwrap_err().to_string();
    assert!(refusal.contains(&format!("chmod 600 {}", path.display())), "{refusal}");
}

#[test]
fn a_ring_is_created_once() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("keys");
    let ring = KeyRing::create(&inner, at(0)).unwrap();
    let refusal = KeyRing::create(&inner, at(1)).unwrap_err();
    assert!(matches!(refusal, SigningError::NotEmpty { .. }), "{refusal:?}");
    assert_eq!(kids(&KeyRing::load(&inner).unwrap()), kids(&ring));
}

#[test]
fn a_folder_without_keys_is_no_ring() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = KeyRing::load(folder.path());
    assert!(matches!(refusal, Err(SigningError::Empty { .. })), "{refusal:?}");
    let none = KeyRing::load(&folder.path().join("none"));
    assert!(
        matches!(none, Err(SigningError::File(SecretFileError::Read { .. }))),
        "{none:?}"
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing was made");
}

#[test]
fn files_that_are_no_keys_are_left_alone_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ring = KeyRing::create(folder.path(), at(0)).unwrap();
    let path = file(&folder);
    let pem = std::fs::read_to_string(&path).unwrap();
    secret_file::create(&folder.path().join("README"), "a note").unwrap();
    secret_file::create(&folder.path().join(".tmpHalf.pem"), "-----BEGIN").unwrap();
    assert_eq!(kids(&KeyRing::load(folder.path()).unwrap()), kids(&ring));

    let id = &ring.keys[0].id;
    let other = KeyRing::create(&folder.path().join("other"), at(0)).unwrap().keys[0]
        .id
        .clone();
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
    let cut = &pem[..pem.len() / 2];
    let table = [
        (
            format!("20260101T000000Z-{other}.pem"),
            pem.as_str(),
            "a key other than",
        ),
        (format!("20260101T000001Z-{id}.pem"), p384.as_str(), "P-256"),
        (format!("20260101T000001Z-{id}.pem"), cut, "P-256"),
        (format!("20260101T000001Z-{id}.pem"), "", "P-256"),
        (format!("{id}.pem"), &pem, "is not named"),
        ("server.pem".to_owned(), &pem, "is not named"),
        (format!("2026-01-01T00:00:00Z-{id}.pem"), &pem, "is not named"),
        (format!("20260101T0000Z-{id}.pem"), &pem, "is not named"),
        (format!("020260101T000000Z-{id}.pem"), &pem, "is not named"),
    ];
    for (name, content, expected) in table {
        let path = folder.path().join(name);
        secret_file::create(&path, content).unwrap();
        let refusal = KeyRing::load(folder.path()).unwrap_err();
        assert!(matches!(refusal, SigningError::Key { .. }), "{refusal:?}");
        let text = format!("{refusal} {refusal:?}");
        assert!(
            text.contains(expected) && text.contains(path.to_str().unwrap()),
            "{text}"
        );
        assert!(!text.contains(pem.lines().nth(1).unwrap()), "{text}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_key_has_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let ring = KeyRing::create(folder.path(), at(0)).unwrap();
    let pem = std::fs::read_to_string(file(&folder)).unwrap();
    let copy = format!("20270101T000000Z-{}.pem", ring.keys[0].id);
    secret_file::create(&folder.path().join(copy), &pem).unwrap();
    let refusal = KeyRing::load(folder.path()).unwrap_err().to_string();
    assert!(refusal.contains("two files"), "{refusal}");
}

#[test]
fn a_reload_drops_what_is_gone_and_keeps_what_cannot_be_read() {
    let (folder, names) = three();
    let ring = KeyRing::load(folder.path()).unwrap();
    let path = |id: &str| ring.find(id).unwrap().path.clone();
    // Gone, half-written, and accessible to others, which may be a mistake of a moment.
    std::fs::remove_file(path(&names[0])).unwrap();
    let half = std::fs::File::options().write(true).open(path(&names[1])).unwrap();
    half.set_len(20).unwrap();
    std::fs::set_permissions(path(&names[2]), Permissions::from_mode(0o644)).unwrap();
    // A link to what is gone, and a new file that is half-written.
    std::os::unix::fs::symlink("none", folder.path().join("20260102T000000Z-link.pem")).unwrap();
    secret_file::create(&folder.path().join("20260102T000000Z-new.pem"), "-----BEGIN").unwrap();
    let (reloaded, errors) = ring.reload(folder.path()).unwrap();
    assert_eq!(kids(&reloaded), names[1..]);
    assert_eq!(errors.len(), 3, "{errors:?}");
    std::fs::remove_file(path(&names[1])).unwrap();
    std::fs::remove_file(path(&names[2])).unwrap();
    let (reloaded, errors) = reloaded.reload(folder.path()).unwrap();
    assert!(reloaded.is_empty() && errors.len() == 1, "{reloaded:?} {errors:?}");
    assert!(reloaded.signer(at(0)).is_none());
    // What comes again is trusted again, and signs at once.
    std::fs::remove_file(folder.path().join("20260102T000000Z-new.pem")).unwrap();
    let again = KeyRing::rotate(folder.path(), at(0)).unwrap();
    let (reloaded, _) = reloaded.reload(folder.path()).unwrap();
    assert_eq!(reloaded.signer(at(0)).unwrap().id, kids(&again)[0]);
}

#[test]
fn a_folder_that_cannot_be_listed_keeps_its_keys_and_one_that_is_gone_does_not() {
    let (folder, names) = three();
    let ring = KeyRing::load(folder.path()).unwrap();
    let file = folder.path().join("file");
    secret_file::create(&file, "no folder").unwrap();
    assert!(ring.reload(&file).is_err(), "so the caller keeps {names:?}");
    let (gone, _) = ring.reload(&folder.path().join("none")).unwrap();
    assert!(gone.is_empty());
}
