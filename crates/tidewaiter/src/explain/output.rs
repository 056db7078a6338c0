//! Prints an answer: as tables for people, as JSON or YAML for programs.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Result;
use comfy_table::ContentArrangement;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use tidewaiter_api::values::printable;

use crate::cli::OutputFormat;
use crate::cloud::{json, printable_yaml};
use crate::printed;

/// The widest line on a terminal: what is longer is wrapped in its column.
const WIDTH: u16 = 100;

/// Rows under a heading. Nothing in a cell can make a terminal do anything.
#[derive(Debug)]
pub(crate) struct Table {
    title: &'static str,
    table: comfy_table::Table,
}

impl Table {
    /// An empty title is not printed, and neither is a header without columns.
    pub(crate) fn new(title: &'static str, columns: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING);
        // A program that reads lines, such as grep, gets each cell whole.
        if io::stdout().is_terminal() {
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(WIDTH);
        }
        if !columns.is_empty() {
            table.set_header(columns);
        }
        Self { title, table }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.table.add_row(cells.map(printable));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.row_count() == 0
    }

    fn unwrapped(mut self) -> Self {
        self.table.set_content_arrangement(ContentArrangement::Disabled);
        self
    }

    fn text(&self) -> String {
        let title = (!self.title.is_empty()).then(|| self.title.to_owned());
        // The style pads each cell; the place of what is wrapped stays.
        let lines = self
            .table
            .lines()
            .map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned());
        title.into_iter().chain(lines).map(|line| line + "\n").collect()
    }
}

/// Prints `answer` in the requested format.
pub(crate) fn print<T: Serialize>(
    format: &OutputFormat,
    answer: &T,
    tables: impl FnOnce() -> Vec<Table>,
) -> Result<()> {
    let text = match format {
        OutputFormat::Table => tables().iter().map(Table::text).collect::<Vec<_>>().join("\n"),
        OutputFormat::Wide => {
            let tables = tables().into_iter().map(Table::unwrapped);
            tables.map(|table| table.text()).collect::<Vec<_>>().join("\n")
        }
        OutputFormat::Json => json(answer)?,
        OutputFormat::Yaml => printable_yaml(answer)?,
        OutputFormat::JsonPath(template) => template.text(&serde_json::to_value(answer)?)?,
    };
    printed(io::stdout().write_all(text.as_bytes()))
}
