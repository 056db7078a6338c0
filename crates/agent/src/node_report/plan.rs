//! The desired report, if it differs from the written one. Pure.

use jiff::Timestamp;
use tidewaiter_api::node_report::{
    APPLIED, BREAK_GLASS_OF_USERS, BreakGlassUse, BreakGlassUser, FOREIGN_LINES, ForeignKey, KEYS_EXPIRING, MOST_NAMED,
    MOST_USERS,
};
use tidewaiter_api::{Condition, ConditionStatus, HostFacts, NodeReportStatus, RefusedKey, Tampering, UserKeys};

use crate::upgrade::report::ReportedUpgrade;
use crate::user_controller::expiry::Expiry;
use crate::user_controller::{AgentStatus, Outcome, Refused};

/// The status to write over `before`. Nothing when it says the same, and nothing before anything is known.
pub(super) fn plan(
    before: Option<&NodeReportStatus>,
    agent: &AgentStatus,
    upgrade: &ReportedUpgrade,
    facts: &HostFacts,
    now: Timestamp,
) -> Option<NodeReportStatus> {
    let conditions = before.map_or(&[][..], |before| &before.conditions);
    let mut status = match &agent.outcome {
        Some(outcome) if outcome.logins.is_some() => of_outcome(outcome, before, now),
        // The report of an earlier agent is still valid, as far as this one knows.
        _ => before.cloned().unwrap_or_default(),
    };
    env!("CARGO_PKG_VERSION").clone_into(&mut status.agent_version);
    status.host = facts.clone();
    let known = before.and_then(|before| before.upgrade.clone());
    status.upgrade = match upgrade {
        ReportedUpgrade::Disabled => None,
        // Without it, the coordinator would take this agent for one that reports no upgrades, while a script may run.
        ReportedUpgrade::Unknown => Some(known.unwrap_or_default()),
        ReportedUpgrade::Reported(report) => Some(report.clone()),
    };
    status.restores = agent.restores;
    status.tampering = tampering(before, agent);
    status.conditions = vec![applied(agent, conditions, now)?];
    if let Some(outcome) = &agent.outcome {
        status.conditions.extend(foreign(outcome, conditions, now));
        status
            .conditions
            .extend(of_users(&status.break_glass_users, conditions, now));
        status.conditions.extend(expiring(outcome, conditions, now));
    }
    (before != Some(&status)).then_some(status)
}

fn of_outcome(outcome: &Outcome, before: Option<&NodeReportStatus>, now: Timestamp) -> NodeReportStatus {
    let logins = outcome.logins.iter().flat_map(|logins| logins.iter());
    let users: Vec<UserKeys> = logins
        .map(|(id, keys)| {
            let id = id.to_string();
            let fingerprints: Vec<String> = keys.iter().map(|key| key.fingerprint.clone()).collect();
            let same = |user: &&UserKeys| user.id == id && user.fingerprints == fingerprints;
            let known = before.and_then(|before| before.users.iter().find(same));
            let since = known.map_or_else(|| whole_seconds(now), |known| known.since);
            UserKeys {
                id,
                fingerprints,
                since,
            }
        })
        .take(MOST_USERS)
        .collect();
    NodeReportStatus {
        keys: count(users.iter().map(|user| user.fingerprints.len()).sum()),
        users,
        refused_keys: count(outcome.refused.len()),
        refused: outcome.refused.iter().take(MOST_NAMED).map(refused).collect(),
        foreign_lines: count(outcome.foreign_lines),
        foreign_keys: outcome.foreign_keys.iter().take(MOST_NAMED).map(foreign_key).collect(),
        foreign_lines_until: outcome.foreign_until.map(whole_seconds),
        break_glass_keys: outcome.break_glass.iter().take(MOST_NAMED).cloned().collect(),
        break_glass_users: outcome.break_glass_users.clone(),
        break_glass_use: outcome.break_glass_use.as_ref().map(break_glass_use),
        ..NodeReportStatus::default()
    }
}

/// None before the first pass.
fn applied(agent: &AgentStatus, before: &[Condition], now: Timestamp) -> Option<Condition> {
    let in_force = agent.outcome.as_deref().map(in_force).unwrap_or_default();
    let (status, reason, message) = match (&agent.error, &agent.outcome) {
        (Some(error), _) => (ConditionStatus::False, "NotWritten", error.as_str()),
        (None, None) => return None,
        (None, Some(outcome)) if outcome.logins.is_none() => (
            ConditionStatus::Unknown,
            "NotListed",
            "the Users were not listed yet, and authorized_keys is not as an agent leaves it; it stays as it is",
        ),
        (None, Some(outcome)) if !outcome.is_listed => (
            ConditionStatus::Unknown,
            "NotListed",
            "the Users were not listed yet; who could log in before still can",
        ),
        (None, Some(outcome)) if outcome.is_held => (
            ConditionStatus::False,
            "RemovalHeld",
            "most users would lose access, or the last one, or some since the agent started; their keys stay until CloudSync confirms it",
        ),
        (None, Some(_)) => (ConditionStatus::True, "Applied", in_force.as_str()),
    };
    Some(Condition::new(APPLIED, status, reason, message, before, now))
}

