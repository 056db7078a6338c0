//! The number of nodes that may be unavailable at once: a number, or a percentage.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The number of workers of a node pool that may be upgraded at once: a number from 1, or a percentage of the pool such
/// as `25%`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MaxUnavailable {
    /// This many.
    Number(u32),
    /// This part, for example `25%`.
    Percent(String),
}

/// An integer or a text, as Kubernetes has it (`IntOrString`). The rules for one are ignored for the other.
pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "nullable": true,
        "x-kubernetes-int-or-string": true,
        "minimum": 1,
        "maximum": u32::MAX,
        "pattern": "^(100|[1-9][0-9]?)%$",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_is_a_number_or_a_text() {
        for (value, expected) in [
            (json!(2), MaxUnavailable::Number(2)),
            (json!("25%"), MaxUnavailable::Percent("25%".to_owned())),
        ] {
            assert_eq!(
                serde_json::from_value::<MaxUnavailable>(value.clone()).unwrap(),
                expected
            );
            assert_eq!(serde_json::to_value(&expected).unwrap(), value);
        }
    }
}
