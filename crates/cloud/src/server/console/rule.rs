//! The rules of a role: as text in a form, and which permissions they give.

use std::fmt;

use serde_json::{Value, json};

use super::fields::FormFields;
use super::value::{list, text};

/// The maximum number of permissions of a role that are compared one by one.
const MAX_PERMISSIONS: usize = 1_000;
const KUBERNETES: &str = "kubernetes";
/// The core group of Kubernetes in a list of groups, which is the empty string.
const CORE: &str = "\"\"";

/// A rule, as `PolicyRule` of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rule {
    pub(super) kind: String,
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    verbs: Vec<String>,
    urls: Vec<String>,
}

/// One verb on one resource or path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Permission<'a> {
    rule_type: &'a str,
    verb: &'a str,
    object: Object<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Object<'a> {
    Resource {
        group: &'a str,
        resource: &'a str,
        /// `None` is every name.
        name: Option<&'a str>,
    },
    Url(&'a str),
}

impl Rule {
    /// A rule of Kubernetes that gives nothing.
    pub(super) fn empty() -> Self {
        Self {
            kind: KUBERNETES.to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn of(rule: &Value) -> Self {
        let words = |field| list(rule, field).filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            kind: text(rule, "type").to_owned(),
            groups: words("api_groups"),
            resources: words("resources"),
            names: words("resource_names"),
            verbs: words("verbs"),
            urls: words("non_resource_urls"),
        }
    }

    /// The rules of a form, in which each field occurs once for each rule. A rule without verbs and without what they
    /// are for is left out.
    pub(super) fn of_form(form: &FormFields) -> Vec<Self> {
        let [mut groups, mut resources, mut names, mut verbs, mut urls] = [
            "api_groups",
            "resources",
            "resource_names",
            "verbs",
            "non_resource_urls",
        ]
        .map(|field| form.all(field));
        let rule = |rule_type: &str| Self {
            kind: rule_type.to_owned(),
            groups: words(groups.next().unwrap_or_default()),
            resources: words(resources.next().unwrap_or_default()),
            names: lines(names.next().unwrap_or_default()),
            verbs: words(verbs.next().unwrap_or_default()),
            urls: words(urls.next().unwrap_or_default()),
        };
        let rules = form.all("type").map(rule);
        rules.filter(|rule| !rule.is_empty()).collect()
    }

    /// The number of words in its lists.
    pub(super) fn words(&self) -> usize {
        let lists = [&self.groups, &self.resources, &self.names, &self.verbs, &self.urls];
        lists.into_iter().map(Vec::len).sum()
    }

    fn is_empty(&self) -> bool {
        let lists = [&self.resources, &self.verbs, &self.urls];
        lists.into_iter().all(Vec::is_empty)
    }

    /// The rule as the API reads it.
    pub(super) fn to_value(&self) -> Value {
        json!({
            "type": self.kind,
            "api_groups": self.groups,
            "resources": self.resources,
            "resource_names": self.names,
            "verbs": self.verbs,
            "non_resource_urls": self.urls,
        })
    }

    /// The field of a form for each list: name, label and text.
    pub(super) fn inputs(&self) -> [(&'static str, &'static str, String); 4] {
        let groups = self.groups.iter().map(|group| shown(group));
        let groups: Vec<&str> = groups.collect();
        [
            ("api_groups", "API groups", groups.join(", ")),
            ("resources", "Resources", self.resources.join(", ")),
            ("verbs", "Verbs", self.verbs.join(", ")),
            ("non_resource_urls", "Non-resource URLs", self.urls.join(", ")),
        ]
    }

    /// The names of objects, one in each line.
    pub(super) fn names(&self) -> String {
        self.names.join("\n")
    }

    /// Returns true if the rule gives the permission, as an API server decides.
    pub(super) fn gives(&self, permission: &Permission<'_>) -> bool {
        let has = |words: &[String], word: &str| words.iter().any(|known| known == "*" || known == word);
        if self.kind != permission.rule_type || !has(&self.verbs, permission.verb) {
            return false;
        }
        match permission.object {
            Object::Url(url) => self
                .urls
                .iter()
                .any(|known| known == url || known.strip_suffix('*').is_some_and(|prefix| url.starts_with(prefix))),
            Object::Resource { group, resource, name } => {
                let below = resource.split_once('/').map(|(_, below)| below);
                let has_resource = self.resources.iter().any(|known| {
                    known == "*"
                        || known == resource
                        || below.is_some_and(|below| known.strip_prefix("*/") == Some(below))
                });
                let has_group = has(&self.groups, group) || (self.groups.is_empty() && group.is_empty());
                let has_name =
                    self.names.is_empty() || name.is_some_and(|name| self.names.iter().any(|known| known == name));
                has_resource && has_group && has_name
            }
        }
    }

    /// Adds the permissions of the rule, until there are [`MAX_PERMISSIONS`].
    fn add_permissions<'a>(&'a self, all: &mut Vec<Permission<'a>>) {
        let groups = self.groups.iter().map(String::as_str);
        let groups: Vec<&str> = groups.chain(self.groups.is_empty().then_some("")).collect();
        let names = self.names.iter().map(|name| Some(name.as_str()));
        let names: Vec<Option<&str>> = names.chain(self.names.is_empty().then_some(None)).collect();
        let (groups, names) = (&groups, &names);
        let resources = self.resources.iter().flat_map(move |resource| {
            let of_group = move |&group| {
                names
                    .iter()
                    .map(move |&name| Object::Resource { group, resource, name })
            };
            groups.iter().flat_map(of_group)
        });
        let objects = self.urls.iter().map(|url| Object::Url(url)).chain(resources);
        let permission = |object| {
            let rule_type = self.kind.as_str();
            self.verbs.iter().map(move |verb| Permission {
                rule_type,
                verb,
                object,
            })
        };
        let room = MAX_PERMISSIONS.saturating_sub(all.len());
        all.extend(objects.flat_map(permission).take(room));
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.verbs.join(", "))?;
        if !self.urls.is_empty() {
            return f.write_str(&self.urls.join(", "));
        }
        f.write_str(&self.resources.join(", "))?;
        let groups: Vec<&str> = self.groups.iter().map(|group| shown(group)).collect();
        if groups.iter().any(|group| *group != CORE) {
            write!(f, " in {}", groups.join(", "))?;
        }
        if !self.names.is_empty() {
            write!(f, ", only {}", self.names.join(", "))?;
        }
        if self.kind != KUBERNETES {
            write!(f, " ({})", self.kind)?;
        }
        Ok(())
    }
}

