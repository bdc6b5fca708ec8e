//! The suite of `Inbox`: an event is consumed once with its effects, and a key on a retry route stays on it.
use domain::{EventId, Hlc, Order, OrderId, RegionId, Status};
use futures::future::join_all;
use ports::broker::Position;
use ports::inbox::{Effect, InboxOutcome, ProcessedEvent, RemoteStamp, RetryRoute, RetryRouteChange};

use crate::backend::Backend;
use crate::conformance::fixture::backend::{DAY, Fixture, HOUR, P0, SECOND, fixture};

suite! { $ inbox:
    a_first_delivery_is_new_and_a_second_is_a_duplicate,
    an_event_repeated_at_another_position_is_a_duplicate,
    an_event_repeated_within_one_call_is_a_duplicate,
    a_duplicate_does_not_fail_the_rest_of_its_call,
    outcomes_come_in_the_order_of_the_events,
    each_group_has_its_own_inbox,
    one_of_many_concurrent_consumers_of_an_event_wins,
    an_effect_commits_with_its_event,
    a_duplicates_effect_is_not_applied,
    the_latest_remote_stamp_is_kept,
    remote_stamps_are_kept_per_order,
    an_orders_own_last_change_and_its_remote_stamp_are_kept_apart,
    a_key_without_a_retry_route_has_none,
    a_retry_route_ends_with_its_last_message,
    a_message_that_enters_a_retry_route_again_or_late_does_not_take_it_back,
    a_message_that_leaves_a_retry_route_again_does_not_end_it_for_later_ones,
    retry_routes_belong_to_one_key_of_one_group,
    several_retry_routes_change_in_one_call,
    keys_of_other_programs_take_retry_routes_too,
    a_sweep_deletes_only_old_events_up_to_its_limit,
    a_swept_event_is_new_again,
}

impl<B: Backend> Fixture<'_, B> {
    fn event_at(&self, event_id: EventId, offset: u64) -> ProcessedEvent {
        let position = Position { topic: self.topic(), partition: 0, offset };
        ProcessedEvent { event_id, position, effects: Vec::new() }
    }

    fn new_event(&self, offset: u64) -> ProcessedEvent {
        self.event_at(self.factory.event_id(), offset)
    }

    async fn consume(&self, group: &str, events: &[ProcessedEvent]) -> Vec<InboxOutcome> {
        self.backend.inbox().commit(group, events.to_vec()).await.expect("the commit succeeds")
    }

    async fn remote_stamp(&self, order_id: OrderId) -> Option<RemoteStamp> {
        self.backend.inbox().remote_stamp(order_id).await.expect("the stamp is read")
    }

    /// The stage of a key's retry route and its last message.
    async fn retry_route(&self, group: &str, key: &str) -> Option<(u32, u64)> {
        let retry_route = self.backend.inbox().retry_route(group, key).await.expect("the retry route is read");
        retry_route.map(|RetryRoute { stage, last }| (stage, last))
    }

    async fn change(&self, group: &str, changes: Vec<RetryRouteChange>) {
        self.backend.inbox().update_retry_routes(group, changes).await.expect("the retry routes are changed");
    }
}

fn effect(order_id: OrderId, region: &str, millis: i64) -> Effect {
    Effect::StoreRemoteStamp { order_id, region: RegionId::new(region), hlc: Hlc { millis, counter: 7 } }
}

fn stamp(region: &str, millis: i64) -> RemoteStamp {
    RemoteStamp { region: RegionId::new(region), hlc: Hlc { millis, counter: 7 } }
}

fn enter(key: &str, stage: u32, offset: u64) -> RetryRouteChange {
    RetryRouteChange::Enter { key: key.into(), stage, offset }
}

fn leave(key: &str, offset: u64) -> RetryRouteChange {
    RetryRouteChange::Leave { key: key.into(), offset }
}

