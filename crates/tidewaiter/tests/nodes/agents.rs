//! The agents of a release, by the commands of docs/agent.md, and how soon a change in the cloud is in the file of each
//! node.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tidewaiter_testkit::command::printed;
use tidewaiter_testkit::site::{Cloud, SOON, Site};
use tidewaiter_testkit::{AUTHORIZED_KEYS, RealNode, assets, eventually};

use crate::now;

/// Changes in the cloud. The one in a hundred of them is the slowest.
const CHANGES: usize = 20;

/// One second is promised (`make bench` measures it), and a mirror without a change stream would take fifteen.
const CHANGE: Duration = Duration::from_secs(10);

/// Ends when the file has this key.
const AWAIT: &str = "until grep -qF \"$1\" \"$2\" 2>/dev/null; do sleep 0.005; done";

/// The lines of users.
const LINES: &str = "grep 'command=' \"$0\" | grep -vc break-glass: || true";

/// Runs the commands of a section of docs/agent.md.
async fn runs(site: &Site, section: &str) {
    let page = std::fs::read_to_string(assets::repository().join("docs/agent.md")).unwrap();
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let commands: Vec<_> = section.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(commands.len() > 2, "{section}");
    for command in commands {
        match command.split_once(' ').unwrap() {
            ("helm", words) => drop(printed(&mut site.helm_alone(words)).await),
            ("kubectl", words) => drop(site.kubectl(words).await),
            other => panic!("{other:?}"),
        }
    }
}

/// They report from each node that its file is as the cloud says.
pub async fn are_installed(site: &Site) {
    runs(site, "Installing").await;
    let wait = "wait --for=condition=Applied --timeout=1s nodereports";
    eventually("each node to have its keys", SOON, async || {
        let names: Vec<_> = site.nodes.iter().map(RealNode::name).collect();
        site.try_kubectl(&format!("{wait} {}", names.join(" "))).await
    })
    .await;
}

