use proptest::prelude::*;

use super::*;

fn account(managed: bool, attached: Option<&str>, entries: &[&str]) -> Account {
    let references: Vec<Value> = entries.iter().map(|name| json!({ "name": name })).collect();
    let labels = if managed {
        json!({MANAGED_LABEL: MANAGED_VALUE})
    } else {
        json!({})
    };
    let object = json!({
        "metadata": {"name": CONTAINERSHIP_ACCOUNT, "namespace": "n", "uid": "u", "labels": labels,
            "annotations": attached.map(|attached| json!({ATTACHED_ANNOTATION: attached}))},
        "imagePullSecrets": references,
    });
    serde_json::from_value(object).unwrap()
}

fn entries(ready: &[&str], pending: &[&str]) -> Entries {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Entries {
        ready: set(ready),
        pending: set(pending),
        unknown: false,
    }
}

fn difference(name: &str, wanted: Option<&Entries>, account: &Account) -> Difference {
    let desired = DesiredAccount { name, entries: wanted };
    desired.difference(account)
}

#[test]
fn an_account_that_is_too_long_is_cached_without_its_pull_secrets_and_left_alone() {
    let long = |length| (0..length).map(|number| format!("{number:036}")).collect::<Vec<_>>();
    for (attached, listed, is_too_long) in [(200, 200, false), (500, 0, true), (0, 500, true), (5_000, 40_000, true)] {
        let (attached, listed) = (long(attached).join(","), long(listed));
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let account = account(true, Some(&attached), &listed);
        let cached = serde_json::to_string(&account).unwrap().len();
        assert!(cached < 20_000, "{cached} bytes");
        assert_eq!(account.is_too_long(), is_too_long);
        let packed: Account = serde_json::from_value(json!(account)).unwrap();
        assert_eq!(packed, account);
        if is_too_long {
            let entries = entries(&["r"], &[]);
            let found = difference(CONTAINERSHIP_ACCOUNT, Some(&entries), &account);
            assert_eq!(found, Difference::Foreign);
            assert!(!account.has_entries_of_ours());
        }
    }
}

#[test]
fn names_without_text_count_too() {
    assert!(account(true, None, &vec![""; 40_000]).is_too_long());
}

#[test]
fn only_the_entries_of_ours_change() {
    let patch = |entries: Option<&[&str]>, attached: Option<Option<&str>>| {
        let mut patch = json!({});
        if let Some(entries) = entries {
            patch["imagePullSecrets"] = entries.iter().map(|name| json!({ "name": name })).collect();
        }
        if let Some(attached) = attached {
            patch["metadata"]["annotations"][ATTACHED_ANNOTATION] = json!(attached);
        }
        Difference::Patch(patch)
    };
    for (why, had, attached, ready, pending, expected) in [
        (
            "all is well",
            &["admins", "r"][..],
            Some("r"),
            &["r"][..],
            &[][..],
            Difference::None,
        ),
        (
            "attach",
            &["admins"],
            None,
            &["r"],
            &[],
            patch(Some(&["admins", "r"]), Some(Some("r"))),
        ),
        (
            "detach",
            &["admins", "r"],
            Some("r"),
            &[],
            &[],
            patch(Some(&["admins"]), Some(None)),
        ),
        (
            "somebody took ours away",
            &["admins"],
            Some("r"),
            &["r"],
            &[],
            patch(Some(&["admins", "r"]), None),
        ),
        ("without a credential", &["r"], Some("r"), &[], &["r"], Difference::None),
        (
            "an admin's entry of an unknown name",
            &["x"],
            None,
            &[],
            &[],
            Difference::None,
        ),
        (
            "taken over from Go",
            &["r"],
            None,
            &["r"],
            &[],
            patch(None, Some(Some("r"))),
        ),
        (
            "one of two goes",
            &["a", "b"],
            Some("a,b"),
            &["b"],
            &[],
            patch(Some(&["b"]), Some(Some("b"))),
        ),
        ("no registries", &[], None, &[], &[], Difference::None),
    ] {
        let wanted = entries(ready, pending);
        for name in [CONTAINERSHIP_ACCOUNT, "default"] {
            let found = difference(name, Some(&wanted), &account(true, attached, had));
            assert_eq!(found, expected, "{why}");
        }
    }
}

