//! A live event as a severity and one sentence, for pages that people read.
use serde_json::{Map, Value};

/// The severity of an event for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// Part of normal operation.
    Info,
    /// The service recovered without an operator.
    Warning,
    /// An operator must act, or something was down.
    Error,
}

impl Severity {
    /// All severities, the gravest first.
    pub(crate) const ALL: [Self; 3] = [Self::Error, Self::Warning, Self::Info];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }
}

/// The severity of an event and what happened.
pub(crate) fn describe(event: &str, data: &str) -> (Severity, String) {
    let fields: Map<String, Value> = serde_json::from_str(data).unwrap_or_default();
    let fields = Fields(&fields);
    tree_event(event, &fields)
        .or_else(|| service_event(event, &fields))
        .or_else(|| partition_event(event, &fields))
        .unwrap_or_else(|| unknown_event(event, &fields))
}

/// The fields of an event as texts.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn text(&self, name: &str) -> String {
        match self.0.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => "?".to_owned(),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The path of the child; the supervisor where there is none.
    fn subject(&self) -> String {
        self.text(if self.has("child") { "child" } else { "supervisor" })
    }

    /// `: text` of the first of these fields that the event has.
    fn detail(&self, names: &[&str]) -> String {
        names.iter().find(|name| self.has(name)).map(|name| format!(": {}", self.text(name))).unwrap_or_default()
    }
}

/// Events of the supervision tree.
fn tree_event(event: &str, fields: &Fields<'_>) -> Option<(Severity, String)> {
    let child = fields.subject();
    let described = match event {
        "child_started" => (Severity::Info, format!("{child} started")),
        "child_exited" => exit(&child, fields),
        "restart_scheduled" => (Severity::Info, format!("{child} restarts in {} ms", fields.text("delay_ms"))),
        "child_restarted" => {
            let down = if fields.has("downtime_ms") {
                format!(" after {} ms", fields.text("downtime_ms"))
            } else {
                String::new()
            };
            (Severity::Info, format!("{child} is back as generation {}{down}", fields.text("generation")))
        }
        "child_start_failed" => {
            (Severity::Error, format!("{child} could not start{}", fields.detail(&["detail", "reason"])))
        }
        "child_terminated" => (Severity::Info, format!("{child} ended and is not restarted")),
        "shutdown_timeout" => {
            (Severity::Warning, format!("{child} did not stop within {} ms and is killed", fields.text("limit_ms")))
        }
        "message_unhandled" => {
            let (count, of) = (fields.text("count"), fields.text("message"));
            let messages = if count == "1" { "message" } else { "messages" };
            let sentence = format!("{child} did not handle {count} {messages} {of} ({})", fields.text("reason"));
            (Severity::Warning, sentence)
        }
        "child_stuck" => (Severity::Error, format!("{child} handles no message although its mailbox holds some")),
        "mailbox_saturated" => (Severity::Warning, format!("The mailbox of {child} is nearly full")),
        "mailbox_recovered" => (Severity::Info, format!("The mailbox of {child} has space again")),
        "intensity_exceeded" => {
            (Severity::Error, format!("{} has used up its restarts; {child} failed last", fields.text("supervisor")))
        }
        "supervisor_stopped" => {
            (Severity::Warning, format!("The supervisor {child} stopped{}", fields.detail(&["detail", "reason"])))
        }
        "tree_stopped" => (Severity::Warning, format!("The tree stopped{}", fields.detail(&["detail", "reason"]))),
        "arbiter_stalled" => (Severity::Error, "An actor thread (arbiter) does not respond".to_owned()),
        "arbiter_recovered" => (Severity::Info, "An actor thread (arbiter) responds again".to_owned()),
        "fault_injected" => {
            let by = if fields.has("by") { format!(" by {}", fields.text("by")) } else { String::new() };
            (Severity::Warning, format!("{} was injected into {child}{by}", fields.text("fault")))
        }
        _ => return None,
    };
    Some(described)
}

fn exit(child: &str, fields: &Fields<'_>) -> (Severity, String) {
    let reason = fields.text("reason");
    let (severity, what) = match reason.as_str() {
        "panic" => (Severity::Error, "panicked".to_owned()),
        "normal" => (Severity::Info, "ended".to_owned()),
        "shutdown" => (Severity::Info, "was shut down".to_owned()),
        "sibling" => (Severity::Info, "was stopped with a failed sibling".to_owned()),
        "?" => (Severity::Warning, "exited".to_owned()),
        other => (Severity::Warning, format!("exited ({other})")),
    };
    // `message` is the type of the message that the actor handled; the panic's own text is in `detail`.
    let handled =
        if fields.has("message") { format!(" while it handled {}", fields.text("message")) } else { String::new() };
    (severity, format!("{child} {what}{handled}{}", fields.detail(&["detail"])))
}

