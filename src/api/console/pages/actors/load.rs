//! What the actors of each kind do, as a table: messages a second, the time of one, and how many wait.
use std::collections::BTreeMap;

use app::dispatch::ActorView;
use maud::{Markup, html};

use crate::console::charts::actor_load::ActorLoad;
use crate::console::format::{grouped, per_second, short_duration};

/// The actors of one kind together.
#[derive(Default)]
struct KindTotals {
    actors: u64,
    waiting: u64,
}

pub(super) fn load_table(actors: &[ActorView], load: &BTreeMap<String, ActorLoad>) -> Markup {
    let mut kinds: BTreeMap<&str, KindTotals> = BTreeMap::new();
    for actor in actors {
        let kind = kinds.entry(&actor.actor).or_default();
        kind.actors += 1;
        kind.waiting += actor.mailbox_depth as u64;
    }
    html! {
        div class="wide" { table class="cards load" {
            caption { "Messages by kind of actor" }
            thead { tr { @for name in ["Kind", "Actors", "Waiting", "Handled per second", "p95 of a message"] { th scope="col" { (name) } } } }
            tbody {
                @for (kind, totals) in &kinds {
                    @let load = load.get(*kind);
                    tr id={ "load-" (kind) } {
                        th scope="row" { (kind) }
                        td class="number" data-label="Actors" { (grouped(totals.actors)) }
                        td class="number" data-label="Waiting" { (grouped(totals.waiting)) }
                        td class="number" data-label="Handled per second" { (rate(load)) }
                        td class="number" data-label="p95 of a message" { (p95(load)) }
                    }
                }
            }
        } }
        p class="quiet" { "Per second over the last ten seconds, p95 over the last minute · "
            a href="/actuator/metrics/actor_messages_total" { "actor_messages_total" } " · "
            a href="/actuator/metrics/actor_message_duration_seconds" { "actor_message_duration_seconds" } }
    }
}

/// `12 per second, p95 250 µs`.
pub(super) fn load_text(load: Option<ActorLoad>) -> String {
    format!("{} per second, p95 {}", rate(load.as_ref()), p95(load.as_ref()))
}

fn rate(load: Option<&ActorLoad>) -> String {
    load.map_or_else(|| "–".to_owned(), |load| per_second(load.per_second))
}

fn p95(load: Option<&ActorLoad>) -> String {
    load.and_then(|load| load.p95).map_or_else(|| "–".to_owned(), short_duration)
}
