//! The one reader of YAML. It reads what kubectl and kOps read (sigs.k8s.io/yaml, thus YAML 1.1 as goyaml.v2 has it),
//! or refuses.
//!
//! A value never means something else here than there: `0400` is 256, `yes` is a boolean, `7e10123` is a text. What
//! they read in a way that few expect, as two values for one key, is refused. No error quotes a value, which may be
//! secret.

use serde::Serialize;
use serde_json::Value;
pub use serde_saphyr::ser::Error as WriteError;

mod reader;
mod scalar;

/// The reason why a text is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct YamlError {
    /// The line, from 1.
    pub line: usize,
    /// The error there, and the remedy.
    pub reason: String,
}

/// Parses the single document of `text`; null if it is empty.
///
/// # Errors
/// If it is no YAML, or contains several documents.
pub fn document(text: &str) -> Result<Value, YamlError> {
    Ok(reader::read(text, 1)?.pop().unwrap_or_default())
}

/// Parses the documents of `text`, and drops empty ones.
///
/// # Errors
/// If one is no YAML.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    let mut documents = reader::read(text, usize::MAX)?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// As a document that this module, kubectl and kOps read as the same value: `yes`, `0400`, `1_000` and the like are
/// quoted.
///
/// # Errors
/// If it cannot be serialized.
pub fn to_string(value: &impl Serialize) -> Result<String, WriteError> {
    let text = serde_saphyr::to_string(value)?;
    // Go refuses a block whose text begins with a tab.
    if text.lines().any(|line| line.trim_start_matches(' ').starts_with('\t')) {
        let quoted = serde_saphyr::ser_options! { prefer_block_scalars: false };
        return serde_saphyr::to_string_with_options(value, quoted);
    }
    Ok(text)
}