/// Events of relay, consumers, region, pressure and operators.
fn service_event(event: &str, fields: &Fields<'_>) -> Option<(Severity, String)> {
    let text = |name: &str| fields.text(name);
    let described = match event {
        "event_parked" => (
            Severity::Error,
            format!("Row {} was PARKED after {} attempts: {}", text("row"), text("attempt"), text("error")),
        ),
        "message_dead_lettered" => (
            Severity::Error,
            format!("A message of {} was moved to the dead letters: {}", text("topic"), text("error")),
        ),
        "breaker" => match text("state").as_str() {
            "closed" => (Severity::Info, "The breaker closed: the broker recovered".to_owned()),
            "open" => (Severity::Error, format!("The breaker opened: sends pause{}", error_text(fields))),
            state => (Severity::Warning, format!("The breaker is {state}")),
        },
        "relay_failing" => (Severity::Warning, format!("Events cannot be published{}", error_text(fields))),
        "relay_recovered" => (Severity::Info, "Events are published again".to_owned()),
        "store_rewound" => {
            (Severity::Error, "The store was rewound: it lacks batches that the broker has committed".to_owned())
        }
        "store_timeline_changed" => (
            Severity::Warning,
            format!("The store is on a new timeline ({}) after a fail-over or a restore", text("timeline")),
        ),
        "region_passive" => (Severity::Error, format!("The region {} is PASSIVE and refuses writes", text("region"))),
        "region_active" => (Severity::Info, format!("The region {} is ACTIVE and accepts writes", text("region"))),
        "dependency_down" => (Severity::Error, format!("{} does not answer{}", text("dependency"), error_text(fields))),
        "dependency_up" => (Severity::Info, format!("{} answers again", text("dependency"))),
        "pressure_changed" => {
            let severity = match text("to").as_str() {
                "CRITICAL" => Severity::Error,
                "NORMAL" => Severity::Info,
                _ => Severity::Warning,
            };
            (severity, format!("Pressure went from {} to {}", text("from"), text("to")))
        }
        "operator_action" => {
            let reason = if fields.has("reason") { format!(" ({})", text("reason")) } else { String::new() };
            (Severity::Info, format!("{}: {} {}{reason}", text("by"), text("action"), text("on")))
        }
        "lagged" => (Severity::Warning, missed(&text("missed"))),
        "order_sampled" => (
            Severity::Info,
            format!("Order {} emitted {} as version {}", text("order_id"), text("type"), text("version")),
        ),
        _ => return None,
    };
    Some(described)
}

/// Events about the leases on partitions that this instance holds, held or wants.
fn partition_event(event: &str, fields: &Fields<'_>) -> Option<(Severity, String)> {
    let text = |name: &str| fields.text(name);
    let partition = text("partition");
    let described = match event {
        "partitions_owned" => (
            Severity::Info,
            format!("This instance owns {} partitions; it owned {} before", text("owned"), text("before")),
        ),
        "lease_acquired" => {
            let after = match text("reason").as_str() {
                "worker_died" => " after its worker here died",
                "outcome_unknown" => " again, because a statement had no reply",
                _ => "",
            };
            (Severity::Info, format!("Partition {partition} was acquired under epoch {}{after}", text("epoch")))
        }
        "lease_released" => (Severity::Info, format!("Partition {partition} was handed over: its lease is free")),
        "lease_lost" => {
            let to = if fields.has("owner") { format!(" to {}", text("owner")) } else { String::new() };
            (Severity::Warning, format!("The lease on partition {partition} was lost{to}"))
        }
        "batch_resolved" => {
            let token = text("token");
            let outcome = match text("verdict").as_str() {
                "Published" => "it was published",
                "ClaimerDied" => "its claimer died, and its rows are due again",
                _ => "it was not published, and its rows are due again",
            };
            (
                Severity::Info,
                format!("Batch {token} of partition {partition}, which an earlier claim left open: {outcome}"),
            )
        }
        _ => return None,
    };
    Some(described)
}

/// That the page lacks events between its newest and its older ones.
fn missed(count: &str) -> String {
    if count == "1" { "1 entry was missed".to_owned() } else { format!("{count} entries were missed") }
}

fn error_text(fields: &Fields<'_>) -> String {
    let error = fields.detail(&["error"]);
    if error == ": " { String::new() } else { error }
}

