//! The tables, in kOps' layout: columns end at tab stops of eight, rows are in the order of their cells.

use std::fmt::Write as _;

use tidewaiter_api::ConditionStatus;
use tidewaiter_api::values::printable;

use crate::verdict::{Outcome, Verdict};

const TAB: usize = 8;

/// The meaning of a cell or line, for colouring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Healthy.
    Good,
    /// A failure.
    Bad,
    /// Unknown.
    Unsure,
}

/// The tables of a verdict and a summary line. All cells are escaped for terminals.
#[must_use]
pub fn table(verdict: &Verdict) -> String {
    painted_table(verdict, &|_, text| text.to_owned())
}

/// As [`table`], with `paint` applied to the READY cells that are not True and to the last line.
#[must_use]
pub fn painted_table(verdict: &Verdict, paint: &dyn Fn(Tone, &str) -> String) -> String {
    let size = |size: Option<u32>| size.map_or_else(|| "-".to_owned(), |size| size.to_string());
    let groups = verdict.groups.iter().map(|row| {
        let group = &row.group;
        [
            group.name.to_string(),
            group.role.to_string(),
            group.machine_type.clone(),
            size(group.min_size),
            size(group.max_size),
            group.subnets.join(","),
        ]
    });
    let nodes = verdict.nodes.iter().map(|node| {
        let status = match node.status {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        };
        [node.name.to_string(), node.role.to_owned(), status.to_owned()]
    });
    let failures = verdict.failures.iter();
    let failures = failures.map(|found| [found.kind.to_string(), found.name.clone(), found.message.clone()]);
    let unknown = verdict
        .unknown
        .iter()
        .map(|unknown| [unknown.part.to_string(), unknown.reason.clone()]);

    let group_head = ["NAME", "ROLE", "MACHINETYPE", "MIN", "MAX", "SUBNETS"];
    let plain = |cell: &str| cell.to_owned();
    let ready = |cell: &str| match cell {
        "False" => paint(Tone::Bad, cell),
        "Unknown" => paint(Tone::Unsure, cell),
        _ => cell.to_owned(),
    };
    let mut text = section("INSTANCE GROUPS", group_head, groups, &plain) + "\n";
    text += &section("NODE STATUS", ["NAME", "ROLE", "READY"], nodes, &ready);
    text.push('\n');
    if !verdict.failures.is_empty() {
        text += &section("VALIDATION ERRORS", ["KIND", "NAME", "MESSAGE"], failures, &plain);
        text.push('\n');
    }
    if !verdict.unknown.is_empty() {
        text += &section("UNKNOWN", ["PART", "REASON"], unknown, &plain);
        text.push('\n');
    }
    let (tone, conclusion) = conclusion(verdict);
    text + &paint(tone, &conclusion) + "\n"
}

fn conclusion(verdict: &Verdict) -> (Tone, String) {
    let cluster = &verdict.cluster;
    match verdict.outcome() {
        Outcome::Failed => (Tone::Bad, "Validation Failed".to_owned()),
        Outcome::Ready => (Tone::Good, format!("Your cluster {cluster} is ready")),
        Outcome::Unknown => (
            Tone::Unsure,
            format!("Cannot tell whether your cluster {cluster} is ready"),
        ),
    }
}

/// A title and its rows, aligned like Go's `text/tabwriter` with tabs (minimum width 0, tab width 8, padding 1).
/// `paint` renders the cells of the last column, whose width does not affect the alignment.
fn section<const N: usize>(
    title: &str,
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    paint: &dyn Fn(&str) -> String,
) -> String {
    let mut rows: Vec<[String; N]> = rows.map(|row| row.map(|cell| printable(&cell))).collect();
    rows.sort_unstable();
    rows.insert(0, head.map(str::to_owned));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
            + 1
    };
    let stops: [usize; N] = std::array::from_fn(|column| width(column).next_multiple_of(TAB));
    let mut text = format!("{title}\n");
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let missing = stops[column] - cell.chars().count();
            if column + 1 < N {
                let _ = write!(text, "{cell}{}", "\t".repeat(missing.div_ceil(TAB)));
            } else {
                text += &paint(cell);
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Counts, Failure, FailureKind, NodeRow, PartName, Unknown};

    fn plain<const N: usize>(head: [&str; N], rows: &[[&str; N]]) -> String {
        let rows = rows.iter().map(|row| row.map(str::to_owned));
        section("T", head, rows, &str::to_owned)
    }

    /// The output of Go 1.26's `text/tabwriter` with these parameters, for cells on both sides of a tab stop.
    #[test]
    fn cells_are_aligned_as_go_aligns_them() {
        let text = plain(["A", "B"], &[["1234567", "x"], ["12345678", "ä"], ["", ""]]);
        assert_eq!(text, "T\nA\t\tB\n\t\t\n1234567\t\tx\n12345678\tä\n");
        let short = plain(["A", "B"], &[["1234567", "x"]]);
        assert_eq!(short, "T\nA\tB\n1234567\tx\n");
    }

    #[test]
    fn only_words_that_decide_are_painted() {
        let node = |name: &str, status| NodeRow {
            name: name.into(),
            zone: "".into(),
            role: "node",
            hostname: "".into(),
            status,
            ready: false,
            instance_group: "nodes".parse().unwrap(),
        };
        let mut verdict = Verdict {
            cluster: "c.example.com".parse().unwrap(),
            failures: Vec::new(),
            unlisted: std::collections::BTreeMap::new(),
            tolerated: Vec::new(),
            unknown: Vec::new(),
            groups: Vec::new(),
            nodes: [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown]
                .map(|status| node("False", status))
                .into(),
            counts: Counts::default(),
            trusts_claims: false,
        };
        let painted = |verdict: &Verdict| painted_table(verdict, &|tone, text| format!("<{tone:?} {text}>"));
        let ready = painted(&verdict);
        let rows = "False\tnode\t<Bad False>\nFalse\tnode\tTrue\nFalse\tnode\t<Unsure Unknown>\n";
        assert!(ready.contains(rows), "{ready}");
        assert!(
            ready.ends_with("\n\n<Good Your cluster c.example.com is ready>\n"),
            "{ready}"
        );
        verdict.unknown.push(Unknown::new(PartName::Dns, "False"));
        let unsure = painted(&verdict);
        assert!(
            unsure.ends_with("\n\n<Unsure Cannot tell whether your cluster c.example.com is ready>\n"),
            "{unsure}"
        );
        verdict.failures.push(Failure {
            kind: FailureKind::Node,
            name: "n".to_owned(),
            message: "False".to_owned(),
            instance_group: None,
        });
        let bad = painted(&verdict);
        assert!(
            bad.ends_with("\n\n<Bad Validation Failed>\n") && bad.matches("Bad").count() == 2,
            "{bad}"
        );
    }

    #[test]
    fn a_cell_stays_in_its_line() {
        let text = plain(["A"], &[["a\nb\u{1b}[31m"]]);
        assert_eq!(text, "T\nA\na\\nb\\u{1b}[31m\n");
    }
}
