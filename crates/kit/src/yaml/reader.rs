//! The tree of a document, from the events of the parser.
//!
//! Limits keep a small text from becoming a large tree: how deep it is, and how much aliases repeat.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{self, ErrorKind, Event, Parser, ScalarStyle, Span, StrInput, StructureStyle, Tag};

use super::YamlError;
use super::scalar::Scalar;

const MAX_DEPTH: usize = 100;
/// The limit on what all aliases of a text repeat, with [`BYTES_PER_VALUE`] for each value.
const MAX_REPEATED_BYTES: usize = 1024 * 1024;
/// About what a value takes in memory, in bytes, besides its text.
const BYTES_PER_VALUE: usize = 64;

/// The number of characters of a key that a message shows.
const MAX_SHOWN_CHARS: usize = 63;

const CORE: &str = "tag:yaml.org,2002:";

/// Reads the documents, which may not be more than `limit`.
pub(super) fn read(text: &str, limit: usize) -> Result<Vec<Value>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    check_characters(text)?;
    // As kubectl does, lest the last line of a block differ.
    let text: Cow<'_, str> = if text.ends_with('\n') {
        text.into()
    } else {
        format!("{text}\n").into()
    };
    let mut options = granit_parser::options! { emit_anchor_events: true };
    options.set_emit_comments(false);
    let mut reader = Reader {
        parser: Parser::new_from_str_with_options(&text, options),
        text: &text,
        flow: 0,
        anchors: HashMap::new(),
        size: 0,
        repeated: 0,
    };
    let mut documents = Vec::new();
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(documents),
            Event::DocumentStart(explicit, version) => {
                if !explicit && !documents.is_empty() {
                    return refuse(
                        span,
                        "kubectl ignores what follows the line \"...\": write \"---\" there",
                    );
                }
                if version.is_some() {
                    return refuse(span, "a %YAML directive is not supported: leave it out");
                }
                if documents.len() == limit {
                    return refuse(span, "a second document begins: only one is allowed");
                }
                let node = reader.next_node(0)?;
                documents.push(node.into_value(span)?);
            }
            _ => {}
        }
    }
}

/// Characters that no reader of YAML 1.1 allows, or that it takes for the end of a line and others do not.
fn check_characters(text: &str) -> Result<(), YamlError> {
    let is_wrong = |c: char| match c {
        '\t' | '\n' | '\r' => false,
        '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => true,
        c => c.is_control(),
    };
    let Some((place, found)) = text.char_indices().find(|(_, c)| is_wrong(*c)) else {
        return Ok(());
    };
    let line = text[..place].matches('\n').count() + 1;
    let code = u32::from(found);
    let reason =
        format!("the character U+{code:04X} is not allowed: remove it, or write \"\\u{code:04X}\" in double quotes");
    Err(YamlError { line, reason })
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
    /// The number of `[` and `{` that are open.
    flow: usize,
    anchors: HashMap<usize, Anchored>,
    /// Of everything read so far, with what aliases repeat.
    size: usize,
    repeated: usize,
}

struct Anchored {
    node: Node,
    size: usize,
}

#[derive(Clone)]
enum Node {
    Scalar(Scalar),
    Tree(Value),
}

