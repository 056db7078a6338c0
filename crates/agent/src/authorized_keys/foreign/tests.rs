use super::*;

// Created for these tests; the private keys were deleted.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIN2Z99VMmjx5uw4/5NqHGN+YdT7J/TIRML6yuQfC3Iq5";
const PRINT: &str = "SHA256:rpthgWh647yw7s56+b6scRUjj3V8MotIsao1/EDiJ1M";
/// Of the same key.
const CERTIFICATE: &str = "ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29tAAAAINebPZBBYMu2/tFh91PK5w5FRkgnWnHMD4j5EBPk7pHzAAAAIN2Z99VMmjx5uw4/5NqHGN+YdT7J/TIRML6yuQfC3Iq5AAAAAAAAAAAAAAABAAAAAWMAAAAIAAAABHJvb3QAAAAAaVW5AAAAAAB8JF8AAAAAAAAAAIIAAAAVcGVybWl0LVgxMS1mb3J3YXJkaW5nAAAAAAAAABdwZXJtaXQtYWdlbnQtZm9yd2FyZGluZwAAAAAAAAAWcGVybWl0LXBvcnQtZm9yd2FyZGluZwAAAAAAAAAKcGVybWl0LXB0eQAAAAAAAAAOcGVybWl0LXVzZXItcmMAAAAAAAAAAAAAADMAAAALc3NoLWVkMjU1MTkAAAAg9V+5xz5bbwP7hgdwH66ZRu0r/ogoQIGo2e/XwiaODK0AAABTAAAAC3NzaC1lZDI1NTE5AAAAQIMiMxML/DX9a6OLM3/LMYXpS1rVnELe29XWcCR7iF5EX+8K1B5XpZ6ByWBSbubsH103oam382nUfBB36H/njA4=";
const WEAK: [(&str, &str); 2] = [
    (
        "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCVCrXSGeB/kP+Q9EzRHUr5kcuoDInKOYcdP/M4dSe10yEyqfVlEfesloWtyyqFdu5L2QNSXz5pg7HIBNMJfZQvtYkOmzW+Cle7cVxj2+vAxj+b8jC7xMIOnTVRlwVQVqYQGYWhIBLiYnOkMBMb/PODHFZ7YmpLf7RAr6s1QlOs8Q==",
        "SHA256:1Y12ga90SK+XoUgMH8rcy2m9iub0Vzz2by6ZV0dsz3g",
    ),
    (
        "ssh-dss AAAAB3NzaC1kc3MAAACBAL88aAml/9WLX3qpBPADjfDg/klq7hhdJD9Sw55FOVboEwr9wYzzrQbpmRxFgFtnniGkQhYSeqi9iCQTNozLATZGF6oKaQoZm/wMWpWZ/KOHoLjoJ3bOmSXUDQf7VJH3t1QjB/h0zbAOIDMpGZObw6Yf/CnNhRl5NXfmpoEfLTnPAAAAFQCpAUi6srw1Ogst5Kmo04JbFGaCiQAAAIBBx4OeDRdQBIFliImomaxAN9Ht6tToncJRFYHc+8LO1sfNDYBobwUSI+yWJhAAOXNGKbDvZcN5Ip2K/flZpuna+4VjKeZFHSerFuSpFWhDHFJHtQp7PIc15mPKsX8y9W3XOubI0ysvMCc0d6mdtd1KtUzCvO2elR/PVJg8NQA6GgAAAIEAhu7EmDXiViFANRWD+TtBMcoVru2sOyZqjiq1GSi55breoQjpgc6DDoUlUuDsKtNTxldFlut2qGkyHxSlHf/yPjd1pqAJ5qGi7TG60uOqmsLnPIpLaNduMj6UDjpuToKs03HR0KflwnQLtK6CK6r0K2JCsWWDCr+HGVrcKzsE1ts=",
        "SHA256:frEt5Omv/IlIi9A2oRgjnkLWnHo+slq7phjoYCIeHFU",
    ),
];

fn fingerprint(line: &str) -> Option<String> {
    ForeignKey::of(line.as_bytes()).map(|key| key.fingerprint)
}

#[test]
fn a_key_is_found_behind_its_options_as_sshd_reads_them() {
    let other = WEAK[0].0;
    for line in [
        format!("{KEY} me\n"),
        format!("no-pty,command=\"echo a b\" {KEY}\n"),
        format!("  {KEY} # break-glass"),
        format!("{KEY}\0{other}"),
        // A quoted text is no key.
        format!("environment=\"A={other}\" {KEY}"),
        format!("command=\"echo \\\" {other}\" {KEY}"),
    ] {
        assert_eq!(fingerprint(&line).as_deref(), Some(PRINT), "{line:?}");
    }
    for line in ["# a comment\n", "", "nonsense", "ssh-ed25519 AAAA"] {
        assert_eq!(fingerprint(line), None, "{line}");
    }
}

/// sshd would accept them in a line of others, so whose they are must be seen, as `ssh-keygen -l` shows it.
#[test]
fn weak_keys_and_certificates_have_a_fingerprint() {
    for (key, print) in WEAK.into_iter().chain([(CERTIFICATE, PRINT)]) {
        assert_eq!(fingerprint(&format!("{key} x\n")).as_deref(), Some(print), "{key}");
    }
}

#[test]
fn comments_are_printable_and_cut_and_may_mark_break_glass() {
    let key = ForeignKey::of(format!("{KEY} a\u{1b}[2J{} # break-glass", "x".repeat(100)).as_bytes()).unwrap();
    assert!(
        key.is_marked && key.comment.len() == MAX_COMMENT_CHARS && !key.comment.contains('\u{1b}'),
        "{key:?}"
    );
}

#[test]
fn a_key_that_is_there_several_times_is_named_once() {
    let file = [format!("{KEY} a\n"), format!("{KEY}\n"), format!("{KEY} b\n")];
    let lines = || file.iter().map(String::as_bytes);
    assert_eq!(named(added_keys(lines(), b"")), format!(", with the keys {PRINT} a"));
    let weak = format!("{}\n", WEAK[0].0);
    let both = lines().chain([weak.as_bytes()]);
    assert_eq!(
        named(added_keys(both, b"")),
        format!(", with the keys {PRINT} a, {}", WEAK[0].1)
    );
    let keys = (0..12).map(|number| ForeignKey {
        fingerprint: format!("SHA256:{}", number % 6),
        ..ForeignKey::of(file[1].as_bytes()).unwrap()
    });
    assert_eq!(
        named(keys),
        ", with the keys SHA256:0, SHA256:1, SHA256:2, SHA256:3, and 2 more"
    );
}
