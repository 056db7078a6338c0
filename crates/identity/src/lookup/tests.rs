use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tidewaiter_api::Lifecycle;
use tidewaiter_kit::ManualClock;
use tokio::sync::mpsc;

use super::*;
use crate::identifier::{AnswerFn, Identity};

mod parked;
mod unlisted;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

/// A call in flight: the test answers it with `give`, and ends it by dropping it.
struct Asked {
    claims: Vec<Claim>,
    give: mpsc::UnboundedSender<(usize, Result<Identity, Refusal>)>,
}

impl Asked {
    fn give(&self, place: usize, answer: Result<Identity, Refusal>) {
        self.give.send((place, answer)).unwrap();
    }

    /// Answers each claim with the claimed identity.
    fn answer_all(self) {
        for (place, claim) in self.claims.iter().enumerate() {
            self.give(place, Ok(identity_of(claim)));
        }
    }

    fn refuse_all(self, refusal: &Refusal) {
        for place in 0..self.claims.len() {
            self.give(place, Err(refusal.clone()));
        }
    }
}

struct Scripted(mpsc::UnboundedSender<Asked>);

#[async_trait]
impl Identifier for Scripted {
    fn scheme(&self) -> &'static str {
        "test"
    }

    fn max_batch(&self) -> usize {
        1000
    }

    async fn identify(&self, claims: &[Claim], answers: &AnswerFn<'_>) {
        let (give, mut given) = mpsc::unbounded_channel();
        let claims = claims.to_vec();
        self.0.send(Asked { claims, give }).unwrap();
        while let Some((place, answer)) = given.recv().await {
            answers(place, answer);
        }
    }
}

/// A lookup whose run loop and callers are polled only by the test, so that nothing runs between two lines.
struct Bench {
    lookup: Arc<Lookup>,
    clock: ManualClock,
    asked: mpsc::UnboundedReceiver<Asked>,
    /// The Nodes that were announced because the cloud is back.
    back: Arc<Mutex<Vec<NodeName>>>,
    shutdown: CancellationToken,
    running: BoxFuture<'static, Result<(), Infallible>>,
    callers: Vec<(usize, BoxFuture<'static, Result<Answer, Refusal>>)>,
    answers: HashMap<usize, Result<Answer, Refusal>>,
    next: usize,
    expects_more: Arc<AtomicBool>,
}

impl Bench {
    fn new() -> Self {
        Self::with(LookupSettings::default())
    }

    fn with(settings: LookupSettings) -> Self {
        let (sender, asked) = mpsc::unbounded_channel();
        let clock = ManualClock::default();
        let lookup = Arc::new(Lookup::new(Arc::new(Scripted(sender)), clock.shared(), settings));
        let shutdown = CancellationToken::new();
        let back = Arc::new(Mutex::new(Vec::new()));
        let announced = Arc::clone(&back);
        let on_back = move |node: &NodeName| announced.lock().push(node.clone());
        let expects_more = Arc::new(AtomicBool::new(false));
        let expects = Arc::clone(&expects_more);
        let expects = move || expects.load(Ordering::Relaxed);
        let running = Arc::clone(&lookup).run(shutdown.clone(), on_back, expects).boxed();
        Self {
            expects_more,
            lookup,
            clock,
            asked,
            back,
            shutdown,
            running,
            callers: Vec::new(),
            answers: HashMap::new(),
            next: 0,
        }
    }

    /// Adds a caller and returns its number.
    fn ask(&mut self, claim: Claim) -> usize {
        let lookup = Arc::clone(&self.lookup);
        self.callers
            .push((self.next, async move { lookup.identify(claim).await }.boxed()));
        self.next += 1;
        self.settle();
        self.next - 1
    }

    fn drop_caller(&mut self, number: usize) {
        self.callers.retain(|(other, _)| *other != number);
        self.settle();
    }

    /// Polls until no task can make progress.
    fn settle(&mut self) {
        for _ in 0..6 + 2 * YIELDS {
            let mut waiting = Vec::new();
            for (number, mut caller) in std::mem::take(&mut self.callers) {
                match caller.as_mut().now_or_never() {
                    Some(answer) => {
                        self.answers.insert(number, answer);
                    }
                    None => waiting.push((number, caller)),
                }
            }
            self.callers = waiting;
            if !self.shutdown.is_cancelled() {
                assert!(self.running.as_mut().now_or_never().is_none(), "it ended");
            }
        }
    }

    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.settle();
    }

