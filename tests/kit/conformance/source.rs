//! The suite of `Sources` and `GroupMember`: in order per topic partition, acknowledged by hand, nothing handed out twice unasked.
use std::collections::BTreeMap;
use std::sync::Arc;

use ports::broker::Position;
use ports::source::{Delivery, GroupMember};

use super::given::{Given, HOUR, P0, SECOND, given};
use crate::backend::Backend;

suite! { $ source:
    messages_come_in_order_per_partition,
    at_most_so_many_come_at_once,
    a_message_is_handed_out_once,
    an_empty_topic_hands_out_nothing,
    a_group_goes_on_after_what_it_acknowledged,
    what_was_not_acknowledged_comes_again_to_the_next_member,
    acknowledging_may_skip_and_the_largest_counts,
    an_acknowledgement_never_goes_back,
    rewinding_hands_out_again_what_was_not_acknowledged,
    groups_read_apart,
    several_topics_are_read_by_one_member,
    members_share_the_partitions,
    a_new_message_reaches_a_member_that_has_read_all,
    a_pause_holds_one_partition_until_it_is_over,
    a_paused_partition_begins_again_at_the_position,
    an_aborted_batch_is_never_handed_out,
    the_lag_counts_what_is_not_acknowledged,
    the_lag_ages_by_the_oldest_of_them,
}

/// A poll of a broker that needs time may come back empty; this many of them in a row mean that there is nothing.
const EMPTY_POLLS: u32 = 2;
/// Within so many polls of each member a group has shared its partitions out.
const SETTLING_POLLS: u32 = 30;

impl<B: Backend> Given<'_, B> {
    async fn join(&self, group: &str) -> Arc<dyn GroupMember> {
        self.member(group, 0, 1).await
    }

    async fn member(&self, group: &str, member: u32, members: u32) -> Arc<dyn GroupMember> {
        let topics = [self.topic().to_string()];
        self.backend.sources().join(group, &topics, member, members).await.expect("joined")
    }

    async fn append(&self, keys: &[&str], each: usize) {
        for turn in 0..each {
            let records = keys.iter().map(|key| self.make.record(key, &format!("{key}-{turn:03}")));
            self.backend.broker().append(records.collect()).await.expect("appended");
        }
    }

    async fn poll(&self, source: &Arc<dyn GroupMember>, limit: u32) -> Vec<Delivery> {
        source.poll(limit, self.backend.patience()).await.expect("a poll is answered")
    }

    /// Waits until the members have shared the partitions out: where the backend does that itself, it takes a moment, and what is handed
    /// out before comes again.
    async fn settled(&self, members: &[Arc<dyn GroupMember>]) {
        let views = self.backend.topics().list().await.expect("topics are listed");
        let whole = views.iter().find(|view| view.name == *self.topic()).map(|view| view.partitions.len());
        for _ in 0..SETTLING_POLLS {
            let mut shares = Vec::new();
            for member in members {
                assert_eq!(self.poll(member, 1).await, []);
                shares.push(member.lag().await.expect("told").len());
            }
            // A topic that is made by its first record is shared out by number, at once.
            if shares.iter().all(|share| *share > 0) && whole.is_none_or(|whole| shares.iter().sum::<usize>() == whole)
            {
                return;
            }
        }
        panic!("the members never shared the partitions out");
    }

    /// Polls until nothing more comes.
    async fn all(&self, source: &Arc<dyn GroupMember>) -> Vec<Delivery> {
        let (mut all, mut empty) = (Vec::new(), 0);
        while empty < EMPTY_POLLS {
            let some = self.poll(source, 100).await;
            empty = if some.is_empty() { empty + 1 } else { 0 };
            all.extend(some);
            assert!(all.len() < 10_000, "messages come for ever");
        }
        all
    }
}

fn positions(deliveries: &[Delivery]) -> Vec<Position> {
    deliveries.iter().map(|delivery| delivery.position.clone()).collect()
}

fn sorted(deliveries: &[Delivery]) -> Vec<String> {
    let mut values: Vec<String> =
        deliveries.iter().map(|delivery| String::from_utf8_lossy(&delivery.record.value).into_owned()).collect();
    values.sort();
    values
}

async fn messages_come_in_order_per_partition<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a", "b", "c", "d", "e"], 6).await;

    let all = given.all(&given.join("g").await).await;

    assert_eq!(all.len(), 30);
    let mut last = BTreeMap::new();
    for Delivery { position, .. } in &all {
        let before = last.insert(position.partition, position.offset);
        assert!(before.is_none_or(|before| before < position.offset), "{position:?} after {before:?}");
    }
}

