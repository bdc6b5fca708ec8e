//! `ConsumerGroups` and `GroupMember`: the async side of a group member. Kafka's group assigns the partitions, so the member's number and
//! the number of members have no effect here.
use std::collections::{BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use ports::Error;
use ports::broker::Position;
use ports::broker::consumer_groups::{AckOutcome, ConsumerGroups, ConsumerRecord, GroupMember, Lag};
use tokio::sync::OnceCell;
use tokio::sync::oneshot::Receiver;
use tokio::time::{Instant, timeout_at};

use crate::adapter::Kafka;
use crate::connection::blocking_call::{client_stopped, run_blocking};
use crate::consumer::group_join::GroupJoin;
use crate::consumer::member_client::{MemberClient, result_of};
use crate::consumer::member_request::{MemberReply, MemberRequest, PollRequest, WaitRequest};
use crate::consumer::offset_commits::AssignedPartition;
use crate::topics::group_offsets::{commit_end_offsets, renew_retention};

/// A member of a group: a client for the topics of events and one for their retry topics. Kafka's assignor balances the partitions of all topics of
/// its members as one number: with a single client, one member may get every partition of a topic and the others only those of its retry topics.
struct KafkaMember {
    /// The clients, once the member has joined its group.
    clients: OnceCell<Vec<MemberClient>>,
    /// Waits until the member can join; `None` once that has ended.
    joining: tokio::sync::Mutex<Option<Joining>>,
    /// Index of the client that a poll asks first. It rotates, so that neither starves the other.
    next_first: AtomicUsize,
    /// Paused partitions and when each resumes. Kept here, because only callers run in the runtime whose clock measures pauses.
    pauses: Mutex<HashMap<AssignedPartition, Instant>>,
}

type Joining = Pin<Box<dyn Future<Output = Result<Vec<MemberClient>, Error>> + Send>>;

/// How long a call waits for a member to join, before its polls wait for it. A stop of the service waits for the call.
const JOIN_WAIT: Duration = Duration::from_millis(500);

#[async_trait]
impl ConsumerGroups for Kafka {
    async fn join(
        &self,
        group: &str,
        topics: &[String],
        _member: u32,
        _members: u32,
    ) -> Result<Arc<dyn GroupMember>, Error> {
        // A member of a group with a missing topic would fail after it has joined, and each new one would make the others rebalance.
        self.inner.watcher.topics_ready(topics).await?;
        let member = KafkaMember::new(GroupJoin::new(&self.inner.options, &self.inner.contact, group, topics));
        member.join(Instant::now() + JOIN_WAIT).await?;
        Ok(Arc::new(member))
    }

    async fn begin_at_end(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.inner.watcher.ready().await?;
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        self.ensure_topics(&names).await?;
        let (options, contact) = (Arc::clone(&self.inner.options), Arc::clone(&self.inner.contact));
        let (group, topics) = (group.to_owned(), topics.to_vec());
        run_blocking("kafka-group-begin", move || commit_end_offsets(&options, &contact, &group, &topics)).await
    }

    async fn keep_offsets(&self, group: &str, topics: &[String]) -> Result<(), Error> {
        self.inner.watcher.ready().await?;
        let (options, contact) = (Arc::clone(&self.inner.options), Arc::clone(&self.inner.contact));
        let (group, topics) = (group.to_owned(), topics.to_vec());
        run_blocking("kafka-group-keep", move || renew_retention(&options, &contact, &group, &topics)).await
    }

    fn reassigns_partitions(&self) -> bool {
        true
    }
}

impl KafkaMember {
    fn new(join: GroupJoin) -> Self {
        let joining: Joining = Box::pin(join.run());
        Self {
            clients: OnceCell::new(),
            joining: tokio::sync::Mutex::new(Some(joining)),
            next_first: AtomicUsize::new(0),
            pauses: Mutex::default(),
        }
    }

    /// Waits until the member has joined its group, until the deadline at most. Cancel-safe.
    async fn join(&self, deadline: Instant) -> Result<(), Error> {
        let clients = self.clients.get_or_try_init(|| async {
            let mut joining = self.joining.lock().await;
            let Some(join) = joining.as_mut() else { return Err(client_stopped()) };
            let result = join.await;
            *joining = None;
            result
        });
        timeout_at(deadline, clients).await.map_or(Ok(()), |joined| joined.map(drop))
    }

    /// The clients; none before the member has joined its group.
    fn clients(&self) -> &[MemberClient] {
        self.clients.get().map_or(&[], Vec::as_slice)
    }

    /// Sends the same request to every client and returns their results. All clients work on it at the same time.
    async fn request_all<T>(&self, request: impl Fn(MemberReply<T>) -> MemberRequest) -> Result<Vec<T>, Error> {
        let sent: Result<Vec<_>, Error> = self.clients().iter().map(|client| client.send(&request)).collect();
        let mut results = Vec::new();
        for result in sent? {
            results.push(result_of(result).await?);
        }
        Ok(results)
    }

    /// Messages of the first client that has some.
    async fn take(&self, limit: usize, paused: &BTreeSet<AssignedPartition>) -> Result<Vec<ConsumerRecord>, Error> {
        let (first, clients) = (self.next_first.load(Ordering::Relaxed), self.clients());
        for index in first..first + clients.len() {
            let client = &clients[index % clients.len()];
            let paused = paused.clone();
            let messages = client.request(|reply| MemberRequest::Poll(PollRequest { limit, paused, reply })).await?;
            if !messages.is_empty() {
                self.next_first.store((index + 1) % clients.len(), Ordering::Relaxed);
                return Ok(messages);
            }
        }
        Ok(Vec::new())
    }

    /// Waits until a client has messages or has failed. Cancel-safe: it takes no message.
    async fn message_arrives(&self, paused: &BTreeSet<AssignedPartition>) -> Result<(), Error> {
        let wait = |client: &MemberClient| {
            client.send(|reply| MemberRequest::AwaitMessages(WaitRequest { paused: paused.clone(), reply }))
        };
        let mut waiting: Vec<Receiver<Result<(), Error>>> =
            self.clients().iter().map(wait).collect::<Result<_, _>>()?;
        poll_fn(|context| {
            let is_ready = |result: &mut Receiver<_>| Pin::new(result).poll(context).is_ready();
            if waiting.iter_mut().any(is_ready) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        Ok(())
    }

    /// The partitions that are paused now, and when the first of them resumes.
    fn paused(&self) -> (BTreeSet<AssignedPartition>, Option<Instant>) {
        let now = Instant::now();
        let mut pauses = self.pauses.lock();
        pauses.retain(|_, until| *until > now);
        (pauses.keys().cloned().collect(), pauses.values().min().copied())
    }
}

#[async_trait]
impl GroupMember for KafkaMember {
    async fn poll(&self, limit: u32, timeout: Duration) -> Result<Vec<ConsumerRecord>, Error> {
        let deadline = Instant::now() + timeout;
        self.join(deadline).await?;
        loop {
            let (paused, resumes) = self.paused();
            let messages = self.take(limit.max(1) as usize, &paused).await?;
            if !messages.is_empty() || Instant::now() >= deadline {
                return Ok(messages);
            }
            let until = resumes.map_or(deadline, |resumes| resumes.min(deadline));
            // A wait that ends without a message ends the pause of a partition, or the poll.
            timeout_at(until, self.message_arrives(&paused)).await.unwrap_or(Ok(()))?;
        }
    }

    async fn acknowledge(&self, positions: &[Position]) -> Result<AckOutcome, Error> {
        let (mut results, mut requested) = (Vec::new(), 0);
        for client in self.clients() {
            let own: Vec<Position> =
                positions.iter().filter(|position| client.reads(&position.topic)).cloned().collect();
            requested += own.len();
            if !own.is_empty() {
                results.push(client.send(|reply| MemberRequest::Acknowledge { positions: own, reply })?);
            }
        }
        // The member never had the others.
        let mut outcome = if requested < positions.len() { AckOutcome::PartitionsLost } else { AckOutcome::Complete };
        for result in results {
            if result_of(result).await? == AckOutcome::PartitionsLost {
                outcome = AckOutcome::PartitionsLost;
            }
        }
        Ok(outcome)
    }

    async fn rewind(&self) -> Result<(), Error> {
        self.request_all(|reply| MemberRequest::Rewind { reply }).await.map(drop)
    }

    async fn pause(&self, from: &Position, resume_after: Duration) -> Result<(), Error> {
        let until = Instant::now() + resume_after;
        let Some(client) = self.clients().iter().find(|client| client.reads(&from.topic)) else { return Ok(()) };
        let partition = (Arc::clone(&from.topic), from.partition);
        let from = from.clone();
        if client.request(|reply| MemberRequest::RewindTo { from, reply }).await? {
            self.pauses.lock().insert(partition, until);
        }
        Ok(())
    }

    /// No lags before the member has joined: an error of the join belongs to a poll.
    async fn lag(&self) -> Result<Vec<Lag>, Error> {
        Ok(self.request_all(|reply| MemberRequest::Lag { reply }).await?.concat())
    }
}