async fn a_first_delivery_is_new_and_a_second_is_a_duplicate<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let event = fixture.new_event(0);

    assert_eq!(fixture.consume("g", std::slice::from_ref(&event)).await, [InboxOutcome::New]);
    assert_eq!(fixture.consume("g", std::slice::from_ref(&event)).await, [InboxOutcome::Duplicate]);
    assert_eq!(fixture.consume("g", &[event]).await, [InboxOutcome::Duplicate]);
    assert_eq!(fixture.consume("g", &[]).await, []);
}

async fn an_event_repeated_at_another_position_is_a_duplicate<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let event = fixture.new_event(0);
    fixture.consume("g", std::slice::from_ref(&event)).await;

    let elsewhere = fixture.event_at(event.event_id, 9);

    assert_eq!(fixture.consume("g", &[elsewhere]).await, [InboxOutcome::Duplicate]);
}

async fn an_event_repeated_within_one_call_is_a_duplicate<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let event = fixture.new_event(0);

    let results = fixture.consume("g", &[event.clone(), fixture.event_at(event.event_id, 1)]).await;

    assert_eq!(results, [InboxOutcome::New, InboxOutcome::Duplicate]);
}

async fn a_duplicate_does_not_fail_the_rest_of_its_call<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let seen = fixture.new_event(0);
    fixture.consume("g", std::slice::from_ref(&seen)).await;
    let fresh = [fixture.new_event(1), fixture.new_event(2)];

    fixture.consume("g", &[fresh[0].clone(), seen, fresh[1].clone()]).await;

    assert_eq!(fixture.consume("g", &fresh).await, [InboxOutcome::Duplicate; 2], "the other two events were recorded");
}

async fn outcomes_come_in_the_order_of_the_events<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let events: Vec<ProcessedEvent> = (0..40).map(|offset| fixture.new_event(offset)).collect();
    let mut odd: Vec<ProcessedEvent> = events.iter().skip(1).step_by(2).cloned().collect();
    odd.reverse();
    fixture.consume("g", &odd).await;

    let results = fixture.consume("g", &events).await;

    for (at, result) in results.into_iter().enumerate() {
        assert_eq!(result, if at % 2 == 1 { InboxOutcome::Duplicate } else { InboxOutcome::New }, "event {at}");
    }
}

async fn each_group_has_its_own_inbox<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let event = fixture.new_event(0);

    for group in ["g", "h", "G"] {
        assert_eq!(fixture.consume(group, std::slice::from_ref(&event)).await, [InboxOutcome::New]);
    }
}

async fn one_of_many_concurrent_consumers_of_an_event_wins<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let events: Vec<ProcessedEvent> = (0..8).map(|offset| fixture.new_event(offset)).collect();
    let mut backwards = events.clone();
    backwards.reverse();
    let calls = (0..12).map(|index| if index % 2 == 0 { &events } else { &backwards });

    let results = join_all(calls.map(|events| fixture.consume("g", events))).await;

    let new = results.into_iter().flatten().filter(|result| *result == InboxOutcome::New).count();
    assert_eq!(new, 8, "each event was new to one consumer, and opposite orders did not deadlock");
}

async fn an_effect_commits_with_its_event<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.factory.placed("ann").0.id;
    assert_eq!(fixture.remote_stamp(order).await, None);

    fixture.consume("g", &[ProcessedEvent { effects: vec![effect(order, "us", 5)], ..fixture.new_event(0) }]).await;

    assert_eq!(fixture.remote_stamp(order).await, Some(stamp("us", 5)));
}

async fn a_duplicates_effect_is_not_applied<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.factory.placed("ann").0.id;
    let event = ProcessedEvent { effects: vec![effect(order, "us", 5)], ..fixture.new_event(0) };
    fixture.consume("g", std::slice::from_ref(&event)).await;

    let late = ProcessedEvent { effects: vec![effect(order, "ap", 9)], ..event };
    assert_eq!(fixture.consume("g", &[late]).await, [InboxOutcome::Duplicate]);

    assert_eq!(fixture.remote_stamp(order).await, Some(stamp("us", 5)));
}