async fn at_most_so_many_come_at_once<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a", "b", "c"], 4).await;
    let source = given.join("g").await;

    let mut seen = Vec::new();
    while seen.len() < 12 {
        let some = given.poll(&source, 5).await;
        assert!((1..=5).contains(&some.len()), "{} messages", some.len());
        seen.extend(some);
    }

    assert_eq!(seen.len(), 12);
}

async fn a_message_is_handed_out_once<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a", "b"], 3).await;
    let source = given.join("g").await;

    let mut seen = sorted(&given.all(&source).await);

    let total = seen.len();
    seen.dedup();
    assert_eq!((total, seen.len()), (6, 6));
    assert_eq!(given.all(&source).await, []);
}

async fn an_empty_topic_hands_out_nothing<B: Backend>(backend: &B) {
    let given = given(backend);
    let source = given.join("g").await;

    assert_eq!(given.poll(&source, 10).await, []);
    source.acknowledge(&[]).await.expect("nothing is easily acknowledged");
    source.rewind().await.expect("nothing is easily forgotten");
}

async fn a_group_goes_on_after_what_it_acknowledged<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a"], 5).await;
    let first = given.join("g").await;
    let all = given.all(&first).await;
    first.acknowledge(&positions(&all[..2])).await.expect("acknowledged");
    drop(first);

    let again = given.all(&given.join("g").await).await;

    assert_eq!(again, all[2..]);
}

async fn what_was_not_acknowledged_comes_again_to_the_next_member<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a", "b", "c"], 2).await;
    let first = given.join("g").await;
    let all = given.all(&first).await;
    drop(first);

    let again = given.all(&given.join("g").await).await;

    assert_eq!(sorted(&again), sorted(&all));
}

async fn acknowledging_may_skip_and_the_largest_counts<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a"], 5).await;
    let first = given.join("g").await;
    let all = given.all(&first).await;
    let upto = [all[3].position.clone(), all[1].position.clone()];
    first.acknowledge(&upto).await.expect("acknowledged");
    drop(first);

    assert_eq!(given.all(&given.join("g").await).await, all[4..]);
}

async fn an_acknowledgement_never_goes_back<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a"], 4).await;
    let first = given.join("g").await;
    let all = given.all(&first).await;
    first.acknowledge(&positions(&all[2..3])).await.expect("acknowledged");
    first.acknowledge(&positions(&all[..1])).await.expect("acknowledged");
    drop(first);

    assert_eq!(given.all(&given.join("g").await).await, all[3..]);
}

async fn rewinding_hands_out_again_what_was_not_acknowledged<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a"], 4).await;
    let source = given.join("g").await;
    let all = given.all(&source).await;
    source.acknowledge(&positions(&all[..1])).await.expect("acknowledged");

    for _ in 0..2 {
        source.rewind().await.expect("rewound");
        assert_eq!(given.all(&source).await, all[1..]);
    }
}

async fn groups_read_apart<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a", "b"], 2).await;
    let first = given.join("g").await;
    let all = given.all(&first).await;
    first.acknowledge(&positions(&all)).await.expect("acknowledged");

    assert_eq!(sorted(&given.all(&given.join("h").await).await), sorted(&all));
}

async fn several_topics_are_read_by_one_member<B: Backend>(backend: &B) {
    let given = given(backend);
    let other: Arc<str> = format!("{}-retry-0", given.topic()).into();
    let mut record = given.make.record("a", "retried");
    record.topic = Arc::clone(&other);
    given.append(&["a"], 1).await;
    backend.broker().append(vec![record]).await.expect("appended");

    let topics = [given.topic().to_string(), other.to_string()];
    let source = backend.sources().join("g", &topics, 0, 1).await.expect("joined");

    assert_eq!(sorted(&given.all(&source).await), ["a-000", "retried"]);
}

async fn members_share_the_partitions<B: Backend>(backend: &B) {
    let given = given(backend);
    let members = [given.member("g", 0, 2).await, given.member("g", 1, 2).await];
    given.settled(&members).await;
    given.append(&["a", "b", "c", "d", "e", "f", "g", "h"], 2).await;

    let (mut all, mut of_partition) = (Vec::new(), BTreeMap::new());
    for (member, source) in members.iter().enumerate() {
        for delivery in given.all(source).await {
            let owner = of_partition.entry(delivery.position.partition).or_insert(member);
            assert_eq!(*owner, member, "a partition has one member");
            all.push(delivery);
        }
    }

    let mut seen = sorted(&all);
    seen.dedup();
    assert_eq!((all.len(), seen.len()), (16, 16));
}

