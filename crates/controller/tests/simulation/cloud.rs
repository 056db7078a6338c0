//! A cloud that answers from the true state, and may be slow, throttling, silent or unavailable.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidewaiter_api::Lifecycle;

use tidewaiter_identity::{AnswerFn, Claim, Identifier, Identity, Refusal, UnavailableCause};
use tidewaiter_testkit::sim::Process;

use crate::truth::{GROUPS, Truth, address, claimed, instance_id, node_name};
use crate::world::sleep;

const API: &str = "ec2:DescribeInstances";

/// The current behaviour of the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Well,
    Throttles,
    /// Accepts calls and never responds.
    Silent,
    Away,
    /// Answers some claims and fails or ignores others.
    Patchy,
    /// Lists no instance, as if all were too new.
    Forgetful,
}

#[derive(Debug)]
pub struct Cloud {
    pub mood: Mood,
    /// The maximum latency of an answer.
    pub latency: Duration,
    pub random: fastrand::Rng,
}

/// The access of one process to the cloud.
#[derive(Debug)]
pub struct Account {
    pub cloud: Arc<Mutex<Cloud>>,
    pub truth: Arc<Mutex<Truth>>,
    pub process: Process,
}

impl Account {
    fn answer(&self, mood: Mood, claim: &Claim) -> Option<Result<Identity, Refusal>> {
        let away = || Refusal::Unavailable {
            api: API,
            cause: UnavailableCause::Unreachable,
            detail: String::new(),
        };
        Some(match mood {
            Mood::Throttles => Err(Refusal::Throttled { api: API }),
            Mood::Away => Err(away()),
            Mood::Silent => return None,
            Mood::Patchy => match self.cloud.lock().unwrap().random.u8(..4) {
                0 => Err(away()),
                1 => return None,
                2 => Err(Refusal::Throttled { api: API }),
                _ => self.identity(claim),
            },
            Mood::Forgetful => Err(Refusal::NotFound {
                instance: claim.provider_id.as_str().to_owned(),
            }),
            Mood::Well => self.identity(claim),
        })
    }

    fn identity(&self, claim: &Claim) -> Result<Identity, Refusal> {
        let Some(number) = claimed(claim.provider_id.as_str()) else {
            let instance = claim.provider_id.as_str().to_owned();
            return Err(Refusal::NotFound { instance });
        };
        let found = self.truth.lock().unwrap().instance(number);
        let instance = instance_id(number);
        if !found.runs {
            let state = "stopped".to_owned();
            return Err(Refusal::NotRunning { instance, state });
        }
        Ok(Identity {
            names: vec![instance.clone(), node_name(number)],
            instance,
            group: GROUPS[found.group].0.parse().unwrap(),
            starting: false,
            zone: "us-test-1a".to_owned(),
            lifecycle: Lifecycle::OnDemand,
            addresses: vec![address(number)],
            tag_labels: Vec::new(),
        })
    }
}

#[async_trait]
impl Identifier for Account {
    fn scheme(&self) -> &'static str {
        "aws"
    }

    fn max_batch(&self) -> usize {
        3
    }

    async fn identify(&self, claims: &[Claim], answers: &AnswerFn<'_>) {
        let (mood, there, back) = {
            let mut cloud = self.cloud.lock().unwrap();
            let longest = u64::try_from(cloud.latency.as_millis()).unwrap();
            let mut way = || Duration::from_millis(cloud.random.u64(1..=longest));
            let (there, back) = (way(), way());
            (cloud.mood, there, back)
        };
        sleep(there).await;
        if mood == Mood::Silent {
            std::future::pending::<()>().await;
        }
        let all: Vec<_> = claims.iter().map(|claim| self.answer(mood, claim)).collect();
        sleep(back).await;
        self.process.running().await;
        for (place, answer) in all.into_iter().enumerate() {
            if let Some(answer) = answer {
                answers(place, answer);
            }
        }
    }
}