#[test]
fn an_account_that_the_settings_do_not_name_any_more_loses_our_entries_alone() {
    let patch =
        json!({"imagePullSecrets": [{"name": "admins"}], "metadata": {"annotations": {ATTACHED_ANNOTATION: null}}});
    let named = |name: &str, attached: Option<&str>| {
        let annotations = attached.map(|attached| json!({ ATTACHED_ANNOTATION: attached }));
        let object = json!({
            "metadata": {"name": name, "namespace": "n", "uid": "u", "annotations": annotations},
            "imagePullSecrets": [{"name": "r"}, {"name": "admins"}],
        });
        serde_json::from_value::<Account>(object).unwrap()
    };
    assert_eq!(detached(&named("default", Some("r"))), Some(patch));
    assert_eq!(detached(&named("default", None)), None);
    assert_eq!(
        detached(&named(CONTAINERSHIP_ACCOUNT, Some("r"))),
        None,
        "it is somebody else's"
    );
}

#[test]
fn nothing_changes_while_the_registries_are_not_known() {
    let found = difference(CONTAINERSHIP_ACCOUNT, None, &account(true, Some("r"), &["r", "admins"]));
    assert_eq!(found, Difference::None);
}

#[test]
fn an_id_of_the_cloud_stays_attached_while_the_cloud_s_list_is_not_known() {
    const ID: &str = "cccccccc-0000-4000-8000-000000000001";
    let attached = format!("{ID},by-hand");
    let found = |unknown| {
        let wanted = Entries {
            unknown,
            ..entries(&[], &[])
        };
        difference(
            "default",
            Some(&wanted),
            &account(true, Some(&attached), &[ID, "by-hand"]),
        )
    };
    let patch = |entries: Value, attached: Value| {
        Difference::Patch(
            json!({"imagePullSecrets": entries, "metadata": {"annotations": {ATTACHED_ANNOTATION: attached}}}),
        )
    };
    assert_eq!(found(true), patch(json!([{"name": ID}]), json!(ID)));
    assert_eq!(found(false), patch(json!([]), Value::Null));
}

/// The Go coordinator recorded nothing, and its registry may be gone before it was ever seen to work.
#[test]
fn a_registry_that_is_gone_leaves_the_account_of_the_go_coordinator() {
    const GONE: &str = "cccccccc-0000-4000-8000-000000000001";
    const HERE: &str = "cccccccc-0000-4000-8000-000000000002";
    let by_go = account(true, None, &[HERE, GONE, "admins"]);
    let found = |ready: &[&str], pending: &[&str], unknown| {
        let wanted = Entries {
            unknown,
            ..entries(ready, pending)
        };
        difference(CONTAINERSHIP_ACCOUNT, Some(&wanted), &by_go)
    };
    let patch = json!({"imagePullSecrets": [{"name": HERE}, {"name": "admins"}],
        "metadata": {"annotations": {ATTACHED_ANNOTATION: HERE}}});
    assert_eq!(found(&[HERE], &[], false), Difference::Patch(patch.clone()));
    assert_eq!(found(&[], &[HERE], false), Difference::Patch(patch));
    let stays = json!({"metadata": {"annotations": {ATTACHED_ANNOTATION: format!("{GONE},{HERE}")}}});
    assert_eq!(found(&[HERE], &[], true), Difference::Patch(stays));
    let of_another_name = json!({"metadata": {"name": "default", "namespace": "n", "uid": "u"},
        "imagePullSecrets": [{"name": GONE}]});
    let of_another_name = serde_json::from_value(of_another_name).unwrap();
    let wanted = entries(&[], &[]);
    assert_eq!(difference("default", Some(&wanted), &of_another_name), Difference::None);
}

