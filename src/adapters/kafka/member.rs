//! A group's member at work: one thread that owns the consumer, keeps its heart beating and answers what it is asked.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ports::Error;
use ports::broker::Position;
use ports::source::{Delivery, Lag};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::{Message, TopicPartitionList};
use tokio::sync::oneshot;

use crate::commits::{Acknowledging, Commits};
use crate::error;
use crate::message::delivery;
use crate::options::Options;
use crate::share::Share;
use crate::turns::{Change, Turns, accept};

/// How often the thread looks by itself, should a wake-up be lost.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Most messages taken from the client between two looks at calls.
const TAKE_MAX: usize = 1_000;
/// Empty looks in a row after which the client's queue is empty: an event that carries no message looks like nothing too.
const EMPTY_LOOKS: usize = 4;
/// Most bytes of one partition that are kept ready.
const READY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A topic partition's name.
pub(crate) type Place = (Arc<str>, u32);
type Answer<T> = oneshot::Sender<Result<T, Error>>;

/// What a member is asked.
pub(crate) enum Call {
    Poll {
        limit: usize,
        wait: Duration,
        held: BTreeSet<Place>,
        answer: Answer<Vec<Delivery>>,
    },
    Acknowledge {
        upto: Vec<Position>,
        answer: Answer<()>,
    },
    Rewind {
        answer: Answer<()>,
    },
    TurnBack {
        from: Position,
        answer: Answer<()>,
    },
    Lag {
        answer: Answer<Vec<Lag>>,
    },
    /// A commit was answered.
    Committed(KafkaResult<()>),
    /// The client has something.
    Wake,
    /// Nobody asks any more.
    Leave,
}

struct Polling {
    limit: usize,
    until: Instant,
    held: BTreeSet<Place>,
    answer: Answer<Vec<Delivery>>,
}

/// The thread's state.
pub(crate) struct Member {
    consumer: Arc<BaseConsumer<Turns>>,
    options: Arc<Options>,
    shares: BTreeMap<Place, Share>,
    names: BTreeMap<String, Arc<str>>,
    polling: Option<Polling>,
    commits: Commits,
    /// Partitions that go, and until when what is in hand holds them back.
    leaving: Option<(Instant, TopicPartitionList)>,
    /// What the next poll is told.
    trouble: Option<Error>,
    /// Which share is asked first, so that a busy one does not starve the others.
    turn: usize,
    left: bool,
}

impl Member {
    pub(crate) fn new(
        consumer: Arc<BaseConsumer<Turns>>,
        commits: Commits,
        options: Arc<Options>,
        topics: &[String],
    ) -> Self {
        Self {
            consumer,
            options,
            shares: BTreeMap::new(),
            names: topics.iter().map(|name| (name.clone(), Arc::from(name.as_str()))).collect(),
            polling: None,
            commits,
            leaving: None,
            trouble: None,
            turn: 0,
            left: false,
        }
    }

