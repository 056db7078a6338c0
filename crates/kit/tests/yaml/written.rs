use serde_json::{Value, json};
use tidewaiter_kit::yaml;
use tidewaiter_testkit::yaml_oracle;

use super::scalars::scalars;
use super::{Draw, same};

const PIECES: [&str; 44] = [
    "a",
    "word",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "\n ",
    "\n\t",
    "- ",
    "# x",
    ": ",
    "\"",
    "'",
    "\\",
    "\r\n",
    "\u{85}",
    "\u{2028}",
    "\u{2029}",
    "\u{feff}",
    "\0",
    "\u{7}",
    "\u{1b}",
    "\u{7f}",
    "é",
    "😀",
    "...",
    "\n---\n",
    "\n...\n",
    "%",
    "@",
    "|",
    ">",
    "{a}",
    "[b]",
    "*x",
    "&y",
    "!z",
    "?",
    "key: value",
    "\n- item",
    "<<",
    "~",
    "a text of several words which is long enough to be folded ",
];

#[test]
fn what_is_written_is_read_as_the_same() {
    let mut texts = scalars();
    let mut draw = Draw(2);
    texts.extend((0..6_000).map(|_| draw.text(&PIECES, 1, 6)));
    texts.extend([String::new(), "k".repeat(1_025), "a\n".repeat(50)]);
    // A key at the beginning of a line would be the separator for kubectl, which looks at no more than that.
    texts.retain(|text| !text.starts_with("---"));
    let values = texts.iter().flat_map(|text| {
        [
            json!({"v": text}),
            json!({text: 1}),
            json!([text, [text]]),
            json!({"a": {text: text, "b": [text, {text: text}]}}),
        ]
    });
    let numbers = json!([
        0,
        -1,
        1.5,
        1e20,
        1e21,
        1e300,
        5e-324,
        0.1,
        u64::MAX,
        i64::MIN,
        true,
        false,
        [],
        {},
        [[]],
        [{}]
    ]);
    let values: Vec<Value> = values.chain([numbers, json!({"null": null, "": ""})]).collect();
    let written: Vec<String> = values.iter().map(|value| yaml::to_string(value).unwrap()).collect();
    for ((value, text), there) in values.iter().zip(&written).zip(yaml_oracle::read(&written)) {
        let value = json!([value]);
        let here = yaml::documents(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(same(&here.into(), &value), "{text:?} here");
        let there = there.unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(same(&there.into(), &value), "{text:?} for kubectl");
    }
}
