//! The effect of changed rules of a role: the permissions that each person gains and loses, in which clusters.
//!
//! A permission that a person also has by another binding, in the same clusters and namespaces, is neither gained nor
//! lost.

use serde_json::Value;

use super::directory::{Bindings, Directory};
use super::rule::{Permission, Rule, permissions};
use super::teams::teams_of_people;
use super::value::{list, text};

/// The maximum number of people whose permissions are compared.
pub(super) const MAX_PEOPLE: usize = 100;
/// The maximum number of words in the rules that are compared: a page takes no more time of the server.
const MAX_WORDS: usize = 2_000;

/// The effect on one person by one binding.
#[derive(Debug)]
pub(super) struct Effect<'a> {
    pub(super) user: &'a str,
    pub(super) binding: &'a Value,
    pub(super) gained: Vec<Permission<'a>>,
    pub(super) lost: Vec<Permission<'a>>,
}

/// The effects of `after` in place of `before` as the rules of `role`, for at most [`MAX_PEOPLE`] people. `None` if the
/// rules have more than [`MAX_WORDS`].
pub(super) fn effects<'a>(
    directory: &'a Directory,
    bindings: &'a Bindings,
    role: &str,
    (before, after): (&'a [Rule], &'a [Rule]),
) -> Option<Vec<Effect<'a>>> {
    if before.iter().chain(after).map(Rule::words).sum::<usize>() > MAX_WORDS {
        return None;
    }
    let (gained, lost) = (missing(after, before), missing(before, after));
    let teams = teams_of_people(directory.teams());
    let affected = bindings
        .live()
        .filter(|binding| text(binding, "authorization_role_id") == role);
    let affected = affected.flat_map(|binding| directory.people_of(binding).map(move |user| (user, binding)));
    let effect = |(user, binding): (&'a str, &'a Value)| {
        let teams = teams.get(user).map(Vec::as_slice).unwrap_or_default();
        let own = bindings.live().filter(|other| is_of(other, user, teams));
        let others = other_rules(own, directory, role, binding);
        let not_by_others = |all: &[Permission<'a>]| -> Vec<_> {
            let all = all.iter().copied();
            all.filter(|permission| !is_given(&others, permission)).collect()
        };
        Effect {
            user,
            binding,
            gained: not_by_others(&gained),
            lost: not_by_others(&lost),
        }
    };
    let effects = affected.take(MAX_PEOPLE).map(effect);
    Some(
        effects
            .filter(|effect| !effect.gained.is_empty() || !effect.lost.is_empty())
            .collect(),
    )
}

/// Returns true if the binding is one of the user, or of one of these teams.
fn is_of(binding: &Value, user: &str, teams: &[&Value]) -> bool {
    let team = text(binding, "team_id");
    if team.is_empty() {
        text(binding, "user_id") == user
    } else {
        teams.iter().any(|own| text(own, "id") == team)
    }
}

/// The rules that the bindings `own` of other roles give wherever `binding` applies, as far as they have at most
/// [`MAX_WORDS`].
fn other_rules<'a>(
    own: impl Iterator<Item = &'a Value>,
    directory: &Directory,
    role: &str,
    binding: &Value,
) -> Vec<Rule> {
    let includes = |other: &&Value| {
        ["cluster_id", "namespace"].into_iter().all(|field| {
            let wide = text(other, field);
            wide.is_empty() || wide == text(binding, field)
        })
    };
    let others = own.filter(includes).map(|other| text(other, "authorization_role_id"));
    let others = others
        .filter(|other| *other != role)
        .filter_map(|other| directory.role(other));
    let mut words = 0;
    let rules = others.flat_map(|role| list(role, "rules").map(Rule::of));
    let few = rules.take_while(|rule| {
        words += rule.words();
        words <= MAX_WORDS
    });
    few.collect()
}

/// The permissions of `rules` that `others` do not give.
fn missing<'a>(rules: &'a [Rule], others: &[Rule]) -> Vec<Permission<'a>> {
    let all = permissions(rules).into_iter();
    all.filter(|permission| !is_given(others, permission)).collect()
}

fn is_given(rules: &[Rule], permission: &Permission<'_>) -> bool {
    rules.iter().any(|rule| rule.gives(permission))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(resource: &str, verbs: &[&str]) -> Rule {
        Rule::of(&json!({"type": "kubernetes", "api_groups": [""], "resources": [resource], "verbs": verbs}))
    }

    fn shown(effects: &[Effect<'_>]) -> Vec<String> {
        let all = |all: &[Permission<'_>]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let shown = effects
            .iter()
            .map(|effect| format!("{} +[{}] -[{}]", effect.user, all(&effect.gained), all(&effect.lost)));
        shown.collect()
    }

    #[test]
    fn a_person_gains_and_loses_what_no_other_binding_gives() {
        let directory = Directory::of(
            json!([{"id": "night", "user_ids": ["alice", "bob"]}]),
            json!([{"id": "reader", "rules": []}, {"id": "other", "rules": [rule("pods", &["list"]).to_value()]}]),
        );
        let binding = |user: &str, team: &str, role: &str, cluster: &str| {
            let of_user = json!({"user_id": user, "authorization_role_id": role, "cluster_id": cluster});
            let of_team = json!({"team_id": team, "authorization_role_id": role, "cluster_id": cluster});
            if team.is_empty() { of_user } else { of_team }
        };
        let mut ended = binding("carol", "", "reader", "");
        ended["expires_at"] = json!("2020-01-01T00:00:00Z");
        let bindings = Bindings::of(vec![
            binding("", "night", "reader", "prod"),
            binding("alice", "", "other", "prod"),
            binding("bob", "", "other", "test"),
            ended,
        ]);
        let (before, after) = (
            [rule("pods", &["get", "list"])],
            [rule("pods", &["get"]), rule("nodes", &["get"])],
        );
        let found = effects(&directory, &bindings, "reader", (&before, &after)).unwrap();
        assert_eq!(
            shown(&found),
            ["alice +[get nodes] -[]", "bob +[get nodes] -[list pods]"]
        );
        let same = effects(&directory, &bindings, "reader", (&before, &before)).unwrap();
        assert!(same.is_empty(), "{same:?}");
        let many = vec![rule("pods", &["get"]); MAX_WORDS];
        assert!(effects(&directory, &bindings, "reader", (&before, &many)).is_none());
    }
}
