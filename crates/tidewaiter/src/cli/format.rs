//! The output formats: of objects as those of kubectl, and of the answers to questions.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

use crate::json_path::Template;

const JSON_PATH: &str = "jsonpath=";

/// The format in which answers are printed.
#[derive(Clone, Debug)]
pub(crate) enum OutputFormat {
    Table,
    /// A table without wrapped lines.
    Wide,
    Json,
    Yaml,
    JsonPath(Template),
}

impl ValueParserFactory for OutputFormat {
    type Parser = OutputFormatParser;

    fn value_parser() -> OutputFormatParser {
        OutputFormatParser
    }
}

/// Reads the format of an answer.
#[derive(Clone)]
pub(crate) struct OutputFormatParser;

impl TypedValueParser for OutputFormatParser {
    type Value = OutputFormat;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<OutputFormat, Error> {
        if let Some(template) = template(command, value) {
            return template.map(OutputFormat::JsonPath);
        }
        let named = PossibleValuesParser::new(answer_values()).parse_ref(command, arg, value)?;
        Ok(match named.as_str() {
            "wide" => OutputFormat::Wide,
            "json" => OutputFormat::Json,
            "yaml" => OutputFormat::Yaml,
            _ => OutputFormat::Table,
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(answer_values().into_iter()))
    }
}

/// The format in which objects are printed.
#[derive(Clone, Debug)]
pub(crate) enum CloudFormat {
    Table,
    Wide,
    Json,
    Yaml,
    /// Kind and id, one object per line.
    Name,
    JsonPath(Template),
}

impl ValueParserFactory for CloudFormat {
    type Parser = FormatParser;

    fn value_parser() -> FormatParser {
        FormatParser
    }
}

/// Reads the format of objects.
#[derive(Clone)]
pub(crate) struct FormatParser;

impl TypedValueParser for FormatParser {
    type Value = CloudFormat;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<CloudFormat, Error> {
        if let Some(template) = template(command, value) {
            return template.map(CloudFormat::JsonPath);
        }
        let named = PossibleValuesParser::new(values()).parse_ref(command, arg, value)?;
        Ok(match named.as_str() {
            "wide" => CloudFormat::Wide,
            "json" => CloudFormat::Json,
            "yaml" => CloudFormat::Yaml,
            "name" => CloudFormat::Name,
            _ => CloudFormat::Table,
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(values().into_iter()))
    }
}

/// The template of `jsonpath=TEMPLATE`; None for another format.
fn template(command: &Command, value: &OsStr) -> Option<Result<Template, Error>> {
    let template = value.to_str()?.strip_prefix(JSON_PATH)?;
    let invalid = |reason: String| {
        let text = format!("invalid template {template:?}: {reason}\n");
        Error::raw(ErrorKind::ValueValidation, text).with_cmd(command)
    };
    Some(template.parse().map_err(invalid))
}

fn answer_values() -> [PossibleValue; 5] {
    [
        ("table", "A table"),
        ("wide", "A table whose lines are not wrapped to the terminal"),
        ("json", "JSON"),
        ("yaml", "YAML"),
        (
            "jsonpath=TEMPLATE",
            "What a template of kubectl selects, for example '{.name}'",
        ),
    ]
    .map(|(name, about)| PossibleValue::new(name).help(about))
}

fn values() -> [PossibleValue; 6] {
    [
        ("table", "A table"),
        ("wide", "A table with ids and exact times"),
        ("json", "JSON"),
        ("yaml", "YAML"),
        ("name", "Kind and id, one object per line"),
        (
            "jsonpath=TEMPLATE",
            "What a template of kubectl selects, for example '{.name}', or of a list '{[*].name}'",
        ),
    ]
    .map(|(name, about)| PossibleValue::new(name).help(about))
}
