//! The supervisor: a plain task that starts, watches and stops its children. Not an actor: no mailbox to starve, no user code to
//! panic. While it waits for one child's start or end it does nothing else, as in OTP.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::Level;

use crate::backoff::Backoff;
use crate::bus::Bus;
use crate::event::Event;
use crate::exit::{Exit, Reason};
use crate::intensity::Intensity;
use crate::kid::Kid;
use crate::order::{Farewell, Life, Line, Link, Order, Sign, SupervisorOrder};
use crate::snapshot::{Seat, State};
use crate::spec::{ChildSpec, Launch, Strategy, SupervisorSpec};
use crate::watch::last_letters;

pub(crate) struct Supervisor {
    pub(crate) name: String,
    pub(crate) label: Arc<str>,
    pub(crate) link: Link,
    pub(crate) bus: Bus,
    /// Parent of its children's rows.
    pub(crate) shown: Option<Arc<str>>,
    pub(crate) generation: u64,
    pub(crate) live: bool,
    /// The first start is not yet answered.
    pub(crate) starting: bool,
    pub(crate) strategy: Strategy,
    pub(crate) intensity: Intensity,
    pub(crate) backoff: Backoff,
    pub(crate) auto_shutdown: bool,
    pub(crate) stops_at_once: bool,
    pub(crate) grace: Option<Duration>,
    pub(crate) kids: Vec<Kid>,
    pub(crate) next_token: u64,
    pub(crate) orders: mpsc::UnboundedReceiver<SupervisorOrder>,
    pub(crate) signs: mpsc::UnboundedReceiver<Sign>,
    pub(crate) signs_in: mpsc::UnboundedSender<Sign>,
    /// Signs of others that came while it waited for one child's.
    pub(crate) stash: VecDeque<Sign>,
    pub(crate) halt: watch::Receiver<Option<Instant>>,
}

/// What to do next.
enum Step {
    Obey(SupervisorOrder),
    Hear(Sign),
    Start(usize),
    Answer,
    End,
}

/// Starts the task of a supervisor. Its children exist from now on, but run only after `Order::Start`.
pub(crate) fn launch(spec: SupervisorSpec, launch: Launch) -> Line {
    let (line, orders) = mpsc::unbounded_channel();
    launch.bus.enter_supervisor(&spec.name, line.clone());
    let supervisor = Supervisor::new(spec, launch, orders);
    drop(tokio::task::spawn_local(supervisor.run()));
    Line::Supervisor(line)
}

impl Supervisor {
    fn new(spec: SupervisorSpec, launch: Launch, orders: mpsc::UnboundedReceiver<SupervisorOrder>) -> Supervisor {
        let (signs_in, signs) = mpsc::unbounded_channel();
        let mut supervisor = Supervisor {
            label: spec.label().into(),
            shown: spec.path.as_deref().map(Arc::from).or(launch.parent),
            name: spec.name,
            link: launch.link,
            halt: launch.bus.halt(),
            bus: launch.bus,
            generation: 0,
            live: false,
            starting: false,
            strategy: spec.strategy,
            intensity: Intensity::new(spec.max_restarts, spec.window),
            backoff: spec.backoff,
            auto_shutdown: spec.auto_shutdown,
            stops_at_once: spec.stops_at_once,
            grace: spec.grace,
            kids: Vec::new(),
            next_token: 0,
            orders,
            signs,
            signs_in,
            stash: VecDeque::new(),
        };
        for child in spec.children {
            let path: Arc<str> = child.path.as_str().into();
            assert!(supervisor.bus.reserve(&path), "two children at {path}: a mistake of the program");
            supervisor.adopt(child);
        }
        supervisor
    }

    /// Launches a child whose path is reserved, behind all others.
    fn adopt(&mut self, spec: ChildSpec) {
        self.next_token += 1;
        let path: Arc<str> = spec.path.as_str().into();
        let link = Link { path: path.clone(), token: self.next_token, signs: self.signs_in.clone() };
        let launch = Launch { link, bus: self.bus.clone(), arbiter: spec.arbiter.clone(), parent: self.shown.clone() };
        let stuck_after = spec.stuck_after;
        let kid = Kid::launched(spec, launch);
        self.seat(&path, |seat| {
            seat.line = Some(kid.line.clone());
            seat.gauge = kid.gauge.clone();
            seat.stuck_after = stuck_after;
        });
        let (supervisor, parent) = (self.label.clone(), self.shown.clone());
        self.seat(&path, |seat| (seat.supervisor, seat.parent) = (supervisor, parent));
        self.kids.push(kid);
    }

    pub(crate) fn seat(&self, path: &str, change: impl FnOnce(&mut Seat)) {
        // None only when the path was forgotten meanwhile: then nothing is to be remembered.
        let _ = self.bus.with_seat(path, change);
    }

    async fn run(mut self) {
        loop {
            match self.next().await {
                Step::Obey(order) => {
                    if !self.obey(order).await {
                        return;
                    }
                }
                Step::Hear(sign) => self.hear(sign).await,
                Step::Start(at) => self.start_one(at).await,
                Step::Answer => {
                    self.starting = false;
                    self.link.tell(self.generation, Life::Started);
                }
                Step::End => return,
            }
        }
    }

