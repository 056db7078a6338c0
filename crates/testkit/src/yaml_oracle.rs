//! Reads a YAML text as kubectl and kOps do, with their own reader, sigs.k8s.io/yaml.

use std::io::{Seek as _, Write as _};
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

use crate::assets;

#[derive(Deserialize)]
struct Answer {
    documents: Option<Vec<Value>>,
    #[serde(default)]
    error: String,
}

/// The documents of each text that are not empty, or why it is refused.
///
/// # Panics
/// When the oracle is not there, with the line that builds it, or does not answer.
#[must_use]
pub fn read(texts: &[String]) -> Vec<Result<Vec<Value>, String>> {
    let mut questions = tempfile::tempfile().expect("a file for the questions");
    let lines: String = texts
        .iter()
        .map(|text| Value::from(text.as_str()).to_string() + "\n")
        .collect();
    questions
        .write_all(lines.as_bytes())
        .expect("the questions are written");
    questions.rewind().expect("the questions are read again");
    let output = Command::new(assets::yaml_oracle()).stdin(questions).output();
    let output = output.expect("the oracle runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Answer>();
    let answers: Vec<_> = answers
        .map(|answer| {
            let Answer { documents, error } = answer.expect("an answer");
            let mut documents = documents.ok_or(error)?;
            documents.retain(|document| !document.is_null());
            Ok(documents)
        })
        .collect();
    assert_eq!(answers.len(), texts.len(), "one answer for each text");
    answers
}
