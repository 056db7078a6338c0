//! The files of the host: the order that the upgrade controller writes, and the result and the pinned keys that it
//! reads.

use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_kit::Chain;
use tidewaiter_upgrade::{Version, form};

use super::{HostAccess, RESYNC_INTERVAL, UpgradeError};
use crate::host::{Host, HostError};
use crate::upgrade::files::{self, Order, Outcome, RunResult};
use crate::upgrade::report::Found;
use crate::upgrade::trust::{AgentIdentity, ScriptRequest, Trust};
use crate::watcher::Watcher;

/// Returns true if the order must be written again, because the host has blocked it for a while or has not answered.
/// `result` is the host's result of this upgrade, and `offer_age` the time since the order was written.
pub(super) fn is_to_be_repeated(result: Option<&RunResult>, offer_age: Duration, now: Timestamp) -> bool {
    let Some(result) = result else {
        return offer_age >= RESYNC_INTERVAL;
    };
    let age = Duration::try_from(now.duration_since(result.at)).unwrap_or_default();
    result.outcome == Outcome::Blocked && age >= RESYNC_INTERVAL
}

/// Offers the order if the host would run its script, and refuses it for good if a person has to change something.
pub(super) fn offer_checked(
    pinned: &Host,
    host: &Host,
    order: &Order,
    target: &Version,
    now: Timestamp,
) -> Result<(), UpgradeError> {
    let id = form::id(&order.upgrade);
    let request = ScriptRequest {
        upgrade: id,
        version: target,
        newest: 0,
        now,
    };
    if let Err(error) = check(pinned, &order.script, &request) {
        if error.is_final() {
            refuse(host, id, &error, now)?;
        }
        return Err(error);
    }
    Ok(host.offer(&files::script_name(target, id), order)?)
}

/// Checks that the host would run the script.
fn check(pinned: &Host, script: &str, request: &ScriptRequest<'_>) -> Result<(), UpgradeError> {
    Trust::read(pinned)?.open(script, request)?;
    Ok(())
}

/// Refuses the scripts of this upgrade for good, unless the host has, or had, an order of it: then the host says what
/// becomes of it. What the host remembers cannot be seen from here, so anything but a host that never heard of the
/// upgrade counts as an order.
fn refuse(host: &Host, id: &str, error: &UpgradeError, now: Timestamp) -> Result<(), UpgradeError> {
    let is_free = host.ordered()?.is_none_or(|order| form::id(&order.upgrade) != id)
        && host.result()?.is_none_or(|result| result.id != id);
    if is_free {
        host.write_result(&RunResult {
            id: id.to_owned(),
            outcome: Outcome::Refused,
            message: Chain(error).to_string(),
            exit_code: None,
            rolled_back: false,
            at: now,
            until: None,
            tail: String::new(),
        })?;
    }
    Ok(())
}

/// Reads the result, the permissions and the problems of the host. First starts to watch its folders; the second value
/// is the result of that. `cluster` is the id of the cluster in the cloud, empty if it is unknown.
pub(super) fn look(access: &HostAccess, cluster: &str) -> (Found<'static>, Result<(), UpgradeError>) {
    let HostAccess {
        host,
        pinned,
        node,
        folders: [folder, state_folder],
        watcher,
    } = access;
    let watching = watch_folders(host, pinned, watcher);
    let trust = Trust::read(pinned);
    let agent = AgentIdentity {
        node,
        cluster,
        folder,
        state_folder,
    };
    let problem = match &trust {
        Ok(trust) => trust.problem(agent),
        Err(error) => Some(Chain(error).to_string()),
    };
    let found = Found {
        // An invalid result is ignored.
        result: host.result().unwrap_or_default(),
        permits_unsigned: trust.as_ref().is_ok_and(Trust::permits_unsigned),
        host_problem: problem.unwrap_or_default(),
        ..Found::default()
    };
    (found, watching)
}

