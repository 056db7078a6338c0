//! The settings of every role: their comments in the source, and their defaults as `--print-config` prints them.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::commands::printed;
use super::markdown::{cell, code, head, section, table};
use super::source::{Item, items, read};

const INTRODUCTION: &str = "The settings of each role. They come from a file (`--settings FILE`, YAML), variables and \
    flags; the last wins. The variable of `storageMiB.objects` is `TIDEWAITER_STORAGE_MIB__OBJECTS`: capitals, `_` \
    between words, `__` in place of a dot. `--print-config` prints the effective settings. The manifests and the chart \
    set some of them.";

/// The settings of a role.
struct Role {
    title: &'static str,
    /// The command that prints the defaults, with its arguments.
    command: &'static [&'static str],
    /// The struct of the settings.
    name: &'static str,
    /// The files that declare the struct and the types of its fields.
    files: &'static [&'static str],
}

/// The settings that the roles below share, but the cloud.
const SHARED: Role = Role {
    title: "Every role in a cluster",
    command: &["agent"],
    name: "RoleSettings",
    files: &["crates/kit/src/role/settings.rs", "crates/kit/src/telemetry.rs"],
};

const ROLES: [Role; 4] = [
    Role {
        title: "Controller",
        // kOps' file has no default.
        command: &["controller", "--conf", "crates/kops/fixtures/config-aws.json"],
        name: "ControllerSettings",
        files: &[
            "crates/tidewaiter/src/controller/settings.rs",
            "crates/tidewaiter/src/controller/label_source.rs",
            "crates/tidewaiter/src/settings.rs",
            "crates/controller/src/node_controller/finding.rs",
            "crates/identity/src/proof.rs",
        ],
    },
    Role {
        title: "Coordinator",
        command: &["coordinator"],
        name: "CoordinatorSettings",
        files: &[
            "crates/tidewaiter/src/coordinator/settings.rs",
            "crates/tidewaiter/src/settings.rs",
            "crates/coordinator/src/controllers/plugin/settings.rs",
            "crates/coordinator/src/controllers/registry/settings.rs",
            "crates/coordinator/src/controllers/upgrade.rs",
            "crates/coordinator/src/mirror/brake.rs",
            "crates/coordinator/src/node_pools.rs",
        ],
    },
    Role {
        title: "Agent",
        command: &["agent"],
        name: "AgentSettings",
        files: &[
            "crates/agent/src/settings.rs",
            "crates/agent/src/authorized_keys.rs",
            "crates/agent/src/upgrade/relay.rs",
        ],
    },
    Role {
        title: "Cloud",
        command: &["cloud", "serve"],
        name: "ServerSettings",
        files: &[
            "crates/tidewaiter/src/cloud_server/settings.rs",
            "crates/tidewaiter/src/cloud_server/acme.rs",
            "crates/cloud/src/server/store/storage_limits.rs",
            "crates/cloud/src/server/oidc/settings.rs",
            "crates/kit/src/telemetry.rs",
        ],
    },
];

/// A setting: its path with dots, its default and its meaning.
type Row = [String; 3];

/// Returns the page.
pub fn page(root: &Path) -> Result<String> {
    let mut page = head("Settings", INTRODUCTION);
    let shared = SHARED.rows(root, &SHARED.defaults(root)?)?;
    add(&mut page, &SHARED, &shared);
    for role in ROLES {
        let defaults = role.defaults(root)?;
        let rows = role.rows(root, &defaults)?;
        let known: Vec<&String> = shared.iter().chain(&rows).map(|[setting, ..]| setting).collect();
        for setting in leaves(&defaults, "") {
            ensure!(
                known.contains(&&setting),
                "{} does not declare the setting {setting}: add the file that does to xtask/src/reference/settings.rs",
                role.name
            );
        }
        add(&mut page, &role, &rows);
    }
    Ok(page)
}

fn add(page: &mut String, role: &Role, rows: &[Row]) {
    section(page, role.title);
    let rows = rows
        .iter()
        .map(|[setting, default, meaning]| [code(setting), default.clone(), meaning.clone()]);
    table(page, ["setting", "default", "meaning"], rows);
}

