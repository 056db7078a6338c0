use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;

const SCRIPT: &str = "/etc/containership/scripts/containership_login.sh";
const A: Uuid = Uuid::from_u128(0xa);
const B: Uuid = Uuid::from_u128(0xb);
// Created for these tests; the private keys were deleted.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG/rsOVAgJS+D+rWBWNBgfdevP0BO3X6IQI1/grYrdb5";
const OTHER: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKohQ80ObZWEG/S9wLD9bE/4q4MIu72ixvI4d+E2rxqmYcngU41+nDB4VDTOx973z5lpwPlQcF/rXavbG3rbRao=";

const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDYpZgZ9BKskD+elAw99WoAEOFP4qlzXyeC1kkdWYsuGkch/RJy2lGTrU65cuW2uZy+WDsYuoWw3Ne8Kr1whNsCFKKapWuThuZZcS1J3fuWlg99dlQyKQsHbkfDu2tvZq5ByeAN7W9pwnknEzEuwCnOIjW2PZvh60/xDayV59zcUa52y+bSyTcF4xMeO1X7VbFFFAu+NLFGXaiVuRgSxBuUI+CuJHVn+ZJziJxoGnpj3b2BurwJkYhbY0hfiTu4oBZGGSwBzo4EVIDjN9yMnqfcTMY71Vptwy8oJ6hmb0CJ4DAgtq4wrbcW00yOgf1wz6bd1s3OIPe5BoEDZf6Vhcpv";

/// Nobody's.
const FOREIGN: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4hoRzVPA3U8qoef7QtvY6RmkwgDL47zndwzs8V+7J7";

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

fn desired(logins: Logins, kept: Kept) -> Desired {
    Desired {
        logins: logins.into(),
        kept: kept.into(),
        ..Desired::default()
    }
}

/// The file that `content` becomes.
fn becomes(content: &str, desired: &Desired) -> String {
    let rendered = format().render(&format().parse(content.as_bytes()), desired);
    String::from_utf8(rendered).unwrap()
}

#[test]
fn our_block_is_first_and_each_other_line_stays_or_goes() {
    let ours = ours();
    let foreign = format!("{FOREIGN} intruder\n");
    let marked = format!("{FOREIGN} admin # break-glass\n");
    for (what, content, kept) in [
        ("nothing", String::new(), ours.clone()),
        ("our own file", ours.clone(), ours.clone()),
        (
            "lines before and after",
            format!("{foreign}{ours}# a comment\n\n"),
            format!("{ours}{foreign}# a comment\n\n"),
        ),
        (
            "the last line without a newline",
            format!("{ours}{}", foreign.trim_end()),
            format!("{ours}{}", foreign.trim_end()),
        ),
        (
            "a line alone without a newline",
            foreign.trim_end().to_owned(),
            format!("{ours}{}", foreign.trim_end()),
        ),
        (
            "a line among ours",
            ours.replace(END_LINE, &format!("{marked}{END_LINE}")),
            ours.clone(),
        ),
        (
            "lines of the Go agent",
            format!("{}{foreign}{}", line(A, OTHER), line(Uuid::from_u128(0xdead), KEY)),
            format!("{ours}{foreign}"),
        ),
        (
            "a line of a removed user, copied out and indented",
            format!("{ours} \t{}", line(Uuid::from_u128(0xdead), FOREIGN)),
            ours.clone(),
        ),
        (
            "no end",
            format!("{BEGIN_LINE}{}{foreign}", line(A, KEY)),
            format!("{ours}{foreign}"),
        ),
        (
            "no begin",
            format!("{foreign}{}{END_LINE}", line(A, KEY)),
            format!("{ours}{foreign}"),
        ),
        (
            "two blocks",
            format!("{ours}{foreign}{ours}"),
            format!("{ours}{foreign}"),
        ),
        (
            "an end before a begin",
            format!("{END_LINE}{foreign}{BEGIN_LINE}{marked}"),
            format!("{ours}{foreign}{marked}"),
        ),
    ] {
        assert_eq!(becomes(&content, &desired(logins(), Kept::All)), kept, "{what}");
        assert_eq!(becomes(&content, &desired(logins(), Kept::default())), ours, "{what}");
    }
}

