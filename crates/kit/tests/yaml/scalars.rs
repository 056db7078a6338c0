use std::collections::BTreeSet;

use super::{Draw, Outcome, compared};

/// The parts that numbers are made of, and others that look like them.
const PIECES: [&str; 36] = [
    "0",
    "1",
    "7",
    "8",
    "9",
    "_",
    "__",
    ".",
    "e",
    "E",
    "+",
    "-",
    "0x",
    "0X",
    "0o",
    "0O",
    "0b",
    "0B",
    "f",
    "e3",
    "e+2",
    "E-7",
    "00",
    "10",
    "400",
    "_1",
    "inf",
    "nan",
    "T",
    "Z",
    "y",
    "n",
    "18446744073709551615",
    "9223372036854775808",
    ":30",
    "é",
];

/// In all combinations of upper and lower case.
const WORDS: [&str; 19] = [
    "true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf", ".inf", "+.inf", "-.inf", ".nan",
    "+.nan", "none", "~", "nil",
];

const OTHERS: [&str; 30] = [
    "2001-01-01",
    "2001-1-1",
    "2001-01-01T12:30:45Z",
    "2001-01-01 12:30:45",
    "12:30:45",
    "190:20:30",
    "1.2.3",
    "v1.36.3",
    "7e10123",
    "1e400",
    "-1e400",
    "1e-400",
    "1e21",
    "1e20",
    "123456789012345678901234567890",
    "-9223372036854775808",
    "-9223372036854775809",
    "0xffffffffffffffff",
    "0x1ffffffffffffffff",
    "0777777777777777777777777",
    "0b-1",
    "-0b-1",
    "0o-7",
    "0x-1",
    "1000000.5",
    "0.00001",
    "12345678.9",
    "<<",
    "=",
    "٣",
];

/// More than 5,000.
pub(super) fn scalars() -> BTreeSet<String> {
    let mut scalars: BTreeSet<String> = OTHERS.map(str::to_owned).into();
    for word in WORDS {
        for upper in 0_u32..1 << word.len() {
            let cased = |(place, c): (usize, char)| match upper >> place & 1 {
                0 => c,
                _ => c.to_ascii_uppercase(),
            };
            scalars.insert(word.chars().enumerate().map(cased).collect());
        }
    }
    let pairs = PIECES
        .iter()
        .flat_map(|first| PIECES.map(|second| format!("{first}{second}")));
    scalars.extend(PIECES.map(str::to_owned).into_iter().chain(pairs));
    let mut draw = Draw(1);
    scalars.extend((0..6_000).map(|_| draw.text(&PIECES, 3, 5)));
    // Not scalars, but the beginning of an item or of a document.
    scalars.retain(|scalar| !["-", "---"].contains(&scalar.as_str()));
    scalars
}

/// Texts that are refused here though kubectl reads them, by a part of the error, and the reason.
const REFUSALS: [(&str, &str); 4] = [
    (
        ": or ? in a place where readers differ",
        "in YAML 1.2 the text ends elsewhere: no writer means both",
    ),
    (
        "occurs twice in one mapping",
        "kubectl takes the last one, and who wrote the other is not told",
    ),
    (
        "!!timestamp is not supported",
        "it is the text that it is without a tag",
    ),
    (
        "!!binary is not supported",
        "Kubernetes takes base64, which the tag would decode",
    ),
];

#[test]
fn a_scalar_means_what_it_means_for_kubectl() {
    let scalars = scalars();
    assert!(scalars.len() > 5_000, "{}", scalars.len());
    let forms = |scalar: &String| {
        [
            format!("a: {scalar}"),
            format!("{scalar}: a"),
            format!("- {scalar}\n- '{scalar}'\n- \"{scalar}\""),
            format!("[{scalar}, a, {scalar} ]"),
            format!("{{{scalar}: a}}"),
            format!("{{a: {scalar}, b: {{c: {scalar} }} }}"),
            format!("a: !!str {scalar}\nb: !custom {scalar}\nc: ! {scalar}"),
            format!("a: !!int {scalar}"),
            format!("a: !!float {scalar}"),
            format!("a: !!bool '{scalar}'"),
            format!("a: !!null {scalar}"),
            format!("a: |\n  {scalar}\nb: >-\n  {scalar}"),
        ]
    };
    let texts: Vec<String> = scalars.iter().flat_map(forms).collect();
    let mut same = 0;
    for ((outcome, error), text) in compared(&texts).into_iter().zip(&texts) {
        same += usize::from(outcome == Outcome::Same);
        match outcome {
            Outcome::RefusedThere => panic!("{text:?} is read here, and kubectl refuses it"),
            Outcome::RefusedHere => assert!(
                REFUSALS.iter().any(|(part, _)| error.contains(part)),
                "{text:?} is refused here, and kubectl reads it: {error}"
            ),
            Outcome::Same | Outcome::Refused => {}
        }
    }
    assert!(same > 50_000, "{same}");
}