    /// The call in flight.
    fn call(&mut self) -> Asked {
        self.settle();
        self.asked.try_recv().expect("a call")
    }

    fn no_call(&mut self) {
        self.settle();
        assert!(self.asked.try_recv().is_err(), "a call that nobody needed");
    }

    fn answer(&mut self, number: usize) -> Result<Answer, Refusal> {
        self.settle();
        self.answers.remove(&number).expect("an answer")
    }

    fn no_answer(&mut self, number: usize) {
        self.settle();
        assert!(
            !self.answers.contains_key(&number),
            "an answer too early: {:?}",
            self.answers[&number]
        );
    }

    /// Queries and answers, so that the answer is cached.
    fn know(&mut self, claim: &Claim) {
        let number = self.ask(claim.clone());
        self.call().answer_all();
        self.answer(number).unwrap();
    }
}

fn just_under(time: Duration) -> Duration {
    time.saturating_sub(Duration::from_millis(1))
}

fn claim(name: &str) -> Claim {
    Claim {
        node: name.parse().unwrap(),
        uid: format!("uid-of-{name}").parse().unwrap(),
        provider_id: format!("test://{name}").parse().unwrap(),
        addresses: Vec::new(),
        rivals: Vec::new(),
    }
}

fn identity_of(claim: &Claim) -> Identity {
    Identity {
        instance: claim.provider_id.rest().to_owned(),
        group: "nodes".parse().unwrap(),
        starting: false,
        zone: "a".to_owned(),
        lifecycle: Lifecycle::OnDemand,
        names: vec![claim.provider_id.rest().to_owned()],
        addresses: Vec::new(),
        tag_labels: Vec::new(),
    }
}

fn names(asked: &Asked) -> Vec<&str> {
    asked.claims.iter().map(|claim| claim.node.as_str()).collect()
}

fn throttled() -> Refusal {
    Refusal::Throttled { api: "test" }
}

fn unavailable() -> Refusal {
    Refusal::Unavailable {
        api: "test",
        cause: UnavailableCause::Unreachable,
        detail: String::new(),
    }
}

fn not_running() -> Refusal {
    Refusal::NotRunning {
        instance: "x".to_owned(),
        state: "stopped".to_owned(),
    }
}

#[test]
fn a_thousand_at_once_are_two_calls() {
    let mut bench = Bench::new();
    let numbers: Vec<_> = (0..1000).map(|n| bench.ask(claim(&format!("n{n}")))).collect();
    let first = bench.call();
    assert_eq!(names(&first), ["n0"], "the first is asked at once");
    bench.no_call();
    first.answer_all();
    let second = bench.call();
    assert_eq!(second.claims.len(), 999, "what came meanwhile is asked together");
    assert_eq!(second.claims[0].node.as_str(), "n1", "in the order in which it came");
    second.answer_all();
    for (n, number) in numbers.into_iter().enumerate() {
        let answer = bench.answer(number).unwrap();
        assert_eq!(answer.proven.identity().instance, format!("n{n}"));
    }
    bench.no_call();
}

#[test]
fn a_call_holds_no_more_than_the_cloud_takes() {
    let mut bench = Bench::new();
    for n in 0..1502 {
        bench.ask(claim(&format!("n{n}")));
    }
    bench.call().answer_all();
    let full = bench.call();
    assert_eq!(full.claims.len(), 1000);
    full.answer_all();
    assert_eq!(bench.call().claims.len(), 501);
}

#[test]
fn an_answer_is_kept_for_the_uid_and_the_provider_id_together() {
    let mut bench = Bench::new();
    bench.know(&claim("a"));
    for _ in 0..100 {
        let number = bench.ask(claim("a"));
        bench.answer(number).unwrap();
    }
    bench.no_call();
    let reborn = Claim {
        uid: "another".parse().unwrap(),
        ..claim("a")
    };
    bench.know(&reborn);
    let moved = Claim {
        provider_id: "test://b".parse().unwrap(),
        ..claim("a")
    };
    let number = bench.ask(moved);
    bench.call().answer_all();
    assert_eq!(bench.answer(number).unwrap_err().reason(), "NameMismatch");
}

