//! The server's records: a copy of its database, read line by line, and checked against itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A change, as its audit row tells of it.
#[derive(Clone, Debug)]
pub struct Change {
    pub number: i64,
    pub organization: String,
    pub cluster: String,
    pub kind: String,
    pub object: String,
    pub action: String,
    /// Null when it was not there.
    pub before: Value,
    /// Null when it is not there any more.
    pub after: Value,
}

/// An object: what a person said of it, with its status.
pub type Objects = BTreeMap<(String, String), Value>;

/// A copy.
#[derive(Debug)]
pub struct Ledger {
    pub changes: Vec<Change>,
    pub objects: Objects,
    /// The hidden column of each object.
    pub secrets: BTreeMap<(String, String), String>,
    /// Every row, without head and foot.
    pub lines: BTreeSet<String>,
}

impl Ledger {
    /// Reads a copy. What it has must agree with itself: the numbers of its changes have no hole, and its objects are
    /// what its changes, one after the other, made of them.
    pub fn read(text: &str) -> Self {
        let mut ledger = Self {
            changes: Vec::new(),
            objects: Objects::new(),
            secrets: BTreeMap::new(),
            lines: BTreeSet::new(),
        };
        let mut last = None;
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[1..lines.len() - 1] {
            ledger.lines.insert((*line).to_owned());
            let row: Value = serde_json::from_str(line).unwrap();
            match row[0].as_str().unwrap() {
                "sequence" => last = row[1][1].as_i64(),
                "objects" => ledger.object(&row[1]),
                "changes" => ledger.changes.push(change(&row[1])),
                _ => {}
            }
        }
        let numbers: Vec<i64> = ledger.changes.iter().map(|change| change.number).collect();
        let wanted: Vec<i64> = (1..=last.expect("a copy has its sequence")).collect();
        assert_eq!(numbers, wanted, "the changes have holes");
        assert_eq!(
            fold(&ledger.changes),
            ledger.objects,
            "the audit and the objects do not agree"
        );
        ledger
    }

    fn object(&mut self, columns: &Value) {
        let text = |place: usize| columns[place].as_str().unwrap();
        let key = (text(0).to_owned(), text(1).to_owned());
        self.secrets.insert(key.clone(), text(11).to_owned());
        self.objects.insert(key, shown(text(9), text(10)));
    }

    /// The changes of one kind, object by object.
    pub fn of_kind(&self, kind: &str) -> BTreeMap<String, Vec<Change>> {
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.kind == kind) {
            found.entry(change.object.clone()).or_default().push(change.clone());
        }
        found
    }
}

fn shown(spec: &str, status: &str) -> Value {
    let mut shown: Value = serde_json::from_str(spec).unwrap();
    if !status.is_empty() {
        shown["status"] = serde_json::from_str(status).unwrap();
    }
    shown
}

fn change(columns: &Value) -> Change {
    let text = |place: usize| columns[place].as_str().unwrap().to_owned();
    let document = |place: usize| serde_json::from_str(&text(place)).unwrap_or_default();
    Change {
        number: columns[0].as_i64().unwrap(),
        organization: text(2),
        cluster: text(3),
        kind: text(4),
        object: text(5),
        action: text(6),
        before: document(9),
        after: document(10),
    }
}

/// Returns the objects that `changes` produce, each change on the state before it.
pub fn fold(changes: &[Change]) -> Objects {
    let mut objects = Objects::new();
    for change in changes {
        // Operators see a copy of what came and went, and rows of counts are no changes.
        let is_copy = change.kind == "organizations" && change.organization.is_empty();
        if is_copy || ["failed-login", "read", "issue"].contains(&&*change.action) {
            continue;
        }
        let key = (change.kind.clone(), change.object.clone());
        let there = objects.get(&key).cloned().unwrap_or_default();
        match change.action.as_str() {
            "create" => {
                assert!(there.is_null() && change.before.is_null(), "{change:?}");
                objects.insert(key, change.after.clone());
            }
            "delete" => {
                assert!(change.after.is_null(), "{change:?}");
                assert_eq!(there, change.before, "{change:?}");
                objects.remove(&key);
            }
            // Its changes, forwards and backwards.
            _ => {
                assert!(!there.is_null(), "{change:?}");
                let mut next = there.clone();
                json_patch::merge(&mut next, &change.after);
                let mut back = next.clone();
                json_patch::merge(&mut back, &change.before);
                assert_eq!(there, back, "{change:?}");
                objects.insert(key, next);
            }
        }
    }
    objects
}
