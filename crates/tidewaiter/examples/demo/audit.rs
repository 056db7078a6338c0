//! The writes that the API server received during the story, in a form in which two runs of the same version are equal.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use tidewaiter_testkit::{Audit, AuditEntry};

use crate::coordinator;

/// The user that the API server is to itself.
const API_SERVER: &str = "system:apiserver";

/// Writes one line for each write, sorted: user, verb, resource, namespace and name of the object, status code.
///
/// The number of renewals of a Lease, and of writes by which the coordinator follows a series of changes in the cloud,
/// depends on the time alone, so equal lines about Leases and of the coordinator are one line, without a status code.
/// Writes of the API server itself when it starts are left out: it differs from run to run. The ids of the cloud are
/// shown as `ID`.
#[expect(clippy::disallowed_methods, reason = "nobody reads the file before the demo ends")]
pub fn write(file: &Path, audit: &Audit) -> Result<()> {
    let writes = || {
        audit
            .iter()
            .filter(|entry| entry.is_write() && entry.user.username != API_SERVER)
    };
    let coordinator = coordinator::identity().username();
    let is_repeated = |entry: &&AuditEntry| entry.object_ref.resource == "leases" || entry.user.username == coordinator;
    let repeated: BTreeSet<String> = writes().filter(is_repeated).map(what).collect();
    let once = writes().filter(|entry| !is_repeated(entry));
    let mut lines: Vec<String> = once
        .map(|entry| format!("{} {}", what(entry), entry.response_status.code))
        .chain(repeated)
        .collect();
    lines.sort();
    lines.push(String::new());
    std::fs::write(file, lines.join("\n")).with_context(|| format!("{} cannot be written", file.display()))
}

/// User, verb and object.
fn what(entry: &AuditEntry) -> String {
    let about = &entry.object_ref;
    // The second part of an Event's name is random.
    let name = match about.name.rsplit_once('.') {
        Some((regarding, _)) if about.resource == "events" => format!("{regarding}.*"),
        _ => about.name.clone(),
    };
    let path = [&about.resource, &about.subresource, &about.namespace, &name].map(String::as_str);
    let path = path.into_iter().filter(|part| !part.is_empty()).map(without_id);
    let (user, verb) = (&entry.user.username, &entry.verb);
    format!("{user} {verb} {}", path.collect::<Vec<_>>().join("/"))
}

/// A name without the id at its end, if it has one.
fn without_id(name: &str) -> String {
    const ID: usize = 36;
    let (stem, rest) = name.split_once(".*").map_or((name, ""), |(stem, _)| (stem, ".*"));
    let cut = stem.len().checked_sub(ID).filter(|cut| stem.is_char_boundary(*cut));
    match cut.filter(|cut| stem[*cut..].matches('-').count() == 4) {
        Some(cut) => format!("{}ID{rest}", &stem[..cut]),
        None => name.to_owned(),
    }
}
