//! A complete response of the cloud: its nodes, and the errors of the malformed ones.

use std::collections::BTreeSet;

use tidewaiter_api::{LabelValue, NodeName};
use tidewaiter_cloud::client::ETag;
use tidewaiter_cloud::models::{self, InvalidItem};
use uuid::Uuid;

use super::stored::ById;

/// A complete response.
pub(super) struct Listed {
    pub(super) etag: Option<ETag>,
    /// The nodes that have names. A malformed node keeps what it was.
    pub(super) by_id: ById,
    /// The ids of all nodes, as far as they can be read.
    ids: BTreeSet<Uuid>,
    /// The errors of the malformed nodes, so that each is logged once.
    malformed: BTreeSet<String>,
}

impl Listed {
    pub(super) fn of(nodes: Vec<Result<models::Node, InvalidItem>>, etag: Option<ETag>, before: Option<&ById>) -> Self {
        let mut malformed: BTreeSet<String> = nodes
            .iter()
            .filter_map(|node| Some(node.as_ref().err()?.error.to_string()))
            .collect();
        let (mut ids, mut twice) = (BTreeSet::new(), BTreeSet::new());
        let all = nodes.iter().filter_map(|node| match node {
            Ok(node) => Some(node.id.0),
            Err(invalid) => invalid.id,
        });
        twice.extend(all.filter(|id| !ids.insert(*id)));
        let mut by_id: ById = nodes.into_iter().filter_map(|node| known(node, before)).collect();
        // Which of the two is meant cannot be known.
        for id in twice {
            malformed.insert(format!("the id {id} occurs twice in the list"));
            by_id.remove(&id);
            let kept = before.and_then(|before| before.get(&id));
            by_id.extend(kept.map(|kept| (id, kept.clone())));
        }
        Self {
            etag,
            by_id,
            ids,
            malformed,
        }
    }

    /// The nodes of `before` that it lacks, unless it has another node of the name.
    pub(super) fn missing<'a>(&self, before: &'a ById) -> impl Iterator<Item = (&'a Uuid, &'a (NodeName, LabelValue))> {
        let names: BTreeSet<&NodeName> = self.by_id.values().map(|(name, _)| name).collect();
        let is_missing = move |id: &Uuid, name: &NodeName| !self.ids.contains(id) && !names.contains(name);
        before.iter().filter(move |(id, (name, _))| is_missing(id, name))
    }

    /// The errors of malformed nodes that `before` did not have.
    pub(super) fn new_malformed<'a>(&'a self, before: Option<&'a Self>) -> impl Iterator<Item = &'a String> {
        let is_new = move |error: &&String| before.is_none_or(|before| !before.malformed.contains(*error));
        self.malformed.iter().filter(is_new)
    }
}

/// The name and the node pool of a node. A malformed node keeps those of `before`.
fn known(node: Result<models::Node, InvalidItem>, before: Option<&ById>) -> Option<(Uuid, (NodeName, LabelValue))> {
    match node {
        Ok(node) => {
            // A UUID is a label value.
            let pool = node.node_pool_id.to_string().parse().ok()?;
            Some((node.id.0, (node.spec.name?, pool)))
        }
        Err(invalid) => {
            let id = invalid.id?;
            let kept = before.and_then(|before| before.get(&id))?;
            Some((id, kept.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidewaiter_cloud::models::{Unknown, parse_each};

    use super::*;

    const POOL: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";

    fn id(number: u8) -> String {
        format!("9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d{number:02}")
    }

    fn node(number: u8, name: &Value) -> Value {
        json!({"id": id(number), "name": name, "created_at": "1", "updated_at": "1", "node_pool_id": POOL})
    }

    #[test]
    fn a_malformed_node_keeps_its_last_state_and_hides_no_other() {
        let listed = |nodes: &[Value], before: Option<&ById>| {
            let nodes = parse_each(json!(nodes).to_string().as_bytes(), Unknown::Ignore).unwrap();
            Listed::of(nodes, None, before)
        };
        let names = |listed: &Listed| {
            let names = ["a", "b", "c"].into_iter();
            names
                .filter(|name| listed.by_id.values().any(|(node, _)| node.as_str() == *name))
                .collect::<Vec<_>>()
        };
        let (bad, unnamed) = (json!("not a name"), Value::Null);
        let before = listed(&[node(1, &json!("a")), node(2, &json!("b")), node(3, &unnamed)], None);
        assert_eq!(names(&before), ["a", "b"]);
        let after = listed(
            &[node(1, &bad), node(3, &json!("c")), node(4, &bad)],
            Some(&before.by_id),
        );
        assert_eq!(names(&after), ["a", "c"]);
        let news = |now: &Listed, before| now.new_malformed(before).count();
        assert_eq!((news(&before, None), news(&after, Some(&before))), (0, 2));
        let again = listed(
            &[node(1, &bad), node(3, &json!("d")), node(4, &bad)],
            Some(&after.by_id),
        );
        assert_eq!(
            news(&again, Some(&after)),
            0,
            "another list with the same malformed nodes"
        );
        assert_eq!(news(&again, Some(&before)), 2);
        assert_eq!(names(&listed(&[node(3, &json!("c"))], Some(&after.by_id))), ["c"]);
    }
}
