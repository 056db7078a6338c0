//! The output formats: of objects as those of kubectl, and of the answers to questions.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error, ValueEnum};

use crate::json_path::Template;

const JSON_PATH: &str = "jsonpath=";

/// The format in which answers are printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OutputFormat {
    /// A table
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
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

/// Reads a format.
#[derive(Clone)]
pub(crate) struct FormatParser;

impl TypedValueParser for FormatParser {
    type Value = CloudFormat;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<CloudFormat, Error> {
        if let Some(template) = value.to_str().and_then(|text| text.strip_prefix(JSON_PATH)) {
            let invalid = |reason: String| {
                let text = format!("invalid template {template:?}: {reason}\n");
                Error::raw(ErrorKind::ValueValidation, text).with_cmd(command)
            };
            return template.parse().map(CloudFormat::JsonPath).map_err(invalid);
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
