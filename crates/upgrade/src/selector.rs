//! The nodes that an upgrade selects.

use std::collections::BTreeMap;

use tidewaiter_api::containership::{NodeSelector, SelectorOperator};

use crate::refusal::Refusal;

/// The requirements of an upgrade for the labels of its nodes. A node must match all of them.
///
/// Source: `labels.Requirement.Matches` of `k8s.io/apimachinery`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<NodeSelector>);

impl Selector {
    /// The selector of these requirements.
    ///
    /// # Errors
    /// [`Refusal::Selector`] when the number of values does not fit an operator.
    pub fn new(requirements: &[NodeSelector]) -> Result<Self, Refusal> {
        for requirement in requirements {
            if let Some(wanted) = wanted(requirement) {
                return Err(Refusal::Selector {
                    label: requirement.label.to_string(),
                    wanted,
                });
            }
        }
        Ok(Self(requirements.to_vec()))
    }

    /// Returns true if a node with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| {
            let found = labels.get(requirement.label.as_str()).map(String::as_str);
            matches(requirement, found)
        })
    }
}

fn matches(requirement: &NodeSelector, found: Option<&str>) -> bool {
    let is_listed = |found: &str| requirement.value.iter().any(|value| value.as_str() == found);
    let compares = |compare: fn(&i64, &i64) -> bool| {
        let number = found.and_then(|found| found.parse().ok());
        let limit = requirement.value.first().and_then(|value| value.as_str().parse().ok());
        number
            .zip(limit)
            .is_some_and(|(number, limit)| compare(&number, &limit))
    };
    match requirement.operator {
        SelectorOperator::Exists => found.is_some(),
        SelectorOperator::DoesNotExist => found.is_none(),
        SelectorOperator::In | SelectorOperator::Equals | SelectorOperator::DoubleEquals => {
            found.is_some_and(is_listed)
        }
        // A node without the label matches, as in Kubernetes.
        SelectorOperator::NotIn | SelectorOperator::NotEquals => !found.is_some_and(is_listed),
        SelectorOperator::GreaterThan => compares(i64::gt),
        SelectorOperator::LessThan => compares(i64::lt),
    }
}

/// The rule for the values of this operator, if it is violated.
fn wanted(requirement: &NodeSelector) -> Option<&'static str> {
    let values = &requirement.value;
    let is_number = || values.iter().all(|value| value.as_str().parse::<i64>().is_ok());
    let (ok, wanted) = match requirement.operator {
        SelectorOperator::In | SelectorOperator::NotIn => (!values.is_empty(), "at least one value"),
        SelectorOperator::Equals | SelectorOperator::DoubleEquals | SelectorOperator::NotEquals => {
            (values.len() == 1, "one value")
        }
        SelectorOperator::Exists | SelectorOperator::DoesNotExist => (values.is_empty(), "no value"),
        SelectorOperator::GreaterThan | SelectorOperator::LessThan => {
            (values.len() == 1 && is_number(), "one value, a whole number")
        }
    };
    (!ok).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selector(operator: &str, values: &[&str]) -> Result<Selector, Refusal> {
        let requirement = json!({"label": "example.com/zone", "operator": operator, "value": values});
        Selector::new(&[serde_json::from_value(requirement).unwrap()])
    }

    #[test]
    fn each_operator_selects_as_in_kubernetes() {
        for (operator, values, matching, others) in [
            ("in", &["a", "b"][..], &["a", "b"][..], &["c", "-"][..]),
            ("notin", &["a", "b"], &["c", "-"], &["a", "b"]),
            ("=", &["a"], &["a"], &["b", "-"]),
            ("==", &["a"], &["a"], &["b", "-"]),
            ("!=", &["a"], &["b", "-"], &["a"]),
            ("exists", &[], &["a", ""], &["-"]),
            ("!", &[], &["-"], &["a", ""]),
            ("gt", &["9"], &["10"], &["9", "8", "x", "-"]),
            ("lt", &["9"], &["8", "-1"], &["9", "10", "x", "-"]),
        ] {
            let selector = selector(operator, values).unwrap();
            // "-" stands for a node without the label.
            let labels = |value: &str| -> BTreeMap<String, String> {
                let label = ("example.com/zone".to_owned(), value.to_owned());
                if value == "-" { BTreeMap::new() } else { [label].into() }
            };
            for value in matching {
                assert!(
                    selector.matches(&labels(value)),
                    "{operator} {values:?} selects {value}"
                );
            }
            for value in others {
                assert!(
                    !selector.matches(&labels(value)),
                    "{operator} {values:?} does not select {value}"
                );
            }
        }
    }

    #[test]
    fn the_number_of_values_must_fit_the_operator() {
        for (operator, values) in [
            ("in", &[][..]),
            ("notin", &[]),
            ("=", &["a", "b"]),
            ("==", &[]),
            ("!=", &["a", "b"]),
            ("exists", &["a"]),
            ("!", &["a"]),
            ("gt", &["a"]),
            ("lt", &["1", "2"]),
        ] {
            let refused = selector(operator, values).unwrap_err();
            assert!(refused.to_string().contains("example.com/zone"), "{refused}");
        }
    }
}
