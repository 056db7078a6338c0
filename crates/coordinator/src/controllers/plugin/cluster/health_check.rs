//! Health expressions of a plugin (`health_checks` of its manifests), in the Common Expression Language (CEL), for
//! kinds that the rules of kstatus do not know. Pure.
//!
//! The model is `healthCheckExprs` of Flux's kustomize-controller: `inProgress`, `failed` and `current` are tried in
//! this order, over the fields of the object as variables, and an object for which none is true is in progress.
//!
//! The expressions come from the cloud, so what they may cost is limited before they are parsed: their length, their
//! operators, the functions (none makes a text, a list or a number larger), one loop in another, and the size of the
//! object. A panic of the library is an error of the expression.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::ast::{ComprehensionExpr, Expr, LiteralValue};
use cel::{Context, ExecutionError, IdedExpr, Program, Value as CelValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidewaiter_api::values::printable;

use super::health::Health;
use crate::controllers::plugin::desired::{Refused, refused};

/// The most health checks of a plugin.
const MOST_CHECKS: usize = 32;
/// The longest expression, in bytes.
const LONGEST: usize = 512;
/// The most characters that are operators, or could be, and words `in`: each may nest the expression once.
const MOST_OPERATORS: usize = 48;
/// The maximum nesting of brackets: the library's parser calls itself some ten times for each, and a stack overflow
/// would end the process.
const DEEPEST: usize = 8;
/// The most values in an object: what a loop goes over, and what a comparison in it compares. Each 256 bytes of text
/// count as one.
const MOST_VALUES: usize = 2_000;
/// The same limit for an expression with one loop in another.
const MOST_NESTED_VALUES: usize = 200;
/// The maximum nesting of loops.
const LOOPS: usize = 2;
/// The functions that an expression may call. Nothing here makes anything larger than its arguments.
const FUNCTIONS: [&str; 22] = [
    "_?_:_",
    "_&&_",
    "_||_",
    "!_",
    "_==_",
    "_!=_",
    "_>=_",
    "_<=_",
    "_>_",
    "_<_",
    "_-_",
    "-_",
    "_[_]",
    "@in",
    "@not_strictly_false",
    "size",
    "startsWith",
    "endsWith",
    "contains",
    "int",
    "uint",
    "double",
];

/// A health check in the manifests.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SentCheck {
    api_version: String,
    kind: String,
    current: String,
    in_progress: Option<String>,
    failed: Option<String>,
}

/// The health check of a kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct HealthCheck {
    group: String,
    version: String,
    kind: String,
    in_progress: Option<Expression>,
    failed: Option<Expression>,
    current: Expression,
}

/// An expression that is true or false of an object. As data, it is its text.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "String")]
struct Expression {
    text: String,
    program: Arc<Program>,
    /// The most values in an object.
    most_values: usize,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl From<Expression> for String {
    fn from(expression: Expression) -> Self {
        expression.text
    }
}

impl HealthCheck {
    /// Parses the expressions. The error names the field.
    pub(crate) fn read(sent: SentCheck) -> Result<Self, String> {
        let (group, version) = sent.api_version.rsplit_once('/').unwrap_or(("", &sent.api_version));
        if version.is_empty() || sent.kind.is_empty() {
            return Err("apiVersion and kind must be those of a kind, for example apps/v1 and Deployment".to_owned());
        }
        let parse = |field: &str, text: &str| Expression::parse(text).map_err(|why| format!("{field}: {why}"));
        let optional = |field: &str, text: &Option<String>| {
            let text = text.as_deref().filter(|text| !text.is_empty());
            text.map(|text| parse(field, text)).transpose()
        };
        Ok(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            in_progress: optional("inProgress", &sent.in_progress)?,
            failed: optional("failed", &sent.failed)?,
            current: parse("current", &sent.current)?,
            kind: sent.kind,
        })
    }