impl Node {
    fn into_value(self, span: Span) -> Result<Value, YamlError> {
        match self {
            Self::Scalar(scalar) => scalar.into_value().or_else(|reason| refuse(span, reason)),
            Self::Tree(value) => Ok(value),
        }
    }
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), YamlError> {
        match self.parser.next_event() {
            // Go ends a name at the first of other characters, the parser at a space.
            Some(Ok((Event::Anchor(_, name), span))) if !name.bytes().all(is_in_name) => refuse(
                span,
                "the name of an anchor has more than letters, digits, - and _: rename it",
            ),
            Some(Ok((Event::Anchor(..), _))) => self.next(),
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(YamlError {
                line: error.marker().line(),
                reason: format!("{}{}", error.kind(), remedy(error.kind())),
            }),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn next_node(&mut self, depth: usize) -> Result<Node, YamlError> {
        let (event, span) = self.next()?;
        self.node(event, span, depth)
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, YamlError> {
        if depth > MAX_DEPTH {
            return refuse(
                span,
                format!("a value is nested deeper than {MAX_DEPTH} levels: write it flatter"),
            );
        }
        if let Event::Alias(id) = event {
            return self.alias(id, span);
        }
        let (before, anchor) = (self.size, event.anchor_id());
        self.size += BYTES_PER_VALUE;
        let node = match event {
            Event::Scalar(text, style, _, tag) => {
                self.size += text.len();
                if style == ScalarStyle::Plain && self.flow > 0 {
                    self.check_in_flow(&text, span)?;
                }
                Node::Scalar(scalar(&text, style, tag.as_deref()).or_else(|reason| refuse(span, reason))?)
            }
            Event::SequenceStart(style, ..) | Event::MappingStart(style, ..) => {
                let flow = usize::from(style == StructureStyle::Flow);
                self.flow += flow;
                let tree = match event {
                    Event::SequenceStart(..) => Value::Array(self.items(depth)?),
                    _ => Value::Object(self.entries(depth)?),
                };
                self.flow -= flow;
                Node::Tree(tree)
            }
            _ => return refuse(span, "a value is missing: write one"),
        };
        if let Some(id) = anchor {
            let size = self.size - before;
            let node = node.clone();
            self.anchors.insert(id, Anchored { node, size });
        }
        Ok(node)
    }

    /// Go ends a plain scalar between brackets elsewhere than YAML 1.2 does.
    fn check_in_flow(&self, text: &str, span: Span) -> Result<(), YamlError> {
        let after = span
            .byte_range()
            .and_then(|range| self.text.get(range.end..))
            .unwrap_or_default();
        let ends_at_colon = after.starts_with(':') && after[1..].starts_with([',', '[', ']', '{', '}']);
        let is_tag_alone = text.is_empty() && span.tag_start().is_some();
        if ends_at_colon || is_tag_alone || text.starts_with(':') || text.contains('?') {
            return refuse(
                span,
                "a text between brackets has : or ? in a place where readers differ: quote it",
            );
        }
        Ok(())
    }

    fn alias(&mut self, id: usize, span: Span) -> Result<Node, YamlError> {
        let Some(Anchored { node, size }) = self.anchors.get(&id) else {
            return refuse(span, "the alias is inside of what it repeats: write the value out");
        };
        self.size += size;
        self.repeated += size;
        if self.repeated > MAX_REPEATED_BYTES {
            return refuse(
                span,
                format!(
                    "the aliases repeat more than {} KiB: write the values out",
                    MAX_REPEATED_BYTES / 1024
                ),
            );
        }
        Ok(node.clone())
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Value>, YamlError> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(items);
            }
            items.push(self.node(event, span, depth + 1)?.into_value(span)?);
        }
    }

    fn entries(&mut self, depth: usize) -> Result<Map<String, Value>, YamlError> {
        let (mut entries, mut own) = (Map::new(), HashSet::new());
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(entries);
            }
            if is_merge(&event) {
                self.merge(&mut entries, depth)?;
                continue;
            }
            let Node::Scalar(key) = self.node(event, span, depth + 1)? else {
                return refuse(
                    span,
                    "a key is a list or a mapping: write a text; render a template with {{ }} first, or put it in quotes",
                );
            };
            let is_bool = matches!(key, Scalar::Bool(_));
            let key = key.into_key().or_else(|reason| refuse(span, reason))?;
            if !own.insert(key.clone()) {
                let shown: String = key.chars().take(MAX_SHOWN_CHARS).collect();
                let quoted = if is_bool {
                    ", or quote what is a text, as on and y"
                } else {
                    ""
                };
                return refuse(
                    span,
                    format!("the key {shown:?} occurs twice in one mapping: remove one{quoted}"),
                );
            }
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?.into_value(span)?;
            entries.insert(key, value);
        }
    }

    /// Puts the entries of the value of `<<` into a mapping. As in Go, they override what is written before it, and
    /// the first of a list overrides the others.
    fn merge(&mut self, entries: &mut Map<String, Value>, depth: usize) -> Result<(), YamlError> {
        let (event, span) = self.next()?;
        let is_list = matches!(event, Event::SequenceStart(..));
        let sources = match self.node(event, span, depth + 1)? {
            Node::Tree(Value::Array(sources)) if is_list => sources,
            Node::Tree(source) => vec![source],
            Node::Scalar(_) => vec![Value::Null],
        };
        for source in sources.into_iter().rev() {
            let Value::Object(source) = source else {
                return refuse(
                    span,
                    "<< is not a mapping, or a list of mappings: correct it, or quote the key",
                );
            };
            entries.extend(source);
        }
        Ok(())
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Scalar, String> {
    match tag {
        Some(tag) => Scalar::tagged(tag.suffix_in_namespace(CORE).as_deref().unwrap_or_default(), text),
        None if style == ScalarStyle::Plain => Ok(Scalar::plain(text)),
        None => Ok(Scalar::Text(text.to_owned())),
    }
}

fn remedy(error: &ErrorKind) -> &'static str {
    match error {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInPlainScalar => ": use spaces",
        ErrorKind::CommentNotSeparated => ": put a space before #",
        ErrorKind::InvalidQuotedScalarIndent => ": indent each line of the text",
        ErrorKind::UnknownQuotedScalarEscape => ": write \\\\ for a backslash, or use single quotes",
        ErrorKind::UnexpectedCharacter { .. } | ErrorKind::UnknownAnchor => ": put the text in quotes",
        ErrorKind::MappingValueNotAllowed => ": put a text with a colon in quotes, or correct the indentation",
        _ => "",
    }
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

fn is_merge(event: &Event<'_>) -> bool {
    let Event::Scalar(text, style, _, tag) = event else {
        return false;
    };
    text == "<<"
        && match tag.as_deref() {
            Some(tag) => tag.original() == "!" || tag.suffix_in_namespace(CORE).as_deref() == Some("merge"),
            None => *style == ScalarStyle::Plain,
        }
}

fn refuse<T>(span: Span, reason: impl Into<String>) -> Result<T, YamlError> {
    Err(YamlError {
        line: span.start.line(),
        reason: reason.into(),
    })
}
