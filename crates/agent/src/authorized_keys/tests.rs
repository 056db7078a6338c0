use proptest::prelude::*;

use super::*;

const SCRIPT: &str = "/etc/containership/scripts/containership_login.sh";
const A: Uuid = Uuid::from_u128(0xa);
const B: Uuid = Uuid::from_u128(0xb);
// Created for these tests; the private keys were deleted.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
const OTHER: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKohQ80ObZWEG/S9wLD9bE/4q4MIu72ixvI4d+E2rxqmYcngU41+nDB4VDTOx973z5lpwPlQcF/rXavbG3rbRao=";

fn format() -> Format {
    Format::new(SCRIPT)
}

fn key(text: &str) -> LoginKey {
    LoginKey::from(&SshKeyLine::parse(text).unwrap())
}

fn logins() -> Logins {
    Logins::from([(A, vec![key(KEY)]), (B, vec![key(KEY), key(OTHER)])])
}

/// As `line` writes it.
fn line(user: Uuid, key: &str) -> String {
    format!("command=\"{SCRIPT} {}\" {key}\n", user.simple())
}

fn ours() -> String {
    format!(
        "{BEGIN_LINE}{}{}{}{END_LINE}",
        line(A, KEY),
        line(B, KEY),
        line(B, OTHER)
    )
}

/// The file that `content` becomes.
fn becomes(content: &str, logins: &Logins, foreign: ForeignLines) -> String {
    let rendered = format().render(&format().parse(content.as_bytes()), logins, foreign);
    String::from_utf8(rendered).unwrap()
}

#[test]
fn each_line_is_kept_or_replaced() {
    let ours = ours();
    let glass = format!("{OTHER} admin # break-glass\n");
    let marked = line(A, OTHER).replace('\n', " # break-glass\n");
    let foreign = format!("{OTHER} intruder\n");
    for (what, content, kept, with_remove) in [
        ("nothing", String::new(), ours.clone(), ours.clone()),
        ("our own file", ours.clone(), ours.clone(), ours.clone()),
        (
            "lines before and after",
            format!("{foreign}{ours}{glass}"),
            format!("{foreign}{ours}{glass}"),
            format!("{ours}{glass}"),
        ),
        (
            "the last line without a newline",
            format!("{ours}{}", foreign.trim_end()),
            format!("{ours}{}", foreign.trim_end()),
            ours.clone(),
        ),
        (
            "the line before ours without a newline",
            foreign.trim_end().to_owned(),
            format!("{foreign}{ours}"),
            ours.clone(),
        ),
        (
            "a line among ours",
            ours.replace(END_LINE, &format!("{foreign}{END_LINE}")),
            ours.clone(),
            ours.clone(),
        ),
        (
            "a break-glass line among ours",
            ours.replace(END_LINE, &format!("{glass}{END_LINE}")),
            format!("{ours}{glass}"),
            format!("{ours}{glass}"),
        ),
        (
            "a user's line that was marked as break-glass",
            format!("{ours}{marked}"),
            format!("{ours}{marked}"),
            format!("{ours}{marked}"),
        ),
        (
            "lines of the Go agent",
            format!("{}{foreign}{}", line(A, OTHER), line(Uuid::from_u128(0xdead), KEY)),
            format!("{ours}{foreign}"),
            ours.clone(),
        ),
        (
            "a line of a removed user, copied out and indented",
            format!("{ours} \t{}", line(Uuid::from_u128(0xdead), KEY)),
            ours.clone(),
            ours.clone(),
        ),
        (
            "no end",
            format!("{BEGIN_LINE}{}{foreign}", line(A, KEY)),
            format!("{ours}{foreign}"),
            ours.clone(),
        ),
        (
            "no begin",
            format!("{foreign}{}{END_LINE}", line(A, KEY)),
            format!("{foreign}{ours}"),
            ours.clone(),
        ),
        (
            "two blocks",
            format!("{ours}{foreign}{ours}"),
            format!("{ours}{foreign}"),
            ours.clone(),
        ),
        (
            "an end before a begin",
            format!("{END_LINE}{foreign}{BEGIN_LINE}{glass}"),
            format!("{ours}{foreign}{glass}"),
            format!("{ours}{glass}"),
        ),
    ] {
        assert_eq!(becomes(&content, &logins(), ForeignLines::Keep), kept, "{what}");
        assert_eq!(
            becomes(&content, &logins(), ForeignLines::Remove),
            with_remove,
            "{what}"
        );
    }
}

