//! Settings that the chart renders exactly if the role accepts them.

use std::process::Command;

use serde_json::{Value, json};
use tidewaiter_testkit::Scratch;

use crate::{Ran, run, template, write};

/// Returns the output of the role for these settings.
fn print_config(scratch: &Scratch, role: &str, settings: &Value) -> Ran {
    let file = scratch.path().join("settings.yaml");
    write(&file, &settings.to_string());
    let mut program = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
    let program = program.env_clear().env("NODE_NAME", "n").arg(role);
    run(program.arg("--print-config").arg("--settings").arg(&file), "")
}

/// The chart renders what the role accepts, and nothing else: both refuse it with these words, or neither.
fn assert_agreed(role: &str, rows: impl IntoIterator<Item = (Value, Option<&'static str>)>) {
    let scratch = Scratch::new("chart-agreed");
    for (settings, refusal) in rows {
        let image = json!({"repository": "registry.example.com/tidewaiter"});
        let values = json!({"image": image, role: {"enabled": true, "settings": settings}});
        let (rendered, printed) = (template(&values, &[]), print_config(&scratch, role, &settings));
        for (who, ran) in [("chart", rendered), (role, printed)] {
            let said = format!("the {who} on {settings}: {}", ran.err);
            assert_eq!(ran.success, refusal.is_none(), "{said}");
            assert!(refusal.is_none_or(|words| said.contains(words)), "{said}");
        }
    }
}

/// A folder that the agent's pod can write must not be one that decides what runs or who may log in.
#[test]
fn folders_that_are_not_the_agents_own_are_refused_by_chart_and_agent() {
    let system = [
        "/",
        "/etc",
        "/proc",
        "/proc/1",
        "/usr/bin",
        "/etc/ssh",
        "/etc/containerd",
        "/etc/cni",
        "/opt/cni/bin",
        "/etc/pam",
        "/etc/sudoers",
        "/etc/udev",
        "/var/lib/kubelet/pki",
        "/var/lib/systemd",
        "/var/lib/cloud",
        "/home/admin",
        "/etc/containership/",
        "/etc/containership/../ssh",
        "/etc/systemd/system/tidewaiter-upgrade.service.d",
        "containership",
    ];
    let names = ["folder", "stateFolder", "pinnedFolder"].into_iter().cycle();
    let system = system.into_iter().zip(names);
    assert_agreed(
        "agent",
        system.map(|(folder, name)| (json!({name: folder}), Some("must be a folder of the agent's own"))),
    );
    let of_root = "what the host decides by is there";
    let shared = "each needs a folder of its own";
    assert_agreed(
        "agent",
        [
            (json!({"folder": "/etc/tidewaiter"}), Some(of_root)),
            (json!({"stateFolder": "/etc/tidewaiter/pinned"}), Some(of_root)),
            (json!({"folder": "/var/lib/tidewaiter-host"}), Some(of_root)),
            (json!({"stateFolder": "/var/lib/tidewaiter-host/a"}), Some(of_root)),
            (json!({"stateFolder": "/etc/containership"}), Some(shared)),
            (json!({"stateFolder": "/etc/containership/state"}), Some(shared)),
            (json!({"folder": "/var/lib/tidewaiter-agent/keys"}), Some(shared)),
            (json!({"pinnedFolder": "/etc/containership/trust"}), Some(shared)),
            (
                json!({"folder": "/srv/tidewaiter/a", "pinnedFolder": "/srv/tidewaiter"}),
                Some(shared),
            ),
            (json!({"folder": "/srv/tidewaiter-hosts"}), None),
            (
                json!({"folder": "/mnt/disk/containership-of-a-very-long-name-indeed/a/b/c"}),
                None,
            ),
            (
                json!({"folder": "/home/tidewaiter", "stateFolder": "/tidewaiter/a", "pinnedFolder": "/tidewaiter/b"}),
                None,
            ),
        ],
    );
}

#[test]
fn chart_and_roles_agree_on_durations() {
    let wrong = "must be a duration with units (w, d, h, m, s or ms)";
    let grace = |text: &'static str, refusal| (json!({"foreignLinesGrace": text}), refusal);
    let read = [
        "0",
        "0s",
        "90s",
        "1h30m",
        "1h 30m",
        "1.5h",
        "7d",
        "1d12h",
        "1d1.5h",
        "1w",
        "7 days",
        "2 weeks 3 days",
        "90 min",
        " 1 hour ",
        "500ms",
        "1sec 1.000000001milli",
        "365d",
        "052w",
        "1wk 1hr 1 mins 1 secs 1 msecs",
    ];
    assert_agreed("agent", read.map(|text| grace(text, None)));
    let refused = [
        "",
        " ",
        "7",
        "d",
        "-1d",
        "+1d",
        "1dd",
        "1D",
        "1d ago",
        "1h,30m",
        "01:30:00",
        "PT1H",
        "1mo",
        "1y",
        "1us",
        "30m1h",
        "1h1h",
        "1.5d",
        "1.5h30m",
        "1.h",
        ".5h",
        "1 .5h",
        "1. 5h",
        "1h\n",
        "1e3s",
        "0.5",
        "00",
        "366d",
        "365d1ms",
        "99999999999999d",
        "99999999999999999999h",
    ];
    assert_agreed("agent", refused.map(|text| grace(text, Some(wrong))));
    assert_agreed(
        "agent",
        [
            (json!({"foreignLinesGrace": 0}), None),
            (json!({"foreignLinesGrace": 7}), Some(wrong)),
            (json!({"foreignLinesGrace": null}), Some(wrong)),
            (json!({"keysExpireAfter": null}), None),
            (json!({"keysExpireAfter": "12h"}), None),
            (json!({"keysExpireAfter": "52 weeks"}), None),
            (json!({"keysExpireAfter": "11h59m"}), Some("from 12h to 365d")),
            (json!({"keysExpireAfter": "0s"}), Some("from 12h to 365d")),
            (json!({"keysExpireAfter": "53w"}), Some("from 12h to 365d")),
            (json!({"keysExpireAfter": "off"}), Some("leave it out")),
            (json!({"keysExpireAfter": false}), Some("leave it out")),
        ],
    );
    let id = "11111111-1111-4111-8111-111111111111";
    let interval = |interval: Value| {
        let cloud = json!({"apiBaseUrl": "https://c.example.com", "organizationId": id, "clusterId": id, "syncInterval": interval});
        json!({"cloud": cloud})
    };
    let permitted = Some("from 1s to 24h");
    assert_agreed(
        "coordinator",
        [
            (interval(json!("1s")), None),
            (interval(json!("1m 30s")), None),
            (interval(json!("1d")), None),
            (interval(Value::Null), None),
            (interval(json!("")), None),
            (interval(json!("999ms")), permitted),
            (interval(json!("0")), permitted),
            (interval(json!("25h")), permitted),
            (interval(json!(30)), permitted),
            (interval(json!("1 hours 1")), permitted),
        ],
    );
}
