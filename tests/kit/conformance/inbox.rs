//! The suite of `Inbox`: a message is consumed once, its effects are done once, and a key on a detour stays on it.
use domain::{EventId, Hlc, OrderId, RegionId};
use futures::future::join_all;
use ports::broker::Position;
use ports::inbox::{Detour, DetourChange, Effect, InboxOutcome, ProcessedEvent, RemoteStamp};

use super::given::{DAY, Given, HOUR, SECOND, given};
use crate::backend::Backend;

suite! { $ inbox:
    a_first_delivery_is_new_and_a_second_is_a_duplicate,
    a_duplicate_at_another_position_is_a_duplicate,
    a_duplicate_within_one_call_is_a_duplicate,
    a_duplicate_fails_no_neighbour,
    answers_come_in_the_order_of_the_marks,
    groups_remember_apart,
    of_concurrent_consumers_of_one_message_one_wins,
    an_effect_is_done_with_its_mark,
    a_duplicates_effect_is_not_done,
    the_stamp_that_last_won_is_remembered,
    remotes_are_remembered_for_each_order_apart,
    a_key_without_a_detour_has_none,
    a_detour_ends_with_its_last_message,
    detours_belong_to_one_key_of_one_group,
    several_detours_change_at_once,
    only_old_marks_are_swept_and_at_most_so_many,
    a_swept_message_would_be_new_again,
}

impl<B: Backend> Given<'_, B> {
    fn arrived(&self, event_id: EventId, offset: u64) -> ProcessedEvent {
        ProcessedEvent {
            event_id,
            position: Position { topic: self.topic(), partition: 0, offset },
            effects: Vec::new(),
        }
    }

    fn arrival(&self, offset: u64) -> ProcessedEvent {
        self.arrived(self.make.event_id(), offset)
    }

    async fn marked(&self, group: &str, marks: &[ProcessedEvent]) -> Vec<InboxOutcome> {
        self.backend.inbox().commit(group, marks.to_vec()).await.expect("a commit is answered")
    }

    async fn remote(&self, order_id: OrderId) -> Option<RemoteStamp> {
        self.backend.inbox().remote(order_id).await.expect("answered")
    }

    async fn detour(&self, group: &str, key: &str) -> Option<(u32, u32)> {
        let detour = self.backend.inbox().detour(group, key).await.expect("answered");
        detour.map(|Detour { stage, outstanding }| (stage, outstanding))
    }

    async fn change(&self, group: &str, changes: Vec<DetourChange>) {
        self.backend.inbox().set_detours(group, changes).await.expect("answered");
    }
}

fn effect(order_id: OrderId, region: &str, millis: i64) -> Effect {
    Effect::RememberRemote { order_id, region: RegionId::new(region), hlc: Hlc { millis, counter: 7 } }
}

fn remote(region: &str, millis: i64) -> RemoteStamp {
    RemoteStamp { region: RegionId::new(region), hlc: Hlc { millis, counter: 7 } }
}

fn enter(key: &str, stage: u32) -> DetourChange {
    DetourChange::Enter { key: key.into(), stage }
}

fn leave(key: &str) -> DetourChange {
    DetourChange::Leave { key: key.into() }
}

async fn a_first_delivery_is_new_and_a_second_is_a_duplicate<B: Backend>(backend: &B) {
    let given = given(backend);
    let mark = given.arrival(0);

    assert_eq!(given.marked("g", std::slice::from_ref(&mark)).await, [InboxOutcome::New]);
    assert_eq!(given.marked("g", std::slice::from_ref(&mark)).await, [InboxOutcome::Duplicate]);
    assert_eq!(given.marked("g", &[mark]).await, [InboxOutcome::Duplicate]);
    assert_eq!(given.marked("g", &[]).await, []);
}

async fn a_duplicate_at_another_position_is_a_duplicate<B: Backend>(backend: &B) {
    let given = given(backend);
    let mark = given.arrival(0);
    given.marked("g", std::slice::from_ref(&mark)).await;

    let elsewhere = given.arrived(mark.event_id, 9);

    assert_eq!(given.marked("g", &[elsewhere]).await, [InboxOutcome::Duplicate]);
}