/// Tries, as root in the mount namespace of the agent, which is what anyone who has its pod can do.
const WRITES_AS_THE_AGENT: &str = r#"
for file in /proc/[0-9]*/cmdline; do
    case "$(tr '\0' ' ' <"$file" 2>/dev/null)" in
    /*tidewaiter\ agent\ *) pod=${file%/cmdline}/root ;;
    esac
done
touch "$pod/etc/containership/evil"
for name in cluster unsigned-scripts break-glass; do
    if touch "$pod/etc/tidewaiter/pinned/$name" 2>/root/said; then exit 1; fi
    cat /root/said
done
find /etc/tidewaiter/pinned -type f
"#;

/// The files that decide which commands run as root on a node cannot be written in its agent's pod, and the commands
/// that write it do nothing there.
pub async fn cannot_pin(site: &Site) {
    let evil = "untrusted comment: x\nRWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n";
    let evil = site.file("evil.pub", evil);
    let select = "-n tidewaiter-agent get pods -o jsonpath={.items[*].metadata.name} --field-selector spec.nodeName=";
    for node in &site.nodes {
        node.put(&evil, "0600", "/etc/containership/evil.pub").await;
        let pod = site.kubectl(&format!("{select}{}", node.name())).await;
        let cluster = "--cluster 22222222-2222-4222-8222-222222222222";
        for command in [
            format!(
                "install {cluster} --node {} --key /etc/containership/evil.pub",
                node.name()
            ),
            "keys add /etc/containership/evil.pub".to_owned(),
            "uninstall".to_owned(),
        ] {
            let exec = format!(
                "-n tidewaiter-agent exec {} -- /usr/local/bin/tidewaiter host {command}",
                pod.trim()
            );
            let refused = site.try_kubectl(&exec).await.unwrap_err();
            assert!(refused.contains("this is not the system of a host"), "{refused}");
        }
        let said = node.run(["sh", "-ec", WRITES_AS_THE_AGENT]).await;
        assert_eq!(said.matches("Read-only file system").count(), 3, "{said}");
        assert!(!said.contains("\n/etc/tidewaiter/pinned"), "{said}");
        node.run(["sh", "-c", "rm /etc/containership/evil*; ! ls /etc/containership/trust"])
            .await;
    }
}

/// Without the agents and the keys of users. A pinned key stays.
pub async fn are_uninstalled(site: &Site) {
    let pin = "echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4hoRzVPA3U8qoef7QtvY6RmkwgDL47zndwzs8V+7J7' >/etc/tidewaiter/pinned/break-glass";
    for node in &site.nodes {
        node.run(["sh", "-c", pin]).await;
    }
    runs(site, "Uninstalling").await;
    have_no_keys(site).await;
    for node in &site.nodes {
        let left = node.run(["cat", AUTHORIZED_KEYS]).await;
        assert!(left.contains("break-glass:"), "{left}");
    }
    let pods = site.kubectl("-n tidewaiter-agent get daemonsets -o name").await;
    assert_eq!(pods, "");
}

/// Waits until no user can log in.
pub async fn have_no_keys(site: &Site) {
    for node in &site.nodes {
        eventually(format!("{} to have no keys of users", node.name()), SOON, async || {
            let lines = node.run(["sh", "-c", LINES, AUTHORIZED_KEYS]).await;
            if lines.trim() == "0" { Ok(()) } else { Err(lines) }
        })
        .await;
    }
}

/// A key is added in the cloud, again and again.
pub async fn follow_the_cloud(site: &Site, cloud: &Cloud) {
    let [master, worker] = &site.nodes[..] else {
        unreachable!()
    };
    let mut keys = Vec::new();
    for number in 0..CHANGES {
        keys.push(
            worker
                .make_key(&format!("/root/change-{number}"), "ed25519", "256")
                .await,
        );
    }
    let mut times = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let part = key.split(' ').nth(1).unwrap();
        let body = json!({"name": format!("change {number}"), "key": key});
        let start = now();
        let arrives = async |node: &RealNode| {
            node.run(["sh", "-c", AWAIT, "sh", part, AUTHORIZED_KEYS]).await;
            start.elapsed()
        };
        let change = cloud.must(worker, Method::POST, "/v3/account/ssh_keys", body);
        let (one, other, _) = tokio::join!(arrives(master), arrives(worker), change);
        times.extend([one, other]);
    }
    times.sort();
    let at = |share: usize| times[(times.len() * share).div_ceil(100) - 1];
    let (middle, last) = (at(50), at(99));
    println!(
        "{CHANGES} changes of the cloud were in the files of two nodes after {middle:.0?} (p50) and {last:.0?} (p99)"
    );
    assert!(last < CHANGE, "{times:?}");
}

/// On a node: looks at the file all the time, and says how often, and how often it had no key.
const WATCH: &str = r#"
cat >/root/watch <<'END'
looks=0 gaps=0
until [ -e /run/stop ]; do
    grep -qs command= "$1" || gaps=$((gaps + 1))
    sleep 0.02
    looks=$((looks + 1))
done
echo $looks $gaps >/run/watched
END
systemd-run --quiet --unit=watch sh /root/watch "$0"
"#;
const STOP: &str =
    "touch /run/stop; until [ -e /run/watched ]; do sleep 0.05; done; cat /run/watched; rm /run/stop /run/watched";

/// Gives the nodes a key, and begins to look whether it is there.
pub async fn keys_are_watched(site: &Site, cloud: &Cloud) {
    let key = site.nodes[0].make_key("/root/watched", "ed25519", "256").await;
    let body = json!({"name": "watched", "key": key});
    cloud
        .must(&site.nodes[0], Method::POST, "/v3/account/ssh_keys", body)
        .await;
    let part = key.split(' ').nth(1).unwrap();
    for node in &site.nodes {
        node.run(["sh", "-c", AWAIT, "sh", part, AUTHORIZED_KEYS]).await;
        node.run(["sh", "-ec", WATCH, AUTHORIZED_KEYS]).await;
    }
}

/// No look has found the file without a key since then.
pub async fn keys_were_always_there(site: &Site) {
    for node in &site.nodes {
        let watched = node.run(["sh", "-ec", STOP]).await;
        let (looks, gaps) = watched.trim().split_once(' ').unwrap();
        println!("{}: {looks} looks at the keys, {gaps} without", node.name());
        assert!(gaps == "0" && looks.len() > 2, "{watched}");
    }
}