async fn the_latest_remote_stamp_is_kept<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.factory.placed("ann").0.id;
    let won = |region, millis, offset| ProcessedEvent {
        effects: vec![effect(order, region, millis)],
        ..fixture.new_event(offset)
    };

    fixture.consume("g", &[won("us", 5, 0), won("ap", 6, 1)]).await;
    assert_eq!(fixture.remote_stamp(order).await, Some(stamp("ap", 6)), "effects apply in the order of the events");

    fixture.consume("g", &[won("us", 7, 2)]).await;
    assert_eq!(fixture.remote_stamp(order).await, Some(stamp("us", 7)));
}

async fn remote_stamps_are_kept_per_order<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let orders = [fixture.factory.placed("ann").0.id, fixture.factory.placed("ann").0.id];
    let effects = vec![effect(orders[0], "us", 5), effect(orders[1], "ap", 6)];

    fixture.consume("g", &[ProcessedEvent { effects, ..fixture.new_event(0) }]).await;

    assert_eq!(fixture.remote_stamp(orders[0]).await, Some(stamp("us", 5)));
    assert_eq!(fixture.remote_stamp(orders[1]).await, Some(stamp("ap", 6)));
}

/// The regional rule compares an incoming update with both.
async fn an_orders_own_last_change_and_its_remote_stamp_are_kept_apart<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let placed = fixture.place_order(P0).await;
    let find = async || backend.orders().find(placed.id).await.expect("the order is read");
    let update = ProcessedEvent { effects: vec![effect(placed.id, "us", 5)], ..fixture.new_event(0) };

    fixture.consume("g", &[update]).await;
    assert_eq!(find().await, Some(placed.clone()), "an update of another region changes no order");

    let moved = fixture.committed(fixture.factory.change(&placed, Status::Shipped, P0)).await;
    let found = find().await.expect("the order exists");
    let last_change = |order: &Order| (order.region.clone(), order.hlc, order.version, order.updated_at);
    assert_eq!(last_change(&found), last_change(&moved));
    assert!(found.hlc > placed.hlc && found.version > placed.version);
    assert_eq!(fixture.remote_stamp(placed.id).await, Some(stamp("us", 5)), "a change of this region keeps the stamp");
}

async fn a_key_without_a_retry_route_has_none<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    assert_eq!(fixture.retry_route("g", "key").await, None);
    fixture.change("g", Vec::new()).await;
    assert_eq!(fixture.retry_route("g", "key").await, None);
}

async fn a_retry_route_ends_with_its_last_message<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    fixture.change("g", vec![enter("key", 2, 7)]).await;
    assert_eq!(fixture.retry_route("g", "key").await, Some((2, 7)));
    fixture.change("g", vec![enter("key", 2, 8), enter("key", 3, 9)]).await;
    assert_eq!(fixture.retry_route("g", "key").await, Some((3, 9)));
    fixture.change("g", vec![leave("key", 7), leave("key", 8)]).await;
    assert_eq!(fixture.retry_route("g", "key").await, Some((3, 9)));
    fixture.change("g", vec![leave("key", 9)]).await;
    assert_eq!(fixture.retry_route("g", "key").await, None);
    let beyond_32_bits = 5_000_000_000;
    fixture.change("g", vec![enter("key", 0, beyond_32_bits)]).await;
    assert_eq!(
        fixture.retry_route("g", "key").await,
        Some((0, beyond_32_bits)),
        "a new retry route starts with its own stage"
    );
}

async fn a_message_that_enters_a_retry_route_again_or_late_does_not_take_it_back<B: Backend>(backend: &B) {
    let fixture = fixture(backend);

    fixture.change("g", vec![enter("key", 1, 7), enter("key", 1, 8)]).await;
    fixture.change("g", vec![enter("key", 0, 7)]).await;

    assert_eq!(fixture.retry_route("g", "key").await, Some((1, 8)));
    fixture.change("g", vec![leave("key", 8)]).await;
    assert_eq!(fixture.retry_route("g", "key").await, None, "one end is enough");
}

