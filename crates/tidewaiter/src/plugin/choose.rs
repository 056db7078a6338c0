//! Chooses the plugin, and its version, that a person means. Pure.

use anyhow::{Result, bail};
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::values::printable;
use tidewaiter_api::{AcceptedRelease, PluginInventorySpec};

/// The fewest digits that name a revision.
const MIN_DIGITS: usize = 8;

/// The plugin, for messages.
pub(super) fn title(plugin: &Plugin) -> String {
    let spec = &plugin.spec;
    printable(&format!("{}/{} ({})", spec.type_, spec.implementation, spec.id))
}

/// The one plugin of the name: its id, `TYPE/IMPLEMENTATION` or `TYPE`.
pub(super) fn named(all: &[Plugin], name: &str) -> Result<Plugin> {
    let is = |plugin: &&Plugin| {
        let spec = &plugin.spec;
        let both = format!("{}/{}", spec.type_, spec.implementation);
        [&spec.id, &both, &spec.type_]
            .iter()
            .any(|it| it.eq_ignore_ascii_case(name))
    };
    let titles = |plugins: &mut dyn Iterator<Item = &Plugin>| plugins.map(title).collect::<Vec<_>>().join(", ");
    let found: Vec<&Plugin> = all.iter().filter(is).collect();
    match found[..] {
        [one] => Ok(one.clone()),
        [] if all.is_empty() => bail!("there is no plugin in this cluster"),
        [] => bail!(
            "no plugin is {}; the plugins are {}",
            printable(name),
            titles(&mut all.iter())
        ),
        _ => bail!(
            "several plugins are {}: {}; use an id",
            printable(name),
            titles(&mut found.into_iter())
        ),
    }
}

/// The version to go back to; without `to`, the last one that was applied before the version that is.
pub(super) fn target<'a>(inventory: &'a PluginInventorySpec, to: Option<&str>) -> Result<&'a AcceptedRelease> {
    let all = &inventory.releases;
    let list: Vec<String> = all.iter().map(described).collect();
    let list = if list.is_empty() {
        "none".to_owned()
    } else {
        list.join(", ")
    };
    let found: Vec<&AcceptedRelease> = match to {
        None => {
            let applied = all.iter().position(|release| release.revision == inventory.revision);
            let is_on_the_way = !inventory.approved.is_empty() && inventory.approved != inventory.revision;
            let before = match applied {
                // The apply of the newest one does not end.
                Some(applied) if is_on_the_way => Some(applied),
                Some(applied) => applied.checked_sub(1),
                None => all.len().checked_sub(1),
            };
            before.map(|place| &all[place]).into_iter().collect()
        }
        Some(to) => {
            let is = |release: &&AcceptedRelease| {
                release.version == to || (to.len() >= MIN_DIGITS && release.revision.starts_with(to))
            };
            all.iter().filter(is).collect()
        }
    };
    match (found[..].split_first(), to) {
        (Some((one, [])), _) if one.revision == inventory.revision && inventory.approved == one.revision => {
            bail!("version {} is applied already", described(one))
        }
        (Some((one, [])), _) if one.too_large => {
            bail!(
                "version {} is too large for a Secret, so it was not stored, and nobody can go back to it",
                described(one)
            )
        }
        (Some((one, [])), _) => Ok(one),
        (Some(_), Some(to)) => bail!(
            "several accepted versions are {}: {list}; use the revision",
            printable(to)
        ),
        (None, Some(to)) => bail!("no accepted version is {}; they are {list}", printable(to)),
        (_, None) => bail!("no version was accepted before the applied one; the accepted ones are {list}"),
    }
}

fn described(release: &AcceptedRelease) -> String {
    let digits = release.revision.get(..16).unwrap_or(&release.revision);
    printable(&format!("{} ({digits})", release.version))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plugin(number: usize, type_: &str, implementation: &str) -> Plugin {
        let id = format!("cccccccc-0000-4000-8000-00000000000{number}");
        serde_json::from_value(
            json!({"apiVersion": "containership.io/v3", "kind": "Plugin", "metadata": {"name": id},
            "spec": {"id": id, "type": type_, "implementation": implementation}}),
        )
        .unwrap()
    }

    #[test]
    fn a_plugin_is_named_by_its_id_its_type_or_both() {
        let all = || {
            vec![
                plugin(1, "metrics", "prometheus"),
                plugin(2, "logs", "fluentd"),
                plugin(3, "logs", "loki\u{1b}[2J"),
            ]
        };
        for (name, expected) in [
            ("cccccccc-0000-4000-8000-000000000002", Ok(2)),
            ("METRICS", Ok(1)),
            ("logs/fluentd", Ok(2)),
            ("logs", Err("several plugins are logs: logs/fluentd (")),
            (
                "fluentd",
                Err("no plugin is fluentd; the plugins are metrics/prometheus ("),
            ),
        ] {
            match (named(&all(), name), expected) {
                (Ok(found), Ok(number)) => assert!(found.spec.id.ends_with(&number.to_string()), "{name}"),
                (Err(error), Err(words)) => {
                    let error = error.to_string();
                    assert!(error.contains(words) && !error.contains('\u{1b}'), "{error}");
                }
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
        assert!(
            named(&[], "logs")
                .unwrap_err()
                .to_string()
                .contains("there is no plugin")
        );
    }

    fn inventory(applied: &str) -> PluginInventorySpec {
        let release = |version: &str, revision: &str, too_large: bool| json!({"version": version, "revision": revision, "type": "t", "implementation": "i", "at": "2026-01-01T00:00:00Z", "tooLarge": too_large});
        serde_json::from_value(json!({"revision": applied, "approved": applied, "releases": [
            release("0.9.0", "99999999aa", true),
            release("1.0.0", "11111111aa", false),
            release("1.1.0", "22222222aa", false),
            release("1.1.0", "22222222bb", false),
        ]}))
        .unwrap()
    }

    #[test]
    fn a_version_is_named_by_itself_or_its_revision_and_the_one_before_needs_no_name() {
        for (applied, to, expected) in [
            ("22222222bb", None, Ok("22222222aa")),
            ("22222222aa", None, Ok("11111111aa")),
            ("22222222bb", Some("1.0.0"), Ok("11111111aa")),
            ("22222222bb", Some("11111111"), Ok("11111111aa")),
            // The apply of the first one has not ended.
            ("", None, Ok("22222222bb")),
            ("11111111aa", None, Err("too large")),
            ("99999999aa", None, Err("no version was accepted before")),
            ("22222222bb", Some("22222222bb"), Err("is applied already")),
            ("22222222bb", Some("1.1.0"), Err("several accepted versions are 1.1.0")),
            (
                "22222222bb",
                Some("2.0.0"),
                Err("no accepted version is 2.0.0; they are 0.9.0 (99999999aa)"),
            ),
            ("22222222bb", Some("1111111"), Err("no accepted version")),
        ] {
            let inventory = inventory(applied);
            match (target(&inventory, to), expected) {
                (Ok(found), Ok(revision)) => assert_eq!(found.revision, revision, "{applied} {to:?}"),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (found, _) => panic!("{applied} {to:?}: {found:?}"),
            }
        }
        // The newest one is malformed: the apply of the current one continues to its end.
        let mut breaks = inventory("22222222aa");
        breaks.approved = "22222222bb".to_owned();
        assert_eq!(target(&breaks, None).unwrap().revision, "22222222aa");
    }
}