    /// Orders before deaths before starts, so that a long row of starts delays neither.
    async fn next(&mut self) -> Step {
        if let Ok(order) = self.orders.try_recv() {
            return Step::Obey(order);
        }
        if let Some(sign) = self.stash.pop_front() {
            return Step::Hear(sign);
        }
        if let Ok(sign) = self.signs.try_recv() {
            return Step::Hear(sign);
        }
        let halting = self.halt.borrow().is_some();
        let due = if self.live && !halting { self.kids.iter().filter_map(|kid| kid.restart_at).min() } else { None };
        let now = Instant::now();
        if due.is_some_and(|due| due <= now) {
            let at = self.kids.iter().position(|kid| kid.restart_at.is_some_and(|due| due <= now));
            return Step::Start(at.expect("the earliest is among them"));
        }
        if self.live && self.starting {
            return Step::Answer;
        }
        let next_start = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        // Each branch takes nothing from its source unless it wins.
        tokio::select! {
            biased;
            order = self.orders.recv() => order.map_or(Step::End, Step::Obey),
            sign = self.signs.recv() => sign.map_or(Step::End, Step::Hear),
            () = next_start => self.kids.iter().position(|kid| kid.restart_at == due).map_or(Step::End, Step::Start),
        }
    }

    /// False when the task is to end.
    async fn obey(&mut self, order: SupervisorOrder) -> bool {
        match order {
            SupervisorOrder::Life(Order::Start { generation }) => {
                self.generation = generation;
                (self.live, self.starting) = (true, true);
                let now = Instant::now();
                for kid in self.kids.iter_mut().filter(|kid| !kid.up) {
                    (kid.restart_at, kid.fails) = (Some(now), 0);
                }
                true
            }
            SupervisorOrder::Life(Order::Drain(farewell)) => {
                if self.live {
                    self.stop_all(&farewell).await;
                    self.report(farewell.why);
                }
                !farewell.last
            }
            SupervisorOrder::Life(Order::Kill { why, last }) => {
                if self.live {
                    self.kill_all(&why, last).await;
                    self.report(why);
                }
                !last
            }
            SupervisorOrder::Life(Order::Exit) => false,
            SupervisorOrder::Add(spec) => {
                self.add(spec);
                true
            }
            SupervisorOrder::Remove { id, ack } => {
                // An error says that nobody waits for the answer any more.
                let _ = ack.send(self.remove(&id).await);
                true
            }
        }
    }

    async fn hear(&mut self, sign: Sign) {
        let Life::Exited(exit) = sign.life else { return };
        let known =
            self.kids.iter().position(|kid| kid.token == sign.token && kid.generation == sign.generation && kid.up);
        if let (Some(at), true) = (known, self.live) {
            self.on_exit(at, exit, "child_exited").await;
        }
    }

    fn add(&mut self, spec: ChildSpec) {
        self.adopt(spec);
        // With a shared fate it must not come up before those it depends on.
        let others =
            self.kids.iter().filter_map(|kid| kid.restart_at).max().filter(|_| self.strategy != Strategy::OneForOne);
        let (now, at) = (Instant::now(), self.kids.len() - 1);
        if self.live {
            self.kids[at].restart_at = Some(others.map_or(now, |others| others.max(now)));
        }
        self.bus.emit(self.about(at, "child_added", Level::INFO));
    }

    async fn remove(&mut self, id: &str) -> bool {
        let Some(at) = self.kids.iter().position(|kid| kid.id == id) else { return false };
        self.stop_one(at, &Farewell::unhurried(Reason::Shutdown, true)).await;
        let event = self.about(at, "child_removed", Level::INFO);
        let path = self.kids.remove(at).path.clone();
        let letters =
            self.bus.with_seat(&path, |seat| seat.gauge.as_ref().map(|gauge| last_letters(&path, seat, gauge)));
        self.bus.forget(&path);
        for letter in letters.flatten().unwrap_or_default() {
            self.bus.emit(self.bus.dampened(letter));
        }
        self.bus.emit(event);
        true
    }

    /// Tells the own supervisor that this one has ended.
    pub(crate) fn report(&mut self, why: Reason) {
        self.live = false;
        let level = if matches!(why, Reason::Escalated { .. }) { Level::ERROR } else { Level::INFO };
        let mut event = Event::new("supervisor_stopped", level).text("strategy", self.strategy.word()).because(&why);
        (event.supervisor, event.child) = (self.label.clone(), self.label.clone());
        (event.child_type, event.generation) = ("supervisor", self.generation);
        self.bus.emit(event);
        self.link.tell(self.generation, Life::Exited(Exit::bare(why)));
    }

    /// An event about a child, with how it is configured to be treated.
    pub(crate) fn about(&self, at: usize, event: &'static str, level: Level) -> Event {
        let kid = &self.kids[at];
        let mut event = Event::new(event, level)
            .text("restart", kid.restart.word())
            .text("shutdown", kid.shutdown.word())
            .text("strategy", self.strategy.word());
        (event.supervisor, event.child, event.kind) = (self.label.clone(), kid.path.clone(), kid.kind);
        event.child_type = if kid.is_supervisor() { "supervisor" } else { "worker" };
        event.generation = kid.generation;
        event
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.bus.leave_supervisor(&self.name);
        for kid in &self.kids {
            self.seat(&kid.path, |seat| (seat.state, seat.taken, seat.line) = (State::Stopped, false, None));
        }
        // A bug in here must not leave the one above waiting.
        if self.live {
            self.link.tell(self.generation, Life::Exited(Exit::bare(Reason::ArbiterLost)));
        }
    }
}
