//! The numbers as a table and as JSON, each next to its target.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

/// A number, and its limit if it has one.
pub struct Figure {
    what: String,
    key: &'static str,
    found: f64,
    most: Option<f64>,
    least: Option<f64>,
    unit: &'static str,
    decimals: usize,
}

/// A time or a size as it was found on this machine.
pub fn figure(what: impl Into<String>, key: &'static str, found: f64, unit: &'static str, decimals: usize) -> Figure {
    Figure {
        what: what.into(),
        key,
        found,
        most: None,
        least: None,
        unit,
        decimals,
    }
}

impl Figure {
    pub fn at_most(self, most: f64) -> Self {
        Self {
            most: Some(most),
            ..self
        }
    }

    pub fn at_least(self, least: f64) -> Self {
        Self {
            least: Some(least),
            ..self
        }
    }

    fn is_met(&self) -> bool {
        self.most.is_none_or(|most| self.found <= most) && self.least.is_none_or(|least| self.found >= least)
    }

    fn target(&self) -> String {
        let most = self.most.map(|most| format!("at most {most}{}", self.unit));
        let least = self.least.map(|least| format!("at least {least}{}", self.unit));
        most.or(least).unwrap_or_default()
    }

    fn shown(&self) -> String {
        let (found, decimals, unit) = (self.found, self.decimals, self.unit);
        format!("{found:.decimals$}{unit}")
    }
}

/// The results of one scenario.
pub struct Chapter {
    pub key: &'static str,
    pub title: String,
    pub figures: Vec<Figure>,
    /// Everything that was measured, one by one.
    pub details: Value,
}

pub struct Report {
    nodes: u32,
    chapters: Vec<Chapter>,
}

impl Report {
    pub fn new(nodes: u32) -> Self {
        Self {
            nodes,
            chapters: Vec::new(),
        }
    }

    pub fn add(&mut self, chapter: Chapter) {
        self.chapters.push(chapter);
    }

    /// The tables.
    pub fn print(&self) {
        for chapter in &self.chapters {
            let mut table = Table::new();
            table.load_style(NOTHING);
            table.set_header(["", "found", "wanted", ""]);
            for figure in &chapter.figures {
                let missed = if figure.is_met() { "" } else { "missed" };
                table.add_row([figure.what.clone(), figure.shown(), figure.target(), missed.to_owned()]);
            }
            for column in table.column_iter_mut().skip(1) {
                column.set_cell_alignment(CellAlignment::Right);
            }
            say(&format!("\n{}\n{table}", chapter.title));
        }
        say(&format!(
            "\nAll numbers: bench-results/{}.json",
            env!("CARGO_PKG_VERSION")
        ));
    }

    /// Everything so far, in a file of this version.
    #[expect(clippy::disallowed_methods, reason = "nobody waits for this meanwhile")]
    pub fn save(&self) -> Result<()> {
        let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench-results");
        let file = folder.join(format!("{}.json", env!("CARGO_PKG_VERSION")));
        let chapter = |chapter: &Chapter| {
            let figures: Map<_, _> = chapter
                .figures
                .iter()
                .map(|figure| {
                    let value = json!({"found": figure.found, "most": figure.most, "least": figure.least, "met": figure.is_met()});
                    (figure.key.to_owned(), value)
                })
                .collect();
            (
                chapter.key.to_owned(),
                json!({"figures": figures, "details": chapter.details}),
            )
        };
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "nodes": self.nodes,
            "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            "chapters": self.chapters.iter().map(chapter).collect::<Map<_, _>>(),
        });
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&file, format!("{report:#}\n"))
            .with_context(|| format!("{} cannot be written", file.display()))?;
        Ok(())
    }

    /// Fails when a target is missed.
    pub fn check(&self) -> Result<()> {
        let figures = self.chapters.iter().flat_map(|chapter| &chapter.figures);
        let missed: Vec<_> = figures
            .filter(|figure| !figure.is_met())
            .map(|figure| figure.what.as_str())
            .collect();
        ensure!(missed.is_empty(), "missed: {}", missed.join(", "));
        Ok(())
    }
}

/// The value that so large a part of them does not exceed; in any order.
pub fn quantile(values: impl IntoIterator<Item = f64>, part: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let rank = (part * count(values.len())).ceil();
    let place = (0..values.len()).find(|place| count(place + 1) >= rank);
    place.and_then(|place| values.get(place)).copied().unwrap_or(f64::NAN)
}

pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(values, 0.5)
}

pub fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

#[expect(clippy::cast_precision_loss, reason = "no count comes near 2^52")]
pub fn count(count: usize) -> f64 {
    count as f64
}

/// Prints the current step.
#[expect(clippy::print_stderr, reason = "a person who waits wants to know for what")]
pub fn note(what: &str) {
    eprintln!("bench: {what}");
}

#[expect(clippy::print_stdout, reason = "the report")]
fn say(text: &str) {
    println!("{text}");
}
