//! Work on the repository itself: `cargo xtask generate [--check]` and, for `make test`, `xtask test`.

mod generate;
mod manifests;
mod reference;
mod test;

use anyhow::Result;
use clap::Parser;

/// Work on the repository itself.
#[derive(Parser)]
enum Task {
    /// Writes every generated file.
    Generate {
        /// Writes nothing; fails when a file is not as it would be written.
        #[arg(long)]
        check: bool,
    },
    /// Builds every test of the workspace and runs several test binaries at the same time.
    Test(test::Options),
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Generate { check } => generate::run(check),
        Task::Test(options) => test::run(&options),
    }
}
