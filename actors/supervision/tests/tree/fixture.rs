//! The shared fixture: a worker actor, small trees, a reader of events and a capture of log lines.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use actix::prelude::*;
use supervision::{
    ChildSpec, Incarnation, Mailbox, MailboxMessage, Options, RootSupervisor, Strategy, SupervisionBus,
    SupervisionEvent, SupervisorSpec, actor,
};
use tokio::sync::broadcast::Receiver;
use tracing::field::{Field, Visit};
use tracing::span;

/// A test on one thread, in virtual time.
macro_rules! virtual_time_test {
    ($name:ident, $body:block) => {
        #[tokio::test(start_paused = true)]
        async fn $name() {
            crate::fixture::capture_log();
            tokio::task::LocalSet::new().run_until(async move $body).await;
        }
    };
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const FIVE_SECONDS: Duration = Duration::from_secs(5);
pub(crate) const ONE_HOUR: Duration = Duration::from_secs(3_600);

thread_local! {
    static LINES: RefCell<Vec<BTreeMap<String, String>>> = const { RefCell::new(Vec::new()) };
}

/// Captures the log lines of each thread. One subscriber for all threads, installed before the first line: tracing caches for each
/// call site whether a subscriber is interested, and may skip a subscriber that is installed later.
pub(crate) fn capture_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(LogCapture).unwrap());
}

/// Takes the lines that this thread has logged so far, by field.
pub(crate) fn take_log_lines() -> Vec<BTreeMap<String, String>> {
    LINES.take()
}

struct LogCapture;

struct LineFields(BTreeMap<String, String>);

impl Visit for LineFields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

impl tracing::Subscriber for LogCapture {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = LineFields(BTreeMap::new());
        event.record(&mut fields);
        fields.0.insert("level".into(), event.metadata().level().to_string());
        fields.0.insert("target".into(), event.metadata().target().into());
        LINES.with_borrow_mut(|lines| lines.push(fields.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The counters and switches that the workers of one test share.
#[derive(Clone, Default)]
pub(crate) struct WorkerEnv {
    pub(crate) trace: Arc<Mutex<Vec<String>>>,
    /// Number of next starts that panic.
    pub(crate) fail_starts: Arc<AtomicUsize>,
    /// Number of next starts that never finish.
    pub(crate) hang_starts: Arc<AtomicUsize>,
    /// Asynchronous duration of each start, in milliseconds.
    pub(crate) start_ms: Arc<AtomicUsize>,
    /// Number of next drops that panic.
    pub(crate) fail_drops: Arc<AtomicUsize>,
    pub(crate) alive: Arc<AtomicUsize>,
    pub(crate) running: Arc<AtomicUsize>,
    pub(crate) running_most: Arc<AtomicUsize>,
}

fn take(count: &AtomicUsize) -> bool {
    count.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl WorkerEnv {
    pub(crate) fn record(&self, text: String) {
        self.trace.lock().unwrap().push(text);
    }

    pub(crate) fn take_trace(&self) -> Vec<String> {
        std::mem::take(&mut *self.trace.lock().unwrap())
    }
}

pub(crate) struct Worker {
    name: String,
    generation: u64,
    count: usize,
    env: WorkerEnv,
}

impl Worker {
    pub(crate) fn factory(name: &str, env: &WorkerEnv) -> impl Fn(Incarnation) -> Worker + Send + 'static {
        let (name, env) = (name.to_owned(), env.clone());
        move |Incarnation { generation, .. }| {
            env.alive.fetch_add(1, SeqCst);
            Worker { name: name.clone(), generation, count: 0, env: env.clone() }
        }
    }
}

impl Actor for Worker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.env.record(format!("+{}", self.name));
        assert!(!take(&self.env.fail_starts), "cannot start {}", self.name);
        if take(&self.env.hang_starts) {
            ctx.wait(std::future::pending::<()>().into_actor(self));
        }
        let init = self.env.start_ms.load(SeqCst);
        if init > 0 {
            ctx.wait(tokio::time::sleep(ms(init as u64)).into_actor(self));
        }
        ctx.run_interval(ms(10), |_, _| {});
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.env.record(format!("-{}", self.name));
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.env.alive.fetch_sub(1, SeqCst);
        if take(&self.env.fail_drops) {
            panic!("drop panics too");
        }
    }
}

supervision::supervised!(Worker);

/// Returns the generation and the number of messages handled in it.
#[derive(Message)]
#[rtype(result = "(u64, usize)")]
pub(crate) struct Ping;

impl Handler<MailboxMessage<Ping>> for Worker {
    type Result = MessageResult<MailboxMessage<Ping>>;

    fn handle(&mut self, message: MailboxMessage<Ping>, ctx: &mut Self::Context) -> Self::Result {
        let (Ping, _permit) = message.begin(ctx);
        self.count += 1;
        MessageResult((self.generation, self.count))
    }
}

/// The same message without a mailbox permit.
impl Handler<Ping> for Worker {
    type Result = MessageResult<Ping>;