#[test]
fn an_account_without_the_label_is_ours_if_we_wrote_it_or_it_has_another_name() {
    let wanted = entries(&["r"], &[]);
    let foreign = account(false, None, &[]);
    let label = json!({"metadata": {"labels": {MANAGED_LABEL: MANAGED_VALUE}}});
    assert_eq!(
        difference(CONTAINERSHIP_ACCOUNT, Some(&wanted), &foreign),
        Difference::Unlabelled(label)
    );
    for (manager, is_ours) in [("tidewaiter/containership", true), ("kubectl-edit", false)] {
        let metadata = serde_json::from_value(json!({"managedFields": [{"manager": manager}]})).unwrap();
        let desired = DesiredAccount::without_entries(CONTAINERSHIP_ACCOUNT);
        assert_eq!(desired.owns(&metadata), is_ours, "{manager}");
    }
    assert!(matches!(
        difference("default", Some(&wanted), &foreign),
        Difference::Patch(_)
    ));
}

#[test]
fn the_account_is_created_with_its_pull_secrets_and_no_other_is_created() {
    let wanted = entries(&["a", "b"], &["c"]);
    let body = |name| {
        let desired = DesiredAccount {
            name,
            entries: Some(&wanted),
        };
        desired.body(CONTAINERSHIP_NAMESPACE)
    };
    let created: Account = serde_json::from_value(json!(body(CONTAINERSHIP_ACCOUNT).unwrap())).unwrap();
    assert_eq!(
        difference(CONTAINERSHIP_ACCOUNT, Some(&wanted), &created),
        Difference::None
    );
    assert_eq!(created.entries(), ["a", "b"]);
    assert!(body("default").is_none());
}

#[test]
fn what_the_cache_packs_it_can_read() {
    let whole = account(true, Some("a,b"), &["admins", "a", "b"]);
    let packed: Account = serde_json::from_value(json!(whole)).unwrap();
    assert_eq!(packed, whole);
}

proptest! {
    /// After the patch there is no other one, whatever somebody put there, and what is an admin's stays.
    #[test]
    fn one_patch_is_enough(
        had in prop::collection::btree_set("[a-f]", 0..6),
        attached in prop::collection::btree_set("[a-f]", 0..4),
        ready in prop::collection::btree_set("[a-f]", 0..4),
        pending in prop::collection::btree_set("[a-f]", 0..3),
    ) {
        let had: Vec<&str> = had.iter().map(String::as_str).collect();
        let before = account(true, Some(&joined(&attached)), &had);
        let pending: BTreeSet<String> = pending.difference(&ready).cloned().collect();
        let wanted = Entries { ready: ready.clone(), pending: pending.clone(), unknown: false };
        let mut object = json!(account(true, None, &[]));
        object.as_object_mut().unwrap().remove("read");
        object["metadata"]["labels"] = json!({MANAGED_LABEL: MANAGED_VALUE});
        object["metadata"]["annotations"][ATTACHED_ANNOTATION] = json!(joined(&attached));
        object["imagePullSecrets"] = had.iter().map(|name| json!({ "name": name })).collect();
        if let Difference::Patch(patch) = difference(CONTAINERSHIP_ACCOUNT, Some(&wanted), &before) {
            if let Some(entries) = patch.get("imagePullSecrets") {
                object["imagePullSecrets"] = entries.clone();
            }
            if let Some(annotations) = patch["metadata"].get("annotations") {
                object["metadata"]["annotations"] = match &annotations[ATTACHED_ANNOTATION] {
                    Value::Null => json!({}),
                    value => json!({ ATTACHED_ANNOTATION: value }),
                };
            }
        }
        let after: Account = serde_json::from_value(object).unwrap();
        prop_assert_eq!(difference(CONTAINERSHIP_ACCOUNT, Some(&wanted), &after), Difference::None);
        for name in &had {
            let name = (*name).to_owned();
            let admins = !attached.contains(&name);
            let exists = ready.contains(&name) || pending.contains(&name);
            prop_assert_eq!(after.entries().contains(&name), admins || exists);
        }
        prop_assert!(ready.iter().all(|name| after.entries().contains(name)));
    }
}