/// The message about `authorized_keys`, with the reason why the first refused key is absent.
fn in_force(outcome: &Outcome) -> String {
    let in_force = "authorized_keys is as the Users say";
    let Some(Refused { user, key, reason }) = outcome.refused.first() else {
        return in_force.to_owned();
    };
    let key = if key.is_empty() { "all keys" } else { key };
    let number = outcome.refused.len();
    format!("{in_force}, without what is refused ({number}), first {key} of {user}: {reason}")
}

/// None while there are none, and while the file was not looked at.
fn foreign(outcome: &Outcome, before: &[Condition], now: Timestamp) -> Option<Condition> {
    let (reason, message) = match (outcome.foreign_lines, outcome.foreign_until) {
        (0, _) => return None,
        (lines, Some(until)) => (
            "Grace",
            format!(
                "{lines} lines of authorized_keys are not the agent's, and are removed at {}: then whoever has one of the \
                 keys in foreignKeys cannot log in with it. {}",
                whole_seconds(until),
                pin(outcome)
            ),
        ),
        (lines, None) => (
            "Kept",
            format!(
                "{lines} lines of authorized_keys are not the agent's, and stay, because foreignLines is keep: whoever has \
                 one of their keys can log in, and no change in the cloud ends that. {}",
                pin(outcome)
            ),
        ),
    };
    let message: String = message.trim_end().chars().take(1024).collect();
    let status = ConditionStatus::True;
    Some(Condition::new(FOREIGN_LINES, status, reason, &message, before, now))
}

/// The instruction to keep the keys of lines that operators marked as break-glass lines before such keys were pinned.
fn pin(outcome: &Outcome) -> String {
    let marked = outcome.foreign_keys.iter().filter(|key| key.is_marked);
    let commands: Vec<String> = marked
        .take(4)
        .map(|key| format!("tidewaiter host break-glass pin {}", key.fingerprint))
        .collect();
    if commands.is_empty() {
        return String::new();
    }
    format!(
        "A line with # break-glass is one of them. To keep its key, run this on the node as root: {}",
        commands.join("; ")
    )
}

fn foreign_key(key: &crate::authorized_keys::ForeignKey) -> ForeignKey {
    ForeignKey {
        fingerprint: key.fingerprint.clone(),
        comment: key.comment.clone(),
    }
}

/// The condition with the commands that end their access; None without such users.
fn of_users(users: &[BreakGlassUser], before: &[Condition], now: Timestamp) -> Option<Condition> {
    let keys = users.iter().map(|BreakGlassUser { fingerprint, user }| {
        format!("that of the user {user}: tidewaiter host break-glass remove {fingerprint}")
    });
    let keys: Vec<String> = keys.collect();
    let message = format!(
        "break-glass keys are users' own, who can log in with them also when their User is deleted; if that is not meant, run \
         on the node as root, for {}",
        keys.join("; ")
    );
    let message: String = message.chars().take(1024).collect();
    let status = ConditionStatus::True;
    (!users.is_empty()).then(|| Condition::new(BREAK_GLASS_OF_USERS, status, "Pinned", &message, before, now))
}

fn break_glass_use((at, fingerprint): &(Timestamp, String)) -> BreakGlassUse {
    BreakGlassUse {
        at: whole_seconds(*at),
        fingerprint: fingerprint.clone(),
    }
}

fn expiring(outcome: &Outcome, before: &[Condition], now: Timestamp) -> Option<Condition> {
    let (status, message) = match outcome.expiry {
        Expiry::Off => return None,
        Expiry::Confirmed(_) => (ConditionStatus::False, "the mirror of the cloud confirms the users"),
        Expiry::Soon(_) => (
            ConditionStatus::True,
            "the mirror of the cloud has not confirmed the users for long; within hours their keys are removed, except break-glass keys: see that the coordinator reaches the cloud",
        ),
        Expiry::Expired => (
            ConditionStatus::True,
            "the mirror of the cloud has not confirmed the users for keysExpireAfter; their keys were removed, except break-glass keys: see that the coordinator reaches the cloud",
        ),
    };
    Some(Condition::new(
        KEYS_EXPIRING,
        status,
        outcome.expiry.word(),
        message,
        before,
        now,
    ))
}

fn refused(refused: &Refused) -> RefusedKey {
    RefusedKey {
        user: refused.user.chars().take(253).collect(),
        key: refused.key.clone(),
        reason: refused.reason.clone(),
    }
}

/// Changes of this agent and of earlier ones: otherwise an intruder who ends the agent would erase them.
fn tampering(before: Option<&NodeReportStatus>, agent: &AgentStatus) -> Vec<Tampering> {
    let mut rows = before.map(|before| before.tampering.clone()).unwrap_or_default();
    let found = agent.tampering.iter().map(|(at, what)| Tampering {
        at: whole_seconds(*at),
        what: what.chars().take(1024).collect(),
    });
    let new: Vec<_> = found.filter(|row| !rows.contains(row)).collect();
    rows.extend(new);
    rows.split_off(rows.len().saturating_sub(MOST_NAMED))
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