#[test]
fn what_is_kept_is_proven_anew_each_time() {
    let mut bench = Bench::with(LookupSettings {
        node_names: NodeNames::Warn,
        ..LookupSettings::default()
    });
    bench.know(&claim("a"));
    let rivalled = Claim {
        rivals: vec!["b".parse().unwrap()],
        ..claim("a")
    };
    let number = bench.ask(rivalled);
    assert_eq!(bench.answer(number).unwrap_err().reason(), "Duplicate");
    let elsewhere = Claim {
        addresses: vec!["10.0.0.1".parse().unwrap()],
        ..claim("a")
    };
    let number = bench.ask(elsewhere);
    assert_eq!(bench.answer(number).unwrap_err().reason(), "AddressMismatch");
    bench.no_call();
    let number = bench.ask(claim("a"));
    assert!(bench.answer(number).is_ok(), "and is still there");
}

/// EC2 may not know the name of an instance that is starting, and its group may still be changed by what launches it.
#[test]
fn an_answer_about_a_starting_instance_is_kept_for_a_minute_at_most() {
    let mut bench = Bench::new();
    let starting = |names: Vec<String>| Identity {
        starting: true,
        names,
        ..identity_of(&claim("a"))
    };
    let number = bench.ask(claim("a"));
    bench.call().give(0, Ok(starting(Vec::new())));
    assert_eq!(bench.answer(number).unwrap_err().reason(), "Starting");
    bench.advance(SECOND);
    bench.call().give(0, Ok(starting(vec!["a".to_owned()])));
    bench.settle();
    let number = bench.ask(claim("a"));
    let fresh_for = bench.answer(number).unwrap().fresh_for;
    assert!(fresh_for <= DOUBTED_AGE, "{fresh_for:?}");
    bench.ask(claim("a"));
    bench.no_call();
    bench.advance(DOUBTED_AGE);
    bench.know(&claim("a"));
}

#[test]
fn a_refusal_is_never_kept() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        let number = bench.ask(claim("a"));
        bench.call().refuse_all(&not_running());
        assert_eq!(bench.answer(number), Err(not_running()));
    }
    bench.know(&claim("a"));
}

#[test]
fn an_answer_expires_and_says_when() {
    let mut bench = Bench::new();
    bench.know(&claim("a"));
    let number = bench.ask(claim("a"));
    let fresh_for = bench.answer(number).unwrap().fresh_for;
    assert!(fresh_for <= HOUR && fresh_for > HOUR * 7 / 10, "{fresh_for:?}");
    bench.advance(just_under(fresh_for));
    let number = bench.ask(claim("a"));
    assert!(bench.answer(number).is_ok());
    bench.advance(Duration::from_millis(1));
    bench.ask(claim("a"));
    assert_eq!(names(&bench.call()), ["a"]);
}

#[test]
fn what_expires_is_asked_again_together() {
    let mut bench = Bench::new();
    let numbers: Vec<_> = (0..500).map(|n| bench.ask(claim(&format!("n{n}")))).collect();
    bench.call().answer_all();
    bench.call().answer_all();
    let ends: BTreeSet<Duration> = numbers
        .into_iter()
        .map(|number| bench.answer(number).unwrap().fresh_for)
        .collect();
    assert!(
        (8..=17).contains(&ends.len()),
        "500 answers expire at {} times",
        ends.len()
    );
}

#[test]
fn what_is_forgotten_is_asked_again() {
    let mut bench = Bench::new();
    bench.know(&claim("a"));
    bench.know(&claim("b"));
    bench.lookup.forget(&claim("a").uid);
    bench.ask(claim("b"));
    bench.no_call();
    bench.ask(claim("a"));
    assert_eq!(names(&bench.call()), ["a"]);
}

/// A kubelet may give reason to doubt at each of its reports.
#[test]
fn an_answer_in_doubt_expires_when_it_is_a_minute_old() {
    let mut bench = Bench::new();
    bench.know(&claim("a"));
    bench.know(&claim("b"));
    for _ in 0..100 {
        bench.lookup.doubt(&claim("a").uid);
        let number = bench.ask(claim("a"));
        assert_eq!(bench.answer(number).unwrap().fresh_for, DOUBTED_AGE);
    }
    bench.advance(DOUBTED_AGE);
    bench.ask(claim("b"));
    bench.no_call();
    bench.know(&claim("a"));
    bench.advance(DOUBTED_AGE);
    bench.ask(claim("a"));
    bench.no_call();
    bench.lookup.doubt(&claim("a").uid);
    bench.know(&claim("a"));
}

