//! The reasons of Events and conditions. The code names them, and the pages of each role have their remedies: in a list
//! whose lines begin with the reason, in a section with its name, or in another section that names it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::markdown::{anchor, cell, code, head, section, table};
use super::source::{files, literal, read};

const INTRODUCTION: &str = "The reasons of Events and conditions, with their remedies from the pages of each role. The \
    message of each names the object and the cause.";

/// A role, the folders of its source, and the pages about it.
const ROLES: [(&str, &[&str], &[&str]); 3] = [
    (
        "Controller",
        &["crates/controller/src", "crates/identity/src"],
        &["operating"],
    ),
    (
        "Coordinator",
        &["crates/coordinator/src", "crates/upgrade/src"],
        &["coordinator", "upgrades", "alerts"],
    ),
    ("Agent", &["crates/agent/src"], &["agent", "upgrades", "alerts"]),
];

/// The folder of what the roles share. Not every role publishes each of its Events.
const SHARED: &str = "crates/kit/src";

/// The heading of the first alert of the agent. All behind it are the agent's.
const AGENT_ALERTS: &str = "\n## AuthorizedKeysRestored\n";

/// A section of a page.
struct Section {
    page: String,
    heading: String,
    lines: Vec<String>,
}

/// Returns the page.
pub fn page(root: &Path) -> Result<String> {
    let mut page = head("Events and condition reasons", INTRODUCTION);
    let shared = source(root, &[SHARED])?;
    for (title, folders, pages) in ROLES {
        let own = source(root, folders)?;
        let mut sections = Vec::new();
        for name in pages {
            let path = root.join(format!("docs/{name}.md"));
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            sections.extend(Section::all(name, part(title, &text)));
        }
        section(&mut page, title);
        table(
            &mut page,
            ["reason", "meaning and remedy"],
            rows(&own, &shared, &sections)?,
        );
    }
    Ok(page)
}

/// Returns the part of a page that is about the role.
fn part<'a>(role: &str, text: &'a str) -> &'a str {
    let (others, agents) = text.split_at(text.find(AGENT_ALERTS).unwrap_or(text.len()));
    if role == "Agent" && !agents.is_empty() {
        agents
    } else {
        others
    }
}

/// Returns the code in these folders.
fn source(root: &Path, folders: &[&str]) -> Result<String> {
    let mut source = String::new();
    for folder in folders {
        for file in files(&root.join(folder))? {
            source += &read(&file)?;
        }
    }
    Ok(source)
}

/// Returns the rows of a role: each reason in its code that a list describes, and each of its own Events.
fn rows(own: &str, shared: &str, sections: &[Section]) -> Result<Vec<[String; 2]>> {
    let texts = own.split('"').chain(shared.split('"'));
    let named: BTreeSet<&str> = texts.filter(|text| is_reason(text)).collect();
    let mut rows = Vec::new();
    let mut described = BTreeSet::new();
    for section in sections {
        for (reasons, remedy) in section.remedies() {
            for reason in reasons.into_iter().filter(|reason| named.contains(reason.as_str())) {
                rows.push([code(&reason), format!("{remedy} ({})", section.link())]);
                described.insert(reason);
            }
        }
    }
    for event in published(own).difference(&described) {
        let mention = code(event);
        let headed = sections.iter().find(|section| section.heading == *event);
        let mentions = |section: &&Section| section.lines.iter().any(|line| line.contains(&mention));
        let section = headed.or_else(|| sections.iter().find(mentions));
        let section = section.with_context(|| format!("no page of the role describes the Event {event}"))?;
        rows.push([mention, section.link()]);
    }
    rows.sort();
    Ok(rows)
}

/// Returns the reasons of Events that the code writes out.
fn published(source: &str) -> BTreeSet<String> {
    let notices = source.split("Notice::").skip(1);
    let texts = notices.filter_map(|code| {
        let code = code.strip_prefix("warning(").or_else(|| code.strip_prefix("normal("))?;
        Some(literal(code)?.0)
    });
    texts.filter(|text| is_reason(text)).collect()
}

/// Returns true if the text is one word that begins with a capital.
fn is_reason(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase()) && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

