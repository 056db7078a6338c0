//! In which order bindings are written and deleted, so that a right that stays is never missing. Pure.
//!
//! A finalizer of others may keep a binding that is deleted. It is emptied, so that it gives nothing, and a stand-in
//! gives what it gave until it is gone.

use tidewaiter_api::access::Subject;

use super::object::{Binding, role_of};

/// The end of the name of a stand-in.
pub(crate) const STAND_IN: &str = "-next";

/// The role and the place of a desired binding.
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
    /// True if it is being deleted: a finalizer keeps it.
    deleting: bool,
    /// True if a finalizer will keep it when it is deleted.
    finalizers: bool,
    /// True if it gives nobody anything.
    empty: bool,
}

impl Existing {
    pub(super) fn of(binding: &impl Binding) -> Self {
        let meta = binding.meta();
        Self {
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            role: role_of(binding).map(str::to_owned),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta
                .finalizers
                .as_ref()
                .is_some_and(|finalizers| !finalizers.is_empty()),
            empty: binding.is_empty(),
        }
    }

    /// Returns true if it gives the role in the namespace, or everywhere without one.
    pub(super) fn gives(&self, role: &str, namespace: Option<&str>) -> bool {
        self.role.as_deref() == Some(role) && self.namespace.as_deref() == namespace
    }

    /// The step that removes it. A binding that a finalizer retains, or will retain, is emptied, and deleted when that
    /// is seen: each write is conditional.
    fn removal(&self) -> Option<Step> {
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        if !self.goes() && !self.empty {
            Some(Step::Empty { namespace, name })
        } else {
            (!self.deleting).then_some(Step::Delete { namespace, name })
        }
    }

    /// Returns true if its name is free once it is deleted.
    fn goes(&self) -> bool {
        !self.deleting && !self.finalizers
    }
}

/// The finalizers of others keep these, which give nothing any more.
pub(super) fn kept(existing: &[Existing]) -> Vec<String> {
    let kept = existing.iter().filter(|it| it.deleting);
    let name = |it: &Existing| match &it.namespace {
        Some(namespace) => format!("RoleBinding {namespace}/{}", it.name),
        None => format!("ClusterRoleBinding {}", it.name),
    };
    kept.map(name).collect()
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Makes the binding of this name as the target. `fresh` when there was another one of the name, which the step
    /// before deleted.
    Put {
        namespace: Option<String>,
        name: String,
        fresh: bool,
    },
    /// Takes the subjects of the binding of this name.
    Empty { namespace: Option<String>, name: String },
    /// Deletes the binding of this name.
    Delete { namespace: Option<String>, name: String },
}

impl Step {
    pub(super) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Put { namespace, .. } | Self::Empty { namespace, .. } | Self::Delete { namespace, .. } => {
                namespace.as_deref()
            }
        }
    }

    /// Returns true if it takes a right away and gives none.
    pub(super) fn removes(&self) -> bool {
        !matches!(self, Self::Put { .. })
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Put { name, .. } | Self::Empty { name, .. } | Self::Delete { name, .. } => name,
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

/// The writes, one after the other: first what gives the rights of the target, then the removal of everything else.
pub(super) fn plan(name: &str, target: Option<&Target>, existing: &[Existing]) -> Vec<Step> {
    let stand_in = stand_in(name);
    let (mut steps, mut kept) = (Vec::new(), Vec::new());
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
        let serves = |it: &Existing| it.role.as_ref() == Some(&target.role) && !it.deleting;
        match here(name).filter(|it| !serves(it)) {
            None => {
                steps.push(put(name, false));
                kept.push(name);
            }
            Some(replaced) => {
                let outdated = here(&stand_in).filter(|it| !serves(it));
                steps.extend(outdated.and_then(Existing::removal));
                if outdated.is_none_or(Existing::goes) {
                    steps.push(put(&stand_in, outdated.is_some()));
                }
                steps.extend(replaced.removal());
                if replaced.goes() {
                    steps.push(put(name, true));
                    steps.push(Step::Delete {
                        namespace: target.namespace.clone(),
                        name: stand_in.clone(),
                    });
                }
                kept.extend([name, stand_in.as_str()]);
            }
        }
    }
    let stays = |it: &Existing| {
        let here = target.is_some_and(|target| it.namespace == target.namespace);
        here && kept.contains(&it.name.as_str())
    };
    let others = existing.iter().filter(|it| !stays(it));
    steps.extend(others.filter_map(Existing::removal));
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
            deleting: false,
            finalizers: false,
            empty: false,
        }
    }

    /// A binding with a finalizer.
    fn held(it: Existing) -> Existing {
        Existing { finalizers: true, ..it }
    }

    /// It is being deleted, and a finalizer keeps it.
    fn deleting(it: Existing) -> Existing {
        Existing {
            deleting: true,
            ..held(it)
        }
    }

    fn emptied(it: Existing) -> Existing {
        Existing { empty: true, ..it }
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
                Step::Empty { .. } => "0",
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
            // A finalizer will keep it, keeps it, and gave way.
            (None, vec![held(there("", "b", "r"))], "0b"),
            (None, vec![emptied(held(there("", "b", "r")))], "-b"),
            (None, vec![deleting(there("", "b", "r"))], "0b"),
            (None, vec![emptied(deleting(there("", "b", "r")))], ""),
            (
                None,
                vec![emptied(deleting(there("", "b", "r"))), there("", "b-next", "r")],
                "-b-next",
            ),
            (Some(target("", "r")), vec![held(there("", "b", "q"))], "=b-next 0b"),
            (
                Some(target("", "r")),
                vec![emptied(held(there("", "b", "q"))), there("", "b-next", "r")],
                "=b-next -b",
            ),
            (
                Some(target("", "r")),
                vec![emptied(deleting(there("", "b", "q"))), there("", "b-next", "r")],
                "=b-next",
            ),
            (Some(target("", "r")), vec![deleting(there("", "b", "r"))], "=b-next 0b"),
            (Some(target("n", "r")), vec![deleting(there("", "b", "r"))], "=n/b 0b"),
            // It keeps the stand-in, too: nothing can be bound.
            (
                Some(target("", "s")),
                vec![deleting(there("", "b", "q")), deleting(there("", "b-next", "r"))],
                "0b-next 0b",
            ),
        ] {
            assert_eq!(planned(target.as_ref(), &existing), expected, "{existing:?}");
        }
    }
}