#[test]
fn an_answer_that_was_under_way_when_its_node_came_into_doubt_is_not_kept() {
    let mut bench = Bench::new();
    bench.ask(claim("a"));
    let before = bench.call();
    bench.lookup.doubt(&claim("a").uid);
    before.answer_all();
    bench.settle();
    bench.ask(claim("a"));
    assert_eq!(names(&bench.call()), ["a"]);
}

#[test]
fn an_answer_that_was_under_way_when_its_node_was_forgotten_is_not_kept() {
    let mut bench = Bench::new();
    bench.know(&claim("before"));
    let number = bench.ask(claim("a"));
    let before = bench.call();
    bench.lookup.forget(&claim("a").uid);
    bench.advance(PATIENCE);
    bench.ask(claim("a"));
    let after = bench.call();
    before.answer_all();
    assert!(bench.answer(number).is_ok(), "who asked gets it");
    after.refuse_all(&not_running());
    bench.settle();
    bench.ask(claim("a"));
    assert_eq!(names(&bench.call()), ["a"], "the older answer was not kept");
}

#[test]
fn nobody_is_kept_for_longer_than_an_answer_is_true() {
    let mut bench = Bench::new();
    for n in 0..50 {
        bench.know(&claim(&format!("n{n}")));
    }
    bench.advance(2 * HOUR);
    bench.know(&claim("late"));
    assert_eq!(bench.lookup.state.lock().cached.len(), 1);
    assert!(bench.lookup.state.lock().in_flight.is_empty());
}

#[test]
fn a_caller_who_goes_before_the_call_is_not_asked_for() {
    let mut bench = Bench::new();
    bench.ask(claim("first"));
    let first = bench.call();
    let gone = bench.ask(claim("gone"));
    let stays = bench.ask(claim("stays"));
    bench.drop_caller(gone);
    first.answer_all();
    let second = bench.call();
    assert_eq!(names(&second), ["stays"]);
    second.answer_all();
    assert!(bench.answer(stays).is_ok());
}

#[test]
fn when_all_callers_have_gone_no_call_is_made() {
    let mut bench = Bench::new();
    bench.ask(claim("first"));
    let first = bench.call();
    let gone = bench.ask(claim("gone"));
    bench.drop_caller(gone);
    first.answer_all();
    bench.no_call();
    bench.know(&claim("next"));
}

#[test]
fn the_answer_of_a_caller_who_goes_during_the_call_is_kept_for_the_next() {
    let mut bench = Bench::new();
    let gone = bench.ask(claim("a"));
    let stays = bench.ask(claim("b"));
    let call = bench.call();
    bench.drop_caller(gone);
    call.answer_all();
    bench.settle();
    let next = bench.ask(claim("a"));
    assert!(bench.answer(next).is_ok());
    bench.call().answer_all();
    assert!(bench.answer(stays).is_ok());
    bench.no_call();
}

#[test]
fn throttling_slows_everybody_down_together() {
    let mut bench = Bench::new();
    let first = bench.ask(claim("a"));
    bench.call().refuse_all(&throttled());
    assert_eq!(
        bench.answer(first),
        Err(throttled()),
        "the caller gets the refusal at once"
    );
    bench.lookup.forget(&claim("a").uid);
    for n in 0..100 {
        bench.ask(claim(&format!("n{n}")));
    }
    bench.no_call();
    bench.advance(just_under(SECOND / 2));
    bench.no_call();
    bench.advance(SECOND);
    let joined = bench.call();
    assert_eq!(joined.claims.len(), 100, "what waited is one call");
    joined.refuse_all(&throttled());
    bench.settle();
    for n in 0..100 {
        bench.lookup.forget(&claim(&format!("n{n}")).uid);
    }
    bench.ask(claim("again"));
    bench.advance(just_under(SECOND));
    bench.no_call();
    bench.advance(SECOND * 2);
    bench.call().answer_all();
    bench.settle();
    bench.ask(claim("well"));
    assert_eq!(names(&bench.call()), ["well"], "after a success there is no wait");
}

