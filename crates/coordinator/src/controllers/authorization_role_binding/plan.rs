//! In which order bindings are written and deleted, so that a right that stays is never missing. Pure.

use tidewaiter_api::access::Subject;

use super::object::{Binding, role_of};

/// The end of the name of a stand-in.
pub(crate) const STAND_IN: &str = "-next";

/// What is to be bound, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// None for the whole cluster.
    pub(super) namespace: Option<String>,
    pub(super) role: String,
    pub(super) subject: Subject,
}

/// A binding of ours that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Existing {
    namespace: Option<String>,
    name: String,
    /// The `ClusterRole` that it binds.
    role: Option<String>,
}

impl Existing {
    pub(super) fn of(binding: &impl Binding) -> Self {
        let meta = binding.meta();
        Self {
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            role: role_of(binding).map(str::to_owned),
        }
    }
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Makes the binding of this name as the target. `fresh` when there was another one of the name, which the step before deleted.
    Put {
        namespace: Option<String>,
        name: String,
        fresh: bool,
    },
    /// Deletes the binding of this name.
    Delete { namespace: Option<String>, name: String },
}

impl Step {
    pub(super) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Put { namespace, .. } | Self::Delete { namespace, .. } => namespace.as_deref(),
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Put { name, .. } | Self::Delete { name, .. } => name,
        }
    }
}

/// The name of the stand-in for a binding.
pub(super) fn stand_in(name: &str) -> String {
    format!("{name}{STAND_IN}")
}

/// The name of the `AuthorizationRoleBinding` of a binding.
pub(super) fn id_of(name: &str) -> &str {
    name.strip_suffix(STAND_IN).unwrap_or(name)
}

/// The writes, one after the other: first what gives the rights of the target, then the deletion of everything else.
pub(super) fn plan(name: &str, target: Option<&Target>, existing: &[Existing]) -> Vec<Step> {
    let mut steps = Vec::new();
    let delete = |it: &Existing| Step::Delete {
        namespace: it.namespace.clone(),
        name: it.name.clone(),
    };
    if let Some(target) = target {
        let put = |name: &str, fresh| Step::Put {
            namespace: target.namespace.clone(),
            name: name.to_owned(),
            fresh,
        };
        let here = |name: &str| {
            let mut all = existing.iter();
            all.find(|it| it.namespace == target.namespace && it.name == name)
        };
        let binds = |it: &Existing| it.role.as_ref() == Some(&target.role);
        let replaced = here(name).filter(|it| !binds(it));
        if let Some(replaced) = replaced {
            let stand_in = stand_in(name);
            let outdated = here(&stand_in).filter(|it| !binds(it));
            steps.extend(outdated.map(delete));
            steps.push(put(&stand_in, outdated.is_some()));
            steps.push(delete(replaced));
            steps.push(put(name, true));
            steps.push(Step::Delete {
                namespace: target.namespace.clone(),
                name: stand_in,
            });
        } else {
            steps.push(put(name, false));
        }
    }
    let kept = |it: &Existing| target.is_some_and(|target| it.namespace == target.namespace && it.name == name);
    let planned: Vec<Step> = existing.iter().filter(|it| !kept(it)).map(delete).collect();
    steps.extend(
        planned
            .into_iter()
            .filter(|step| !steps.contains(step))
            .collect::<Vec<_>>(),
    );
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(namespace: &str, role: &str) -> Target {
        Target {
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            role: role.to_owned(),
            subject: Subject::User("u".to_owned()),
        }
    }

    fn there(namespace: &str, name: &str, role: &str) -> Existing {
        Existing {
            namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
            name: name.to_owned(),
            role: (!role.is_empty()).then(|| role.to_owned()),
        }
    }

    fn planned(target: Option<&Target>, existing: &[Existing]) -> String {
        let steps = plan("b", target, existing).into_iter().map(|step| {
            let place = step
                .namespace()
                .map(|namespace| format!("{namespace}/"))
                .unwrap_or_default();
            let sign = match step {
                Step::Put { fresh: false, .. } => "=",
                Step::Put { fresh: true, .. } => "+",
                Step::Delete { .. } => "-",
            };
            format!("{sign}{place}{}", step.name())
        });
        steps.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_gives_the_rights_comes_first() {
        for (target, existing, expected) in [
            (Some(target("", "r")), vec![], "=b"),
            (Some(target("n", "r")), vec![], "=n/b"),
            (Some(target("", "r")), vec![there("", "b", "r")], "=b"),
            (None, vec![there("", "b", "r"), there("n", "b", "r")], "-b -n/b"),
            (None, vec![], ""),
            // It moves.
            (Some(target("n", "r")), vec![there("", "b", "r")], "=n/b -b"),
            (
                Some(target("", "r")),
                vec![there("n", "b", "q"), there("m", "b", "r")],
                "=b -n/b -m/b",
            ),
            // Another role.
            (
                Some(target("", "r")),
                vec![there("", "b", "q")],
                "=b-next -b +b -b-next",
            ),
            (
                Some(target("n", "r")),
                vec![there("n", "b", "")],
                "=n/b-next -n/b +n/b -n/b-next",
            ),
            // After a crash between any two of these.
            (
                Some(target("", "r")),
                vec![there("", "b", "q"), there("", "b-next", "r")],
                "=b-next -b +b -b-next",
            ),
            (Some(target("", "r")), vec![there("", "b-next", "r")], "=b -b-next"),
            (
                Some(target("", "r")),
                vec![there("", "b", "r"), there("", "b-next", "r")],
                "=b -b-next",
            ),
            // And then another role again.
            (
                Some(target("", "s")),
                vec![there("", "b", "q"), there("", "b-next", "r")],
                "-b-next +b-next -b +b -b-next",
            ),
        ] {
            assert_eq!(planned(target.as_ref(), &existing), expected, "{existing:?}");
        }
    }
}
