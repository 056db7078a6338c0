use super::*;

fn error(text: &str) -> String {
    parse("the/file", text.as_bytes()).unwrap_err().to_string()
}

fn labels(text: &str) -> BTreeMap<String, LabelText> {
    let text = format!("labels:\n{text}");
    let document = parse("f", text.as_bytes()).unwrap();
    Mapping::root("f", &document).node_labels("labels").unwrap().entries
}

#[test]
fn what_is_no_mapping_is_named_in_one_line() {
    for (text, found) in [
        ("", "the/file: is empty"),
        ("# only a comment\n", "the/file: is empty"),
        ("---\n", "the/file: is empty"),
        ("~", "the/file: is empty"),
        (
            "- a\n- b\n",
            "the/file: must be a mapping of keys to values, but is a list",
        ),
        ("[]", "the/file: must be a mapping of keys to values, but is a list"),
        (
            "just text",
            "the/file: must be a mapping of keys to values, but is a text of 9 characters",
        ),
        (
            "42",
            "the/file: must be a mapping of keys to values, but is the number 42",
        ),
        (
            "<!DOCTYPE html>\n<html>a: b</html>",
            "the/file: is HTML or XML, not YAML",
        ),
        (
            "\n  <Error><Code>AccessDenied</Code></Error>",
            "the/file: is HTML or XML, not YAML",
        ),
    ] {
        assert_eq!(error(text), found, "{text:?}");
    }
}

#[test]
fn broken_yaml_says_where() {
    for text in [
        "a: [1, 2",
        "a: b: c",
        "a:\n\t- b",
        "{\"a\": \"b\"",
        "a: 1\na: 2",
        "a: {b: 1, b: 2}",
        "a: *nowhere",
        "a: 1\n---\nb: 2\n",
        "%YAML 9.9\n---\n: :",
        "\"unterminated",
        "a: \u{0}",
    ] {
        let error = error(text);
        assert!(
            error.starts_with("the/file: is not valid YAML: ") && !error.contains('\n'),
            "{text:?}: {error}"
        );
        assert!(error.len() < 400, "{error}");
    }
    assert!(error("a: 1\nb: [").contains("line 2"), "{}", error("a: 1\nb: ["));
    for (text, reason) in [
        (
            "a: 1\na: 2",
            "line 2: the key \"a\" occurs twice in one mapping: remove one",
        ),
        (": :", "line 1: a key is empty or null: write the key, or quote it"),
        (
            "on: 1\ny: 2",
            "line 2: the key \"true\" occurs twice in one mapping: remove one, or quote what is a text, as on and y",
        ),
        ("host: *.example.com", "found unknown anchor: put the text in quotes"),
        (
            "name: {{ .Values.name }}",
            "line 1: a key is a list or a mapping: write a text; render a template with {{ }} first, or put it in quotes",
        ),
    ] {
        assert!(error(text).contains(reason), "{}", error(text));
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    for bytes in [&b"\xff\xfe\x00a"[..], b"a: \xc3\x28", &[0x1f, 0x8b, 8, 0]] {
        assert!(parse("f", bytes).unwrap_err().reason.contains("UTF-8"), "{bytes:?}");
    }
    assert!(
        parse("f", &vec![b' '; MAX_BYTES + 1])
            .unwrap_err()
            .reason
            .contains("larger than 1024 KiB")
    );
}

#[test]
fn a_small_file_cannot_become_a_large_tree() {
    let laughs = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b]\n\
                  d: &d [*c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d, *d, *d]\n";
    let wide = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a, ".repeat(500));
    let deep = "[".repeat(100_000);
    let nested: String = (0..5_000).map(|depth| " ".repeat(depth) + "a:\n").collect();
    for text in [laughs, &wide, &deep, &nested[..MAX_BYTES / 2], "a: &a [*a]"] {
        assert!(parse("f", text.as_bytes()).is_err(), "{}", &text[..40]);
    }
    assert!(
        parse("f", b"a: &a {b: c}\nd: *a\ne: {<<: *a, f: g}\n").is_ok(),
        "a person's few anchors are fine"
    );
    let repeated = |times: usize| format!("a: &a x\nb: [{}]\n", vec!["*a"; times].join(", "));
    assert!(parse("f", repeated(10_000).as_bytes()).is_ok());
    assert!(
        parse("f", repeated(20_000).as_bytes()).is_err(),
        "1 MiB is the bound, with 64 bytes for each value"
    );
}