/// Names the event and its subject: an event of a later version still reads as a sentence.
fn unknown_event(event: &str, fields: &Fields<'_>) -> (Severity, String) {
    let name = event.replace('_', " ");
    let subject = fields.subject();
    (Severity::Info, if subject == "?" { name } else { format!("{subject}: {name}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_read_as_sentences_with_their_severity() {
        let cases = [
            (
                "child_exited",
                r#"{"child":"/relay/x","reason":"panic","detail":"boom","location":"a.rs:1:1","message":"RunBatch"}"#,
                Severity::Error,
                "/relay/x panicked while it handled RunBatch: boom",
            ),
            (
                "shutdown_timeout",
                r#"{"child":"/relay/x","limit_ms":400}"#,
                Severity::Warning,
                "/relay/x did not stop within 400 ms and is killed",
            ),
            (
                "message_unhandled",
                r#"{"child":"/relay/x","reason":"expired","message":"RunBatch","count":2}"#,
                Severity::Warning,
                "/relay/x did not handle 2 messages RunBatch (expired)",
            ),
            (
                "child_exited",
                r#"{"child":"/x","reason":"sibling"}"#,
                Severity::Info,
                "/x was stopped with a failed sibling",
            ),
            (
                "child_restarted",
                r#"{"child":"/x","generation":2,"downtime_ms":53}"#,
                Severity::Info,
                "/x is back as generation 2 after 53 ms",
            ),
            (
                "breaker",
                r#"{"state":"open","error":"refused"}"#,
                Severity::Error,
                "The breaker opened: sends pause: refused",
            ),
            (
                "pressure_changed",
                r#"{"from":"NORMAL","to":"ELEVATED"}"#,
                Severity::Warning,
                "Pressure went from NORMAL to ELEVATED",
            ),
            (
                "event_parked",
                r#"{"row":"6","attempt":"12","error":"too big"}"#,
                Severity::Error,
                "Row 6 was PARKED after 12 attempts: too big",
            ),
            (
                "operator_action",
                r#"{"by":"ann","action":"park","on":"row 6","reason":"later"}"#,
                Severity::Info,
                "ann: park row 6 (later)",
            ),
            ("lagged", r#"{"missed":1}"#, Severity::Warning, "1 entry was missed"),
            ("lagged", r#"{"missed":25}"#, Severity::Warning, "25 entries were missed"),
            ("child_sneezed", r#"{"child":"/x"}"#, Severity::Info, "/x: child sneezed"),
            ("odd", "no json", Severity::Info, "odd"),
        ];
        for (event, data, severity, sentence) in cases {
            assert_eq!(describe(event, data), (severity, sentence.to_owned()));
        }
    }

    #[test]
    fn events_about_partitions_and_the_relay_read_as_sentences() {
        let cases = [
            (
                "partitions_owned",
                r#"{"owned":"32","before":"64"}"#,
                Severity::Info,
                "This instance owns 32 partitions; it owned 64 before",
            ),
            (
                "lease_acquired",
                r#"{"partition":"7","epoch":"3","reason":"unowned"}"#,
                Severity::Info,
                "Partition 7 was acquired under epoch 3",
            ),
            (
                "lease_acquired",
                r#"{"partition":"7","epoch":"4","reason":"worker_died"}"#,
                Severity::Info,
                "Partition 7 was acquired under epoch 4 after its worker here died",
            ),
            (
                "lease_released",
                r#"{"partition":"7","epoch":"4"}"#,
                Severity::Info,
                "Partition 7 was handed over: its lease is free",
            ),
            (
                "lease_lost",
                r#"{"partition":"7","owner":"two"}"#,
                Severity::Warning,
                "The lease on partition 7 was lost to two",
            ),
            ("lease_lost", r#"{"partition":"7"}"#, Severity::Warning, "The lease on partition 7 was lost"),
            (
                "batch_resolved",
                r#"{"partition":"7","epoch":"4","token":"9","verdict":"Published"}"#,
                Severity::Info,
                "Batch 9 of partition 7, which an earlier claim left open: it was published",
            ),
            ("relay_failing", r#"{"error":"refused"}"#, Severity::Warning, "Events cannot be published: refused"),
            ("relay_recovered", "{}", Severity::Info, "Events are published again"),
            (
                "store_rewound",
                r#"{"partition":"7","watermark":"9"}"#,
                Severity::Error,
                "The store was rewound: it lacks batches that the broker has committed",
            ),
        ];
        for (event, data, severity, sentence) in cases {
            assert_eq!(describe(event, data), (severity, sentence.to_owned()));
        }
    }
}
