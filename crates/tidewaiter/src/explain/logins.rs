//! The users that can log in, as tables, and the places in which nodes record logins.

use std::io::{self, Write as _};

use anyhow::Result;
use tidewaiter_agent::logins::LoginsExplained;

use super::output::Table;
use crate::ages::from_now;
use crate::printed;

const WHERE: &str = "\
Each node records SSH logins in its own journal. Tidewaiter reads nothing from nodes: look there, or where your log collector sends it.

  journalctl -t containership-login     each login of a user of the cloud: user_id, account, from
  journalctl -t sshd -t sshd-session    what sshd says of each connection: the fingerprint of the key, refusals
  last -F                               sessions with a terminal

The user_id is the id of the User without dashes: tidewaiter explain access --user ID shows the name, the nodes and the fingerprints.
The user_id of a login with a break-glass key is break-glass: and the fingerprint. A login with a foreign key has none: only sshd records it, by the
fingerprint. tidewaiter explain access --node NODE lists both.
";

/// Prints the places to look at.
pub(super) fn where_to_look() -> Result<()> {
    printed(io::stdout().write_all(WHERE.as_bytes()))
}

pub(super) fn tables(found: &LoginsExplained) -> Vec<Table> {
    let mut applied = Table::new("CAN LOG IN", &["NODE", "NAME", "USER", "KEY", "SINCE"]);
    for row in &found.applied {
        let name = if row.name.is_empty() {
            "(no such User any more)"
        } else {
            &row.name
        };
        let end = row.expires_at.as_ref().map(|end| format!(" (until {end})"));
        let key = row.fingerprint.clone() + &end.unwrap_or_default();
        let since = from_now(&row.since);
        applied.row([&row.node, name, &row.user, &key, &since]);
    }
    if found.applied.is_empty() {
        applied.row(["-", "nobody, as far as agents report", "", "", ""]);
    }
    let mut pending = Table::new("NOT APPLIED YET", &["NODE", "NAME", "USER", "KEY", "DUE", "WHY"]);
    for row in &found.pending {
        pending.row([&row.node, &row.name, &row.user, &row.fingerprint, row.due, &row.why]);
    }
    let mut refused = Table::new("REFUSED KEYS", &["USER", "KEY", "WHY"]);
    for row in &found.refused {
        refused.row([&row.user, &row.key, &row.why]);
    }
    let mut others = Table::new("OTHER KEYS IN AUTHORIZED_KEYS", &["NODE", "KIND", "UNTIL", "KEY"]);
    for node in &found.nodes {
        for key in &node.break_glass_keys {
            others.row([&node.node, "break-glass", "-", key]);
        }
        let until = if node.foreign_lines_until.is_empty() {
            "-".to_owned()
        } else {
            from_now(&node.foreign_lines_until)
        };
        for key in &node.foreign_keys {
            others.row([&node.node, "foreign", &until, key]);
        }
        let unnamed = usize::try_from(node.foreign_lines)
            .unwrap_or(usize::MAX)
            .saturating_sub(node.foreign_keys.len());
        if unnamed > 0 {
            others.row([&node.node, "foreign", &until, &format!("{unnamed} more lines")]);
        }
    }
    let mut nodes = Table::new("NODES", &["NODE", "REPORT", "RESTORES", "STATE"]);
    for node in &found.nodes {
        let current = if node.is_current { "current" } else { "not reliable" };
        nodes.row([&node.node, current, &node.restores.to_string(), &node.state]);
    }
    let tables = [applied, pending, refused, others, nodes];
    tables.into_iter().filter(|table| !table.is_empty()).collect()
}