#[test]
fn a_cloud_that_refuses_connections_is_not_stormed() {
    let mut bench = Bench::new();
    let mut calls = 0;
    // A thousand Nodes query ten times a second for ten seconds.
    for tick in 0..100 {
        for n in 0..10 {
            bench.ask(claim(&format!("n{tick}-{n}")));
        }
        while let Ok(asked) = bench.asked.try_recv() {
            calls += 1;
            asked.refuse_all(&unavailable());
            bench.settle();
        }
        bench.advance(SECOND / 10);
    }
    assert!((5..=30).contains(&calls), "{calls} calls in 10 s");
    bench.advance(SECOND * 5);
    while let Ok(asked) = bench.asked.try_recv() {
        asked.answer_all();
        bench.settle();
    }
    bench.know(&claim("well"));
}

#[test]
fn an_answer_comes_as_soon_as_it_is_known() {
    let mut bench = Bench::new();
    bench.ask(claim("first"));
    let first = bench.call();
    let healthy = bench.ask(claim("healthy"));
    let slow = bench.ask(claim("slow"));
    first.answer_all();
    let call = bench.call();
    call.give(0, Ok(identity_of(&call.claims[0])));
    assert!(bench.answer(healthy).is_ok());
    bench.no_answer(slow);
}

#[test]
fn a_call_that_takes_long_holds_up_nobody_for_longer_than_patience() {
    let mut bench = Bench::new();
    bench.know(&claim("before"));
    bench.ask(claim("slow"));
    let slow = bench.call();
    let healthy = bench.ask(claim("healthy"));
    bench.advance(just_under(PATIENCE));
    bench.no_call();
    bench.advance(Duration::from_millis(1));
    bench.call().answer_all();
    assert!(bench.answer(healthy).is_ok());
    // While the slow call is in flight, the next one starts at once.
    bench.know(&claim("next"));
    slow.answer_all();
    bench.no_call();
}

#[test]
fn calls_under_way_are_bounded() {
    let mut bench = Bench::with(LookupSettings {
        deadline: HOUR,
        ..LookupSettings::default()
    });
    bench.know(&claim("before"));
    let mut hanging = Vec::new();
    for n in 0..40 {
        bench.ask(claim(&format!("n{n}")));
        hanging.extend(bench.asked.try_recv());
        bench.advance(PATIENCE);
        hanging.extend(bench.asked.try_recv());
    }
    assert_eq!(hanging.len(), MAX_CALLS);
    hanging.pop().unwrap().answer_all();
    assert_eq!(bench.call().claims.len(), 40 - MAX_CALLS);
}

/// Thousands who start at once while the cloud is away must not make a call for each thousand.
#[test]
fn until_the_cloud_has_answered_once_one_call_counts_for_all() {
    for refusal in [throttled(), unavailable()] {
        let mut bench = Bench::new();
        let first = bench.ask(claim("first"));
        let call = bench.call();
        let lookup = Arc::clone(&bench.lookup);
        let behind: Vec<_> = (0..2_500).map(|n| lookup.identify(claim(&format!("n{n}")))).collect();
        let mut behind = futures::future::join_all(behind).boxed();
        assert!(behind.as_mut().now_or_never().is_none());
        bench.advance(PATIENCE * 2);
        bench.no_call();
        call.refuse_all(&refusal);
        assert_eq!(bench.answer(first), Err(refusal.clone()));
        let answers = behind.as_mut().now_or_never().unwrap();
        assert!(answers.into_iter().all(|answer| answer == Err(refusal.clone())));
        drop(behind);
        bench.advance(just_under(SECOND * 9 / 10));
        bench.no_call();
        bench.advance(SECOND / 5);
        let tried = bench.call();
        assert_eq!(tried.claims.len(), 1000, "they are tried together");
        tried.answer_all();
        bench.settle();
        assert_eq!(bench.back.lock().len(), 2_501);
        bench.know(&claim("well"));
    }
}

#[test]
fn a_provider_that_hangs_is_left() {
    let mut bench = Bench::new();
    let number = bench.ask(claim("a"));
    let call = bench.call();
    bench.advance(LookupSettings::default().deadline);
    let refusal = bench.answer(number).unwrap_err();
    assert_eq!(refusal.to_string(), "lookup: not reachable (timeout)");
    assert!(
        call.give.send((0, Ok(identity_of(&call.claims[0])))).is_err(),
        "its future was dropped"
    );
}