#[test]
fn without_users_nothing_of_ours_is_left() {
    let foreign = format!("{OTHER} # break-glass\n");
    let content = format!("{foreign}{}", ours());
    assert_eq!(becomes(&content, &Logins::new(), ForeignLines::Keep), foreign);
    assert_eq!(becomes(&ours(), &Logins::new(), ForeignLines::Keep), "");
}

#[test]
fn bytes_that_are_no_text_are_kept() {
    let foreign = b"\xff\0\r\x1b[2J\n".to_vec();
    let content = [&foreign[..], ours().as_bytes()].concat();
    let rendered = format().render(&format().parse(&content), &logins(), ForeignLines::Keep);
    assert_eq!(rendered, content);
}

#[test]
fn only_our_exact_lines_say_who_may_log_in() {
    let read = |content: &str| format().logins(&format().parse(content.as_bytes()));
    assert_eq!(read(&ours()), logins());
    for content in [
        line(A, KEY).replace("command", " command"),
        line(A, KEY).replace('\n', " comment\n"),
        line(A, KEY).replace(&A.simple().to_string(), &A.to_string()),
        line(A, KEY).replace(&A.simple().to_string(), "x; id"),
        format!("{BEGIN_LINE}{KEY}\n{END_LINE}"),
    ] {
        assert_eq!(read(&content), Logins::new(), "{content}");
    }
}

#[test]
fn break_glass_lines_come_back_once() {
    let glass = format!("{OTHER} # break-glass\n").into_bytes();
    let mut parts = format().parse(b"");
    parts.restore_break_glass(std::slice::from_ref(&glass));
    parts.restore_break_glass(std::slice::from_ref(&glass));
    assert_eq!(parts.break_glass().collect::<Vec<_>>(), [&glass[..]]);
}

#[test]
fn the_fingerprint_of_a_foreign_key_is_found_behind_its_options() {
    let expected = Some("SHA256:m17ZU7hsyzWBFKqJ1CFX9iV5aFCCCwvuDg+IdcK5NY4".to_owned());
    for text in [
        format!("{KEY} me\n"),
        format!("no-pty,command=\"echo a b\" {KEY}\n"),
        format!("  {KEY} # break-glass"),
    ] {
        assert_eq!(fingerprint(text.as_bytes()), expected, "{text}");
    }
    assert_eq!(fingerprint(b"# a comment\n"), None);
}

proptest! {
    /// What was written is found again: a second pass changes nothing, and no line of others is lost.
    #[test]
    fn rendering_is_stable(lines in prop::collection::vec(
        prop_oneof![
            Just(BEGIN_LINE.to_owned()), Just(END_LINE.to_owned()), Just(line(A, KEY)),
            Just(format!("{OTHER} # break-glass\n")), "[ -~]{0,12}\n", Just("\n".to_owned()),
        ], 0..12), last in "[ -~]{0,6}")
    {
        let content = format!("{}{last}", lines.concat());
        let once = becomes(&content, &logins(), ForeignLines::Keep);
        prop_assert_eq!(becomes(&once, &logins(), ForeignLines::Keep), once.clone());
        let glass = |text: &str| text.lines().filter(|line| line.contains(BREAK_GLASS)).count();
        prop_assert_eq!(glass(&once), glass(&content));
        prop_assert_eq!(format().logins(&format().parse(once.as_bytes())), logins());
    }
}