    /// Returns true if it is for this kind.
    pub(crate) fn is_for(&self, group: &str, version: &str, kind: &str) -> bool {
        (self.group.as_str(), self.version.as_str(), self.kind.as_str()) == (group, version, kind)
    }

    /// The health of the object. It may take some seconds.
    pub(crate) fn health(&self, object: &Value) -> Health {
        if object["metadata"].get("deletionTimestamp").is_some() {
            return Health::InProgress("is being deleted".to_owned());
        }
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let object = &object;
        let all = [self.in_progress.as_ref(), self.failed.as_ref(), Some(&self.current)];
        let most = all.into_iter().flatten().map(|expression| expression.most_values).min();
        if let Some(most) = most.filter(|most| values(object) > *most) {
            let nested = if most == MOST_NESTED_VALUES {
                " with one loop in another"
            } else {
                ""
            };
            return Health::Failed(format!(
                "it has more than {most} values, which is too large for a health expression{nested}"
            ));
        }
        let named = [
            ("inProgress", self.in_progress.as_ref()),
            ("failed", self.failed.as_ref()),
        ];
        for (field, expression) in named {
            match expression.map(|expression| expression.is_true(object)) {
                None | Some(Ok(false)) => {}
                Some(Ok(true)) if field == "failed" => {
                    return Health::Failed("the expression failed of its health check is true".to_owned());
                }
                Some(Ok(true)) => {
                    return Health::InProgress("the expression inProgress of its health check is true".to_owned());
                }
                Some(Err(why)) => return unknown(field, &why),
            }
        }
        match self.current.is_true(object) {
            Ok(true) => Health::Current,
            Ok(false) => Health::InProgress("the expression current of its health check is not true yet".to_owned()),
            Err(why) => unknown("current", &why),
        }
    }
}

/// Reads the health checks of a plugin.
pub(crate) fn health_checks(sent: Option<Vec<SentCheck>>) -> Result<Vec<HealthCheck>, Refused> {
    let sent = sent.unwrap_or_default();
    if sent.len() > MOST_CHECKS {
        let why = format!("has {} health checks, may have at most {MOST_CHECKS}", sent.len());
        return Err(refused("health_checks", why));
    }
    let read = sent
        .into_iter()
        .enumerate()
        .map(|(place, sent)| HealthCheck::read(sent).map_err(|why| refused(format!("health_checks[{place}]"), why)));
    read.collect()
}

/// A field that the expression needs may not be there yet.
fn unknown(field: &str, why: &str) -> Health {
    Health::InProgress(format!(
        "the expression {field} of its health check has no result yet: {why}"
    ))
}

impl Expression {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > LONGEST {
            return Err(format!("must be an expression of at most {LONGEST} bytes"));
        }
        let is_operator = |byte: &u8| b".!-?[({+*/%<>=".contains(byte);
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
        let operators = text.bytes().filter(is_operator).count() + words.filter(|word| *word == "in").count();
        if operators > MOST_OPERATORS {
            return Err(format!("may have at most {MOST_OPERATORS} operators"));
        }
        if depth(text) > DEEPEST {
            return Err(format!("may have brackets at most {DEEPEST} deep"));
        }
        let compiled = catch_unwind(AssertUnwindSafe(|| {
            Program::compile(text).map_err(|error| {
                let words = error.to_string();
                let line = words.lines().next().unwrap_or_default();
                format!("is not valid CEL: {}", printable(line))
            })
        }));
        let program = compiled.map_err(|_| "is not valid CEL".to_owned())??;
        permitted(program.expression(), 0)?;
        let has_one_loop_in_another = permitted(program.expression(), 1).is_err();
        Ok(Self {
            text: text.to_owned(),
            program: Arc::new(program),
            most_values: if has_one_loop_in_another {
                MOST_NESTED_VALUES
            } else {
                MOST_VALUES
            },
        })
    }

    fn is_true(&self, object: &Value) -> Result<bool, String> {
        let run = || {
            let mut context = Context::default();
            for (field, value) in object.as_object().into_iter().flatten() {
                context.add_variable_from_value(field.as_str(), cel_value(value));
            }
            self.program.execute(&context)
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(CelValue::Bool(is_true))) => Ok(is_true),
            Ok(Ok(_)) => Err("it must be true or false".to_owned()),
            Ok(Err(ExecutionError::NoSuchKey(key))) => Err(format!("there is no field {}", printable(&key))),
            Ok(Err(ExecutionError::UndeclaredReference(name))) => {
                Err(format!("there is no field {}", printable(&name)))
            }
            // Other errors repeat the values, which may be secret.
            Ok(Err(_)) => Err("its operators do not fit the values".to_owned()),
            Err(_) => Err("it cannot be evaluated".to_owned()),
        }
    }
}