    fn handle(&mut self, _: Ping, _: &mut Self::Context) -> Self::Result {
        self.count += 1;
        MessageResult((self.generation, self.count))
    }
}

#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum Behavior {
    Panic,
    PanicInTimer,
    PanicInSpawned,
    Stop,
    Terminate,
    Hang,
}

impl Handler<MailboxMessage<Behavior>> for Worker {
    type Result = ();

    fn handle(&mut self, message: MailboxMessage<Behavior>, ctx: &mut Self::Context) {
        let (act, _permit) = message.begin(ctx);
        match act {
            Behavior::Panic => panic!("failure in handler of {}", self.name),
            Behavior::PanicInTimer => drop(ctx.run_later(ms(5), |_, _| panic!("failure in timer"))),
            Behavior::PanicInSpawned => drop(ctx.spawn(async { panic!("failure in spawned") }.into_actor(self))),
            Behavior::Stop => ctx.stop(),
            Behavior::Terminate => ctx.terminate(),
            Behavior::Hang => ctx.wait(std::future::pending::<()>().into_actor(self)),
        }
    }
}

/// Works for this many milliseconds concurrently with other messages; panics at the end if the flag is set.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Slow(pub(crate) u64, pub(crate) bool);

impl Handler<MailboxMessage<Slow>> for Worker {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, message: MailboxMessage<Slow>, ctx: &mut Self::Context) -> Self::Result {
        let (Slow(millis, panics), permit) = message.begin(ctx);
        let env = self.env.clone();
        let now = env.running.fetch_add(1, SeqCst) + 1;
        env.running_most.fetch_max(now, SeqCst);
        let running = RunningGuard(env);
        Box::pin(
            async move {
                let _held = (permit, running, supervision::in_progress(move || format!("{millis} ms of work")));
                tokio::time::sleep(ms(millis)).await;
                assert!(!panics, "failure in future");
            }
            .into_actor(self),
        )
    }
}

struct RunningGuard(WorkerEnv);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// Reads the events of a bus, subscribed before its tree starts.
pub(crate) struct EventReader(Receiver<SupervisionEvent>);

impl EventReader {
    pub(crate) fn subscribe(bus: &SupervisionBus) -> EventReader {
        EventReader(bus.subscribe_after(None).1)
    }

    pub(crate) async fn next(&mut self) -> SupervisionEvent {
        tokio::time::timeout(ONE_HOUR, self.0.recv()).await.expect("an event within the hour").unwrap()
    }

    pub(crate) async fn wait_for(&mut self, event: &str, child: &str) -> SupervisionEvent {
        loop {
            let received = self.next().await;
            if received.event == event && &*received.child == child {
                return received;
            }
        }
    }

    /// The events received so far.
    pub(crate) fn received(&mut self) -> Vec<SupervisionEvent> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

pub(crate) struct SilentObserver;

impl supervision::Observer for SilentObserver {}

/// A bus whose random source is zero, so that delays are exact.
pub(crate) fn bus_without_jitter() -> SupervisionBus {
    SupervisionBus::new(Options { random: Arc::new(|| 0.0), ..Options::default() }, Arc::new(SilentObserver))
}

pub(crate) fn worker(bus: &SupervisionBus, env: &WorkerEnv, path: &str) -> (Mailbox<Worker>, ChildSpec) {
    let name = path.rsplit('/').next().unwrap().to_owned();
    actor(bus, path, 64, Worker::factory(&name, env))
}

pub(crate) fn supervisor(strategy: Strategy, max: usize) -> SupervisorSpec {
    SupervisorSpec::new("root", strategy, max, Duration::from_secs(5))
}

/// A tree of one worker `/w`.
pub(crate) async fn tree_of_one(env: &WorkerEnv, max: usize) -> (Mailbox<Worker>, RootSupervisor, EventReader) {
    let bus = bus_without_jitter();
    let events = EventReader::subscribe(&bus);
    let (mailbox, spec) = worker(&bus, env, "/w");
    let root = RootSupervisor::start(supervisor(Strategy::OneForOne, max).child(spec), bus).await;
    (mailbox, root, events)
}

/// A tree of the workers `/a`, `/b`, `/c`.
pub(crate) async fn tree_of_three(
    env: &WorkerEnv,
    strategy: Strategy,
) -> ([Mailbox<Worker>; 3], RootSupervisor, EventReader) {
    let bus = bus_without_jitter();
    let events = EventReader::subscribe(&bus);
    let (a, spec_a) = worker(&bus, env, "/a");
    let (b, spec_b) = worker(&bus, env, "/b");
    let (c, spec_c) = worker(&bus, env, "/c");
    let root = RootSupervisor::start(supervisor(strategy, 3).child(spec_a).child(spec_b).child(spec_c), bus).await;
    ([a, b, c], root, events)
}

pub(crate) async fn generations(mailboxes: &[Mailbox<Worker>]) -> Vec<u64> {
    let mut generations = Vec::new();
    for mailbox in mailboxes {
        generations.push(mailbox.ask(Ping, FIVE_SECONDS).await.unwrap().0);
    }
    generations
}
