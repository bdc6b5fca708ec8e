//! A failure of one actor inside an instance, and whether all actors run.
use std::time::{Duration, Instant};

use kit::wait::until_since;
use serde_json::Value;

use crate::harness::http::Http;

/// The kinds of actors that every instance has.
pub const ACTOR_KINDS: [&str; 10] = [
    "FailoverManager",
    "BackpressureManager",
    "RetryHandler",
    "OutboxPublisher",
    "PartitionWorker",
    "ConsumerActor",
    "WebhookManager",
    "EventIntake",
    "PendingPromoter",
    "OrderAggregate",
];

/// Longest until an instance that is down, frozen or has no actor of the kind accepts the failure of one: until its recovery, as the contract says.
const ACCEPTED_MAX: Duration = Duration::from_secs(30);

/// How an actor ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorExit {
    /// A panic at once, without waiting for a message.
    Panic,
    /// A normal exit, after which the supervisor decides.
    Stop,
}

impl ActorExit {
    fn action(self) -> &'static str {
        match self {
            Self::Panic => "panic",
            Self::Stop => "stop",
        }
    }
}

/// The failure of one actor of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorFault {
    pub kind: &'static str,
    /// Selects one of the actors of this kind that run at that time, modulo their number.
    pub number: usize,
    pub exit: ActorExit,
}

impl ActorFault {
    /// The path of the selected actor: the same one among the same actors. `None` while none of the kind runs.
    fn choose(self, actors: &Value) -> Option<&str> {
        let of_kind = |actor: &&Value| actor["actor"] == self.kind && actor["state"] == "running";
        let running = actors["actors"].as_array()?.iter().filter(of_kind);
        let mut paths: Vec<&str> = running.filter_map(|actor| actor["path"].as_str()).collect();
        paths.sort_unstable();
        paths.get(self.number % paths.len().max(1)).copied()
    }

    /// Ends the actor as soon as the instance accepts it. Panics where it does not within 30 s.
    pub fn inject(self, instance: &Http) {
        until_since(Instant::now(), &format!("{} accepts {self:?}", instance.base()), ACCEPTED_MAX, || {
            let actors = actors(instance)?;
            let path = format!("/admin/actors{}/{}", self.choose(&actors)?, self.exit.action());
            let injected = instance.send_once("POST", &path, Some(&instance.admin()), &[], Some("{}".to_owned()));
            // 404: a worker ended meanwhile.
            injected.is_ok_and(|response| response.status == 202).then_some(())
        });
    }
}

/// The list of an instance's actors; `None` when it does not respond.
fn actors(instance: &Http) -> Option<Value> {
    let listed = instance.send_once("GET", "/admin/actors", Some(&instance.admin()), &[], None).ok()?;
    (listed.status == 200).then(|| listed.json())
}

/// Waits until every actor of an instance runs, at least one of each kind.
pub fn await_all_running(instance: &Http, started: Instant, limit: Duration) {
    until_since(started, &format!("every actor of {} runs", instance.base()), limit, || {
        let actors = actors(instance)?;
        let all = actors["actors"].as_array()?;
        let is_complete = ACTOR_KINDS.iter().all(|kind| all.iter().any(|actor| actor["actor"] == *kind));
        (is_complete && all.iter().all(|actor| actor["state"] == "running")).then_some(())
    });
}

#[test]
fn a_fault_selects_the_same_running_actor_of_its_kind() {
    let worker =
        |number, state| serde_json::json!({"actor": "PartitionWorker", "path": format!("/{number}"), "state": state});
    let listed = |workers: &[Value]| serde_json::json!({"actors": workers});
    let all = listed(&[worker(2, "running"), worker(1, "running"), worker(0, "restarting")]);
    let fault = |kind, number| ActorFault { kind, number, exit: ActorExit::Panic };

    for (number, path) in [(0, "/1"), (1, "/2"), (2, "/1")] {
        assert_eq!(fault("PartitionWorker", number).choose(&all), Some(path));
    }
    assert_eq!(fault("RetryHandler", 0).choose(&all), None);
}