async fn a_new_message_reaches_a_member_that_has_read_all<B: Backend>(backend: &B) {
    let given = given(backend);
    let source = given.join("g").await;
    assert_eq!(given.all(&source).await, []);

    given.append(&["a"], 1).await;

    assert_eq!(sorted(&given.all(&source).await), ["a-000"]);
}

/// Two keys that stand in different partitions of the topic.
async fn apart<B: Backend>(given: &Given<'_, B>) -> [String; 2] {
    let views = given.backend.topics().list().await.expect("topics are listed");
    let view = views.iter().find(|view| view.name == *given.topic());
    let partitions = view.map_or(2, |view| u32::try_from(view.partitions.len()).expect("few"));
    let place = |key: &String| crate::murmur::partition_of(key.as_bytes(), partitions);
    let mut names = (0..1_000).map(|name| format!("key-{name}"));
    let first = names.next().expect("there are names");
    let second = names.find(|name| place(name) != place(&first)).expect("a topic has two partitions");
    [first, second]
}

async fn a_pause_holds_one_partition_until_it_is_over<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a"], 1).await;
    let [held, free] = apart(&given).await;
    let source = given.join("g").await;
    let warm_up = given.all(&source).await;
    source.acknowledge(&positions(&warm_up)).await.expect("acknowledged");
    given.append(&[&held], 1).await;
    let first = given.all(&source).await;

    source.pause(&first[0].position, HOUR).await.expect("paused");

    given.append(&[&held, &free], 1).await;
    assert_eq!(sorted(&given.all(&source).await), [format!("{free}-000")]);
    given.advance(HOUR / 2).await;
    assert_eq!(given.all(&source).await, []);
    given.advance(HOUR / 2 + SECOND).await;
    assert_eq!(sorted(&given.all(&source).await), [format!("{held}-000"), format!("{held}-000")]);
}

async fn a_paused_partition_begins_again_at_the_position<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a"], 5).await;
    let source = given.join("g").await;
    let all = given.all(&source).await;
    source.acknowledge(&positions(&all[..2])).await.expect("acknowledged");

    source.pause(&all[2].position, HOUR).await.expect("paused");
    given.advance(HOUR + SECOND).await;

    assert_eq!(given.all(&source).await, all[2..]);
    assert_eq!(given.all(&source).await, [], "once");
}

async fn an_aborted_batch_is_never_handed_out<B: Backend>(backend: &B) {
    let given = given(backend);
    let lane = given.lane(0).await;
    let mut batch = given.batch(P0, 1, given.records([("a", "aborted"), ("a", "")]));
    batch.records[1].1.value = vec![0; backend.broker().record_bytes_max() + 1].into();
    backend.broker().publish(&lane, batch).await;
    given.published(&lane, given.batch(P0, 2, given.records([("a", "committed")]))).await;

    assert_eq!(sorted(&given.all(&given.join("g").await).await), ["committed"]);
}

async fn the_lag_counts_what_is_not_acknowledged<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a", "b", "c"], 3).await;
    let source = given.join("g").await;
    let messages = async || source.lag().await.expect("told").iter().map(|lag| lag.messages).sum::<u64>();
    let all = given.all(&source).await;

    assert_eq!(messages().await, 9, "handed out is not acknowledged");
    for lag in source.lag().await.expect("told").iter().filter(|lag| lag.messages > 0) {
        let there = all.iter().filter(|delivery| delivery.position.partition == lag.partition);
        assert_eq!((lag.topic.as_str(), lag.messages), (&*given.topic(), there.count() as u64));
    }
    source.acknowledge(&positions(&all)).await.expect("acknowledged");
    assert_eq!(messages().await, 0);
}

async fn the_lag_ages_by_the_oldest_of_them<B: Backend>(backend: &B) {
    let given = given(backend);
    given.append(&["a"], 2).await;
    let source = given.join("g").await;
    let all = given.all(&source).await;
    let age = async || source.lag().await.expect("told").iter().map(|lag| lag.age).max().unwrap_or_default();

    let at_first = age().await;
    given.advance(HOUR).await;
    let later = age().await;

    assert!((later - at_first).abs_diff(HOUR) < SECOND * 30, "{at_first:?}, then {later:?}");
    source.acknowledge(&positions(&all)).await.expect("acknowledged");
    assert_eq!(age().await, std::time::Duration::ZERO);
}
