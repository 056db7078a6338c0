use super::*;

#[test]
fn untrusted_text_is_escaped_and_truncated() {
    let hostile = format!("\u{1b}[31m\n{}", "x".repeat(10_000));
    for refusal in [
        Refusal::NotInGroup {
            instance: "i-1".to_owned(),
            mark: Mark::Tag,
            value: Some(hostile.clone()),
        },
        Refusal::NotManaged {
            instance: "i-1".to_owned(),
            why: NotManaged::NoGroup(hostile.clone()),
        },
        Refusal::ForeignProject {
            instance: "i-1".to_owned(),
            mark: Mark::Tag,
            theirs: Some(hostile),
            ours: "cluster.example.com".parse().unwrap(),
        },
        Refusal::InvalidProviderId {
            provider_id: format!("aws://{}", "x".repeat(500)).parse().unwrap(),
            rule: "is no instance",
        },
    ] {
        let text = refusal.to_string();
        assert!(text.len() < 300, "{text}");
        assert!(!text.contains(char::is_control), "{text:?}");
    }
}

#[test]
fn a_long_list_is_truncated() {
    let refusal = Refusal::AddressMismatch {
        instance: "i-1".to_owned(),
        node: "a".parse().unwrap(),
        actual: (0..750_u16)
            .map(|n| IpAddr::from([10, 1, n.to_be_bytes()[0], n.to_be_bytes()[1]]))
            .collect(),
    };
    let text = refusal.to_string();
    assert!(text.ends_with("10.1.0.3 and 746 more"), "{text}");
}

#[test]
fn texts_read_as_sentences() {
    let ours: ClusterName = "ours.example.com".parse().unwrap();
    let unavailable = |detail: &str| Refusal::Unavailable {
        api: "ec2:DescribeInstances",
        cause: UnavailableCause::Denied,
        detail: detail.to_owned(),
    };
    for (refusal, text) in [
        (
            Refusal::ForeignProject {
                instance: "i-1".to_owned(),
                mark: Mark::Tag,
                theirs: Some("theirs".to_owned()),
                ours: ours.clone(),
            },
            "instance i-1 belongs to \"theirs\", not to ours.example.com",
        ),
        (
            Refusal::ForeignProject {
                instance: "i-1".to_owned(),
                mark: Mark::Tag,
                theirs: None,
                ours,
            },
            "instance i-1 has no tag that assigns it to ours.example.com",
        ),
        (
            Refusal::NotManaged {
                instance: "z/n".to_owned(),
                why: NotManaged::NotListed("zones/z/instanceGroupManagers/g".to_owned()),
            },
            "instance z/n claims to be created by zones/z/instanceGroupManagers/g, which does not list it",
        ),
        (
            Refusal::NotManaged {
                instance: "z/n".to_owned(),
                why: NotManaged::TemplateWithoutGroup {
                    template: "global/instanceTemplates/t".to_owned(),
                    group: None,
                },
            },
            "instance z/n is created from global/instanceTemplates/t, which names no instance group",
        ),
        (
            unavailable("UnauthorizedOperation"),
            "ec2:DescribeInstances: permission denied (UnauthorizedOperation)",
        ),
        (unavailable(""), "ec2:DescribeInstances: permission denied"),
    ] {
        assert_eq!(refusal.to_string(), text);
    }
}

/// A cloud's call, its mark, the messages when the mark is missing, and the remedies for a missing mark, a denied call
/// and missing credentials.
type Cloud = (&'static str, Mark, [&'static str; 2], [&'static str; 3]);

#[test]
fn messages_use_the_terms_of_the_cloud() {
    const CLOUDS: [Cloud; 3] = [
        (
            "ec2:DescribeInstances",
            Mark::Tag,
            ["no tag that assigns it", "no tag that names its instance group"],
            [
                "tags that kOps sets on the instance",
                "permission for this call",
                "an instance profile that the pod can reach, or a role for its service account. If there are some, check the clock",
            ],
        ),
        (
            "hcloud:servers.list",
            Mark::Label,
            ["no label that assigns it", "no label that names its instance group"],
            [
                "labels that kOps sets on the server",
                "token with read permission",
                "HCLOUD_TOKEN",
            ],
        ),
        (
            "gce:compute.instances.get",
            Mark::Template,
            [
                "no template metadata that assigns it",
                "no template metadata that names its instance group",
            ],
            [
                "new instance template",
                "roles/compute.viewer",
                "GOOGLE_APPLICATION_CREDENTIALS. If there are some, check the clock",
            ],
        ),
    ];
    for (api, mark, told, remedies) in CLOUDS {
        let foreign = Refusal::ForeignProject {
            instance: "1".to_owned(),
            mark,
            theirs: None,
            ours: "ours.example.com".parse().unwrap(),
        };
        let no_group = Refusal::NotInGroup {
            instance: "1".to_owned(),
            mark,
            value: None,
        };
        for (refusal, text) in [foreign, no_group].into_iter().zip(told) {
            assert!(refusal.to_string().contains(text), "{refusal}");
            assert!(refusal.remedy().contains(remedies[0]), "{}", refusal.remedy());
        }
        for (cause, text) in [UnavailableCause::Denied, UnavailableCause::Credentials]
            .into_iter()
            .zip(&remedies[1..])
        {
            let detail = String::new();
            let remedy = Refusal::Unavailable { api, cause, detail }.remedy();
            assert!(remedy.contains(text), "{remedy}");
        }
    }
}

#[test]
fn forgery_and_transient_failure_exclude_each_other() {
    let untagged = Refusal::ForeignProject {
        instance: "i-1".to_owned(),
        mark: Mark::Tag,
        theirs: None,
        ours: "ours".parse().unwrap(),
    };
    assert!(!untagged.is_forgery() && !untagged.is_transient());
    let throttled = Refusal::Throttled { api: "x" };
    assert!(!throttled.is_forgery() && throttled.is_transient());
}

/// Records outlive the version that wrote them, and the words of a message decide nothing.
#[test]
fn a_forgery_is_a_field_of_the_record() {
    let of_another = "Find out who registered this Node: it claims an instance of another cluster.";
    for (forged, status, reason, message, expected) in [
        (true, "False", "ForeignProject", "", true),
        (false, "False", "ForeignProject", of_another, false),
        (false, "False", "NotFound", of_another, false),
        // Of a version without the field.
        (false, "False", "NameMismatch", "", true),
        (false, "False", "AddressMismatch", "", true),
        (false, "False", "ZoneMismatch", "", true),
        (false, "Unknown", "NameMismatch", "", false),
    ] {
        let condition = serde_json::json!({"type": "Verified", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = serde_json::json!({"forged": forged, "conditions": [condition]});
        let status: NodeIdentityStatus = serde_json::from_value(status).unwrap();
        assert_eq!(Refusal::is_recorded_forgery(&status), expected, "{reason} {message}");
    }
}