#[test]
fn a_key_of_a_known_user_stays_nowhere_else() {
    let ours = ours();
    let data = KEY.split(' ').nth(1).unwrap();
    let spaced = format!("{}\u{c}\r{}", &data[..20], &data[20..]);
    for hidden in [
        format!("{KEY} mine\n"),
        format!("{KEY} mine # break-glass\n"),
        format!("restrict,command=\"echo a b\" {KEY}\n"),
        format!("cert-authority\t{KEY}\n"),
        format!("{KEY}\0 mine\n"),
        format!("ssh-ed25519 \t{spaced}\n"),
    ] {
        for content in [format!("{hidden}{ours}"), format!("{ours}{hidden}")] {
            assert_eq!(becomes(&content, &desired(logins(), Kept::All)), ours, "{hidden:?}");
        }
    }
    let line_of_key = format!("{KEY} mine\n");
    // Known users that may not log in now, such as those whose keys have expired.
    let expired = Desired {
        known: logins().into(),
        ..desired(Logins::new(), Kept::All)
    };
    assert_eq!(becomes(&line_of_key, &expired), "");
    // A user who was removed while no agent ran: the file still has the user's own line.
    let content = format!("{line_of_key}{}{FOREIGN}\n", line(A, KEY));
    assert_eq!(
        becomes(&content, &desired(Logins::new(), Kept::All)),
        format!("{FOREIGN}\n")
    );
    // A pinned key has its own line.
    let pinned = Desired {
        pinned: vec![key(KEY)].into(),
        ..desired(Logins::new(), Kept::All)
    };
    assert_eq!(becomes(&format!("{KEY} # break-glass\n"), &pinned), break_glass());
}

/// The block with the pinned key alone.
fn break_glass() -> String {
    let key = key(KEY);
    let line = format!("command=\"{SCRIPT} break-glass:{}\" {KEY}\n", key.fingerprint);
    format!("{BEGIN_LINE}{line}{END_LINE}")
}

#[test]
fn pinned_keys_are_there_whatever_becomes_of_the_users_and_of_the_file() {
    for kept in [Kept::All, Kept::default()] {
        let desired = Desired {
            pinned: vec![key(KEY)].into(),
            ..desired(Logins::new(), kept)
        };
        for content in ["", &break_glass(), "# BEGIN tidewaiter\n", &line(A, OTHER)] {
            assert_eq!(becomes(content, &desired), break_glass());
        }
    }
    // Anyone who writes such a line pins nothing.
    let content = format!("{}{FOREIGN} x # break-glass\n", break_glass());
    assert_eq!(becomes(&content, &desired(logins(), Kept::default())), ours());
}

#[test]
fn the_lines_of_the_grace_stay_and_no_others() {
    let (spared, later) = (format!("{FOREIGN} old\n"), format!("{FOREIGN} new\n"));
    let kept = Kept::Of([line_digest(spared.trim_end().as_bytes())].into());
    let content = format!("{later}{spared}");
    assert_eq!(
        becomes(&content, &desired(logins(), kept)),
        format!("{}{spared}", ours())
    );
}

/// sshd reads more zeros before the numbers of an RSA key as the same key.
#[test]
fn a_key_of_a_known_user_stays_in_no_other_spelling() {
    let blob = STANDARD.decode(RSA.split(' ').nth(1).unwrap()).unwrap();
    let (mut exponent, mut modulus) = (blob.clone(), blob);
    // After the type, its length and that of the number.
    exponent.splice(11..15, [0, 0, 0, 5, 0, 0]);
    modulus.splice(18..22, [0, 0, 1, 2, 0]);
    let ours = format!("{BEGIN_LINE}{}{END_LINE}", line(A, RSA));
    let logins = Logins::from([(A, vec![key(RSA)])]);
    for spelled in [exponent, modulus] {
        let spelled = format!("ssh-rsa {}", STANDARD.encode(spelled));
        assert!(SshKeyLine::parse(&spelled).is_err());
        let content = format!("{spelled} a\n{ours}restrict {spelled}\nrsa {}\n", &spelled[8..]);
        assert_eq!(becomes(&content, &desired(logins.clone(), Kept::All)), ours);
        // A user who was removed while no agent ran.
        let gone = desired(Logins::new(), Kept::All);
        assert_eq!(becomes(&content, &gone), "");
        let content = format!("{spelled}\n");
        assert_eq!(becomes(&content, &gone), content);
        let print = ForeignKey::of(content.as_bytes()).unwrap().fingerprint;
        assert_eq!(print, key(RSA).fingerprint);
        let parts = format().parse(content.as_bytes());
        assert_eq!(parts.digests(&desired(logins.clone(), Kept::default())).len(), 0);
    }
}

