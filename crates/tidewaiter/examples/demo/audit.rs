//! The writes that the API server received during the story, in a form in which two runs of the same version are equal.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use tidewaiter_testkit::{Audit, AuditEntry};

/// The user that the API server is to itself.
const API_SERVER: &str = "system:apiserver";

/// Writes one line for each write, sorted: user, verb, resource, namespace and name of the object, status code.
///
/// How often a Lease is renewed depends on the time alone, so equal lines about Leases are one line. What the API server itself writes
/// when it starts is left out: it differs from run to run.
#[expect(clippy::disallowed_methods, reason = "nobody reads the file before the demo ends")]
pub fn write(file: &Path, audit: &Audit) -> Result<()> {
    let writes = || {
        audit
            .iter()
            .filter(|entry| entry.is_write() && entry.user.username != API_SERVER)
    };
    let is_lease = |entry: &&AuditEntry| entry.object_ref.resource == "leases";
    let leases: BTreeSet<String> = writes().filter(is_lease).map(line).collect();
    let mut lines: Vec<String> = writes()
        .filter(|entry| !is_lease(entry))
        .map(line)
        .chain(leases)
        .collect();
    lines.sort();
    lines.push(String::new());
    std::fs::write(file, lines.join("\n")).with_context(|| format!("{} cannot be written", file.display()))
}

fn line(entry: &AuditEntry) -> String {
    let about = &entry.object_ref;
    // The second part of an Event's name is random.
    let name = match about.name.rsplit_once('.') {
        Some((regarding, _)) if about.resource == "events" => format!("{regarding}.*"),
        _ => about.name.clone(),
    };
    let path = [&about.resource, &about.subresource, &about.namespace, &name].map(String::as_str);
    let path: Vec<&str> = path.into_iter().filter(|part| !part.is_empty()).collect();
    let (user, verb, code) = (&entry.user.username, &entry.verb, entry.response_status.code);
    format!("{user} {verb} {} {code}", path.join("/"))
}
