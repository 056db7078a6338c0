//! A verdict as text: tables for people, YAML or JSON for programs, each as `kops validate cluster` writes it.
//!
//! What kOps has no word for, the parts that are unknown, comes as an addition that is not there when all is known.

mod document;
mod table;

pub use document::{json, yaml};
pub use table::{Tone, painted_table, table};
