//! A cost by the number of Nodes, as text.

use std::fmt::Write as _;

use super::point::Point;
use crate::report::{count, most};

/// The length of the longest bar.
const WIDTH: f64 = 40.0;

/// One cost of a cluster.
pub struct Measure {
    pub what: &'static str,
    pub key: &'static str,
    unit: &'static str,
    decimals: usize,
    of: fn(&Point) -> f64,
}

impl Measure {
    pub const fn of(
        what: &'static str,
        key: &'static str,
        unit: &'static str,
        decimals: usize,
        of: fn(&Point) -> f64,
    ) -> Self {
        Self {
            what,
            key,
            unit,
            decimals,
            of,
        }
    }

    pub fn per_node(&self, point: &Point) -> f64 {
        (self.of)(point) / f64::from(point.nodes)
    }

    /// A line for each number of Nodes: the cost, the cost for 1,000 Nodes, and a bar as long as that. What is linear
    /// has bars of one length.
    pub fn draw(&self, points: &[Point]) -> String {
        let (what, unit, decimals) = (self.what, self.unit, self.decimals);
        let longest = most(points.iter().map(|point| self.per_node(point)));
        let unit = if unit.is_empty() {
            String::new()
        } else {
            format!(", {unit}")
        };
        let mut text = format!("{what}{unit}: in all, and for 1,000 Nodes\n");
        for point in points {
            let bar = bar(self.per_node(point) / longest);
            let (nodes, found, of_thousand) = (point.nodes, (self.of)(point), self.per_node(point) * 1000.0);
            let _ = writeln!(text, "{nodes:>7} {found:>9.decimals$} {of_thousand:>9.2} {bar}");
        }
        text
    }
}

/// A bar of so large a part of the longest.
fn bar(part: f64) -> String {
    let mut bar = String::new();
    while count(bar.len()) < part * WIDTH {
        bar.push('#');
    }
    bar
}
