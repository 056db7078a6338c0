//! The metrics, by the texts with which the source registers them.

use std::path::Path;

use anyhow::{Result, ensure};

use super::markdown::{cell, code, codes, head, section, table};
use super::source::{files, literal, read};

const INTRODUCTION: &str = "The metrics of each role. The admin port serves them; the controller's metrics port serves \
    those about the cluster: `kops_…`, `tidewaiter_cluster_…` and, with the label `instance_group`, \
    `tidewaiter_instance_group_…`, all with the label `cluster_name`. The admin port has \
    `tidewaiter_cluster_verdict_duration_seconds`. [Alerts](../alerts.md) use them. A name that ends with `_total` is \
    a counter.";

/// The sections, with the folders of the source that register their metrics.
const SECTIONS: [(&str, &[&str]); 5] = [
    ("Every role", &["crates/kit/src"]),
    (
        "Controller",
        &[
            "crates/controller/src",
            "crates/identity/src",
            "crates/kops/src",
            "crates/validation/src",
        ],
    ),
    ("Coordinator", &["crates/coordinator/src", "crates/upgrade/src"]),
    ("Agent", &["crates/agent/src"]),
    ("Cloud", &["crates/cloud/src/server"]),
];

/// The first letters of a metric's name, with the quote before it.
const PREFIXES: [&str; 3] = ["\"tidewaiter_", "\"kops_", "\"process_"];

/// A metric: its name, labels and help.
type Metric = [String; 3];

/// Returns the page.
pub fn page(root: &Path) -> Result<String> {
    let mut page = head("Metrics", INTRODUCTION);
    for (title, folders) in SECTIONS {
        let mut metrics = Vec::new();
        for folder in folders {
            for file in files(&root.join(folder))? {
                metrics.extend(registered(&read(&file)?)?);
            }
        }
        metrics.sort();
        ensure!(!metrics.is_empty(), "the source of {title} registers no metrics");
        section(&mut page, title);
        table(&mut page, ["metric", "labels", "meaning"], metrics);
    }
    Ok(page)
}

/// Returns the metrics that the code registers: a name, a help with words, and its labels.
fn registered(source: &str) -> Result<Vec<Metric>> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(at) = PREFIXES.iter().filter_map(|prefix| rest.find(prefix)).min() {
        let before = rest[..at].trim_end();
        let Some((name, after)) = literal(&rest[at..]) else {
            break;
        };
        rest = after;
        let help = after.strip_prefix(',').and_then(literal);
        if let Some((help, after)) = help.filter(|(help, _)| help.contains(' ')) {
            ensure!(
                !before.ends_with("Opts::new("),
                "{name}: write its labels behind its help, in a call of a function that takes both"
            );
            found.push([code(&name), labels(after), cell(&help)]);
            rest = after;
        }
    }
    Ok(found)
}

/// Returns the labels of the code behind a help: `, &["a", "b"]` or `, "a"`.
fn labels(code: &str) -> String {
    let Some(code) = code.strip_prefix(',').map(str::trim_start) else {
        return String::new();
    };
    if let Some((label, _)) = literal(code) {
        return codes([label.as_str()]);
    }
    let list = code.strip_prefix("&[").and_then(|list| list.split(']').next());
    let list = list
        .unwrap_or_default()
        .split(',')
        .map(|label| label.trim().trim_matches('"'));
    codes(list.filter(|label| label.starts_with(|first: char| first.is_ascii_lowercase())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_a_metric() {
        let source = r#"
            const CHANNEL: &str = "tidewaiter_changes";
            a: metrics.counter_vec(
                "tidewaiter_a_total",
                "Calls by \"kind\".",
                &["kind", "outcome"],
            )?,
            b: metrics.gauge("tidewaiter_b", "1 while so.")?,
            let c = [
                "kops_c",
                "By state.",
                "state",
            ];
            d: histogram_vec("tidewaiter_d_seconds", "Of a call.", &[], &[0.5, 2.0]),
            e: ("tidewaiter_e", "Of a group.", |cloud| cloud.e),
        "#;
        let expected = [
            ["`tidewaiter_a_total`", "`kind`, `outcome`", "Calls by \"kind\"."],
            ["`tidewaiter_b`", "", "1 while so."],
            ["`kops_c`", "`state`", "By state."],
            ["`tidewaiter_d_seconds`", "", "Of a call."],
            ["`tidewaiter_e`", "", "Of a group."],
        ];
        assert_eq!(registered(source).unwrap(), expected);
        let elsewhere = "let opts = Opts::new(\n\"tidewaiter_f\", \"Of a call.\");";
        assert!(registered(elsewhere).is_err(), "its labels are not in sight");
    }
}