async fn a_duplicate_within_one_call_is_a_duplicate<B: Backend>(backend: &B) {
    let given = given(backend);
    let mark = given.arrival(0);

    let answers = given.marked("g", &[mark.clone(), given.arrived(mark.event_id, 1)]).await;

    assert_eq!(answers, [InboxOutcome::New, InboxOutcome::Duplicate]);
}

async fn a_duplicate_fails_no_neighbour<B: Backend>(backend: &B) {
    let given = given(backend);
    let seen = given.arrival(0);
    given.marked("g", std::slice::from_ref(&seen)).await;
    let fresh = [given.arrival(1), given.arrival(2)];

    given.marked("g", &[fresh[0].clone(), seen, fresh[1].clone()]).await;

    assert_eq!(given.marked("g", &fresh).await, [InboxOutcome::Duplicate; 2], "both neighbours were remembered");
}

async fn answers_come_in_the_order_of_the_marks<B: Backend>(backend: &B) {
    let given = given(backend);
    let marks: Vec<ProcessedEvent> = (0..40).map(|offset| given.arrival(offset)).collect();
    let mut odd: Vec<ProcessedEvent> = marks.iter().skip(1).step_by(2).cloned().collect();
    odd.reverse();
    given.marked("g", &odd).await;

    let answers = given.marked("g", &marks).await;

    for (at, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, if at % 2 == 1 { InboxOutcome::Duplicate } else { InboxOutcome::New }, "mark {at}");
    }
}

async fn groups_remember_apart<B: Backend>(backend: &B) {
    let given = given(backend);
    let mark = given.arrival(0);

    for group in ["g", "h", "G"] {
        assert_eq!(given.marked(group, std::slice::from_ref(&mark)).await, [InboxOutcome::New]);
    }
}

async fn of_concurrent_consumers_of_one_message_one_wins<B: Backend>(backend: &B) {
    let given = given(backend);
    let marks: Vec<ProcessedEvent> = (0..8).map(|offset| given.arrival(offset)).collect();
    let mut backwards = marks.clone();
    backwards.reverse();
    let turns = (0..12).map(|turn| if turn % 2 == 0 { &marks } else { &backwards });

    let answers = join_all(turns.map(|marks| given.marked("g", marks))).await;

    let new = answers.into_iter().flatten().filter(|answer| *answer == InboxOutcome::New).count();
    assert_eq!(new, 8, "each message was new to one consumer, and opposite orders stopped nobody");
}

async fn an_effect_is_done_with_its_mark<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.make.placed("ann").0.id;
    assert_eq!(given.remote(order).await, None);

    given.marked("g", &[ProcessedEvent { effects: vec![effect(order, "us", 5)], ..given.arrival(0) }]).await;

    assert_eq!(given.remote(order).await, Some(remote("us", 5)));
}

async fn a_duplicates_effect_is_not_done<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.make.placed("ann").0.id;
    let mark = ProcessedEvent { effects: vec![effect(order, "us", 5)], ..given.arrival(0) };
    given.marked("g", std::slice::from_ref(&mark)).await;

    let late = ProcessedEvent { effects: vec![effect(order, "ap", 9)], ..mark };
    assert_eq!(given.marked("g", &[late]).await, [InboxOutcome::Duplicate]);

    assert_eq!(given.remote(order).await, Some(remote("us", 5)));
}

async fn the_stamp_that_last_won_is_remembered<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.make.placed("ann").0.id;
    let won = |region, millis, offset| ProcessedEvent {
        effects: vec![effect(order, region, millis)],
        ..given.arrival(offset)
    };

    given.marked("g", &[won("us", 5, 0), won("ap", 6, 1)]).await;
    assert_eq!(given.remote(order).await, Some(remote("ap", 6)), "in the order of the marks");

    given.marked("g", &[won("us", 7, 2)]).await;
    assert_eq!(given.remote(order).await, Some(remote("us", 7)));
}

