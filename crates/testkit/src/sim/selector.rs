//! Label and field selectors.

use serde_json::Value;

use super::status::Refused;

/// The selection of objects of a collection.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<(String, Test)>,
    /// A path and what it must be.
    fields: Vec<(Vec<String>, Test)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    DoesNotExist,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    pub(super) fn read(labels: &str, fields: &str) -> Result<Self, Refused> {
        let labels = requirements(labels).into_iter().map(|text| label(text.trim()));
        let fields = requirements(fields).into_iter().map(|text| field(text.trim()));
        Ok(Self {
            labels: labels.collect::<Result<_, _>>()?,
            fields: fields.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let value = |path: &[String]| path.iter().fold(object, |value, segment| &value[segment.as_str()]);
        self.labels
            .iter()
            .all(|(key, test)| test.passes(labels[key.as_str()].as_str()))
            && self
                .fields
                .iter()
                .all(|(path, test)| test.passes(Some(value(path).as_str().unwrap_or_default())))
    }
}

impl Test {
    fn passes(&self, value: Option<&str>) -> bool {
        match self {
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            Self::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
        }
    }
}

/// Splits at the commas that are not in parentheses.
fn requirements(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let parts = text.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

fn label(requirement: &str) -> Result<(String, Test), Refused> {
    if let Some(compared) = compared(requirement) {
        return Ok(compared);
    }
    if let Some(key) = requirement.strip_prefix('!') {
        return Ok((key.trim().to_owned(), Test::DoesNotExist));
    }
    let set = |values: &str| -> Option<Vec<String>> {
        let values = values.trim().strip_prefix('(')?.strip_suffix(')')?;
        Some(values.split(',').map(|value| value.trim().to_owned()).collect())
    };
    let mut words = requirement.splitn(2, char::is_whitespace);
    let (key, rest) = (words.next().unwrap_or_default(), words.next().map(str::trim));
    let found = match rest {
        None => Some(Test::Exists),
        Some(rest) if rest.starts_with("notin") => set(&rest["notin".len()..]).map(Test::NotIn),
        Some(rest) if rest.starts_with("in") => set(&rest["in".len()..]).map(Test::In),
        Some(_) => None,
    };
    let test = found.ok_or_else(|| Refused::bad_request(format!("unable to parse requirement: {requirement}")))?;
    Ok((key.to_owned(), test))
}

fn field(text: &str) -> Result<(Vec<String>, Test), Refused> {
    let (path, value) =
        compared(text).ok_or_else(|| Refused::bad_request(format!("invalid field selector: {text}")))?;
    // The fields that every kind supports, and those of Events, Pods and Secrets.
    let known = matches!(
        path.as_str(),
        "metadata.name" | "metadata.namespace" | "spec.nodeName" | "status.phase" | "type" | "reason"
    );
    if !known {
        return Err(Refused::bad_request(format!("field label not supported: {path}")));
    }
    Ok((path.split('.').map(str::to_owned).collect(), value))
}

/// `a=b`, `a==b`, `a!=b`.
fn compared(text: &str) -> Option<(String, Test)> {
    let owned = |key: &str, value: &str| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if let Some((key, value)) = text.split_once("!=") {
        let (key, values) = owned(key, value);
        return Some((key, Test::NotIn(values)));
    }
    let (key, value) = text.split_once("==").or_else(|| text.split_once('='))?;
    let (key, values) = owned(key, value);
    Some((key, Test::In(values)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(labels: &str, fields: &str) -> bool {
        let object = json!({"metadata": {"name": "a", "namespace": "n", "labels": {"x": "1", "y": "2"}}});
        Selector::read(labels, fields).unwrap().matches(&object)
    }

    #[test]
    fn selects_by_labels_as_kubectl_writes_them() {
        for labels in [
            "",
            "x",
            "x=1",
            "x==1,y!=3",
            "!z",
            "x in (1, 2),y notin (3,4)",
            "z!=1",
            "z notin (1)",
        ] {
            assert!(matches(labels, ""), "{labels}");
        }
        for labels in ["z", "x=2", "x!=1", "!x", "x in (2,3)", "y notin (2)", "x=1,z"] {
            assert!(!matches(labels, ""), "{labels}");
        }
        assert!(Selector::read("x inn (1)", "").is_err());
    }

    #[test]
    fn selects_by_the_fields_that_every_kind_has() {
        for fields in [
            "metadata.name=a",
            "metadata.name==a,metadata.namespace=n",
            "metadata.name!=b",
        ] {
            assert!(matches("", fields), "{fields}");
        }
        assert!(!matches("", "metadata.name=b"));
        assert_eq!(Selector::read("", "spec.unknown=a").unwrap_err().code, 400);
    }
}
