//! The actor, the trees and the ears the stories share.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use actix::prelude::*;
use supervision::{Birth, Bus, ChildSpec, Event, Inbox, Job, Options, Root, Strategy, SupervisorSpec, actor};
use tokio::sync::broadcast::Receiver;
use tracing::field::{Field, Visit};
use tracing::span;

/// A test on one thread, in virtual time.
macro_rules! story {
    ($name:ident, $body:block) => {
        #[tokio::test(start_paused = true)]
        async fn $name() {
            crate::world::hear_the_log();
            tokio::task::LocalSet::new().run_until(async move $body).await;
        }
    };
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const SOON: Duration = Duration::from_secs(5);
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

thread_local! {
    static LINES: RefCell<Vec<BTreeMap<String, String>>> = const { RefCell::new(Vec::new()) };
}

/// Collects the log lines of this thread. One subscriber for all threads, set before the first line of any: tracing remembers for
/// each line whether anybody wants it, and a subscriber that comes later may be overlooked.
pub(crate) fn hear_the_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Log).unwrap());
}

/// The lines of this thread until now, by field.
pub(crate) fn log_lines() -> Vec<BTreeMap<String, String>> {
    LINES.take()
}

struct Log;

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        fields.0.insert("level".into(), event.metadata().level().to_string());
        fields.0.insert("target".into(), event.metadata().target().into());
        LINES.with_borrow_mut(|lines| lines.push(fields.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// What the workers of one test share.
#[derive(Clone, Default)]
pub(crate) struct Env {
    pub(crate) trace: Arc<Mutex<Vec<String>>>,
    /// So many of the next starts panic.
    pub(crate) fail_starts: Arc<AtomicUsize>,
    /// So many of the next starts never finish.
    pub(crate) hang_starts: Arc<AtomicUsize>,
    /// Each start takes this long, asynchronously.
    pub(crate) start_ms: Arc<AtomicUsize>,
    /// So many of the next drops panic.
    pub(crate) fail_drops: Arc<AtomicUsize>,
    pub(crate) alive: Arc<AtomicUsize>,
    pub(crate) running: Arc<AtomicUsize>,
    pub(crate) running_most: Arc<AtomicUsize>,
}

fn take(count: &AtomicUsize) -> bool {
    count.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok()
}

impl Env {
    pub(crate) fn note(&self, text: String) {
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
    env: Env,
}

impl Worker {
    pub(crate) fn factory(name: &str, env: &Env) -> impl Fn(Birth) -> Worker + Send + 'static {
        let (name, env) = (name.to_owned(), env.clone());
        move |Birth { generation, .. }| {
            env.alive.fetch_add(1, SeqCst);
            Worker { name: name.clone(), generation, count: 0, env: env.clone() }
        }
    }
}

impl Actor for Worker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.env.note(format!("+{}", self.name));
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
        self.env.note(format!("-{}", self.name));
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

/// Answers generation and messages handled in it.
#[derive(Message)]
#[rtype(result = "(u64, usize)")]
pub(crate) struct Ping;

impl Handler<Job<Ping>> for Worker {
    type Result = MessageResult<Job<Ping>>;

    fn handle(&mut self, job: Job<Ping>, ctx: &mut Self::Context) -> Self::Result {
        let (Ping, _slot) = job.open(ctx);
        self.count += 1;
        MessageResult((self.generation, self.count))
    }
}

/// The same without an inbox.
impl Handler<Ping> for Worker {
    type Result = MessageResult<Ping>;

    fn handle(&mut self, _: Ping, _: &mut Self::Context) -> Self::Result {
        self.count += 1;
        MessageResult((self.generation, self.count))
    }
}

#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum Act {
    Panic,
    PanicInTimer,
    PanicInSpawned,
    Stop,
    Terminate,
    Hang,
}

impl Handler<Job<Act>> for Worker {
    type Result = ();

    fn handle(&mut self, job: Job<Act>, ctx: &mut Self::Context) {
        let (act, _slot) = job.open(ctx);
        match act {
            Act::Panic => panic!("boom in handler of {}", self.name),
            Act::PanicInTimer => drop(ctx.run_later(ms(5), |_, _| panic!("boom in timer"))),
            Act::PanicInSpawned => drop(ctx.spawn(async { panic!("boom in spawned") }.into_actor(self))),
            Act::Stop => ctx.stop(),
            Act::Terminate => ctx.terminate(),
            Act::Hang => ctx.wait(std::future::pending::<()>().into_actor(self)),
        }
    }
}

/// Works for so many milliseconds beside other work, then panics if told so.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Slow(pub(crate) u64, pub(crate) bool);

impl Handler<Job<Slow>> for Worker {
    type Result = ResponseActFuture<Self, ()>;

    fn handle(&mut self, job: Job<Slow>, ctx: &mut Self::Context) -> Self::Result {
        let (Slow(millis, panics), slot) = job.open(ctx);
        let env = self.env.clone();
        let now = env.running.fetch_add(1, SeqCst) + 1;
        env.running_most.fetch_max(now, SeqCst);
        let running = Running(env);
        Box::pin(
            async move {
                let _held = (slot, running);
                tokio::time::sleep(ms(millis)).await;
                assert!(!panics, "boom in future");
            }
            .into_actor(self),
        )
    }
}

struct Running(Env);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// Hears the events of a bus from before its tree was started.
pub(crate) struct Ear(Receiver<Event>);

impl Ear {
    pub(crate) fn on(bus: &Bus) -> Ear {
        Ear(bus.subscribe_after(None).1)
    }

    pub(crate) async fn next(&mut self) -> Event {
        tokio::time::timeout(LONG, self.0.recv()).await.expect("an event within the hour").unwrap()
    }

    pub(crate) async fn wait(&mut self, event: &str, child: &str) -> Event {
        loop {
            let heard = self.next().await;
            if heard.event == event && &*heard.child == child {
                return heard;
            }
        }
    }

    /// What was said until now.
    pub(crate) fn so_far(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

/// A bus whose chance is nil, so that delays are exact.
pub(crate) fn plain_bus() -> Bus {
    struct Deaf;
    impl supervision::Observer for Deaf {}
    Bus::new(Options { random: Arc::new(|| 0.0), ..Options::default() }, Arc::new(Deaf))
}

pub(crate) fn worker(bus: &Bus, env: &Env, path: &str) -> (Inbox<Worker>, ChildSpec) {
    let name = path.rsplit('/').next().unwrap().to_owned();
    actor(bus, path, 64, Worker::factory(&name, env))
}

pub(crate) fn supervisor(strategy: Strategy, max: usize) -> SupervisorSpec {
    SupervisorSpec::new("root", strategy, max, Duration::from_secs(5))
}

/// A tree of one worker `/w`.
pub(crate) async fn one(env: &Env, max: usize) -> (Inbox<Worker>, Root, Ear) {
    let bus = plain_bus();
    let ear = Ear::on(&bus);
    let (inbox, spec) = worker(&bus, env, "/w");
    let root = Root::start(supervisor(Strategy::OneForOne, max).child(spec), bus).await;
    (inbox, root, ear)
}

/// A tree of the workers `/a`, `/b`, `/c`.
pub(crate) async fn three(env: &Env, strategy: Strategy) -> ([Inbox<Worker>; 3], Root, Ear) {
    let bus = plain_bus();
    let ear = Ear::on(&bus);
    let (a, spec_a) = worker(&bus, env, "/a");
    let (b, spec_b) = worker(&bus, env, "/b");
    let (c, spec_c) = worker(&bus, env, "/c");
    let root = Root::start(supervisor(strategy, 3).child(spec_a).child(spec_b).child(spec_c), bus).await;
    ([a, b, c], root, ear)
}

pub(crate) async fn generations(inboxes: &[Inbox<Worker>]) -> Vec<u64> {
    let mut generations = Vec::new();
    for inbox in inboxes {
        generations.push(inbox.ask(Ping, SOON).await.unwrap().0);
    }
    generations
}
