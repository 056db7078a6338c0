//! A replica of a role in a simulation: the parts of every role, its clock, its end, and its disturbances. The
//! simulations of the controller and of the coordinator include this file.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::events::Reporter;
use tidewaiter_kit::leader::{Elector, LeaseSettings, Timing};
use tidewaiter_kit::tasks::TaskEnded;
use tidewaiter_kit::{Clock, ControllerContext, Events, Kit, Leadership, ManualClock, Pause, SharedClock, Tasks};
use tidewaiter_testkit::sim::{ApiServer, Crash, Process};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running replica. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Replica {
    pub process: Process,
    /// Stops it, as SIGTERM does.
    pub stop: CancellationToken,
    /// By how many seconds the time of day of its machine is wrong.
    pub wrong_by: Arc<AtomicI64>,
    /// Its kit, once it is wired.
    pub kit: Arc<OnceLock<Kit>>,
}

impl Replica {
    pub fn new(name: &str) -> Self {
        Self {
            process: Process::new(name),
            stop: CancellationToken::new(),
            wrong_by: Arc::default(),
            kit: Arc::default(),
        }
    }

    /// Waits until it is killed or ends; says what is wrong with its end.
    pub async fn ended(&self, mut runs: JoinHandle<Result<(), TaskEnded>>) -> Option<String> {
        let name = self.process.name();
        let ended = tokio::select! {
            biased;
            () = self.process.died() => {
                runs.abort();
                return None;
            }
            ended = &mut runs => ended,
        };
        self.process.kill();
        match ended {
            Ok(Ok(())) => None,
            // A leader that cannot renew its Lease ends.
            Ok(Err(TaskEnded::Failed { task, .. })) if task == "leader-election" => None,
            Ok(Err(error)) => Some(format!("{name} ended: {error}")),
            Err(error) => Some(format!("{name} panicked: {error}")),
        }
    }
}

/// The parts that every role has for its controllers.
pub struct Wiring {
    pub clients: Clients,
    pub context: ControllerContext,
    pub tasks: Tasks,
    elector: Elector,
    stop: CancellationToken,
}

impl Wiring {
    /// Wires a replica that stands for the Lease of this namespace and name; `reporter` is who its Events are of.
    pub fn new(
        server: &ApiServer,
        replica: &Replica,
        reporter: &str,
        (namespace, name): (&str, &str),
        timing: Timing,
    ) -> Self {
        let Replica {
            process,
            stop,
            wrong_by,
            kit: shown,
        } = replica;
        let clock: SharedClock = Arc::new(ProcessClock {
            server: server.clone(),
            process: process.clone(),
            wrong_by: Arc::clone(wrong_by),
        });
        let kit = Kit::new(Arc::clone(&clock)).unwrap();
        shown.set(kit.clone()).unwrap();
        let lease = LeaseSettings {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: process.name().to_owned(),
            timing,
        };
        let connect = |leadership: &Leadership| Clients::over(server.connect(process), leadership, &kit);
        let connect_elector =
            |window: &Leadership| connect(window).for_controller("leader-election", DEFAULT_IN_FLIGHT);
        let (elector, leadership) = Elector::over(connect_elector, lease, &kit);
        let clients = connect(&leadership);
        let reporter = Reporter {
            controller: reporter.to_owned(),
            instance: process.name().to_owned(),
        };
        let mut tasks = Tasks::new(Arc::clone(&clock));
        let context = ControllerContext {
            kit,
            leadership,
            events: Events::start(clients.for_events(), clock, reporter, &mut tasks),
            pause: Pause::never(),
            shutdown: tasks.shutdown_token(),
        };
        Self {
            clients,
            context,
            tasks,
            elector,
            stop: stop.clone(),
        }
    }

    /// Stands for election, and runs until the replica stops.
    pub async fn run(self) -> Result<(), TaskEnded> {
        let Self {
            context,
            mut tasks,
            elector,
            stop,
            ..
        } = self;
        tasks.spawn("leader-election", elector.run(context.shutdown.clone()));
        let stopped = async {
            stop.cancelled().await;
            "SIGTERM"
        };
        tasks.run_until(stopped).await
    }
}

/// The clock of one process: while the process is stopped, no timer fires.
#[derive(Debug)]
struct ProcessClock {
    server: ApiServer,
    process: Process,
    wrong_by: Arc<AtomicI64>,
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        let wrong_by = SignedDuration::from_secs(self.wrong_by.load(Ordering::Relaxed));
        Timestamp::UNIX_EPOCH + self.server.elapsed() + wrong_by
    }

    fn monotonic(&self) -> Duration {
        ManualClock::ORIGIN + self.server.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let process = self.process.clone();
        let due = sleep(duration);
        async move {
            due.await;
            process.running().await;
        }
        .boxed()
    }
}

/// The API server is away for a random time.
pub fn away(server: &ApiServer, random: &mut fastrand::Rng, say: impl FnOnce(String)) {
    let time = Duration::from_millis(random.u64(100..40_000));
    say(format!("the API server is away for {time:?}"));
    server.set_away(true);
    let server = server.clone();
    beside(async move {
        sleep(time).await;
        server.set_away(false);
    });
}

/// Disturbs one of the replicas: kills it, at one of its next `writes` or now, stops it, has its time of day jump, or
/// suspends it.
pub fn disturb(replicas: &[Option<Replica>], writes: usize, random: &mut fastrand::Rng, say: impl FnOnce(String)) {
    let Some(replica) = replicas[random.usize(..replicas.len())].clone() else {
        return;
    };
    let name = replica.process.name().to_owned();
    match random.u8(..9) {
        0..4 => {
            let writes = random.usize(..writes);
            let crash = if random.bool() {
                Crash::Before(writes)
            } else {
                Crash::After(writes)
            };
            say(format!("{name} will die: {crash:?}"));
            replica.process.kill_at(crash);
        }
        4 => {
            say(format!("{name} is killed"));
            replica.process.kill();
        }
        5 => {
            say(format!("{name} gets SIGTERM"));
            replica.stop.cancel();
        }
        6 => {
            let jump = if random.bool() { 3600 } else { -3600 };
            say(format!("the time of day of {name} jumps by {jump} s"));
            replica.wrong_by.fetch_add(jump, Ordering::Relaxed);
        }
        _ => {
            let time = Duration::from_millis(random.u64(100..70_000));
            say(format!("{name} is stopped for {time:?}"));
            let mut order = random.fork();
            replica.process.stop();
            beside(async move {
                sleep(time).await;
                replica.process.resume(&mut order);
            });
        }
    }
}

/// Runs a scene in simulated time.
pub fn simulated<T>(seed: u64, scene: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    tidewaiter_kit::random::seed(seed);
    runtime.block_on(scene)
}

#[expect(
    clippy::disallowed_methods,
    reason = "tokio's own clock is the one that is simulated"
)]
pub fn sleep(time: Duration) -> tokio::time::Sleep {
    tokio::time::sleep(time)
}

#[expect(clippy::disallowed_methods, reason = "it ends with the runtime of the seed")]
pub fn beside<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(task)
}