    /// Works until nobody asks any more, then leaves the group at once, so that others need not wait for a time-out.
    pub(crate) fn run(mut self, calls: &Receiver<Call>) {
        while !self.left {
            match calls.recv_timeout(self.next_look()) {
                Ok(call) => {
                    self.hear(call);
                    calls.try_iter().for_each(|call| self.hear(call));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.fetch();
            self.look_for_brokers();
            self.commits.give_up_overdue();
            self.give_up();
            self.hand_out();
            self.throttle();
        }
        self.consumer.context().close();
        if let Some((_, list)) = self.leaving.take() {
            self.accept(&Change::Loses(list));
        }
        while let Some(change) = self.consumer.context().next_change() {
            self.accept(&change);
        }
    }

    fn next_look(&self) -> Duration {
        let polled = self.polling.as_ref().map(|polling| polling.until);
        let leaves = self.leaving.as_ref().map(|(until, _)| *until);
        let next = polled.into_iter().chain(leaves).min();
        next.map_or(LOOK_EVERY, |next| next.saturating_duration_since(Instant::now()).min(LOOK_EVERY))
    }

    fn hear(&mut self, call: Call) {
        match call {
            Call::Wake => {}
            Call::Leave => self.left = true,
            Call::Poll { limit, wait, held, answer } => {
                // An earlier poll was dropped by its caller: nothing was handed out for it.
                self.polling = Some(Polling { limit, until: Instant::now() + wait, held, answer });
            }
            Call::Committed(result) => self.committed(&result),
            Call::Acknowledge { upto, answer } => self.acknowledge(upto, answer),
            Call::Rewind { answer } => {
                self.shares.values_mut().for_each(Share::rewind);
                drop(answer.send(Ok(())));
            }
            Call::TurnBack { from, answer } => {
                let turned = match self.shares.get_mut(&(Arc::clone(&from.topic), from.partition)) {
                    Some(share) => {
                        share.turn_back(from.offset);
                        Ok(())
                    }
                    None => Err(not_ours(&from)),
                };
                drop(answer.send(turned));
            }
            Call::Lag { answer } => drop(answer.send(Ok(self.lag()))),
        }
    }

    /// Takes what the client has, within bounds: calls come in between.
    fn fetch(&mut self) {
        let (mut taken, mut empty) = (0, 0);
        while empty < EMPTY_LOOKS && taken < TAKE_MAX {
            match self.consumer.poll(Duration::ZERO) {
                None => empty += 1,
                Some(Ok(message)) => {
                    taken += 1;
                    self.consumer.context().contact().heard();
                    let Some(topic) = self.names.get(message.topic()) else { continue };
                    let place = (Arc::clone(topic), message.partition().unsigned_abs());
                    // A message of a partition that has gone meanwhile is another member's.
                    if let Some(share) = self.shares.get_mut(&place) {
                        share.push(delivery(&message, topic));
                    }
                }
                Some(Err(error)) => {
                    taken += 1;
                    self.trouble_with(&error);
                }
            }
            self.change_partitions();
        }
    }

    /// A client without brokers never finds any again (see `renewal`): whoever polls is told, and joins anew.
    fn look_for_brokers(&mut self) {
        if self.consumer.context().is_orphan() {
            self.trouble =
                Some(Error::Unreachable("this member's client has lost its brokers; a new one finds them".into()));
        }
    }

    fn trouble_with(&mut self, error: &KafkaError) {
        let told = error::of(error, "consuming");
        // An outage is everybody's and passes; what a human must mend is told.
        if !matches!(told, Error::Unreachable(_) | Error::Unknown(_))
            || matches!(error, KafkaError::MessageConsumptionFatal(_))
        {
            self.trouble = Some(told);
        }
    }

    fn change_partitions(&mut self) {
        while let Some(change) = self.consumer.context().next_change() {
            match &change {
                Change::Gains(list) => {
                    for place in self.places(list) {
                        self.shares.insert(place, Share::default());
                    }
                    self.accept(&change);
                }
                Change::Loses(list) => {
                    for place in self.places(list) {
                        self.shares.entry(place).and_modify(|share| share.leaving = true);
                    }
                    let patience =
                        if self.consumer.assignment_lost() { Duration::ZERO } else { self.options.hand_over_within };
                    self.leaving = Some((Instant::now() + patience, list.clone()));
                }
            }
        }
    }

    /// Lets partitions go once nothing of them is in hand, or when their time is up.
    fn give_up(&mut self) {
        let Some((until, list)) = &self.leaving else { return };
        let places = self.places(list);
        let in_hand = places.iter().filter_map(|place| self.shares.get(place)).any(|share| share.in_hand() > 0);
        if in_hand && Instant::now() < *until && !self.consumer.assignment_lost() {
            return;
        }
        for place in places {
            self.shares.remove(&place);
        }
        if let Some((_, list)) = self.leaving.take() {
            self.accept(&Change::Loses(list));
        }
    }

    fn accept(&mut self, change: &Change) {
        if let Err(error) = accept(&self.consumer, change) {
            self.trouble = Some(error::of(&error, "changing partitions"));
        }
    }

    fn places(&self, list: &TopicPartitionList) -> Vec<Place> {
        let elements = list.elements();
        let place = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
            Some((Arc::clone(self.names.get(element.topic())?), element.partition().unsigned_abs()))
        };
        elements.iter().filter_map(place).collect()
    }

    fn acknowledge(&mut self, upto: Vec<Position>, answer: Answer<()>) {
        let (mut offsets, mut lost) = (BTreeMap::new(), None);
        for position in upto {
            let place = (Arc::clone(&position.topic), position.partition);
            match self.shares.get(&place) {
                Some(share) if position.offset < share.acknowledged() => {}
                Some(_) => {
                    let offset = offsets.entry(place).or_insert(position.offset);
                    *offset = position.offset.max(*offset);
                }
                None => lost = Some(not_ours(&position)),
            }
        }
        self.commits.add(Acknowledging { offsets, lost, answer });
    }

    fn committed(&mut self, result: &KafkaResult<()>) {
        for (place, offset) in self.commits.answered(result) {
            if let Some(share) = self.shares.get_mut(&place) {
                share.acknowledge(offset);
            }
        }
    }

    /// Answers a poll that has something, or whose time is up.
    fn hand_out(&mut self) {
        let Some(polling) = &self.polling else { return };
        let open = |(place, share): &(&Place, &mut Share)| share.ready() > 0 && !polling.held.contains(*place);
        let mut ready: Vec<&mut Share> = self.shares.iter_mut().filter(open).map(|(_, share)| share).collect();
        if ready.is_empty() && self.trouble.is_none() && Instant::now() < polling.until {
            return;
        }
        let Some(Polling { limit, answer, .. }) = self.polling.take() else { return };
        if answer.is_closed() {
            return;
        }
        if ready.is_empty() {
            drop(answer.send(self.trouble.take().map_or(Ok(Vec::new()), Err)));
            return;
        }
        let first = self.turn % ready.len();
        ready.rotate_left(first);
        self.turn = self.turn.wrapping_add(1);
        let mut deliveries = Vec::new();
        for share in ready {
            deliveries.append(&mut share.take(limit - deliveries.len()));
            if deliveries.len() >= limit {
                break;
            }
        }
        if let Err(Ok(unheard)) = answer.send(Ok(deliveries)) {
            for delivery in unheard.iter().rev() {
                let place = (Arc::clone(&delivery.position.topic), delivery.position.partition);
                self.shares.entry(place).and_modify(|share| share.turn_back(delivery.position.offset));
            }
        }
    }

    /// Stops fetching where enough is ready, and goes on where it no longer is.
    fn throttle(&mut self) {
        let most = self.options.ready_max;
        for ((topic, partition), share) in &mut self.shares {
            let (ready, bytes) = (share.ready(), share.ready_bytes());
            let full = ready >= most || bytes >= READY_BYTES_MAX;
            let low = ready < most / 2 && bytes < READY_BYTES_MAX / 2;
            let mut list = TopicPartitionList::new();
            list.add_partition(topic, *partition as i32);
            if full && !share.full {
                share.full = self.consumer.pause(&list).is_ok();
            } else if low && share.full {
                share.full = self.consumer.resume(&list).is_err();
            }
        }
    }

    fn lag(&self) -> Vec<Lag> {
        let now = self.options.clock.now();
        let lag = |((topic, partition), share): (&Place, &Share)| {
            let reach = self.consumer.context().reach(topic, *partition).unwrap_or_default();
            let fetched = share.fetched().unwrap_or(reach.next);
            // Offsets between are markers too; what the client holds is counted, what it has not fetched is what lies between.
            let queued = reach.queued.min(reach.next.saturating_sub(fetched));
            let beyond = reach.stable.saturating_sub(reach.next.max(fetched));
            let messages = share.unacknowledged() as u64 + queued + beyond;
            let age = share.oldest().map(|at| now.since(at)).unwrap_or_default();
            Lag { topic: topic.to_string(), partition: *partition, messages, age }
        };
        self.shares.iter().map(lag).collect()
    }
}

fn not_ours(position: &Position) -> Error {
    Error::Rejected(format!("{}-{} is not of this member any more", position.topic, position.partition))
}
