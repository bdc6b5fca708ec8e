//! The verdict of the overview: all well, or the problems, the most urgent first, each with the page that shows more.
use app::dispatch::{ActorView, SupervisorView};
use app::health::{HealthSnapshot, UNSENT_AGE_NOTABLE};

use crate::console::format::{duration, pluralize};

/// How urgent a finding is; the greater one comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Worth knowing; the service continues to work.
    Watch,
    /// An operator must act, or requests fail.
    Act,
}

/// A problem, or a state that is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OverviewFinding {
    pub(crate) urgency: Urgency,
    pub(crate) sentence: String,
    /// The page of the console that shows more.
    pub(crate) href: &'static str,
}

/// The values from which the verdict is computed.
pub(crate) struct VerdictInputs<'a> {
    pub(crate) snapshot: &'a HealthSnapshot,
    pub(crate) actors: &'a [ActorView],
    pub(crate) supervisors: &'a [SupervisorView],
    /// Dead letters that were not sent back, where they could be counted.
    pub(crate) dead_letters: Option<u64>,
    /// Partitions whose lease no instance holds, where they could be counted.
    pub(crate) partitions_without_owner: Option<usize>,
}

/// Everything that is wrong, the most urgent first; empty if all is well.
pub(crate) fn findings(inputs: &VerdictInputs<'_>) -> Vec<OverviewFinding> {
    let mut all = Vec::new();
    service(inputs.snapshot, &mut all);
    actors(inputs, &mut all);
    events(inputs, &mut all);
    // Stable: findings of the same urgency keep the order of this file.
    all.sort_by_key(|finding| std::cmp::Reverse(finding.urgency));
    all
}

fn service(snapshot: &HealthSnapshot, all: &mut Vec<OverviewFinding>) {
    let mut add = |urgency, sentence: String, href| all.push(OverviewFinding { urgency, sentence, href });
    if let Some(reason) = &snapshot.storage_full {
        add(Urgency::Act, format!("The store has no space for writes: {reason}"), "/console");
    }
    for component in snapshot.components.iter().filter(|component| !component.up) {
        let effect = if component.gates { "; writes are refused until it answers" } else { "" };
        let detail = component.detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        add(Urgency::Act, format!("{} does not answer{effect}{detail}", component.name), "/console");
    }
    if snapshot.passive {
        add(Urgency::Act, "The region is PASSIVE and refuses writes".into(), "/console/events?event=region_passive");
    }
    if snapshot.broker_configured && snapshot.breaker == "open" {
        let sentence = "The breaker of the broker is open: sends pause, no event is lost";
        add(Urgency::Act, sentence.into(), "/console/events?event=breaker");
    } else if snapshot.broker_configured && snapshot.breaker == "half-open" {
        add(
            Urgency::Watch,
            "The breaker of the broker is half open: a probe decides".into(),
            "/console/events?event=breaker",
        );
    }
    match snapshot.stage.level().as_str() {
        "CRITICAL" => add(
            Urgency::Act,
            "Pressure is CRITICAL: writes are refused".into(),
            "/console/events?event=pressure_changed",
        ),
        "ELEVATED" => {
            add(
                Urgency::Watch,
                "Pressure is ELEVATED: writes are slowed down".into(),
                "/console/events?event=pressure_changed",
            );
        }
        _ => {}
    }
    if snapshot.draining {
        add(Urgency::Watch, "The service is stopping".into(), "/console/events");
    } else if !snapshot.started {
        add(Urgency::Watch, "The service is starting".into(), "/console/actors");
    }
}

fn actors(inputs: &VerdictInputs<'_>, all: &mut Vec<OverviewFinding>) {
    for (state, urgency) in [("stopped", Urgency::Act), ("restarting", Urgency::Watch), ("paused", Urgency::Watch)] {
        let names: Vec<&str> =
            inputs.actors.iter().filter(|actor| actor.state == state).map(|actor| actor.path.as_str()).collect();
        if let [first, rest @ ..] = &names[..] {
            let others = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let verb = if rest.is_empty() { "is" } else { "are" };
            all.push(OverviewFinding {
                urgency,
                sentence: format!("{first}{others} {verb} {state}"),
                href: "/console/actors",
            });
        }
    }
    for supervisor in
        inputs.supervisors.iter().filter(|supervisor| supervisor.restarts_in_window * 2 > supervisor.restarts_max)
    {
        let SupervisorView { label, restarts_in_window, restarts_max, window, .. } = supervisor;
        let sentence =
            format!("{label} has used {restarts_in_window} of its {restarts_max} restarts in {}", duration(*window));
        all.push(OverviewFinding { urgency: Urgency::Watch, sentence, href: "/console/actors" });
    }
}

