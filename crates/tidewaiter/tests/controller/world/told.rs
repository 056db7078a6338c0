//! The reports about a Node: by the conditions of its record, by Events, by the audit log, by metrics.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use tidewaiter_api::ConditionStatus;
use tidewaiter_testkit::{AuditMark, Identity, eventually, settled};

use super::{Controller, SOON, World, is_of_nodes, service_account, shown};

impl World {
    /// Waits until a condition of the Node's record says this, with this reason, and with all of `words` (parted by
    /// `…`) in its message.
    pub async fn says(&self, name: &str, type_: &str, status: ConditionStatus, reason: &str, words: &str) {
        let what = format!("the record of {name} to say {type_}={status:?} {reason}: {words}");
        eventually(what, SOON, async || {
            let record = self.records().get_opt(name).await.map_err(shown)?;
            let found = record.as_ref().and_then(|record| record.condition(type_));
            match found {
                Some(found) if found.status == status && found.reason == reason && has_words(&found.message, words) => {
                    Ok(())
                }
                _ => Err(format!("{record:?}")),
            }
        })
        .await;
    }

    /// Waits for an Event with this reason, and with all of `words` (parted by `…`) in its note.
    pub async fn tells(&self, name: &str, reason: &str, words: &str) {
        eventually(format!("an Event {reason} on {name}: {words}"), SOON, async || {
            let events = self.events(name).await;
            let found = events
                .iter()
                .any(|(found, note)| found == reason && has_words(note, words));
            if found { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await;
    }

    /// The Events on this Node, as reason and note.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events: Api<Event> = Api::namespaced(self.cluster.client(&Identity::Admin), "default");
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let about = |event: &Event| event.regarding.as_ref().and_then(|node| node.name.as_deref()) == Some(name);
        all.into_iter()
            .filter(about)
            .map(|event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
            .collect()
    }

    /// Every write of the controller since `mark`, but for the Lease's and those that tell of the cluster's health, as
    /// `verb resource name`. Refused ones count.
    pub async fn written_since(&self, mark: AuditMark) -> Vec<String> {
        let writes = self.cluster.audit().await.since(mark).by(&service_account()).writes();
        writes
            .iter()
            .filter(|entry| is_of_nodes(entry))
            .map(|entry| (entry.verb.as_str(), &entry.object_ref))
            .map(|(verb, object)| format!("{verb} {} {}", object.resource, object.name))
            .collect()
    }

    /// Returns the number of writes of the controller to this Node itself, ever.
    pub async fn patches(&self, name: &str) -> usize {
        let writes = self.cluster.audit().await.by(&service_account()).writes().of("nodes");
        writes.filter(|entry| entry.object_ref.name == name).count()
    }
}

impl Controller {
    /// The passes over all Nodes that have ended, however they did.
    pub async fn passes(&self) -> f64 {
        let metrics = self.metrics().await;
        let series = metrics
            .lines()
            .filter(|line| line.starts_with("tidewaiter_reconciles_total{controller=\"node\""));
        series
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// The same, once no more of them end.
    pub async fn rests(&self) -> f64 {
        settled("the passes", Duration::from_secs(2), SOON, async || self.passes().await).await
    }

    /// Waits until so many passes have ended.
    pub async fn has_passed(&self, passes: f64) {
        eventually(format!("{passes} passes"), SOON, async || {
            let ended = self.passes().await;
            if ended >= passes { Ok(()) } else { Err(ended) }
        })
        .await;
    }

    /// Waits until so many Nodes stand so: `verified`, `refused`, …
    pub async fn counts(&self, state: &str, nodes: u32) {
        self.has_metric(&format!("tidewaiter_nodes{{state=\"{state}\"}}"), |found| {
            found == f64::from(nodes)
        })
        .await;
    }

    /// Waits until a pass was refused for this reason.
    pub async fn counts_refusal(&self, reason: &str, forged: bool) {
        let series = format!("tidewaiter_refusals_total{{forged=\"{forged}\",reason=\"{reason}\"}}");
        self.has_metric(&series, |count| count >= 1.0).await;
    }

    /// Waits until `/readyz` says so, with all of `words` (parted by `…`).
    pub async fn is_ready(&self, ready: bool, words: &str) {
        eventually(format!("/readyz to say {ready}: {words}"), SOON, async || {
            let answer = self.get(&self.admin, "/readyz").await.map_err(shown)?;
            let found = answer.status().is_success();
            let text = answer.text().await.map_err(shown)?;
            if found == ready && has_words(&text, words) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
    }

    /// Waits until its log has a line with all of `words` (parted by `…`).
    pub async fn logs(&self, words: &str) {
        eventually(format!("a line of the log with {words}"), SOON, async || {
            let log = self.process.log();
            if log.lines().any(|line| has_words(line, words)) {
                Ok(())
            } else {
                Err(self.process.log_tail())
            }
        })
        .await;
    }
}

fn has_words(text: &str, words: &str) -> bool {
    words.split(" … ").all(|word| text.contains(word))
}
