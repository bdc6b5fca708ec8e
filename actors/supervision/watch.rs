//! The watch: looks at every mailbox, every actor's progress and every watched thread, a few times a second.

use std::sync::atomic::Ordering::SeqCst;

use tokio::time::Instant;
use tracing::Level;

use crate::bus::Bus;
use crate::event::Event;
use crate::exit::Reason;
use crate::faults::about;
use crate::gauge::{Gauge, Undelivered};
use crate::options::Options;
use crate::order::{Line, Order};
use crate::snapshot::{Seat, State};

/// Runs until it is dropped, beside the tree.
pub(crate) async fn watch(bus: Bus) {
    loop {
        tokio::time::sleep(bus.options().look_every).await;
        look(&bus, Instant::now());
    }
}

fn look(bus: &Bus, now: Instant) {
    let options = bus.options();
    let mut found = Vec::new();
    let mut stuck = Vec::new();
    bus.with_seats(|seats| {
        for (path, seat) in seats.iter_mut() {
            found.extend(saturation(path, seat, options));
            found.extend(dead_letters(path, seat, options, now).into_iter().map(|letter| bus.dampened(letter)));
            if let Some((event, line)) = no_progress(path, seat, now) {
                found.push(event);
                stuck.push(line);
            }
        }
    });
    bus.with_pulses(|pulses| {
        found.extend(pulses.iter_mut().filter_map(|pulse| pulse.look(now, options.arbiter_stalled_after)))
    });
    for event in found {
        bus.emit(event);
    }
    for line in stuck {
        // An error says that it has just gone: as good.
        let _ = line.order(Order::Kill { why: Reason::Killed { by: "watchdog: no progress".into() }, last: false });
    }
}

/// By the highest depth since the last look, so that a short burst is not missed and a busy mailbox does not flap.
fn saturation(path: &str, seat: &mut Seat, options: &Options) -> Option<Event> {
    let gauge = seat.gauge.clone()?;
    let peak = gauge.take_peak();
    // An inbox of one is full whenever its actor works: that is its purpose, and no news.
    if gauge.capacity == 1 {
        return None;
    }
    let share = peak as f64 / gauge.capacity as f64;
    let verdict = match seat.saturated {
        false if share >= options.saturated_at => true,
        true if share <= options.recovered_at => false,
        _ => return None,
    };
    seat.saturated = verdict;
    let (event, level) = if verdict { ("mailbox_saturated", Level::WARN) } else { ("mailbox_recovered", Level::INFO) };
    Some(about(seat, path, event, level).number("outstanding", peak as u64).number("capacity", gauge.capacity as u64))
}

/// At most one of a reason in a while, with the number of letters it stands for.
fn dead_letters(path: &str, seat: &mut Seat, options: &Options, now: Instant) -> Vec<Event> {
    let Some(gauge) = seat.gauge.clone() else { return Vec::new() };
    let mut events = Vec::new();
    for why in Undelivered::ALL {
        let told_at = &mut seat.letters_at[why as usize];
        if told_at.is_some_and(|at| now.duration_since(at) < options.dead_letter_every) {
            continue;
        }
        if let Some((count, message)) = gauge.take_lost(why) {
            *told_at = Some(now);
            events.push(dead_letter(path, seat, why, count, message));
        }
    }
    events
}

fn dead_letter(path: &str, seat: &Seat, why: Undelivered, count: u64, message: &str) -> Event {
    let mut event = about(seat, path, "dead_letter", Level::WARN).text("message", message).number("count", count);
    event.reason = Some(why.word());
    event
}

/// What was not told yet about a seat that is about to be forgotten.
pub(crate) fn last_letters(path: &str, seat: &Seat, gauge: &Gauge) -> Vec<Event> {
    let letter = |why| gauge.take_lost(why).map(|(count, message)| dead_letter(path, seat, why, count, message));
    Undelivered::ALL.into_iter().filter_map(letter).collect()
}

/// An actor that holds messages and finishes none of them, and its line to kill it by.
fn no_progress(path: &str, seat: &Seat, now: Instant) -> Option<(Event, Line)> {
    let (gauge, limit, line) = (seat.gauge.as_ref()?, seat.stuck_after?, seat.line.clone()?);
    let (idle, outstanding) = (gauge.idle_for(), gauge.outstanding());
    if seat.state != State::Running || gauge.paused.load(SeqCst) || outstanding == 0 || idle <= limit {
        return None;
    }
    gauge.moved(now);
    let event =
        about(seat, path, "child_stuck", Level::WARN).millis("idle_ms", idle).number("outstanding", outstanding as u64);
    Some((event, line))
}
