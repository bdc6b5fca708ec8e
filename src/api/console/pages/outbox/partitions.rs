//! The partitions as a grid: the more unsent rows, the stronger the colour. The busiest come first in words.
use std::collections::HashMap;

use app::dispatch::ActorView;
use app::port_types::{PartitionNo, PartitionView};
use domain::Timestamp;
use maud::{Markup, html};

use super::filter::partition_link;
use crate::console::format::{duration, grouped, pluralize, relative_time, state_label};
use crate::console::links::link;

/// Steps of the colour.
const HEAT_STEPS: u64 = 4;

pub(super) fn grid(all: &[PartitionView], actors: &[ActorView], now: Timestamp) -> Markup {
    let unsent: u64 = all.iter().map(|view| view.depth).sum();
    let unowned = all.iter().filter(|view| view.owner.is_none()).count();
    let most = all.iter().map(|view| view.depth).max().unwrap_or(0);
    html! {
        p { (all.len()) " partitions, " (unowned) " without an owner, " (unsent) " unsent rows." (busiest(all)) }
        ol class="heatmap" {
            @for view in all {
                li class={ "heat-" (heat(view.depth, most)) @if view.owner.is_none() { " unowned" } }
                    title={ "partition " (view.partition.0) ": " (pluralize(view.depth, "unsent row", "unsent rows")) } {
                    a href=(partition_link(view.partition)) { (view.partition.0) }
                }
            }
        }
        details id="leases" {
            summary { "Owners and leases" }
            p class="quiet" { "The epoch counts how often a partition was acquired. It rises with a takeover, and with a restart of its worker or of its owner." }
            (leases(all, actors, most, now))
            p { a href=(link("/console/events", &[("q", "/relay/partition-worker-")])) { "Events of the workers here" }
                " · " a href=(link("/console/events", &[("event", "partitions_owned")])) { "Rebalances" } }
        }
    }
}

/// Every partition with its owner, and the epoch and the expiry of its lease. The owner renews a lease long before it expires.
fn leases(all: &[PartitionView], actors: &[ActorView], most: u64, now: Timestamp) -> Markup {
    let workers = workers(actors);
    html! {
        ol class="grid" {
            @for view in all {
                li class={ "heat-" (heat(view.depth, most)) @if view.owner.is_none() { " unowned" } } {
                    strong { a href=(partition_link(view.partition)) { (view.partition.0) } } " "
                    span class="depth" { (grouped(view.depth)) span class="unit" { " rows" } }
                    div class="owner" { @match &view.owner { Some(owner) => { (owner) }, None => { (state_label("unowned")) } } }
                    small { "epoch " (view.epoch) @if view.open_batch.is_some() { ", open batch" } }
                    @if let Some(at) = view.expires_at.filter(|_| view.owner.is_some()) {
                        small { br; @if at > now { "expires " } @else { "expired " } (relative_time(at, now)) }
                    }
                    @if let Some(worker) = workers.get(&view.partition) { (worker_state(worker)) }
                }
            }
        }
    }
}

/// The workers in this process, by their partition. One runs since it took the partition over, or since its restart.
fn workers(actors: &[ActorView]) -> HashMap<PartitionNo, &ActorView> {
    let partition = |actor: &ActorView| actor.path.rsplit_once("/partition-worker-")?.1.parse().ok().map(PartitionNo);
    actors.iter().filter_map(|actor| Some((partition(actor)?, actor))).collect()
}

fn worker_state(worker: &ActorView) -> Markup {
    html! {
        small { br; a href={ "/console/actors" (worker.path) } { "worker here" } " "
            @match worker.uptime { Some(uptime) => { "for " (duration(uptime)) }, None => { (worker.state) } }
        }
    }
}

fn busiest(all: &[PartitionView]) -> Markup {
    let mut busy: Vec<&PartitionView> = all.iter().filter(|view| view.depth > 0).collect();
    busy.sort_by_key(|view| (std::cmp::Reverse(view.depth), view.partition.0));
    html! {
        @if !busy.is_empty() {
            " Most wait in "
            @for (index, view) in busy.iter().take(3).enumerate() {
                @if index > 0 { ", " }
                a href=(partition_link(view.partition)) { "partition " strong { (view.partition.0) } } " (" (pluralize(view.depth, "row", "rows")) ")"
            }
            "."
        }
    }
}

/// 0 for an empty partition, else 1 to [`HEAT_STEPS`] by its share of the fullest one.
fn heat(depth: u64, most: u64) -> u64 {
    if depth == 0 { 0 } else { (depth * HEAT_STEPS).div_ceil(most.max(1)).clamp(1, HEAT_STEPS) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use app::port_types::InstanceId;

    use super::*;

    #[test]
    fn a_lease_shows_when_it_expires_and_a_free_partition_shows_none() {
        let now = Timestamp::from_millis(10_000);
        let text = |owner: Option<&str>, expires_at: i64| {
            let view = PartitionView {
                partition: PartitionNo(7),
                owner: owner.map(|owner| InstanceId(owner.into())),
                epoch: 3,
                counter: 12,
                open_batch: None,
                expires_at: Some(Timestamp::from_millis(expires_at)),
                depth: 0,
            };
            grid(&[view], &[], now).into_string()
        };

        assert!(text(Some("one"), 31_000).contains("expires <time"), "{}", text(Some("one"), 31_000));
        assert!(text(Some("one"), 31_000).contains(">in 21 s</time>"));
        assert!(text(Some("one"), 7_000).contains("expired <time") && !text(None, 31_000).contains("expire"));
    }

    #[test]
    fn a_partition_shows_since_when_its_worker_runs_here() {
        let worker = |number: u32, uptime: Option<Duration>| ActorView {
            path: format!("/relay/partition-worker-{number}"),
            actor: "PartitionWorker".into(),
            state: "restarting",
            generation: 2,
            restarts: 1,
            uptime,
            mailbox_depth: 0,
            mailbox_capacity: 16,
            in_progress: None,
            last_exit: None,
            supervisor: "partitions".into(),
            parent: None,
        };
        let actors = [worker(17, Some(Duration::from_secs(9))), worker(7, Some(Duration::from_secs(125)))];
        let found = workers(&actors);
        let found = |partition| found.get(&PartitionNo(partition)).copied();

        let text = worker_state(found(7).expect("it runs here")).into_string();
        assert!(
            text.contains("href=\"/console/actors/relay/partition-worker-7\"") && text.contains("for 2 min"),
            "{text}"
        );
        assert!(worker_state(&worker(7, None)).into_string().contains("restarting"));
        assert!(found(1).is_none());
    }

    #[test]
    fn the_colour_grows_with_the_share_of_the_fullest_partition() {
        let heats = [0, 1, 25, 26, 50, 99, 100].map(|depth| heat(depth, 100));
        assert_eq!(heats, [0, 1, 1, 2, 2, 4, 4]);
        assert_eq!(heat(1, 1), 4);
    }
}
