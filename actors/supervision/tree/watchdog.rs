//! The watchdog: inspects every mailbox, every actor's progress and every probed arbiter, a few times a second.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::bus::options::Options;
use crate::bus::registry::RegistryEntry;
use crate::bus::snapshot::ActorState;
use crate::bus::supervision_bus::SupervisionBus;
use crate::bus::supervisor_command::CommandSender;
use crate::child::command::ChildCommand;
use crate::child::exit::ExitReason;
use crate::events::event::SupervisionEvent;
use crate::mailbox::state::UnhandledReason;

/// Runs concurrently with the tree until the future is dropped.
pub(crate) async fn run(bus: SupervisionBus) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(bus.options().inspection_interval).await;
        let now = Instant::now();
        if was_suspended(now.duration_since(last), bus.options()) {
            restart_progress_timers(&bus, now);
        }
        inspect(&bus, now);
        last = now;
    }
}

/// Whether the whole process stood still since the last inspection (SIGSTOP, a suspended machine): then no actor could progress, and to kill
/// all that held a message would use up the restarts of the tree.
fn was_suspended(since_last: Duration, options: &Options) -> bool {
    since_last > options.inspection_interval + options.arbiter_stalled_after
}

/// Measures the time without progress of every actor from now on.
fn restart_progress_timers(bus: &SupervisionBus, now: Instant) {
    bus.registry().with_entries(|entries| {
        entries.values().filter_map(|entry| entry.mailbox.as_ref()).for_each(|mailbox| mailbox.record_progress(now));
    });
}

fn inspect(bus: &SupervisionBus, now: Instant) {
    let options = bus.options();
    let mut events = Vec::new();
    let mut stuck = Vec::new();
    bus.registry().with_entries(|entries| {
        for (path, entry) in entries.iter_mut() {
            events.extend(saturation(path, entry, options));
            let unhandled = due_unhandled(path, entry, options, now).into_iter();
            events.extend(unhandled.map(|event| bus.expected_in_shutdown(event)));
            if let Some((event, commands)) = without_progress(path, entry, now) {
                events.push(event);
                stuck.push(commands);
            }
        }
    });
    bus.with_arbiter_probes(|probes| {
        events.extend(probes.iter_mut().filter_map(|probe| probe.check(now, options.arbiter_stalled_after)))
    });
    for event in events {
        bus.publish(event);
    }
    for commands in stuck {
        let reason = ExitReason::Killed { by: "watchdog: no progress".into() };
        // An error means that the actor has just ended, which is the aim.
        let _ = commands.send(ChildCommand::Kill { reason, is_final: false });
    }
}

/// Compares the peak depth since the last inspection, so that a short burst is not missed and a busy mailbox does not flap.
fn saturation(path: &str, entry: &mut RegistryEntry, options: &Options) -> Option<SupervisionEvent> {
    let mailbox = entry.mailbox.clone()?;
    let peak = mailbox.take_peak();
    // A mailbox of capacity 1 is full whenever its actor works: that is its purpose.
    if mailbox.capacity == 1 {
        return None;
    }
    let share = peak as f64 / mailbox.capacity as f64;
    let saturated = match entry.saturated {
        false if share >= options.saturated_at => true,
        true if share <= options.recovered_at => false,
        _ => return None,
    };
    entry.saturated = saturated;
    let (name, level) = if saturated { ("mailbox_saturated", Level::WARN) } else { ("mailbox_recovered", Level::INFO) };
    let event = entry.event(path, name, level).with_number("outstanding", peak as u64);
    Some(event.with_number("capacity", mailbox.capacity as u64))
}

/// At most one event of each reason per `unhandled_interval`, with the number of messages since the last one.
fn due_unhandled(path: &str, entry: &mut RegistryEntry, options: &Options, now: Instant) -> Vec<SupervisionEvent> {
    let mut events = Vec::new();
    for reason in UnhandledReason::ALL {
        let last = entry.unhandled_at[reason as usize];
        if last.is_some_and(|at| now.duration_since(at) < options.unhandled_interval) {
            continue;
        }
        if let Some(event) = unhandled(path, entry, reason) {
            entry.unhandled_at[reason as usize] = Some(now);
            events.push(event);
        }
    }
    events
}

fn unhandled(path: &str, entry: &RegistryEntry, reason: UnhandledReason) -> Option<SupervisionEvent> {
    let (count, message) = entry.mailbox.as_ref()?.take_unhandled(reason)?;
    let event = entry.event(path, "message_unhandled", Level::WARN);
    let mut event = event.with_text("message", message).with_number("count", count);
    event.reason = Some(reason.as_str());
    Some(event)
}

/// The unhandled messages not yet published of an entry that is about to be removed.
pub(crate) fn remaining_unhandled(path: &str, entry: &RegistryEntry) -> Vec<SupervisionEvent> {
    UnhandledReason::ALL.into_iter().filter_map(|reason| unhandled(path, entry, reason)).collect()
}

/// The event about an actor that holds messages and finishes none, and the sender to kill it with.
fn without_progress(path: &str, entry: &RegistryEntry, now: Instant) -> Option<(SupervisionEvent, CommandSender)> {
    let (mailbox, limit, commands) = (entry.mailbox.as_ref()?, entry.stuck_after?, entry.commands.clone()?);
    let (idle, outstanding) = (mailbox.without_progress_for(), mailbox.outstanding());
    let paused = mailbox.paused.load(SeqCst);
    if entry.state != ActorState::Running || paused || outstanding == 0 || idle <= limit {
        return None;
    }
    mailbox.record_progress(now);
    let event = entry.event(path, "child_stuck", Level::WARN).with_millis("idle_ms", idle);
    Some((event.with_number("outstanding", outstanding as u64), commands))
}