impl Role {
    /// The defaults as `--print-config` prints them; those without a value are left out.
    fn defaults(&self, root: &Path) -> Result<Value> {
        let words = self.command.iter().chain(&["--print-config"]);
        let text = printed(root, words.copied())?;
        serde_saphyr::from_str(&text).with_context(|| format!("the settings of {}", self.title))
    }

    fn rows(&self, root: &Path, defaults: &Value) -> Result<Vec<Row>> {
        let sources = self.files.iter().map(|file| read(&root.join(file)));
        let sources: Vec<String> = sources.collect::<Result<_>>()?;
        let mut rows = Vec::new();
        let fields = declared(&sources, self.name);
        let fields = fields.with_context(|| format!("{} is declared in none of {:?}", self.name, self.files))?;
        below(&sources, &fields, "", defaults, &mut rows);
        Ok(rows)
    }
}

/// Returns the items of a type. The first file that declares it counts.
fn declared(sources: &[String], name: &str) -> Option<Vec<Item>> {
    sources.iter().find_map(|source| items(source, name))
}

/// Adds a row for each setting among the fields at `path`.
fn below(sources: &[String], fields: &[Item], path: &str, defaults: &Value, rows: &mut Vec<Row>) {
    for Item { name, kind, doc } in fields {
        let path = format!("{path}{name}");
        let kind = kind
            .strip_prefix("Option<")
            .map_or(kind.as_str(), |kind| kind.trim_end_matches('>'));
        let element = kind.strip_prefix("Vec<").map(|kind| kind.trim_end_matches('>'));
        let inner = declared(sources, element.unwrap_or(kind)).unwrap_or_default();
        if inner.iter().any(|item| !item.kind.is_empty()) {
            let list = if element.is_some() { "[]" } else { "" };
            below(sources, &inner, &format!("{path}{list}."), &defaults[name], rows);
            continue;
        }
        let default = match &defaults[name] {
            Value::Null => "none".to_owned(),
            Value::String(text) => code(text),
            value => code(&value.to_string()),
        };
        // A variant with content has no name in a file.
        let values = inner.iter().filter(|value| !value.name.contains('('));
        let values = values.map(|Item { name, doc, .. }| match doc.as_str() {
            "" => format!("<br>`{name}`"),
            doc => format!("<br>`{name}`: {}", cell(doc)),
        });
        let meaning = std::iter::once(cell(doc)).chain(values).collect();
        rows.push([path, default, meaning]);
    }
}

/// Returns the paths of all values that are no mappings.
fn leaves(value: &Value, path: &str) -> Vec<String> {
    match value.as_object() {
        None => vec![path.to_owned()],
        Some(object) => {
            let dot = if path.is_empty() { "" } else { "." };
            let paths = object
                .iter()
                .flat_map(|(name, value)| leaves(value, &format!("{path}{dot}{name}")));
            paths.collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_setting_has_its_default_and_its_values() {
        let source = "
#[serde(rename_all = \"camelCase\")]
struct Own {
    /// The port.
    admin_port: u16,
    /// Its Lease.
    lease: Lease,
    /// What is done.
    on_stop: Option<OnStop>,
    /// The Leases of others.
    others: Vec<Lease>,
}

struct Lease {
    /// Its name.
    name: String,
}

#[serde(rename_all = \"lowercase\")]
enum OnStop {
    /// Nothing.
    Keep,
    All(Keep),
}
";
        let sources = [source.to_owned()];
        let defaults = json!({"adminPort": 1, "lease": {"name": "a"}, "rows": {}});
        let mut rows = Vec::new();
        below(&sources, &declared(&sources, "Own").unwrap(), "", &defaults, &mut rows);
        let expected = [
            ["adminPort", "`1`", "The port."],
            ["lease.name", "`a`", "Its name."],
            ["onStop", "none", "What is done.<br>`keep`: Nothing."],
            ["others[].name", "none", "Its name."],
        ];
        assert_eq!(rows, expected);
        assert_eq!(leaves(&defaults, ""), ["adminPort", "lease.name"]);
    }
}
