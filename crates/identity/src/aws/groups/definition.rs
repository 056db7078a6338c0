//! A group's current definition, and whether an instance was created from it. Pure.

use std::collections::HashMap;

use aws_sdk_autoscaling::types::{AutoScalingGroup, Instance, LaunchTemplateSpecification};
use aws_sdk_ec2::types::LaunchTemplate;

const LATEST: &str = "$Latest";
const DEFAULT: &str = "$Default";

/// A group's launch configuration, or its launch templates.
#[derive(Debug)]
pub(super) struct Definition<'a> {
    configuration: Option<&'a str>,
    /// The group's own template, and the overrides of a mixed instances policy for some instance types.
    templates: Vec<Template<'a>>,
}

#[derive(Debug)]
struct Template<'a> {
    /// `None`: all instance types.
    instance_type: Option<&'a str>,
    id: &'a str,
    version: &'a str,
}

/// The current versions of launch templates, by id. A deleted template is absent.
#[derive(Debug, Default)]
pub(super) struct Versions {
    known: HashMap<String, Known>,
    /// The call was denied, so an absent template may still exist.
    denied: bool,
}

/// The match of an instance with its group's current definition, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Made {
    Now,
    /// Its template refers to a version that only EC2 can resolve, and that call was denied.
    Unresolved,
    Before,
}

#[derive(Debug)]
struct Known {
    default: Option<i64>,
    latest: Option<i64>,
}

impl<'a> Definition<'a> {
    pub(super) fn of(group: &'a AutoScalingGroup) -> Self {
        let mixed = group
            .mixed_instances_policy()
            .and_then(|policy| policy.launch_template());
        let base = group
            .launch_template()
            .or_else(|| mixed?.launch_template_specification())
            .and_then(|specification| Template::of(None, specification));
        let overrides = mixed.map_or(&[][..], |mixed| mixed.overrides());
        let overrides = overrides
            .iter()
            .filter_map(|chosen| Template::of(chosen.instance_type(), chosen.launch_template_specification()?));
        Self {
            configuration: group.launch_configuration_name(),
            templates: base.into_iter().chain(overrides).collect(),
        }
    }

    /// The ids of the templates with a version that only EC2 can resolve.
    pub(super) fn to_resolve(&self) -> Vec<&'a str> {
        let relative = self
            .templates
            .iter()
            .filter(|template| matches!(template.version, LATEST | DEFAULT));
        relative.map(|template| template.id).collect()
    }

    /// Compares the instance with the current definition. One that names neither a template nor a configuration does
    /// not: its definition was deleted.
    pub(super) fn made(&self, instance: &Instance, versions: &Versions) -> Made {
        let from = match (instance.launch_template(), instance.launch_configuration_name()) {
            (Some(from), _) => from,
            (None, Some(from)) if self.configuration == Some(from) => return Made::Now,
            (None, _) => return Made::Before,
        };
        let of_its_type = self.templates.iter().filter(|template| {
            template
                .instance_type
                .is_none_or(|meant| instance.instance_type() == Some(meant))
        });
        let made = of_its_type.map(|template| versions.made(template, from));
        made.min().unwrap_or(Made::Before)
    }
}

impl<'a> Template<'a> {
    /// AWS always returns the id, even if a group names its template.
    fn of(instance_type: Option<&'a str>, specification: &'a LaunchTemplateSpecification) -> Option<Self> {
        Some(Self {
            instance_type,
            id: specification.launch_template_id()?,
            version: specification
                .version()
                .filter(|version| !version.is_empty())
                .unwrap_or(DEFAULT),
        })
    }
}