#[test]
fn a_provider_that_answers_badly_harms_nobody() {
    let mut bench = Bench::new();
    let forgotten = bench.ask(claim("forgotten"));
    bench.call();
    assert!(bench.answer(forgotten).unwrap_err().is_transient());
    bench.lookup.forget(&claim("forgotten").uid);
    bench.advance(SECOND);
    let twice = bench.ask(claim("twice"));
    let call = bench.call();
    call.give(0, Ok(identity_of(&call.claims[0])));
    call.give(0, Err(not_running()));
    call.give(7, Err(not_running()));
    drop(call);
    assert!(bench.answer(twice).is_ok(), "the first answer counts");
    bench.know(&claim("next"));
}

#[test]
fn who_waits_at_shutdown_is_told() {
    let mut bench = Bench::new();
    let asked = bench.ask(claim("asked"));
    let _call = bench.call();
    let waiting = bench.ask(claim("waiting"));
    bench.shutdown.cancel();
    assert_eq!(bench.running.as_mut().now_or_never(), Some(Ok(())));
    for number in [asked, waiting] {
        assert_eq!(bench.answer(number), Err(stopped()));
    }
    let late = bench.ask(claim("late"));
    assert_eq!(bench.answer(late), Err(stopped()));
}

/// Real time and threads: whatever the order of events, every caller gets its own answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_are_each_answered_for_themselves() {
    let (sender, mut asked) = mpsc::unbounded_channel::<Asked>();
    let settings = LookupSettings {
        expiry: Duration::ZERO,
        ..LookupSettings::default()
    };
    let clock = tidewaiter_kit::SystemClock::shared();
    let lookup = Arc::new(Lookup::new(Arc::new(Scripted(sender)), clock, settings));
    let shutdown = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(Arc::clone(&lookup).run(shutdown.clone(), |_| (), || false).map(|_| ()));
    tasks.spawn(async move {
        while let Some(call) = asked.recv().await {
            tokio::task::yield_now().await;
            call.answer_all();
        }
    });
    let callers = (0..2000).map(|n| {
        let lookup = Arc::clone(&lookup);
        async move {
            let answer = lookup.identify(claim(&format!("n{}", n % 500))).await.unwrap();
            assert_eq!(answer.proven.identity().instance, format!("n{}", n % 500));
        }
    });
    join_all(callers).await;
    shutdown.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn those_who_begin_in_the_same_moment_are_asked_together() {
    let (sender, mut asked) = mpsc::unbounded_channel();
    let settings = LookupSettings::default();
    let lookup = Arc::new(Lookup::new(
        Arc::new(Scripted(sender)),
        ManualClock::default().shared(),
        settings,
    ));
    let callers = (0..3500).map(|number| {
        let lookup = Arc::clone(&lookup);
        async move { lookup.identify(claim(&format!("n{number}"))).await }
    });
    let answers: tokio::task::JoinSet<_> = callers.collect();
    let calls = async {
        let mut sizes = Vec::new();
        while sizes.iter().sum::<usize>() < 3500 {
            let call = asked.recv().await.unwrap();
            sizes.push(call.claims.len());
            call.answer_all();
        }
        sizes
    };
    let shutdown = CancellationToken::new();
    tokio::select! {
        _ = Arc::clone(&lookup).run(shutdown, |_| (), || false) => unreachable!("it runs until shutdown"),
        sizes = calls => assert_eq!(sizes, [1000, 1000, 1000, 500]),
    }
    drop(answers);
}

#[test]
fn a_call_waits_for_queries_that_are_expected() {
    let mut bench = Bench::new();
    bench.expects_more.store(true, Ordering::Relaxed);
    bench.ask(claim("first"));
    assert!(bench.asked.try_recv().is_err());
    bench.expects_more.store(false, Ordering::Relaxed);
    bench.advance(COALESCE_POLL);
    bench.ask(claim("last"));
    bench.advance(LAST_QUERY_DELAY);
    assert_eq!(bench.call().claims.len(), 2);
}

#[test]
fn a_call_does_not_wait_long_for_queries_that_are_expected() {
    let mut bench = Bench::new();
    bench.expects_more.store(true, Ordering::Relaxed);
    bench.ask(claim("only"));
    bench.advance(PATIENCE);
    assert!(bench.asked.try_recv().is_err());
    bench.advance(LAST_QUERY_DELAY);
    assert_eq!(bench.call().claims.len(), 1);
}
