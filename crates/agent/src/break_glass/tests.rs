#![allow(clippy::disallowed_methods, reason = "what an operator writes")]

use std::fs;

use super::*;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4hoRzVPA3U8qoef7QtvY6RmkwgDL47zndwzs8V+7J7";
const PRINT: &str = "SHA256:ejSqEeYysqjpey3wN8VSaYQ7Znv7eJ/dD62E39TtUeY";
const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";

#[test]
fn keys_are_pinned_once_and_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let (pinned, folder) = (scratch.path().join("etc/pinned"), scratch.path().join("agent"));
    let names = || {
        let content = fs::read(pinned.join(FILE)).unwrap();
        let (keys, wrong) = parse(&content);
        assert_eq!(wrong, []);
        keys.into_iter().map(|key| key.data).collect::<Vec<_>>()
    };
    for key in [format!("{KEY} admin@vault"), OTHER.to_owned(), KEY.to_owned()] {
        pin(&pinned, &folder, &key).unwrap();
    }
    assert_eq!(names(), [OTHER, KEY]);
    assert!(unpin(&pinned, PRINT).unwrap().contains(PRINT));
    assert_eq!(names(), [OTHER]);
    let again = unpin(&pinned, PRINT).unwrap_err();
    assert!(
        again.to_string().contains("tidewaiter host break-glass list"),
        "{again}"
    );
}

/// OpenSSH does not read the comment.
#[test]
fn a_comment_may_be_in_any_encoding() {
    let content = [KEY.as_bytes(), b" J\xfcrgen\r\n", OTHER.as_bytes(), b"\tcafe\xcc\x81\n"].concat();
    let (keys, wrong) = parse(&content);
    assert_eq!((keys.len(), wrong), (2, vec![]));
}

/// A tool that configures nodes, and people, write the file, too.
#[test]
fn what_others_have_written_stays_and_what_does_not_count_is_said() {
    let scratch = tempfile::tempdir().unwrap();
    let pinned = scratch.path().join("pinned");
    fs::create_dir(&pinned).unwrap();
    let before = format!("# of the vault\nfrom=\"10.0.0.1\" {OTHER} tool\njunk");
    fs::write(pinned.join(FILE), &before).unwrap();
    let said = pin(&pinned, scratch.path(), KEY).unwrap();
    let content = || fs::read_to_string(pinned.join(FILE)).unwrap();
    assert_eq!(content(), format!("{before}\n{KEY}\n"));
    let listed = list(&pinned).unwrap();
    assert!(
        listed.starts_with(&format!("{PRINT} {KEY}\nline 2 of the file does not count")),
        "{listed}"
    );
    for line in [2, 3] {
        assert!(
            said.contains(&format!("line {line} of the file does not count: the key must be")),
            "{said}"
        );
    }
    let said = unpin(&pinned, PRINT).unwrap();
    assert_eq!(content(), format!("{before}\n"));
    assert!(said.contains("line 3 of the file does not count"), "{said}");
    assert!(list(&pinned).unwrap().starts_with("no key is pinned\nline 2"));
}

/// Otherwise the user keeps access when the User is deleted, and nobody knows.
#[test]
fn a_key_that_a_user_has_is_pinned_with_a_word_about_it() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("agent");
    fs::create_dir_all(folder.join("home/.ssh")).unwrap();
    let line = format!(
        "command=\"{}/scripts/containership_login.sh 0000000000004000800000000000000a\" {KEY}\n",
        folder.display()
    );
    fs::write(folder.join("home/.ssh/authorized_keys"), line).unwrap();
    for (key, is_users) in [(KEY, true), (PRINT, true), (OTHER, false)] {
        let said = pin(&scratch.path().join("pinned"), &folder, key).unwrap();
        let words = "a key of the user 00000000-0000-4000-8000-00000000000a, too";
        assert_eq!(said.contains(words), is_users, "{said}");
    }
}

#[test]
fn a_key_that_cannot_be_pinned_is_refused_and_nothing_is_written() {
    let scratch = tempfile::tempdir().unwrap();
    let (pinned, folder) = (scratch.path().join("pinned"), scratch.path().join("agent"));
    fs::create_dir_all(folder.join("home/.ssh")).unwrap();
    for (key, words) in [
        ("ssh-ed25519 AAAA", "KEY must be"),
        (&*format!("from=\"10.0.0.1\" {KEY}"), "without options"),
        (PRINT, "give the public key itself"),
    ] {
        let error = pin(&pinned, &folder, key).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(!pinned.join(FILE).exists());
    fs::write(
        folder.join("home/.ssh/authorized_keys"),
        format!("no-pty {KEY} admin # break-glass\n"),
    )
    .unwrap();
    pin(&pinned, &folder, PRINT).unwrap();
    let content = fs::read_to_string(pinned.join(FILE)).unwrap();
    assert!(content.ends_with(&format!("{KEY} admin # break-glass\n")), "{content}");
}