async fn a_message_that_leaves_a_retry_route_again_does_not_end_it_for_later_ones<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.change("g", vec![enter("key", 0, 7), enter("key", 0, 8)]).await;

    for _ in 0..3 {
        fixture.change("g", vec![leave("key", 7)]).await;
    }

    assert_eq!(fixture.retry_route("g", "key").await, Some((0, 8)));
}

async fn retry_routes_belong_to_one_key_of_one_group<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.change("g", vec![enter("key", 1, 5)]).await;

    assert_eq!(fixture.retry_route("h", "key").await, None);
    assert_eq!(fixture.retry_route("g", "other").await, None);
    fixture.change("h", vec![enter("key", 3, 5)]).await;
    fixture.change("h", vec![leave("key", 5)]).await;
    assert_eq!(fixture.retry_route("g", "key").await, Some((1, 5)));
}

async fn several_retry_routes_change_in_one_call<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    fixture.change("g", vec![enter("old", 1, 4)]).await;

    let changes = vec![enter("new", 0, 5), leave("old", 4), enter("other", 3, 6), enter("new", 0, 7)];
    fixture.change("g", changes).await;

    assert_eq!(fixture.retry_route("g", "old").await, None);
    assert_eq!(fixture.retry_route("g", "new").await, Some((0, 7)));
    assert_eq!(fixture.retry_route("g", "other").await, Some((3, 6)));
}

async fn a_sweep_deletes_only_old_events_up_to_its_limit<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let old: Vec<ProcessedEvent> = (0..3).map(|offset| fixture.new_event(offset)).collect();
    fixture.consume("g", &old).await;
    fixture.advance(DAY + SECOND).await;
    let young = fixture.new_event(3);
    fixture.consume("g", std::slice::from_ref(&young)).await;
    fixture.advance(HOUR).await;
    let sweep = async || backend.inbox().sweep(DAY, 2).await.expect("swept");

    assert_eq!((sweep().await, sweep().await, sweep().await), (2, 1, 0));

    assert_eq!(fixture.consume("g", &[young]).await, [InboxOutcome::Duplicate]);
}

async fn a_swept_event_is_new_again<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let order = fixture.factory.placed("ann").0.id;
    let event = ProcessedEvent { effects: vec![effect(order, "us", 5)], ..fixture.new_event(0) };
    fixture.consume("g", std::slice::from_ref(&event)).await;
    fixture.advance(DAY + SECOND).await;

    backend.inbox().sweep(DAY, 10).await.expect("swept");

    assert_eq!(fixture.remote_stamp(order).await, Some(stamp("us", 5)), "a sweep does not undo effects");
    assert_eq!(fixture.consume("g", &[event]).await, [InboxOutcome::New]);
}

/// Other programs choose the keys: Kafka's serialisers of numbers write zero bytes, and a key may be as long as a record.
async fn keys_of_other_programs_take_retry_routes_too<B: Backend>(backend: &B) {
    let fixture = fixture(backend);
    let long: String =
        (0..4_000_u32).map(|at| char::from_u32(0x4e00 + at * 7 % 20_000).expect("a character")).collect();
    let keys = ["\0\0\0\u{7}", "\0\0\0\u{8}", "", &long, &format!("{long}.")];

    for (offset, key) in (1..).zip(keys) {
        assert_eq!(fixture.retry_route("g", key).await, None);
        fixture.change("g", vec![enter(key, 1, offset)]).await;
    }

    for (offset, key) in (1..).zip(keys) {
        assert_eq!(fixture.retry_route("g", key).await, Some((1, offset)));
        fixture.change("g", vec![leave(key, offset)]).await;
        assert_eq!(fixture.retry_route("g", key).await, None);
    }
}
