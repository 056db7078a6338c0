//! The views of three verdicts to the letter, one of each outcome. `UPDATE_GOLDEN=1` writes the files anew.

use std::fs;

use tidewaiter_validation::{judge, view};

use crate::fixture;

#[test]
fn views_are_as_the_golden_files() {
    let mut wrong = Vec::new();
    for name in ["healthy", "everything-wrong", "all-unknown"] {
        let fixture = fixture::named(name);
        let verdict = judge(&fixture.seen, &fixture.options);
        for (extension, text) in [
            ("txt", view::table(&verdict)),
            ("json", view::json(&verdict).unwrap()),
            ("yaml", view::yaml(&verdict).unwrap()),
        ] {
            let file = fixture::folder("golden").join(format!("{name}.{extension}"));
            if update() {
                write(&file, &text);
            }
            if fs::read_to_string(&file).unwrap_or_default() != text {
                wrong.push(format!("{}:\n{text}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Anyone who reads one reads the same in the other.
#[test]
fn yaml_says_what_json_says() {
    for fixture in fixture::all() {
        let verdict = judge(&fixture.seen, &fixture.options);
        let json: serde_json::Value = serde_json::from_str(&view::json(&verdict).unwrap()).unwrap();
        let yaml: serde_json::Value = serde_saphyr::from_str(&view::yaml(&verdict).unwrap()).unwrap();
        assert_eq!(yaml, json, "{}", fixture.name);
    }
}

#[expect(clippy::disallowed_methods, reason = "a person asks for it, at a shell")]
fn update() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some()
}

#[expect(clippy::disallowed_methods, reason = "nobody reads while a test writes")]
fn write(file: &std::path::Path, text: &str) {
    fs::write(file, text).unwrap();
}
