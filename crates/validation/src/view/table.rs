//! The tables, in kOps' layout: columns end at tab stops of eight, rows are in the order of their cells.

use std::fmt::Write as _;

use tidewaiter_api::ConditionStatus;
use tidewaiter_api::values::printable;

use crate::verdict::{Outcome, Verdict};

const TAB: usize = 8;

/// The tables of a verdict, and what follows from them in one line. Nothing in a cell can make a terminal do anything.
#[must_use]
pub fn table(verdict: &Verdict) -> String {
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
        [node.name.clone(), node.role.to_owned(), status.to_owned()]
    });
    let failures = verdict.failures.iter();
    let failures = failures.map(|found| [found.kind.to_string(), found.name.clone(), found.message.clone()]);
    let unknown = verdict
        .unknown
        .iter()
        .map(|unknown| [unknown.part.to_string(), unknown.reason.clone()]);

    let group_head = ["NAME", "ROLE", "MACHINETYPE", "MIN", "MAX", "SUBNETS"];
    let mut text = section("INSTANCE GROUPS", group_head, groups) + "\n";
    text += &section("NODE STATUS", ["NAME", "ROLE", "READY"], nodes);
    text.push('\n');
    if !verdict.failures.is_empty() {
        text += &section("VALIDATION ERRORS", ["KIND", "NAME", "MESSAGE"], failures);
        text.push('\n');
    }
    if !verdict.unknown.is_empty() {
        text += &section("UNKNOWN", ["PART", "REASON"], unknown);
        text.push('\n');
    }
    text += &conclusion(verdict);
    text
}

fn conclusion(verdict: &Verdict) -> String {
    match verdict.outcome() {
        Outcome::Failed => "Validation Failed\n".to_owned(),
        Outcome::Ready => format!("Your cluster {} is ready\n", verdict.cluster),
        Outcome::Unknown => format!("Cannot tell whether your cluster {} is ready\n", verdict.cluster),
    }
}

/// A title and the rows below it, as Go's `text/tabwriter` aligns them with tabs (minimum width 0, tab width 8, padding 1).
fn section<const N: usize>(title: &str, head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
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
            let tabs = if column + 1 < N { missing.div_ceil(TAB) } else { 0 };
            let _ = write!(text, "{cell}{}", "\t".repeat(tabs));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Go 1.26 prints through `text/tabwriter` with these parameters, for cells on both sides of a tab stop.
    #[test]
    fn cells_are_aligned_as_go_aligns_them() {
        let rows = [["1234567", "x"], ["12345678", "ä"], ["", ""]];
        let text = section("T", ["A", "B"], rows.into_iter().map(|row| row.map(str::to_owned)));
        assert_eq!(text, "T\nA\t\tB\n\t\t\n1234567\t\tx\n12345678\tä\n");
        let short = section(
            "T",
            ["A", "B"],
            [["1234567", "x"]].into_iter().map(|row| row.map(str::to_owned)),
        );
        assert_eq!(short, "T\nA\tB\n1234567\tx\n");
    }

    #[test]
    fn a_cell_stays_in_its_line() {
        let text = section("T", ["A"], [["a\nb\u{1b}[31m".to_owned()]].into_iter());
        assert_eq!(text, "T\nA\na\\nb\\u{1b}[31m\n");
    }
}