async fn remotes_are_remembered_for_each_order_apart<B: Backend>(backend: &B) {
    let given = given(backend);
    let orders = [given.make.placed("ann").0.id, given.make.placed("ann").0.id];
    let effects = vec![effect(orders[0], "us", 5), effect(orders[1], "ap", 6)];

    given.marked("g", &[ProcessedEvent { effects, ..given.arrival(0) }]).await;

    assert_eq!(given.remote(orders[0]).await, Some(remote("us", 5)));
    assert_eq!(given.remote(orders[1]).await, Some(remote("ap", 6)));
}

async fn a_key_without_a_detour_has_none<B: Backend>(backend: &B) {
    let given = given(backend);

    assert_eq!(given.detour("g", "key").await, None);
    given.change("g", Vec::new()).await;
    assert_eq!(given.detour("g", "key").await, None);
}

async fn a_detour_ends_with_its_last_message<B: Backend>(backend: &B) {
    let given = given(backend);

    given.change("g", vec![enter("key", 2)]).await;
    assert_eq!(given.detour("g", "key").await, Some((2, 1)));
    given.change("g", vec![enter("key", 2), enter("key", 2)]).await;
    assert_eq!(given.detour("g", "key").await, Some((2, 3)));
    given.change("g", vec![leave("key"), leave("key")]).await;
    assert_eq!(given.detour("g", "key").await, Some((2, 1)));
    given.change("g", vec![leave("key")]).await;
    assert_eq!(given.detour("g", "key").await, None);
    given.change("g", vec![enter("key", 0)]).await;
    assert_eq!(given.detour("g", "key").await, Some((0, 1)), "a new detour begins anew");
}

async fn detours_belong_to_one_key_of_one_group<B: Backend>(backend: &B) {
    let given = given(backend);
    given.change("g", vec![enter("key", 1)]).await;

    assert_eq!(given.detour("h", "key").await, None);
    assert_eq!(given.detour("g", "other").await, None);
    given.change("h", vec![enter("key", 3)]).await;
    given.change("h", vec![leave("key")]).await;
    assert_eq!(given.detour("g", "key").await, Some((1, 1)));
}

async fn several_detours_change_at_once<B: Backend>(backend: &B) {
    let given = given(backend);
    given.change("g", vec![enter("old", 1)]).await;

    given.change("g", vec![enter("new", 0), leave("old"), enter("other", 3), enter("new", 0)]).await;

    assert_eq!(given.detour("g", "old").await, None);
    assert_eq!(given.detour("g", "new").await, Some((0, 2)));
    assert_eq!(given.detour("g", "other").await, Some((3, 1)));
}

async fn only_old_marks_are_swept_and_at_most_so_many<B: Backend>(backend: &B) {
    let given = given(backend);
    let old: Vec<ProcessedEvent> = (0..3).map(|offset| given.arrival(offset)).collect();
    given.marked("g", &old).await;
    given.advance(DAY + SECOND).await;
    let young = given.arrival(3);
    given.marked("g", std::slice::from_ref(&young)).await;
    given.advance(HOUR).await;
    let sweep = async || backend.inbox().sweep(DAY, 2).await.expect("swept");

    assert_eq!((sweep().await, sweep().await, sweep().await), (2, 1, 0));

    assert_eq!(given.marked("g", &[young]).await, [InboxOutcome::Duplicate]);
}

async fn a_swept_message_would_be_new_again<B: Backend>(backend: &B) {
    let given = given(backend);
    let order = given.make.placed("ann").0.id;
    let mark = ProcessedEvent { effects: vec![effect(order, "us", 5)], ..given.arrival(0) };
    given.marked("g", std::slice::from_ref(&mark)).await;
    given.advance(DAY + SECOND).await;

    backend.inbox().sweep(DAY, 10).await.expect("swept");

    assert_eq!(given.remote(order).await, Some(remote("us", 5)), "what was done stays done");
    assert_eq!(given.marked("g", &[mark]).await, [InboxOutcome::New]);
}
