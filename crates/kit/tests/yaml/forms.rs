use super::Outcome::{self, Refused, RefusedHere, RefusedThere, Same};
use super::{Draw, compared};

/// A text, what becomes of it, and, where that is not the same, why.
type Row = (&'static str, Outcome, &'static str);

const ROWS: &[Row] = &[
    // Empty, comments, line ends, byte order marks.
    ("", Same, ""),
    ("\n\n", Same, ""),
    ("# only a comment", Same, ""),
    ("---\n---\n", Same, ""),
    ("a: 1 # one\n# two\nb: 2 #three\nc: x#y\n", Same, ""),
    ("a: 1\r\nb:\r\n- x\r\n- |\r\n  one\r\n  two\r\n", Same, ""),
    ("\u{feff}a: 1\n", Same, ""),
    ("---\n\u{feff}a: 1\n", RefusedHere, "a mark amid a file is invisible"),
    (
        "a: 'x\u{2028}y'\n",
        RefusedHere,
        "YAML 1.1 takes it for the end of a line, 1.2 does not",
    ),
    ("a: x\u{85}b: y\n", RefusedHere, "as above"),
    ("a: x\u{7}\n", Refused, ""),
    ("a: \u{0}\n", Refused, ""),
    // Documents.
    ("a: 1\n---\nb: 2\n---\n\n---\n# none\n---\nc: 3\n", Same, ""),
    ("a: 1\n--- # a comment\nb: 2\n", Same, ""),
    ("a: 1\n...\n---\nb: 2\n", Same, ""),
    ("a: |\n  x\n  ---\n  y\n", Same, ""),
    ("a: x\n ---\nb: 2\n", Same, ""),
    ("a:\n  b: 1\n  ---\nb: 2\n", Refused, ""),
    ("a:\n- b: 1\n ---\nb: 2\n", Refused, ""),
    ("a: |\n  x\n ---\nb: 2\n", Refused, ""),
    (" ---\na: 1\n", Refused, ""),
    ("a: 1\n...\nb: 2\n", RefusedHere, "kubectl ignores the rest of the file"),
    ("[]: 1\n", RefusedHere, "kubectl ignores what follows the list"),
    ("--- {a: 1}\n", RefusedThere, "the meaning is clear"),
    ("%YAML 1.1\n---\na: 1\n", Refused, ""),
    ("%YAML 1.2\n---\na: 1\n", Refused, ""),
    (
        "%TAG !e! tag:example.com,2000:\n---\na: 1\n",
        RefusedThere,
        "the meaning is clear",
    ),
    // Anchors and merge keys.
    ("a: &x 1\nb: *x\nc: [*x, *x]\n", Same, ""),
    ("a: &x {k: 1}\nb: {<<: *x, l: 2}\n", Same, ""),
    ("a: &x {k: 1}\nb:\n  <<: *x\n  k: 2\n", Same, ""),
    ("a: &x {k: 1}\nb:\n  k: 2\n  <<: *x\n", Same, ""),
    (
        "a: &x {k: 1}\nb: &y {k: 2, l: 3}\nc:\n  <<: [*x, *y, {m: 4}]\n",
        Same,
        "",
    ),
    ("a: {'<<': {k: 1}}\n", Same, ""),
    ("a: {! <<: {k: 1}}\n", Same, ""),
    ("a: {!!merge x: {k: 1}}\n", Same, ""),
    ("a: <<\n", Same, ""),
    ("a: {<<: 1}\n", Refused, ""),
    ("a: &x [{k: 1}]\nb: {<<: *x}\n", Refused, ""),
    ("a: &x 1\nb: &x 2\nc: *x\n", Same, ""),
    ("a: &k key\n*k : 1\n", Same, ""),
    ("a: &x [*x]\n", Refused, ""),
    ("a: *x\n", Refused, ""),
    ("a: &x 1\n---\nb: *x\n", Refused, ""),
    ("a: &ä 1\n", Refused, ""),
    ("a: &x.y 1\nb: 2\n", Refused, ""),
    // Keys.
    (
        "a: 1\na: 2\n",
        RefusedHere,
        "kubectl takes the last one, and who wrote the other is not told",
    ),
    ("yes: 1\ntrue: 2\n", RefusedHere, "as above"),
    (
        "1: a\n\"1\": b\n",
        RefusedHere,
        "as above: which one kubectl takes is chance",
    ),
    ("A: 1\na: 2\n", Same, ""),
    ("on: {push: {}}\n2: b\n1.10: c\n1e6: d\n-.inf: e\n", Same, ""),
    ("~: 1\n", Refused, ""),
    (": 1\n", Refused, ""),
    ("? [a]\n: 1\n", Refused, ""),
    ("? a\n: 1\n? b\n", Same, ""),
    ("18446744073709551615: 1\n", Refused, ""),
    ("\"a\\nb\": 1\n", Same, ""),
    // Text.
    ("a: |\n  one\n   two\n\n  three\n\nb: 1\n", Same, ""),
    (
        "a: |-\n  one\n\nb: |+\n  two\n\nc: >\n  three\n  four\n\n  five\n   six\n",
        Same,
        "",
    ),
    ("a: |2\n    one\n   two\nb: >-2\n   x\n", Same, ""),
    ("a: |+\n\n  ", Same, ""),
    ("a: |\n  no end of line", Same, ""),
    ("a: |\n\n\n  x\n", Same, ""),
    ("a: |\n  \tx\n", RefusedThere, "the meaning is clear"),
    (
        "a: one\n  two\n\n  three\nb: 'one\n  two'\nc: \"one \\\n  two\\n\"\n",
        Same,
        "",
    ),
    ("a: 'it''s'\nb: \"\\x41\\u00e9\\U0001F600\\t\\e\\0\"\n", Same, ""),
    (
        "a: \"\\ud83d\\ude00\\/\"\n",
        RefusedThere,
        "it is JSON, as which kubectl reads a whole file of it",
    ),
    ("a: \"it\\'s\"\n", RefusedHere, "not YAML 1.2"),
    (
        "a: \"one\ntwo\"\n",
        RefusedHere,
        "not YAML: the second line is not indented",
    ),
    ("a: http://x:80/?b=c#d\nb: -x\nc: a:b\nd: ?x\ne: x?\n", Same, ""),
    ("a: @x\n", Refused, ""),
    ("a: `x`\n", Refused, ""),
    ("a: %x\n", Refused, ""),
    ("a: b: c\n", Refused, ""),
    // Lists, brackets, tabs.
    ("a:\n- 1\n-\n- - 2\n  - 3\n- b: 4\n  c: 5\n", Same, ""),
    ("a: [1, [2, ], {b: 3, }, 'c': 4]\n", Same, ""),
    ("a: [\n  1,\n  2 # two\n  ]\nb: {\n}\n", Same, ""),
    ("{\"a\":1,\"b\":[true,null,{\"c\":\"d\"}]}\n", Same, ""),
    ("{\n\t\"a\": [\n\t\t1\n\t]\n}\n", Same, ""),
    ("a:\tb\nc: d\t# e\n", Same, ""),
    ("a:\n\tb: 1\n", Refused, ""),
    ("a: 1\n\t\nb: 2\n", RefusedThere, "the meaning is clear"),
    ("a: [b?c]\n", Refused, ""),
    ("a: {b?c: d}\n", Refused, ""),
    ("a: [b:, c]\n", RefusedHere, "in YAML 1.2 it is a key, in 1.1 a text"),
    ("a: [-, b]\n", RefusedHere, "not YAML 1.2"),
    ("a: [b]#c\n", RefusedHere, "not YAML 1.2"),
    ("a: [1, 2\n", Refused, ""),
    ("a: [1}\n", Refused, ""),
    ("a: 1]\n", Same, ""),
    // Tags.
    (
        "a: !!str 1\nb: !!int \"2\"\nc: !!float 3\nd: !!bool yes\ne: !!null ''\nf: !x 5\ng: ! 6\n",
        Same,
        "",
    ),
    (
        "a: !<tag:yaml.org,2002:int> '7'\nb: !!map {c: 1}\nd: !!seq [e]\nf: !!set {g}\n",
        Same,
        "",
    ),
    ("a: !!int x\n", Refused, ""),
    (
        "a: !!binary aGk=\n",
        RefusedHere,
        "Kubernetes takes base64, which the tag would decode",
    ),
    (
        "a: !!timestamp 2001-01-01\n",
        RefusedHere,
        "it is the text that it is without a tag",
    ),
    ("a: .inf\n", Refused, ""),
    ("a: [.nan]\n", Refused, ""),
];

