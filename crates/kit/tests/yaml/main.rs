//! YAML that is read and written has the meaning that it has for kubectl and kOps, whose reader is the oracle.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use serde_json::Value;
use tidewaiter_kit::yaml;
use tidewaiter_testkit::yaml_oracle;

mod forms;
mod scalars;
mod written;

/// The result of reading a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Both read the same.
    Same,
    /// Both refuse it.
    Refused,
    /// It is refused here only.
    RefusedHere,
    /// It is refused there only.
    RefusedThere,
}

/// The outcome of each text, with the error here.
///
/// # Panics
/// When both read a text, and not as the same.
fn compared(texts: &[String]) -> Vec<(Outcome, String)> {
    let compare = |(text, there): (&String, Result<Vec<Value>, String>)| match (yaml::documents(text), there) {
        (Ok(here), Ok(there)) => {
            assert!(
                same(&here.clone().into(), &there.clone().into()),
                "{text:?}: {here:?} here, {there:?} for kubectl"
            );
            (Outcome::Same, String::new())
        }
        (Err(error), Err(_)) => (Outcome::Refused, error.to_string()),
        (Err(error), Ok(_)) => (Outcome::RefusedHere, error.to_string()),
        (Ok(_), Err(_)) => (Outcome::RefusedThere, String::new()),
    };
    texts.iter().zip(yaml_oracle::read(texts)).map(compare).collect()
}

/// True if these are the same JSON. Go writes zero as 0 or -0, and the parser of its answer loses the last bit of a
/// long float.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a == b => true,
        (Value::Number(a), Value::Number(b)) => {
            let (is_float, a, b) = (a.is_f64() && b.is_f64(), a.as_f64().unwrap(), b.as_f64().unwrap());
            a == 0.0 && b == 0.0 || is_float && (a - b).abs() <= a.abs() * f64::EPSILON
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The same numbers in each run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    /// A text of `least` to `most` pieces.
    fn text(&mut self, pieces: &[&str], least: usize, most: usize) -> String {
        let length = least + self.below(most - least + 1);
        (0..length).map(|_| pieces[self.below(pieces.len())]).collect()
    }
}