#[test]
fn a_label_is_what_go_reads_as_a_string() {
    let text = |text: &str| LabelText::Text(text.to_owned());
    for (value, expected) in [
        ("blue", text("blue")),
        ("\"true\"", text("true")),
        ("'1'", text("1")),
        ("\"0x10\"", text("0x10")),
        ("!!str 1", text("1")),
        ("1.2.3", text("1.2.3")),
        ("7e10123", text("7e10123")),
        ("tRue", text("tRue")),
        ("oN", text("oN")),
        ("nULL", text("nULL")),
        ("12:30", text("12:30")),
        ("2026-01-02", text("2026-01-02")),
        ("null", text("")),
        ("~", text("")),
        ("", text("")),
        ("\"\"", text("")),
        ("|-\n    a\n    b", text("a\nb")),
    ] {
        assert_eq!(labels(&format!("  key: {value}\n"))["key"], expected, "{value}");
    }
}

#[test]
fn a_label_that_go_reads_as_something_else_is_no_string() {
    for value in [
        "true",
        "True",
        "yes",
        "no",
        "on",
        "off",
        "y",
        "N",
        "1",
        "-1",
        "0",
        "007",
        "0o7",
        "0x10",
        "0b1",
        "1_000",
        "1_",
        "0x1_f",
        "1.0",
        "1e3",
        ".5",
        "+1",
        "18446744073709551616",
        "[a]",
        "{a: b}",
    ] {
        let found = &labels(&format!("  key: {value}\n"))["key"];
        assert!(matches!(found, LabelText::NotText(_)), "{value}: {found:?}");
    }
    assert_eq!(
        labels("  key: true\n")["key"],
        LabelText::NotText("the boolean true".to_owned())
    );
}

#[test]
fn a_field_says_where_it_is_what_it_holds_and_what_it_may_hold() {
    let document = parse("f", b"a: {b: {c: 7}}\nd: null\n").unwrap();
    let root = Mapping::root("f", &document);
    let b = root.get("a").unwrap().mapping("a mapping").unwrap().get("b").unwrap();
    let c = b.mapping("a mapping").unwrap().get("c").unwrap();
    assert_eq!(
        c.text("a name").unwrap_err().to_string(),
        "f: a.b.c: is the number 7, must be a name"
    );
    assert_eq!(
        b.text("a name").unwrap_err().to_string(),
        "f: a.b: is a mapping, must be a name"
    );
    assert_eq!(
        root.require("d", "a name").unwrap_err().to_string(),
        "f: d: is missing: must be a name"
    );
}

#[test]
fn json_is_yaml_with_its_escapes_and_tabs() {
    let document = parse(
        "f",
        b"{\n\t\"a\": \"\\u00e4\\n\",\n\t\"b\": {\"c\": [1, 2.5, true, null]}\n}\n",
    )
    .unwrap();
    assert_eq!(document["a"], "\u{e4}\n");
    assert_eq!(document["b"]["c"][1], 2.5);
    let entries: Vec<String> = (0..5_000).map(|n| format!("\"k{n}\":\"v{n}\"")).collect();
    let line = format!("{{\"a\":{{{}}},\"b\":1}}", entries.join(","));
    assert_eq!(
        parse("f", line.as_bytes()).unwrap()["a"]["k4999"],
        "v4999",
        "one long line"
    );
}

/// Files of other programs that hold a secret, and are no YAML.
const BROKEN_SECRETS: [&str; 12] = [
    "[default]\naws_secret_access_key = wJalrXUtnFEMI\n",
    "{\"password\": \"wJalrXUtnFEMI\"",
    "{\"password\": \"wJalrXUtnFEMI\"\n\"user\": 1}",
    "password: wJalrXUtnFEMI: x\n",
    "users:\n\t- wJalrXUtnFEMI\n",
    "password: \"wJalrXUtnFEMI\n",
    "password: *wJalrXUtnFEMI\n",
    "password: %wJalrXUtnFEMI\n  x: [\n",
    "password: @wJalrXUtnFEMI\n",
    "%wJalrXUtnFEMI\n",
    "- wJalrXUtnFEMI\n",
    "export PASSWORD='wJalrXUtnFEMI'\nexport USER: 'alice\n",
];

#[test]
fn an_error_quotes_no_secret_that_was_put_in_place_of_a_file_or_a_value() {
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEA\n-----END PRIVATE KEY-----\n";
    for secret in [key, "AKIA:wJalrXUtnFEMIMIIEKEY\n"] {
        let error = parse("f", secret.as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with("f: must be a mapping of keys to values, but is a text of "),
            "{error}"
        );
        assert!(!error.contains("MII"), "{error}");
    }
    for broken in BROKEN_SECRETS {
        let error = parse("f", broken.as_bytes()).unwrap_err().to_string();
        assert!(!error.contains("wJalr"), "{broken:?}: {error}");
    }
    let document = parse("f", b"role: wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY\n").unwrap();
    let error = Mapping::root("f", &document)
        .get("role")
        .unwrap()
        .must_be("Node")
        .to_string();
    assert_eq!(
        error,
        "f: role: is a text of 38 characters that begins with \"wJal\", must be Node"
    );
}
