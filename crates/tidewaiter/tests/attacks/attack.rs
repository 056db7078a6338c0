//! A row of the table: what an attacker does, and what must hold then. And how the rows are played.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use futures::stream::{self, StreamExt as _};
use kube::api::PostParams;
use serde_json::Value;
use tidewaiter_api::ConditionStatus::{False, True, Unknown};
use tidewaiter_testkit::builders::NodeBuilder;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{FakeEc2, Kubelet};

use crate::field::{Field, OF_WORKER, Scene};
use crate::world::{Labels, World, labels_of};

/// One attack.
pub struct Attack {
    /// The act of the attacker, in words.
    pub name: &'static str,
    /// The act.
    pub act: Act,
    /// The expected outcome.
    pub outcome: Outcome,
}

/// An act of an attacker. `Silences` and `Does` concern everybody, so they are played alone; the others concern Nodes
/// of their own, and are played side by side.
pub enum Act {
    /// A kubelet registers this Node under its own name.
    Registers(fn(&Scene<'_>) -> NodeBuilder),
    /// A kubelet registers its Node without a providerID, and merges this into it later.
    PatchesIn(fn(&Scene<'_>) -> Value),
    /// An administrator creates this Node.
    Creates(fn(&Scene<'_>) -> NodeBuilder),
    /// The cloud says something else of the instance of a Node that is labelled, and of that of a new one.
    Spoils(fn(&FakeEc2, FakeInstance)),
    /// The cloud does not answer. Ended by [`Field::heals`].
    Silences(for<'a> fn(&'a FakeEc2) -> LocalBoxFuture<'a, ()>),
    /// Anything else. It names the Nodes on which the outcome is to be seen.
    Does(for<'a> fn(&'a Field) -> LocalBoxFuture<'a, Vec<String>>),
}

/// The expected outcome of an attack, by record, Event and metric: the reason, and words of the message (parted by
/// `…`). No Node has gained a label by it, and none that was labelled has lost one.
#[derive(Clone, Copy)]
pub enum Outcome {
    /// Refused as forged.
    Forged(&'static str, &'static str),
    /// Refused without evidence of forgery.
    Refused(&'static str, &'static str),
    /// Verified, but its group has no definition.
    Undefined(&'static str, &'static str),
    /// Not decided: a new Node waits, and for a Node that was verified nothing is written.
    Unanswered(&'static str, &'static str),
    /// The controller has the Lease again.
    TakenBack,
    /// Other clients of the ports are answered.
    Served,
}

/// Plays all rows, or those that `TIDEWAITER_ATTACK` names.
///
/// # Panics
/// When an attack succeeds; each row says so by itself.
pub async fn run(attacks: &'static [Attack]) {
    let words = chosen();
    let chosen = |attack: &&Attack| words.as_ref().is_none_or(|words| attack.name.contains(words.as_str()));
    let (alone, together): (Vec<&'static Attack>, Vec<&'static Attack>) =
        attacks.iter().filter(chosen).partition(|attack| {
            // The cells that concern everybody.
            matches!(attack.act, Act::Silences(_) | Act::Does(_))
        });
    let field = Field::start().await;
    let side_by_side = stream::iter(together)
        .map(|attack| play(&field, attack))
        .buffer_unordered(8);
    let mut failed: Vec<&str> = side_by_side.filter_map(std::future::ready).collect().await;
    field.heals().await;
    field.controller.counts("unanswered", 0).await;
    for attack in alone {
        failed.extend(play(&field, attack).await);
    }
    assert!(failed.is_empty(), "these attacks were not repelled: {failed:#?}");
    field.controller.stops().await;
}

/// Plays one row; its name if it fails.
async fn play(field: &Field, attack: &'static Attack) -> Option<&'static str> {
    let begin = now();
    let played = async {
        attack.play(field).await;
        field.is_intact().await;
    };
    let repelled = AssertUnwindSafe(played).catch_unwind().await.is_ok();
    let word = if repelled { "repelled" } else { "NOT REPELLED" };
    println!("{word:>12} {:5.1} s  {}", begin.elapsed().as_secs_f64(), attack.name);
    (!repelled).then_some(attack.name)
}

#[expect(clippy::disallowed_methods, reason = "how a person plays one row")]
fn chosen() -> Option<String> {
    std::env::var("TIDEWAITER_ATTACK").ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a row and its parts take in real time"
)]
pub fn now() -> Instant {
    Instant::now()
}

impl Attack {
    async fn play(&self, field: &Field) {
        match self.act {
            Act::Registers(node) => {
                let scene = field.scene();
                let node = node(&scene).build();
                Kubelet::register(&field.world.cluster, &node).await;
                self.gains(field, scene.own.node_name(), &labels_of(&node)).await;
            }
            Act::PatchesIn(patch) => {
                let scene = field.scene();
                let kubelet = Kubelet::register(&field.world.cluster, &scene.node().build()).await;
                kubelet.patch(patch(&scene)).await.unwrap();
                self.gains(field, kubelet.name(), &Labels::new()).await;
            }
            Act::Creates(node) => {
                let node = node(&field.scene()).build();
                let created = field.world.nodes().create(&PostParams::default(), &node).await.unwrap();
                self.gains(field, &created.metadata.name.unwrap(), &labels_of(&node))
                    .await;
            }
            Act::Spoils(spoil) => self.spoil(field, spoil).await,
            Act::Silences(silence) => self.silence(field, silence).await,
            Act::Does(act) => {
                for name in act(field).await {
                    self.is_told(field, &name).await;
                }
                field.heals().await;
            }
        }
    }

    /// The outcome is told of this Node, which gains nothing beside the labels that it had.
    async fn gains(&self, field: &Field, name: &str, own: &Labels) {
        self.is_told(field, name).await;
        field.has_gained_nothing(name, own).await;
    }

    /// The record of the Node, an Event on it and a metric tell of the outcome.
    async fn is_told(&self, field: &Field, name: &str) {
        let Field { world, controller, .. } = field;
        let (reason, words, forged) = match self.outcome {
            Outcome::Forged(reason, words) => (reason, words, true),
            Outcome::Refused(reason, words)
            | Outcome::Undefined(reason, words)
            | Outcome::Unanswered(reason, words) => (reason, words, false),
            Outcome::TakenBack | Outcome::Served => return,
        };
        let (type_, status) = match self.outcome {
            Outcome::Forged(..) | Outcome::Refused(..) => ("Verified", False),
            Outcome::Undefined(..) => ("LabelsValid", Unknown),
            Outcome::Unanswered(..) | Outcome::TakenBack | Outcome::Served => ("Verified", Unknown),
        };
        world.says(name, type_, status, reason, words).await;
        world.tells(name, reason, words).await;
        controller.counts_refusal(reason, forged).await;
        let record = world.records().get(name).await.unwrap();
        assert_eq!(record.status.unwrap().forged, forged, "{name}");
    }

    /// A labelled Node and a new one whose instances the cloud tells wrongly of, until it is right again.
    async fn spoil(&self, field: &Field, spoil: fn(&FakeEc2, FakeInstance)) {
        let Field { world, .. } = field;
        let old = field.joins().await;
        let new = field.launches("nodes");
        for instance in [&old, &new] {
            spoil(&world.ec2, instance.clone());
        }
        Kubelet::register(&world.cluster, &World::node_of(&new).build()).await;
        self.gains_group(field, &new).await;
        match self.outcome {
            // It stays in the group for which it was verified.
            Outcome::Undefined(..) => {
                world.says(old.node_name(), "Verified", False, "GroupChanged", "").await;
            }
            // Nothing is written for it.
            Outcome::Unanswered(reason, words) => {
                world.tells(old.node_name(), reason, words).await;
                world.says(old.node_name(), "Verified", True, "Proven", "").await;
            }
            _ => self.is_told(field, old.node_name()).await,
        }
        field.is_labelled_as_ever(&old).await;
        if matches!(self.outcome, Outcome::Unanswered(..)) {
            return;
        }
        world.ec2.launch([old.clone(), new.clone()]);
        let proven: &[&FakeInstance] = match self.outcome {
            // The new Node was verified for the group without a definition, and so is held.
            Outcome::Undefined(..) => {
                world.is_verified(new.node_name(), False, "GroupChanged").await;
                &[&old]
            }
            _ => &[&old, &new],
        };
        for instance in proven {
            world.has_labels(instance.node_name(), &OF_WORKER).await;
            world.is_verified(instance.node_name(), True, "Proven").await;
        }
    }

    /// As [`Attack::gains`]; the record of a verified Node names its instance.
    async fn gains_group(&self, field: &Field, new: &FakeInstance) {
        self.is_told(field, new.node_name()).await;
        if matches!(self.outcome, Outcome::Undefined(..)) {
            assert_eq!(field.world.labels(new.node_name()).await, Labels::new());
        } else {
            field.has_gained_nothing(new.node_name(), &Labels::new()).await;
        }
    }

    /// Nobody is answered; a Node that was verified stays as it is, a new one waits, and both are right when the cloud
    /// is back.
    async fn silence(&self, field: &Field, silence: for<'a> fn(&'a FakeEc2) -> LocalBoxFuture<'a, ()>) {
        let Field { world, .. } = field;
        let Outcome::Unanswered(reason, words) = self.outcome else {
            panic!("a silent cloud decides nothing");
        };
        let old = field.joins().await;
        let before = world.is_verified(old.node_name(), True, "Proven").await;
        silence(&world.ec2).await;
        world.tells(old.node_name(), reason, words).await;
        let mark = world.cluster.audit_mark().await;
        let new = field.launches("nodes");
        Kubelet::register(&world.cluster, &World::node_of(&new).build()).await;
        self.gains(field, new.node_name(), &Labels::new()).await;
        let written = world.written_since(mark).await;
        let written: Vec<_> = written
            .iter()
            .filter(|write| !write.starts_with("create events "))
            .collect();
        assert_eq!(written, [&format!("create nodeidentities {}", new.node_name())]);
        field.is_labelled_as_ever(&old).await;

        field.heals().await;
        world.has_labels(new.node_name(), &OF_WORKER).await;
        world.is_verified(new.node_name(), True, "Proven").await;
        let after = world.is_verified(old.node_name(), True, "Proven").await;
        assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    }
}
