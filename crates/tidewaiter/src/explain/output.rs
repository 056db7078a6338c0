//! How an answer is printed: as tables for people, as JSON or YAML for programs.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::cli::OutputFormat;

/// Rows under a heading. Cells must be fit for a terminal.
#[derive(Debug)]
pub(super) struct Table {
    title: &'static str,
    table: comfy_table::Table,
}

impl Table {
    /// A title that is empty is not printed.
    pub(super) fn new(title: &'static str, columns: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_header(columns);
        Self { title, table }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.table.add_row(cells);
    }

    fn text(&self) -> String {
        let title = (!self.title.is_empty()).then(|| self.title.to_owned());
        let lines = self.table.lines().map(|line| line.trim().to_owned());
        title.into_iter().chain(lines).map(|line| line + "\n").collect()
    }
}

/// Prints `answer` in the format that was asked for.
pub(super) fn print<T: Serialize>(format: OutputFormat, answer: &T, tables: impl FnOnce() -> Vec<Table>) -> Result<()> {
    let text = match format {
        OutputFormat::Table => tables().iter().map(Table::text).collect::<Vec<_>>().join("\n"),
        OutputFormat::Json => serde_json::to_string_pretty(answer).context("the answer as JSON")? + "\n",
        OutputFormat::Yaml => serde_saphyr::to_string(answer).context("the answer as YAML")?,
    };
    match io::stdout().write_all(text.as_bytes()) {
        // `tidewaiter explain … | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing to standard output"),
    }
}