fn events(inputs: &VerdictInputs<'_>, all: &mut Vec<OverviewFinding>) {
    let depth = &inputs.snapshot.depth;
    let mut add = |urgency, sentence: String, href| all.push(OverviewFinding { urgency, sentence, href });
    if depth.parked > 0 {
        let rows = pluralize(depth.parked, "row is", "rows are");
        add(Urgency::Act, format!("{rows} PARKED and must be retried by an operator"), "/console/outbox?status=PARKED");
    }
    if let Some(dead_letters) = inputs.dead_letters.filter(|count| *count > 0) {
        let sentence = format!(
            "{} to be sent back or examined",
            pluralize(dead_letters, "dead letter waits", "dead letters wait")
        );
        add(Urgency::Act, sentence, "/console/dlt");
    }
    if !inputs.snapshot.broker_configured {
        let sentence = "No broker is configured (broker.kind = none): events wait";
        add(Urgency::Watch, sentence.into(), "/console/outbox?status=PENDING");
    } else if let Some(count) = inputs.partitions_without_owner.filter(|count| *count > 0) {
        let partitions = pluralize(count as u64, "partition has", "partitions have");
        add(Urgency::Watch, format!("{partitions} no owner: the events wait"), "/console/outbox");
    }
    if depth.failed > 0 {
        let rows = pluralize(depth.failed, "row has", "rows have");
        add(Urgency::Watch, format!("{rows} failed and will be retried"), "/console/outbox?status=FAILED");
    }
    if let Some(age) = depth.oldest_unsent.filter(|age| *age > UNSENT_AGE_NOTABLE) {
        add(Urgency::Watch, format!("The oldest unsent event is {} old", duration(age)), "/console/outbox");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use app::health::Component;
    use app::port_types::RowCounts;

    use super::*;

    fn sentences(snapshot: &HealthSnapshot, actors: &[ActorView]) -> Vec<String> {
        let (dead_letters, partitions_without_owner) = (Some(0), Some(0));
        let inputs = VerdictInputs { snapshot, actors, supervisors: &[], dead_letters, partitions_without_owner };
        findings(&inputs).into_iter().map(|finding| finding.sentence).collect()
    }

    fn healthy() -> HealthSnapshot {
        HealthSnapshot { started: true, breaker: "closed", broker_configured: true, ..HealthSnapshot::default() }
    }

    #[test]
    fn a_healthy_service_has_no_findings() {
        assert!(sentences(&healthy(), &[]).is_empty());
    }

    #[test]
    fn findings_that_need_an_operator_come_first() {
        let latency = Duration::from_millis(1);
        let db = Component { name: "db", up: false, gates: true, latency, detail: Some("refused".into()) };
        let depth =
            RowCounts { parked: 2, failed: 1, oldest_unsent: Some(Duration::from_secs(300)), ..RowCounts::default() };
        let snapshot = HealthSnapshot { components: vec![db], depth, ..healthy() };
        let expected = [
            "db does not answer; writes are refused until it answers (refused)",
            "2 rows are PARKED and must be retried by an operator",
            "1 row has failed and will be retried",
            "The oldest unsent event is 5 min old",
        ];
        assert_eq!(sentences(&snapshot, &[]), expected);
    }

    #[test]
    fn partitions_without_an_owner_and_a_missing_broker_are_named_once() {
        let sentences = |snapshot: &HealthSnapshot, partitions_without_owner| -> Vec<String> {
            let inputs =
                VerdictInputs { snapshot, actors: &[], supervisors: &[], dead_letters: None, partitions_without_owner };
            findings(&inputs).into_iter().map(|finding| finding.sentence).collect()
        };
        let without_broker = HealthSnapshot { broker_configured: false, ..healthy() };

        assert_eq!(sentences(&healthy(), Some(1)), ["1 partition has no owner: the events wait"]);
        assert_eq!(sentences(&without_broker, Some(64)), ["No broker is configured (broker.kind = none): events wait"]);
    }

    #[test]
    fn actors_that_do_not_run_and_supervisors_near_their_limit_are_named() {
        let actor = |path: &str, state| ActorView {
            path: path.into(),
            actor: String::new(),
            state,
            generation: 1,
            restarts: 0,
            uptime: None,
            mailbox_depth: 0,
            mailbox_capacity: 1,
            in_progress: None,
            last_exit: None,
            supervisor: "root".into(),
            parent: None,
        };
        let actors = [actor("/a", "restarting"), actor("/b", "stopped"), actor("/c", "restarting")];
        let supervisor = |restarts_in_window| SupervisorView {
            label: "/relay".into(),
            parent: None,
            strategy: "rest_for_one",
            restarts_max: 5,
            window: Duration::from_secs(30),
            restarts_in_window,
        };
        let supervisors = [supervisor(2), supervisor(3)];
        let snapshot = healthy();
        let inputs = VerdictInputs {
            snapshot: &snapshot,
            actors: &actors,
            supervisors: &supervisors,
            dead_letters: None,
            partitions_without_owner: None,
        };
        let sentences: Vec<_> = findings(&inputs).into_iter().map(|finding| finding.sentence).collect();
        let expected = ["/b is stopped", "/a and 1 more are restarting", "/relay has used 3 of its 5 restarts in 30 s"];
        assert_eq!(sentences, expected);
    }
}
