//! The live event stream of one reader: what the ring still has, then every later event, and how many events the reader missed.
use std::time::Duration;

use app::dispatch::{LiveEvent, LiveFeed};
use futures::StreamExt;
use supervision::{FieldValue, SupervisionBus, SupervisionEvent};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// The events after this number. The event `lagged` replaces those that the ring no longer has, and counts them. Without a
/// number, or with 0, a reader does not continue an earlier stream and has missed nothing. Events of an earlier process are not counted.
pub(super) fn live_feed(bus: &SupervisionBus, after: Option<u64>) -> LiveFeed {
    let (backlog, receiver) = bus.subscribe_after(after);
    let before_first = bus.options().first_event_seq.saturating_sub(1);
    let continued = after.filter(|after| *after > 0).map(|after| after.max(before_first));
    let missed = continued.and_then(|last| missed_events(last, &backlog));
    let last = backlog.last().map(|event| event.seq).or(continued).unwrap_or(before_first);
    let reader = Reader { bus: bus.clone(), receiver, last, is_dropped: false };
    LiveFeed {
        backlog: missed.into_iter().chain(backlog.iter().map(live_event)).collect(),
        next: futures::stream::unfold(reader, Reader::next).boxed(),
    }
}

struct Reader {
    bus: SupervisionBus,
    receiver: Receiver<SupervisionEvent>,
    /// Number of the last event that the reader received.
    last: u64,
    is_dropped: bool,
}

impl Reader {
    /// The next event. A reader that is too slow is dropped: it reconnects with the last number it received, and continues with what the ring
    /// still has. The number of `lagged` is that of the last missed event, so a reader that reconnects does not count them again.
    async fn next(mut self) -> Option<(LiveEvent, Self)> {
        if self.is_dropped {
            return None;
        }
        match self.receiver.recv().await {
            Ok(event) => {
                self.last = event.seq;
                Some((live_event(&event), self))
            }
            Err(RecvError::Lagged(_)) => {
                self.is_dropped = true;
                let missed = missed_events(self.last, &self.bus.subscribe_after(Some(self.last)).0);
                missed.map(|event| (event, self))
            }
            Err(RecvError::Closed) => None,
        }
    }
}

/// The event that stands for those between `last` and the first one that the ring still has; `None` if there are none between them.
fn missed_events(last: u64, kept: &[SupervisionEvent]) -> Option<LiveEvent> {
    let last_missed = kept.first()?.seq.checked_sub(1)?;
    let missed = last_missed.checked_sub(last).filter(|missed| *missed > 0)?;
    let data = serde_json::json!({ "missed": missed }).to_string();
    Some(LiveEvent { seq: last_missed, event: "lagged".to_owned(), data, age: Duration::ZERO })
}

fn live_event(event: &SupervisionEvent) -> LiveEvent {
    let mut fields = serde_json::Map::new();
    let mut put = |name: &str, text: &str| {
        if !text.is_empty() {
            fields.insert(name.to_owned(), text.into());
        }
    };
    put("child", &event.child);
    put("supervisor", &event.supervisor);
    put("actor", event.kind);
    put("reason", event.reason.unwrap_or_default());
    if !event.child.is_empty() {
        fields.insert("generation".to_owned(), event.generation.into());
    }
    for (name, value) in &event.fields {
        fields.insert((*name).to_owned(), json(value));
    }
    let data = serde_json::Value::Object(fields).to_string();
    LiveEvent { seq: event.seq, event: event.event.to_owned(), data, age: event.at.elapsed() }
}

fn json(value: &FieldValue) -> serde_json::Value {
    match value {
        FieldValue::Text(text) => text.clone().into(),
        FieldValue::Number(number) => (*number).into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use supervision::{Observer, Options};

    use super::*;

    struct Ignored;
    impl Observer for Ignored {}

    /// The ring holds four events, and a connected reader may lag by two.
    fn bus(first_event_seq: u64, events: u64) -> SupervisionBus {
        let options = Options { first_event_seq, event_ring_capacity: 4, subscriber_lag_max: 2, ..Options::default() };
        let bus = SupervisionBus::new(options, Arc::new(Ignored));
        publish(&bus, events);
        bus
    }

    fn publish(bus: &SupervisionBus, events: u64) {
        (0..events).for_each(|_| bus.publish_external("breaker", vec![]));
    }

    fn lines(events: &[LiveEvent]) -> Vec<String> {
        events.iter().map(|event| format!("{} {} {}", event.seq, event.event, event.data)).collect()
    }

    #[test]
    fn reader_that_resumes_after_the_ring_moved_on_is_sent_the_count_of_missed_events() {
        let bus = bus(1, 10);
        let feed = |after| lines(&live_feed(&bus, after).backlog);
        let all: Vec<String> = (7..=10).map(|seq| format!("{seq} breaker {{}}")).collect();

        assert_eq!(feed(Some(3))[0], r#"6 lagged {"missed":3}"#);
        assert_eq!(feed(Some(3))[1..], all);
        assert_eq!(feed(Some(6)), all, "the ring has all after the sixth");
        assert_eq!(feed(Some(10)), [""; 0]);
        for started in [None, Some(0), Some(99)] {
            assert_eq!(feed(started), all, "a reader that does not continue a stream of this process: {started:?}");
        }
    }

    #[test]
    fn reader_of_an_earlier_process_misses_only_events_of_this_one() {
        let bus = bus(1_000, 6);
        assert_eq!(lines(&live_feed(&bus, Some(500)).backlog)[0], r#"1001 lagged {"missed":2}"#);
    }

    #[tokio::test]
    async fn slow_reader_is_dropped_with_the_count_and_resumes_behind_the_missed_events() {
        let bus = bus(1, 1);
        let mut feed = live_feed(&bus, Some(1));
        publish(&bus, 1);
        assert_eq!(feed.next.next().await.map(|event| event.seq), Some(2));

        publish(&bus, 8);
        let rest: Vec<LiveEvent> = feed.next.collect().await;

        assert_eq!(lines(&rest), [r#"6 lagged {"missed":4}"#]);
        let resumed: Vec<u64> = live_feed(&bus, Some(rest[0].seq)).backlog.iter().map(|event| event.seq).collect();
        assert_eq!(resumed, [7, 8, 9, 10], "nothing is missed or counted twice");
    }

    #[tokio::test]
    async fn slow_reader_that_missed_nothing_is_dropped_without_lagged() {
        let bus = bus(1, 1);
        let feed = live_feed(&bus, None);
        publish(&bus, 4);
        assert_eq!(feed.next.collect::<Vec<_>>().await, []);
    }
}
