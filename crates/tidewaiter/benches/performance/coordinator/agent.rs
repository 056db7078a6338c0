//! Logins: the time until an edit of the file is undone, and until a change in the cloud is in the file of each node;
//! the cost of the watches of thousands of agents cost the API server, and an agent at rest.
//!
//! The agents write to folders of their own: nodes would be as many file systems on the same disk.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;
use tidewaiter_testkit::usage::{Memory, cpu_seconds};

use super::agents::{Agent, Watches, account, prepare};
use super::bed::Bed;
use super::{Sizes, now, pause};
use crate::cloud::server::ssh_key;
use crate::cloud::wire::Wire;
use crate::process::SOON;
use crate::report::{Chapter, Figure, count, figure, note, quantile};

const USERS: usize = 1_000;
const KEYS: usize = 2;
const EDITS: usize = 200;
const ROUNDS: usize = 30;
/// Changes while many agents watch.
const FLEET_ROUNDS: usize = 10;

/// The interval of the edits, so that none is slowed as a part of a fight (five in a second), and between two changes
/// in the cloud, which the coordinator lists twice a second at most.
const CHANGE_INTERVAL: Duration = Duration::from_millis(600);
const REST_DURATION: Duration = Duration::from_mins(1);

struct Found {
    restored: Restored,
    /// Seconds from the request to the cloud until the last of the agents has written the key, or removed it.
    changed: Vec<f64>,
    fleet: Fleet,
    rest: Rest,
}

struct Restored {
    /// Seconds until the file is as it was.
    seconds: Vec<f64>,
    /// Seconds that only the write takes, with its fsyncs, on the same disk at the same time.
    bare: Vec<f64>,
}

struct Fleet {
    /// Seconds from the request to the cloud until each watch got the change.
    told: Vec<f64>,
    /// The CPU time of the API server for each change, in seconds of a core.
    core_seconds: f64,
    /// The memory of the API server's alone, before the watches and with them.
    memory: [Memory; 2],
}

struct Rest {
    memory: Memory,
    core: f64,
    writes: usize,
    passes: f64,
}

pub async fn measure(program: &Path, sizes: &Sizes) -> Result<Chapter> {
    note(&format!("agent: {USERS} users with {KEYS} keys each"));
    let bed = Bed::with_users(program, 1, USERS, KEYS).await?;
    prepare(&bed).await;
    let coordinator = bed.coordinator();
    let agents = [Agent::start(&bed, "node-a").await?, Agent::start(&bed, "node-b").await?];
    for agent in &agents {
        agent.has_keys(USERS * KEYS).await;
    }
    note(&format!("agent: at rest for {REST_DURATION:?}"));
    let rest = at_rest(&bed, &agents[0]).await?;
    note(&format!("agent: {EDITS} edits of the file"));
    let restored = edits(&agents[0]).await?;
    note(&format!("agent: {ROUNDS} keys come and go in the cloud"));
    let changed = changes(&bed, &agents).await?;
    note(&format!("agent: {} agents watch", sizes.agents));
    let fleet = fleet(&bed, sizes.agents).await?;
    for agent in &agents {
        agent.role.stop().await;
    }
    coordinator.stop().await;
    let found = Found {
        restored,
        changed,
        fleet,
        rest,
    };
    Ok(chapter(&found, sizes.agents))
}

fn chapter(found: &Found, agents: usize) -> Chapter {
    let Found {
        restored,
        changed,
        fleet,
        rest,
    } = found;
    let [before, with] = fleet.memory;
    let size = |what: &str, key, found| figure(what, key, found, " MiB", 1);
    let keys = ["restored", "restoredP50"];
    let mut figures = Vec::from(times("an edit of the file is undone", keys, &restored.seconds, 10.0));
    let bare = |part| quantile(restored.bare.iter().copied(), part) * 1000.0;
    figures.extend([
        figure(
            "  a bare write of the file, with fsync, p99",
            "bareWrite",
            bare(0.99),
            " ms",
            1,
        ),
        figure("  p50", "bareWriteP50", bare(0.5), " ms", 1),
    ]);
    let keys = ["changed", "changedP50"];
    figures.extend(times(
        "a change in the cloud is in the file of both nodes",
        keys,
        changed,
        1000.0,
    ));
    let watches = format!("a change in the cloud arrives at {agents} agents");
    figures.extend(times(&watches, ["told", "toldP50"], &fleet.told, 3000.0));
    figures.extend([
        figure(
            "  the API server, on a core for each change",
            "toldCoreSeconds",
            fleet.core_seconds,
            " s",
            2,
        ),
        size("  the API server's memory before", "apiServerBefore", before.anonymous),
        size("  with the watches", "apiServerWith", with.anonymous),
        size(
            "memory of the process alone, at rest",
            "anonymous",
            rest.memory.anonymous,
        )
        .at_most(12.0),
        size(
            "  resident, with the pages of the program's file",
            "resident",
            rest.memory.resident,
        ),
        size("  its peak", "peak", rest.memory.peak),
        figure("a core, at rest", "core", rest.core * 100.0, " %", 2).at_most(0.1),
        figure("writes to the API server, at rest", "writes", count(rest.writes), "", 0).at_most(0.0),
        figure(
            "  passes in that minute: the safety net is one",
            "passes",
            rest.passes,
            "",
            0,
        ),
    ]);
    Chapter {
        key: "agent",
        title: format!("The agent, {USERS} users with {KEYS} keys each"),
        figures,
        details: json!({"restored": restored.seconds, "bareWrite": restored.bare, "changed": changed}),
    }
}