impl fmt::Display for Permission<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.verb)?;
        match self.object {
            Object::Url(url) => f.write_str(url),
            Object::Resource { group, resource, name } => {
                f.write_str(resource)?;
                if !group.is_empty() {
                    write!(f, ".{group}")?;
                }
                name.map_or(Ok(()), |name| write!(f, "/{name}"))
            }
        }
    }
}

/// The permissions that the rules give, at most [`MAX_PERMISSIONS`].
pub(super) fn permissions(rules: &[Rule]) -> Vec<Permission<'_>> {
    let mut all = Vec::new();
    for rule in rules {
        rule.add_permissions(&mut all);
    }
    all
}

/// A group as a form has it.
fn shown(group: &str) -> &str {
    if group.is_empty() { CORE } else { group }
}

/// The words of a list, which commas or spaces separate.
fn words(list: &str) -> Vec<String> {
    let words = list
        .split(|c: char| c == ',' || c.is_whitespace())
        .filter(|word| !word.is_empty());
    words
        .map(|word| if word == CORE { String::new() } else { word.to_owned() })
        .collect()
}

fn lines(list: &str) -> Vec<String> {
    let lines = list.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Rule {
        Rule::of(&json!({
            "type": "kubernetes", "api_groups": groups, "resources": resources, "resource_names": names, "verbs": verbs,
        }))
    }

    #[test]
    fn a_rule_gives_what_an_api_server_permits() {
        let given = |rule: &Rule, other: &Rule| {
            permissions(std::slice::from_ref(other))
                .iter()
                .all(|one| rule.gives(one))
        };
        let pods = rule(&[""], &["pods"], &[], &["get"]);
        let web = rule(&[""], &["pods"], &["web"], &["get"]);
        let all = rule(&["*"], &["*"], &[], &["*"]);
        let logs = rule(&[""], &["pods/log"], &[], &["get"]);
        let every_log = rule(&["*"], &["*/log"], &[], &["get"]);
        let apps = rule(&["apps"], &["pods"], &[], &["get"]);
        for (wide, narrow) in [(&pods, &web), (&all, &pods), (&all, &logs), (&every_log, &logs)] {
            assert!(given(wide, narrow), "{wide} {narrow}");
            assert!(!given(narrow, wide), "{narrow} {wide}");
        }
        for (one, other) in [(&pods, &logs), (&pods, &apps), (&every_log, &pods)] {
            assert!(!given(one, other) && !given(other, one), "{one} {other}");
        }
        let urls = |url: &str| Rule::of(&json!({"type": "kubernetes", "verbs": ["get"], "non_resource_urls": [url]}));
        assert!(given(&urls("/metrics/*"), &urls("/metrics/cadvisor")));
        assert!(!given(&urls("/metrics/*"), &urls("/healthz")));
    }

    #[test]
    fn many_permissions_are_not_all_compared() {
        let words: Vec<String> = (0..1_000).map(|number| format!("a{number}")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(
            permissions(&[rule(&words, &words, &words, &words)]).len(),
            MAX_PERMISSIONS
        );
    }

    #[test]
    fn a_form_reads_what_it_shows() {
        let rules = [rule(
            &["", "apps"],
            &["pods", "pods/log"],
            &["Domain Admins", "a,b"],
            &["get", "list"],
        )];
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        for rule in rules.iter().chain([&Rule::default()]) {
            form.append_pair("type", &rule.kind)
                .append_pair("resource_names", &rule.names());
            for (name, _, text) in rule.inputs() {
                form.append_pair(name, &text);
            }
        }
        assert_eq!(Rule::of_form(&FormFields::parse(form.finish().as_bytes())), rules);
    }
}