impl Section {
    /// The sections of a page. What is before its first heading is left out.
    fn all(page: &str, text: &str) -> Vec<Self> {
        let (mut sections, mut is_code) = (Vec::<Self>::new(), false);
        for line in text.lines() {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code && line.starts_with('#') {
                sections.push(Self {
                    page: page.to_owned(),
                    heading: line.trim_start_matches('#').trim().to_owned(),
                    lines: Vec::new(),
                });
            } else if let Some(section) = sections.last_mut() {
                section.lines.push(line.to_owned());
            }
        }
        sections
    }

    /// A link to it from the reference.
    fn link(&self) -> String {
        format!("[{}](../{}.md#{})", self.heading, self.page, anchor(&self.heading))
    }

    /// The lines of lists that begin with reasons: these, and the text behind the colon.
    fn remedies(&self) -> Vec<(Vec<String>, String)> {
        let mut items: Vec<String> = Vec::new();
        let mut is_item = false;
        for line in &self.lines {
            if let Some(item) = line.trim_start().strip_prefix("- ") {
                items.push(item.to_owned());
                is_item = true;
            } else if let Some(item) = items.last_mut().filter(|_| is_item && line.starts_with(' ')) {
                *item = format!("{item} {}", line.trim());
            } else {
                is_item = false;
            }
        }
        let remedies = items.iter().filter(|item| item.starts_with('`')).filter_map(|item| {
            let (lead, remedy) = item.split_once(": ")?;
            let spans = lead.split('`').skip(1).step_by(2);
            let reasons = spans.filter(|span| is_reason(span)).map(str::to_owned);
            Some((reasons.collect(), self.relinked(remedy)))
        });
        remedies.collect()
    }

    /// The text with links that lead from the reference to where they led from the page.
    fn relinked(&self, text: &str) -> String {
        let mut parts = text.split("](");
        let first = parts.next().unwrap_or_default().to_owned();
        let linked = parts.map(|part| match part.split_at_checked(1) {
            Some(("#", _)) => format!("](../{}.md{part}", self.page),
            _ if part.starts_with("https:") => format!("]({part}"),
            _ => format!("](../{part}"),
        });
        cell(&(first + &linked.collect::<Vec<_>>().concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n## Events\n\n- `NotFound`, `Gone` (of a Node): see [it](#it),\n  or [all](other.md).\n\n\
        ```yaml\n# - `NotFound`: no\n```\n\n## BreakGlassUsed\n\nFind out who.\n\n## It\n\nThen `Restored` follows.\n";

    fn rows_of(source: &str) -> Result<Vec<[String; 2]>> {
        rows(source, "\"Gone\"", &Section::all("page", PAGE))
    }

    #[test]
    fn each_reason_has_its_remedy() {
        let source = r#"match self { Self::A => "NotFound", Self::B => "Unknown" }
            Notice::warning("BreakGlassUsed", "Login", note); Notice::normal(
                "Restored", "Write", note)"#;
        let expected = [
            ["`BreakGlassUsed`", "[BreakGlassUsed](../page.md#breakglassused)"],
            [
                "`Gone`",
                "see [it](../page.md#it), or [all](../other.md). ([Events](../page.md#events))",
            ],
            [
                "`NotFound`",
                "see [it](../page.md#it), or [all](../other.md). ([Events](../page.md#events))",
            ],
            ["`Restored`", "[It](../page.md#it)"],
        ];
        assert_eq!(rows_of(source).unwrap(), expected);
    }

    #[test]
    fn an_event_without_a_description_is_an_error() {
        let error = rows_of("Notice::warning(\"Unheard\", \"Write\", note)").unwrap_err();
        assert_eq!(error.to_string(), "no page of the role describes the Event Unheard");
    }

    #[test]
    fn the_alerts_of_the_agent_are_only_the_agents() {
        let text = "# Alerts\n\n## UpgradeStuck\n\n## AuthorizedKeysRestored\n\n## ForeignKeys\n";
        let headings = |role| {
            let sections = Section::all("alerts", part(role, text));
            sections.into_iter().map(|section| section.heading).collect::<Vec<_>>()
        };
        assert_eq!(headings("Coordinator"), ["Alerts", "UpgradeStuck"]);
        assert_eq!(headings("Agent"), ["AuthorizedKeysRestored", "ForeignKeys"]);
        assert_eq!(part("Agent", "# Agent\n"), "# Agent\n");
    }
}