fn times(what: &str, keys: [&'static str; 2], seconds: &[f64], most: f64) -> [Figure; 2] {
    let at = |part| quantile(seconds.iter().copied(), part) * 1000.0;
    [
        figure(format!("{what}, p99"), keys[0], at(0.99), " ms", 1).at_most(most),
        figure("  p50", keys[1], at(0.5), " ms", 1),
    ]
}

async fn at_rest(bed: &Bed, agent: &Agent) -> Result<Rest> {
    // Its reports have been written.
    pause(Duration::from_secs(15)).await;
    let passes = async || agent.role.total("tidewaiter_reconciles_total{").await;
    let (mark, before, cpu) = (
        bed.cluster.audit_mark().await,
        passes().await?,
        agent.role.cpu_seconds(),
    );
    pause(REST_DURATION).await;
    let core = (agent.role.cpu_seconds() - cpu) / REST_DURATION.as_secs_f64();
    let passes = passes().await? - before;
    let audit = bed.cluster.audit().await.since(mark).by(&account()).writes();
    Ok(Rest {
        memory: agent.role.memory(),
        core,
        writes: audit.count(),
        passes,
    })
}

/// Somebody empties the file, again and again.
async fn edits(agent: &Agent) -> Result<Restored> {
    let good = agent.content();
    // No agent watches it.
    let folder = agent.file.ancestors().nth(4).context("the folder of all agents")?;
    let (mut seconds, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..EDITS {
        pause(CHANGE_INTERVAL / 2).await;
        let file = std::fs::File::options().write(true).open(&agent.file)?;
        let begin = now();
        file.set_len(0)?;
        let end = agent.until(|content| content == good).await?;
        seconds.push(end.duration_since(begin).as_secs_f64());
        pause(CHANGE_INTERVAL / 2).await;
        let begin = now();
        bare_write(folder, good.as_bytes())?;
        bare.push(begin.elapsed().as_secs_f64());
    }
    Ok(Restored { seconds, bare })
}

/// Replaces a file as the agent does.
fn bare_write(folder: &Path, content: &[u8]) -> Result<()> {
    let (next, file) = (folder.join("next"), folder.join("bare"));
    let mut open = std::fs::File::create(&next)?;
    open.write_all(content)?;
    open.sync_all()?;
    std::fs::rename(&next, &file)?;
    Ok(std::fs::File::open(folder)?.sync_all()?)
}

/// A user gets a key in the cloud, and loses it.
async fn changes(bed: &Bed, agents: &[Agent; 2]) -> Result<Vec<f64>> {
    let mut wire = Wire::open(bed.cloud.address).await?;
    let mut seconds = Vec::new();
    for round in 0..ROUNDS {
        let (user, key) = (&bed.cloud.users[round], ssh_key(2 * USERS * KEYS + 2 * round));
        let body = key.split(' ').nth(1).context("a key")?;
        pause(CHANGE_INTERVAL).await;
        let begin = now();
        let made = json!({"name": "new", "key": key});
        let made = bed
            .cloud
            .ask(&mut wire, "POST", &format!("{user}/ssh_keys"), &made)
            .await?;
        seconds.push(last(agents, body, true).await?.duration_since(begin).as_secs_f64());
        pause(CHANGE_INTERVAL).await;
        let begin = now();
        let id = made["id"].as_str().context("an id")?;
        bed.cloud.delete(&mut wire, &format!("{user}/ssh_keys/{id}")).await?;
        seconds.push(last(agents, body, false).await?.duration_since(begin).as_secs_f64());
    }
    Ok(seconds)
}

/// When the last of the agents has written the key, or removed it.
async fn last(agents: &[Agent; 2], key: &str, wanted: bool) -> Result<Instant> {
    let [one, other] = agents;
    let (one, other) = tokio::try_join!(
        one.until(|content| content.contains(key) == wanted),
        other.until(|content| content.contains(key) == wanted)
    )?;
    Ok(one.max(other))
}

async fn fleet(bed: &Bed, agents: usize) -> Result<Fleet> {
    let server = bed.cluster.apiserver().pid();
    let before = Memory::of(server);
    let mut watches = Watches::start(bed, agents).await?;
    let mut wire = Wire::open(bed.cloud.address).await?;
    let cpu = cpu_seconds(server);
    let mut seconds = Vec::new();
    for round in 0..FLEET_ROUNDS {
        pause(CHANGE_INTERVAL).await;
        let path = &bed.cloud.users[ROUNDS + round];
        let user = path.rsplit('/').next().context("a path")?;
        let begin = now();
        let name = json!({"name": format!("Renamed {round}")});
        bed.cloud.ask(&mut wire, "PATCH", path, &name).await?;
        let mut told = 0;
        while told < agents {
            let next = tokio::time::timeout(SOON, watches.told.recv()).await;
            let (at, changed) = next.context("not every watch was told")?.context("the watches ended")?;
            if changed == user {
                seconds.push(at.duration_since(begin).as_secs_f64());
                told += 1;
            }
        }
    }
    Ok(Fleet {
        told: seconds,
        core_seconds: (cpu_seconds(server) - cpu) / count(FLEET_ROUNDS),
        memory: [before, Memory::of(server)],
    })
}