/// The nesting depth of brackets, those in texts included.
fn depth(text: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => now += 1,
            b')' | b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

/// Checks that everything in the expression is permitted, inside this many loops.
fn permitted(expression: &IdedExpr, loops: usize) -> Result<(), String> {
    match &expression.expr {
        Expr::Ident(_) | Expr::Literal(_) => Ok(()),
        Expr::Select(select) => permitted(&select.operand, loops),
        Expr::List(list) => list.elements.iter().try_for_each(|element| permitted(element, loops)),
        Expr::Call(call) => {
            if !FUNCTIONS.contains(&call.func_name.as_str()) {
                let name = call.func_name.trim_matches('_');
                return Err(format!("{} is not permitted in a health expression", printable(name)));
            }
            let target = call.target.as_deref().into_iter();
            target.chain(&call.args).try_for_each(|part| permitted(part, loops))
        }
        Expr::Comprehension(comprehension) => in_loop(comprehension, loops),
        Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => {
            Err("maps and structs are not permitted in a health expression".to_owned())
        }
    }
}

/// The macros `all`, `exists`, `exists_one` and `filter`; the latter two add one or the element itself to what they
/// have.
fn in_loop(comprehension: &ComprehensionExpr, loops: usize) -> Result<(), String> {
    if loops == LOOPS {
        return Err(format!("may have loops (all, exists, filter) at most {LOOPS} deep"));
    }
    permitted(&comprehension.iter_range, loops)?;
    let step = &comprehension.loop_step;
    let Expr::Call(call) = &step.expr else {
        return Err("has a loop that is not permitted".to_owned());
    };
    let adds = |part: &IdedExpr| match &part.expr {
        Expr::Call(sum) if sum.func_name == "_+_" => match &sum.args[..] {
            [_, added] => match &added.expr {
                Expr::Literal(LiteralValue::Int(_)) => true,
                Expr::List(list) => {
                    matches!(&list.elements[..], [one] if matches!(&one.expr, Expr::Ident(name) if *name == comprehension.iter_var))
                }
                _ => false,
            },
            _ => false,
        },
        _ => false,
    };
    match (call.func_name.as_str(), &call.args[..]) {
        ("_?_:_", [condition, then, _]) if adds(then) => permitted(condition, loops + 1),
        ("_&&_" | "_||_", parts) => parts.iter().try_for_each(|part| permitted(part, loops + 1)),
        _ => Err("map is not permitted in a health expression: use all, exists, exists_one or filter".to_owned()),
    }
}

/// The value in CEL: whole numbers are ints, as in Kubernetes' own expressions.
fn cel_value(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(value) => CelValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => CelValue::Int(number),
            None => CelValue::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => CelValue::from(text.as_str()),
        Value::Array(items) => CelValue::from(items.iter().map(cel_value).collect::<Vec<_>>()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(field, value)| (field.clone(), cel_value(value)));
            CelValue::from(fields.collect::<std::collections::HashMap<_, _>>())
        }
    }
}

/// The number of values in it, and 256 bytes of text in each.
fn values(value: &Value) -> usize {
    1 + match value {
        Value::String(text) => text.len() / 256,
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(fields) => fields.values().map(values).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