impl Versions {
    /// The versions after a denied call.
    pub(super) fn denied() -> Self {
        Self {
            denied: true,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, templates: &[LaunchTemplate]) {
        for template in templates {
            let known = Known {
                default: template.default_version_number(),
                latest: template.latest_version_number(),
            };
            let id = template.launch_template_id().unwrap_or_default();
            self.known.insert(id.to_owned(), known);
        }
    }

    /// Compares the instance, which was created from `from`, with the current version of `template`.
    fn made(&self, template: &Template<'_>, from: &LaunchTemplateSpecification) -> Made {
        let known = |number: fn(&Known) -> Option<i64>| {
            let number = self.known.get(template.id).and_then(number);
            number.map(|number| number.to_string())
        };
        let version = match template.version {
            LATEST => known(|known| known.latest),
            DEFAULT => known(|known| known.default),
            number => Some(number.to_owned()),
        };
        match version {
            _ if from.launch_template_id() != Some(template.id) => Made::Before,
            None if self.denied => Made::Unresolved,
            Some(version) if from.version() == Some(&version) => Made::Now,
            _ => Made::Before,
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_autoscaling::types::builders::AutoScalingGroupBuilder;
    use aws_sdk_autoscaling::types::{LaunchTemplate as Mixed, LaunchTemplateOverrides, MixedInstancesPolicy};

    use super::*;

    fn specification(id: &str, version: &str) -> LaunchTemplateSpecification {
        let version = Some(version.to_owned()).filter(|version| !version.is_empty());
        let named = LaunchTemplateSpecification::builder().launch_template_id(id);
        named.launch_template_name("a-name").set_version(version).build()
    }

    fn group() -> AutoScalingGroupBuilder {
        AutoScalingGroup::builder()
    }

    fn templated(version: &str) -> AutoScalingGroup {
        group().launch_template(specification("lt-1", version)).build()
    }

    /// `lt-1`, except `lt-arm` for `m6g.large`, and the default version of `lt-any` for all types that match the
    /// requirements.
    fn mixed() -> AutoScalingGroup {
        let chosen = LaunchTemplateOverrides::builder();
        let arm = chosen.clone().instance_type("m6g.large");
        let arm = arm.launch_template_specification(specification("lt-arm", "5")).build();
        let plain = chosen.clone().instance_type("m6i.large").build();
        let any = chosen
            .launch_template_specification(specification("lt-any", ""))
            .build();
        let templates = Mixed::builder()
            .launch_template_specification(specification("lt-1", "$Latest"))
            .overrides(arm)
            .overrides(plain)
            .overrides(any)
            .build();
        let policy = MixedInstancesPolicy::builder().launch_template(templates).build();
        group().mixed_instances_policy(policy).build()
    }

    fn made_from(instance_type: &str, id: &str, version: &str) -> Instance {
        let instance = Instance::builder().instance_type(instance_type);
        instance.launch_template(specification(id, version)).build()
    }

    fn configured(name: &str) -> Instance {
        Instance::builder().launch_configuration_name(name).build()
    }

    fn versions() -> Versions {
        let mut versions = Versions::default();
        let template = |id: &str, default, latest| {
            let template = LaunchTemplate::builder().launch_template_id(id);
            template
                .default_version_number(default)
                .latest_version_number(latest)
                .build()
        };
        versions.add(&[template("lt-1", 2, 3), template("lt-any", 7, 8)]);
        versions
    }

    #[test]
    fn what_was_made_from_the_present_definition() {
        let from = |version| made_from("m6i.large", "lt-1", version);
        let by_configuration = group().launch_configuration_name("now").build();
        let gone = group().launch_template(specification("lt-gone", "$Latest")).build();
        for (what, group, instance, expected) in vec![
            ("the version by number", templated("3"), from("3"), true),
            ("another number", templated("3"), from("2"), false),
            ("the newest", templated("$Latest"), from("3"), true),
            ("not the newest", templated("$Latest"), from("2"), false),
            ("the default", templated("$Default"), from("2"), true),
            ("not the default", templated("$Default"), from("3"), false),
            ("no version is the default", templated(""), from("2"), true),
            ("no version is not the newest", templated(""), from("3"), false),
            (
                "an instance that says no version",
                templated("$Latest"),
                from(""),
                false,
            ),
            (
                "another template",
                templated("3"),
                made_from("m6i.large", "lt-2", "3"),
                false,
            ),
            (
                "a template that is gone",
                gone,
                made_from("m6i.large", "lt-gone", ""),
                false,
            ),
            ("nothing", templated("3"), Instance::builder().build(), false),
            ("a configuration, of old", templated("3"), configured("old"), false),
            ("the configuration", by_configuration.clone(), configured("now"), true),
            (
                "another configuration",
                by_configuration.clone(),
                configured("old"),
                false,
            ),
            ("a template, of old", by_configuration, from("3"), false),
            ("mixed: the base", mixed(), from("3"), true),
            ("mixed: an old base", mixed(), from("2"), false),
            (
                "mixed: its type's",
                mixed(),
                made_from("m6g.large", "lt-arm", "5"),
                true,
            ),
            (
                "mixed: its type's, old",
                mixed(),
                made_from("m6g.large", "lt-arm", "4"),
                false,
            ),
            (
                "mixed: another type's",
                mixed(),
                made_from("m6i.large", "lt-arm", "5"),
                false,
            ),
            (
                "mixed: by requirements",
                mixed(),
                made_from("c7i.large", "lt-any", "7"),
                true,
            ),
        ] {
            let expected = if expected { Made::Now } else { Made::Before };
            assert_eq!(Definition::of(&group).made(&instance, &versions()), expected, "{what}");
        }
    }

    #[test]
    fn what_we_may_not_ask_for_is_not_guessed() {
        let from = |version| made_from("m6i.large", "lt-1", version);
        for (what, group, instance, expected) in [
            ("a number needs no query", templated("3"), from("3"), Made::Now),
            ("nor does another one", templated("3"), from("2"), Made::Before),
            (
                "nor another template",
                templated("$Latest"),
                made_from("m6i.large", "lt-2", "3"),
                Made::Before,
            ),
            ("the newest", templated("$Latest"), from("3"), Made::Unresolved),
            ("the default", templated(""), from("3"), Made::Unresolved),
            (
                "mixed: its type's",
                mixed(),
                made_from("m6g.large", "lt-arm", "5"),
                Made::Now,
            ),
            ("mixed: the base", mixed(), from("3"), Made::Unresolved),
        ] {
            assert_eq!(
                Definition::of(&group).made(&instance, &Versions::denied()),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn only_what_is_relative_is_asked_for() {
        let asked = |group: &AutoScalingGroup| Definition::of(group).to_resolve().join(" ");
        for (group, ids) in [
            (templated("3"), ""),
            (templated("$Latest"), "lt-1"),
            (templated(""), "lt-1"),
            (mixed(), "lt-1 lt-any"),
            (group().launch_configuration_name("now").build(), ""),
        ] {
            assert_eq!(asked(&group), ids);
        }
    }
}