/// Watches the folder of the scripts and, if it is there, that of what is pinned.
fn watch_folders(host: &Host, pinned: &Host, watcher: &Watcher) -> Result<(), UpgradeError> {
    let scripts = host.ensure(&files::FOLDER)?;
    // One that cannot be opened is reported when it is read.
    let pinned = pinned.look_if_there(&[]).unwrap_or_default();
    let folders: Vec<_> = scripts
        .folders
        .iter()
        .chain(pinned.iter().flat_map(|pinned| &pinned.folders))
        .collect();
    let added = watcher.add_folders(&folders);
    let added = added.map_err(|source| HostError::call("watched", "scripts/upgrade", source))?;
    // A folder that cannot be watched any more is gone.
    let _ = watcher.settle(added, &[]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use minisign::KeyPair;
    use rustix::io::Errno;
    use tidewaiter_api::containership::ClusterUpgrade;
    use tidewaiter_signature::{SignatureError, SigningKey};
    use tidewaiter_upgrade::signed::{Statement, digest};

    use super::*;
    use crate::host::{Call, HostCalls, Owner};

    fn result(outcome: Outcome, at: Timestamp) -> RunResult {
        RunResult {
            id: "u".to_owned(),
            outcome,
            message: String::new(),
            exit_code: None,
            rolled_back: false,
            at,
            until: None,
            tail: String::new(),
        }
    }

    #[test]
    fn an_order_is_repeated_that_is_refused_or_not_answered_for_a_minute() {
        let (now, soon, late) = (Timestamp::UNIX_EPOCH, Duration::from_secs(59), Duration::from_mins(1));
        let before = |age: Duration| now - jiff::SignedDuration::try_from(age).unwrap();
        assert!(!is_to_be_repeated(None, soon, now));
        assert!(
            is_to_be_repeated(None, late, now),
            "a change was lost, or nobody has enabled the unit"
        );
        for (outcome, age, expected) in [
            (Outcome::Blocked, soon, false),
            (Outcome::Blocked, late, true),
            (Outcome::Refused, late, false),
            (Outcome::Running, late, false),
            (Outcome::Failed, late, false),
            (Outcome::Interrupted, late, false),
        ] {
            let said = result(outcome, before(age));
            assert_eq!(
                is_to_be_repeated(Some(&said), late, now),
                expected,
                "{outcome:?} {age:?}"
            );
        }
    }

    /// A script that is not signed is refused for good, unless the host had an order of the upgrade; one that is signed
    /// for later is neither refused nor offered.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "files of the test")]
    fn only_a_host_that_never_had_an_order_is_told_that_its_script_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let (host, pinned) = (
            Host::of_root(&scratch.path().join("shared")),
            scratch.path().join("pinned"),
        );
        std::fs::create_dir(scratch.path().join("shared")).unwrap();
        let KeyPair { pk, sk } = KeyPair::generate_unencrypted_keypair().unwrap();
        let key = sk.to_box(None).unwrap().into_string();
        let key = SigningKey::read::<SignatureError>(&key, || unreachable!("it has no password")).unwrap();
        std::fs::create_dir(&pinned).unwrap();
        for (name, text) in [("cluster", "c"), ("node", "w1"), ("a.pub", &pk.to_base64())] {
            std::fs::write(pinned.join(name), text).unwrap();
        }
        let pinned = Host::of_root(&pinned);
        let (now, version): (_, Version) = (
            Timestamp::from_second(1_790_000_000).unwrap(),
            "v1.36.3".parse().unwrap(),
        );
        let text = "#!/bin/sh\n";
        let later = now + jiff::SignedDuration::from_hours(1);
        let statement = Statement {
            cluster: "c".to_owned(),
            node: "w1".parse().unwrap(),
            upgrade: "u".to_owned(),
            generation: now.as_second(),
            version: version.clone(),
            sha256: digest(text),
            not_before: Some(later),
            expires: later + jiff::SignedDuration::from_hours(1),
        };
        let upgrade = ClusterUpgrade::new(
            "u",
            serde_json::from_value(
                serde_json::json!({"type": "kubernetes", "targetVersion": "v1.36.3", "nodeTimeoutSeconds": 600}),
            )
            .unwrap(),
        );
        let early = format!("{text}{}", statement.block(&key).unwrap());
        let order = |script: &str| Order {
            upgrade: upgrade.clone(),
            script: script.to_owned(),
        };
        let error = offer_checked(&pinned, &host, &order(&early), &version, now).unwrap_err();
        assert_eq!(error.not_before(), Some(later), "{error}");
        assert!(host.result().unwrap().is_none() && host.ordered().unwrap().is_none());
        // Its time has come.
        offer_checked(&pinned, &host, &order(&early), &version, later).unwrap();
        // The host has the order, and says what becomes of it.
        assert!(offer_checked(&pinned, &host, &order(text), &version, now).is_err());
        assert!(host.result().unwrap().is_none());
        host.withdraw().unwrap();
        host.write_result(&result(Outcome::Running, now)).unwrap();
        assert!(offer_checked(&pinned, &host, &order(text), &version, now).is_err());
        assert_eq!(host.result().unwrap().unwrap().outcome, Outcome::Running);
        // It had one of another upgrade.
        let other = RunResult {
            id: "other".to_owned(),
            ..result(Outcome::Running, now)
        };
        host.write_result(&other).unwrap();
        assert!(offer_checked(&pinned, &host, &order(text), &version, now).is_err());
        let told = host.result().unwrap().unwrap();
        assert_eq!((told.id.as_str(), told.outcome), ("u", Outcome::Refused), "{told:?}");
    }

    /// Lets nothing be opened for a change any more.
    #[derive(Debug, Default)]
    struct Broken(AtomicBool);

    impl HostCalls for Broken {
        fn before(&self, call: Call) -> Result<(), Errno> {
            let fails = call == Call::MakeFolder && self.0.load(Ordering::SeqCst);
            if fails { Err(Errno::NOSPC) } else { Ok(()) }
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "files of the test")]
    fn a_folder_that_cannot_be_used_hides_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let owner = Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let host = Host::new(scratch.path(), owner, Arc::new(Broken(AtomicBool::new(true))));
        let pinned = scratch.path().join("pinned");
        let access = |node: &str| HostAccess {
            host: host.clone(),
            pinned: Host::of_root(&pinned),
            node: node.parse().unwrap(),
            folders: ["/srv/tidewaiter".to_owned(), "/var/lib/tidewaiter-agent".to_owned()],
            watcher: Watcher::new(),
        };
        let (found, watching) = look(&access("w1"), "");
        assert!(watching.is_err());
        assert!(found.host_problem.contains("nothing is pinned"), "{found:?}");
        std::fs::create_dir(&pinned).unwrap();
        for (name, text) in [("cluster", "c"), ("node", "w1"), ("unsigned-scripts", "allow")] {
            std::fs::write(pinned.join(name), text).unwrap();
        }
        let (found, watching) = look(&access("w1"), "c");
        assert!(watching.is_err() && found.permits_unsigned, "{found:?}");
        assert_eq!(found.host_problem, "");
        let problem = |node: &str| look(&access(node), "").0.host_problem;
        let other = problem("w2");
        assert!(
            other.contains("installed as the Node w1, and this one is w2"),
            "{other}"
        );
        std::fs::remove_file(pinned.join("unsigned-scripts")).unwrap();
        let keyless = problem("w1");
        assert!(keyless.contains("no key is pinned on this node"), "{keyless}");
        let KeyPair { pk, .. } = KeyPair::generate_unencrypted_keypair().unwrap();
        std::fs::write(pinned.join("a.pub"), pk.to_base64()).unwrap();
        assert_eq!(problem("w1"), "");
        // An unknown cluster is no problem, and neither is a host that pins no folders.
        let foreign = look(&access("w1"), "d").0.host_problem;
        for words in ["for the cluster c, and this one is d", "--cluster d"] {
            assert!(foreign.contains(words), "{foreign}");
        }
        for (file, own, other) in [
            ("folder", "/srv/tidewaiter/", "/etc/containership"),
            ("state-folder", "/var/lib/tidewaiter-agent", "/srv/containership"),
        ] {
            std::fs::write(pinned.join(file), other).unwrap();
            let said = problem("w1");
            let flag = format!(
                "--{}{file} {}",
                if file == "folder" { "" } else { "agent-" },
                own.trim_end_matches('/')
            );
            assert!(said.contains(other) && said.contains(&flag), "{said}");
            std::fs::write(pinned.join(file), own).unwrap();
            assert_eq!(problem("w1"), "");
        }
    }
}