/// One line of `a` costs many times its two bytes once it is read.
#[test]
fn of_a_file_that_is_too_large_no_foreign_line_stays() {
    let ours = ours();
    let most = "a\n".repeat(MAX_OTHERS.lines);
    assert_eq!(
        becomes(&format!("{ours}{most}"), &desired(logins(), Kept::All)),
        format!("{ours}{most}")
    );
    let line = format!("{}\n", "a ".repeat(MAX_OTHERS.bytes / 2));
    let in_block = ours.replace(END_LINE, &format!("{}{END_LINE}", "a\n".repeat(2_000_000)));
    for (content, size) in [
        (format!("{ours}{most}{FOREIGN} a\n"), MAX_OTHERS.lines + 1),
        (format!("{ours}{FOREIGN} a\n{line}"), 2),
        (format!("{}{ours}", "a\n".repeat(2_000_000)), 2_000_000),
        (format!("{FOREIGN} a\n{in_block}"), 2_000_003),
    ] {
        let parts = format().parse(content.as_bytes());
        assert_eq!(parts.excess.unwrap().lines, size);
        assert!(parts.others.is_empty() && parts.ours.len() <= 3);
        assert_eq!(becomes(&content, &desired(logins(), Kept::All)), ours);
    }
    // Nor is it too large by what an editor writes to a file that was replaced.
    let mut parts = format().parse(most.as_bytes());
    let other = "b\n".repeat(3);
    parts.merge(&format().parse(other.as_bytes()));
    assert_eq!(parts.others.concat(), most.as_bytes());
}

#[test]
fn without_users_nothing_of_ours_is_left() {
    let content = format!("{FOREIGN}\n{}", ours());
    assert_eq!(
        becomes(&content, &desired(Logins::new(), Kept::All)),
        format!("{FOREIGN}\n")
    );
    assert_eq!(becomes(&ours(), &desired(Logins::new(), Kept::All)), "");
}

#[test]
fn bytes_that_are_no_text_are_kept() {
    let foreign = b"\xff\0\r\x1b[2J\n".to_vec();
    let content = [ours().as_bytes(), &foreign[..]].concat();
    let rendered = format().render(&format().parse(&content), &desired(logins(), Kept::All));
    assert_eq!(rendered, content);
}

#[test]
fn only_lines_that_may_let_somebody_in_are_foreign() {
    let content = format!("# a comment\n\n \t# another\n{}{FOREIGN}\nnonsense\n", ours());
    let parts = format().parse(content.as_bytes());
    assert_eq!(parts.foreign().collect::<Vec<_>>(), [FOREIGN.as_bytes(), b"nonsense"]);
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

proptest! {
    /// A second pass finds its own lines: it changes nothing, and no line of others is lost.
    #[test]
    fn rendering_is_stable(lines in prop::collection::vec(
        prop_oneof![
            Just(BEGIN_LINE.to_owned()), Just(END_LINE.to_owned()), Just(line(A, KEY)),
            Just(format!("{FOREIGN} # break-glass\n")), Just(format!("{KEY} mine\n")), "[ -~]{0,12}\n", Just("\n".to_owned()),
        ], 0..12), last in "[ -~]{0,6}")
    {
        let content = format!("{}{last}", lines.concat());
        let desired = desired(logins(), Kept::All);
        let once = becomes(&content, &desired);
        prop_assert!(once.starts_with(&ours()));
        prop_assert_eq!(becomes(&once, &desired), once.clone());
        prop_assert_eq!(format().logins(&format().parse(once.as_bytes())), logins());
        prop_assert_eq!(once.matches(KEY).count(), 2, "each user's line alone");
    }
}
