//! A supervised actor of your own: it panics, its supervisor restarts it at the same address, and the next message is answered.
//! Run it: `cargo run -p posthaste-supervision --example supervised_actor`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use supervision::{
    AskError, Incarnation, MailboxMessage, Observer, Options, RootSupervisor, Strategy, SupervisionBus,
    SupervisionEvent, SupervisorSpec, actor,
};

/// How long a caller waits for an answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks for `dividend / divisor`; panics on a divisor of zero.
#[derive(Message)]
#[rtype(result = "u64")]
struct Divide {
    dividend: u64,
    divisor: u64,
}

/// Divides. Its state is gone after a panic: whatever must survive belongs into a store.
struct Divider {
    /// Counts the restarts of the actor, from 1.
    generation: u64,
    answered: u64,
}

impl Actor for Divider {
    type Context = Context<Self>;
}

supervision::supervised!(Divider);

impl Handler<MailboxMessage<Divide>> for Divider {
    type Result = u64;

    fn handle(&mut self, message: MailboxMessage<Divide>, ctx: &mut Self::Context) -> u64 {
        // Dropping the permit frees a slot of the mailbox: that is the back-pressure.
        let (Divide { dividend, divisor }, _permit) = message.begin(ctx);
        self.answered += 1;
        println!("generation {}: message {} is {dividend} / {divisor}", self.generation, self.answered);
        dividend / divisor
    }
}

/// Prints what the supervisor reports.
struct Printer;

impl Observer for Printer {
    fn lifecycle(&self, event: &SupervisionEvent) {
        println!("supervision: {} {}", event.event, event.child);
    }
}

#[actix::main]
async fn main() -> Result<(), AskError> {
    let bus = SupervisionBus::new(Options::default(), Arc::new(Printer));
    let start = |incarnation: Incarnation| Divider { generation: incarnation.generation, answered: 0 };
    // At most 64 messages wait; a caller that finds the mailbox full waits for a slot.
    let (divider, child) = actor(&bus, "/divider", 64, start);
    // More than three restarts in a minute end the tree, as in OTP.
    let spec = SupervisorSpec::new("root", Strategy::OneForOne, 3, Duration::from_secs(60)).child(child);
    let root = RootSupervisor::start(spec, bus).await;

    println!("84 / 2 = {}", divider.ask(Divide { dividend: 84, divisor: 2 }, ASK_TIMEOUT).await?);
    let failure = divider.ask(Divide { dividend: 84, divisor: 0 }, ASK_TIMEOUT).await;
    println!("84 / 0: the caller has an error at once: {failure:?}");
    // The address is the same; the message waits until the actor has restarted.
    println!("84 / 4 = {}", divider.ask(Divide { dividend: 84, divisor: 4 }, ASK_TIMEOUT).await?);

    let report = root.shutdown(ASK_TIMEOUT).await;
    println!("stopped, {} actors unfinished", report.unfinished.len());
    Ok(())
}
