//! Views of a verdict: tables for users, YAML or JSON for programs, in the format of `kops validate cluster`.
//!
//! Unknown parts, which kOps does not have, are an addition that is absent if everything is known.

mod document;
mod table;

pub use document::{json, yaml};
pub use table::{Tone, painted_table, table};