#[test]
fn a_file_means_what_it_means_for_kubectl() {
    let texts: Vec<String> = ROWS.iter().map(|(text, ..)| (*text).to_owned()).collect();
    for ((found, error), (text, expected, reason)) in compared(&texts).into_iter().zip(ROWS) {
        assert_eq!(found, *expected, "{text:?}: {error}");
        let is_deliberate = matches!(expected, RefusedHere | RefusedThere);
        assert_eq!(is_deliberate, !reason.is_empty(), "{text:?}");
    }
}

/// The parts that files are made of.
const PIECES: [&str; 66] = [
    "a",
    "b",
    "c d",
    "1",
    "yes",
    "0400",
    "\"q\"",
    "'s'",
    "\"x: y\"",
    "- ",
    "- - ",
    "a: ",
    "b: ",
    "\"k\": ",
    "? ",
    ": ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    ",",
    "&x ",
    "*x",
    "<<: ",
    "<<: *x",
    "!!str ",
    "!t ",
    "! ",
    "|\n",
    ">-\n",
    "|+\n",
    "|2\n",
    ">\n",
    "\n",
    "\n  ",
    "\n    ",
    "\n\n",
    "\n- ",
    "\n  - ",
    "\na: ",
    "\nb: ",
    "\n  a: ",
    "\n  c: ",
    " # c",
    "#c",
    "\t",
    "\n---\n",
    "\n...\n",
    "--- ",
    "\r\n",
    "~",
    " ",
    "  ",
    "http://x:80/?a=b#c",
    "a:b",
    "-x",
    "x?",
    "\"multi\n line\"",
    "é",
    "k2:\n- i\n- j\n",
    "k3:\n  n: 1\n",
    "l: [1, 2]\n",
    "m: {a: 1}\n",
    "t: |\n  one\n   two\n\n  three\n",
    "f: >\n  one\n  two\n\n  three\n",
];

/// The beginnings of files, so that most are mappings: a text that is no mapping is no file.
const BEGINNINGS: [&str; 8] = ["", "a: ", "a:\n", "b: 1\nc: ", "k:\n  ", "k: {", "k: [", "k:\n- "];

#[test]
fn no_file_means_something_else_than_for_kubectl() {
    let mut draw = Draw(3);
    let text = |draw: &mut Draw| BEGINNINGS[draw.below(BEGINNINGS.len())].to_owned() + &draw.text(&PIECES, 2, 8);
    let mut texts: Vec<String> = (0..60_000).map(|_| text(&mut draw)).collect();
    texts.retain(|text| {
        let read = tidewaiter_kit::yaml::documents(text).unwrap_or_default();
        !read.is_empty() && read.iter().all(serde_json::Value::is_object)
    });
    let same = compared(&texts).into_iter().filter(|(outcome, _)| *outcome == Same);
    assert!(same.count() > 4_000, "most are no YAML");
}
