//! Groups with a member of the earlier version, which reads events and retry topics with one client: a member of this version does not join them.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kit::wait::{scaled, until, until_answered};
use outbox::topics::consumed_topics;
use ports::broker::consumer_groups::{ConsumerGroups, GroupMember};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::{ClientConfig, ClientContext};
use tokio::runtime::Handle;

use super::{POLL_TIMEOUT, assigned_partitions, fill, group_id, long_sessions, polled};
use crate::proxy::Proxy;
use crate::support::{Installation, TIMEOUT, admin, log_reports, servers};

/// Counts the changes of a member's partitions.
#[derive(Clone, Default)]
struct RebalanceCounter(Arc<AtomicUsize>);

impl ClientContext for RebalanceCounter {}

impl ConsumerContext for RebalanceCounter {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A member of the earlier version. It acknowledges nothing.
struct EarlierMember {
    rebalances: RebalanceCounter,
    received: Arc<AtomicUsize>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EarlierMember {
    fn join(group: &str, topics: &[String]) -> Self {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", servers())
            .set("group.id", group)
            .set("client.id", "posthaste-earlier")
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest");
        let rebalances = RebalanceCounter::default();
        let consumer: BaseConsumer<RebalanceCounter> =
            config.create_with_context(rebalances.clone()).expect("a consumer");
        consumer.subscribe(&topics.iter().map(String::as_str).collect::<Vec<_>>()).expect("subscribed");
        let (received, ends) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counter, is_over) = (Arc::clone(&received), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                if let Some(Ok(_)) = consumer.poll(Duration::from_millis(50)) {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Self { rebalances, received, ends, thread: Some(thread) }
    }

    fn rebalances(&self) -> usize {
        self.rebalances.0.load(Ordering::SeqCst)
    }

    fn received(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }

    fn until_received(&self, count: usize) {
        until("the earlier member reads", TIMEOUT, || (self.received() >= count).then_some(()));
    }
}

impl Drop for EarlierMember {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// The client ids in a group, in their order.
fn client_ids(group: &str) -> Vec<String> {
    let list = admin().inner().fetch_group_list(Some(group), scaled(TIMEOUT)).expect("the broker answers");
    let members = list.groups().iter().flat_map(|group| group.members());
    let mut ids: Vec<String> = members.map(|member| member.client_id().to_owned()).collect();
    ids.sort();
    ids
}

fn until_members_are(group: &str, ids: &[&str]) {
    until("the members of the group", TIMEOUT, || (client_ids(group) == ids).then_some(()));
}

async fn join(installation: &Installation, topics: &[String]) -> Arc<dyn GroupMember> {
    let group = group_id(installation);
    until_answered(TIMEOUT, || installation.kafka.join(&group, topics, 0, 1)).await.expect("it waits, or has joined")
}

#[tokio::test]
async fn member_joins_when_the_last_one_of_the_earlier_version_has_left() {
    log_reports::collect();
    let installation = long_sessions(|_| {}).await;
    let (group, options) = (group_id(&installation), installation.kafka.options());
    let topics = consumed_topics(&options.topic("order.events"));
    fill(&installation, 0, 1).await;
    let earlier = [(); 2].map(|()| EarlierMember::join(&options.topic(&group), &topics));
    until("a partition", TIMEOUT, || earlier.iter().any(|member| member.received() > 0).then_some(()));

    let (member, started) = (join(&installation, &topics).await, Instant::now());
    while log_reports::reports("consumer_group_mixed", "group", &group).is_empty() {
        assert_eq!(member.poll(100, POLL_TIMEOUT).await.expect("it waits"), []);
        assert!(started.elapsed() < scaled(TIMEOUT), "nothing is reported");
    }
    let [first, last] = earlier;
    drop(first);
    let before = last.received();
    fill(&installation, 1, 1).await;
    last.until_received(before + 8);
    assert_eq!(member.poll(100, POLL_TIMEOUT).await.expect("it waits"), []);
    assert_eq!(assigned_partitions(&member).await, 0);
    assert_eq!(client_ids(&options.topic(&group)), ["posthaste-earlier"]);
    drop(last);

    polled(&member, 16).await;
    let reports = log_reports::reports("consumer_group_mixed", "group", &group);
    assert_eq!(reports.iter().map(|report| report["client_id"].as_str()).collect::<Vec<_>>(), ["posthaste-earlier"]);
    assert_eq!(log_reports::reports("consumer_group_joined", "group", &group).len(), 1);
    until_members_are(&options.topic(&group), &["posthaste-kit.events", "posthaste-kit.retries"]);
}

#[tokio::test]
async fn wait_of_a_member_ends_when_the_member_is_dropped() {
    log_reports::collect();
    let installation = long_sessions(|_| {}).await;
    let (group, options) = (group_id(&installation), installation.kafka.options());
    let topics = consumed_topics(&options.topic("order.events"));
    fill(&installation, 0, 1).await;
    let earlier = EarlierMember::join(&options.topic(&group), &topics);
    earlier.until_received(8);
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let member = join(&installation, &topics).await;
    while log_reports::reports("consumer_group_mixed", "group", &group).is_empty() {
        member.poll(1, POLL_TIMEOUT).await.expect("it waits");
    }

    let started = Instant::now();
    drop(member);
    assert!(started.elapsed() < scaled(POLL_TIMEOUT), "a stop waits for nothing");

    assert_eq!(tasks(), before, "no task is left that would join the group later");
}

#[tokio::test]
async fn retention_of_offsets_is_renewed_only_for_a_group_without_members() {
    let installation = long_sessions(|_| {}).await;
    let (kafka, group) = (&installation.kafka, group_id(&installation));
    let topics = consumed_topics(&kafka.options().topic("order.events"));
    let full_name = kafka.options().topic(&group);
    until_answered(TIMEOUT, || kafka.begin_at_end(&group, &topics)).await.expect("it has offsets");
    fill(&installation, 0, 1).await;
    let earlier = EarlierMember::join(&full_name, &topics);
    earlier.until_received(8);
    let rebalances = earlier.rebalances();

    until_answered(TIMEOUT, || kafka.keep_offsets(&group, &topics)).await.expect("its members keep them");

    assert_eq!(earlier.rebalances(), rebalances, "no other member has joined");
    drop(earlier);
    until_members_are(&full_name, &[]);
    until_answered(TIMEOUT, || kafka.keep_offsets(&group, &topics)).await.expect("renewed");
    assert_eq!(polled(&join(&installation, &topics).await, 8).await.len(), 8, "the offsets are the same");
}

#[tokio::test]
async fn member_joins_a_group_that_it_cannot_read() {
    let proxy = Proxy::to(&servers());
    let installation = Installation::with(|options| options.bootstrap_servers = proxy.address.clone()).await;
    let topics = consumed_topics(&installation.kafka.options().topic("order.events"));
    fill(&installation, 0, 1).await;
    proxy.refuse_group_lists();

    let member = join(&installation, &topics).await;

    polled(&member, 8).await;
    assert!(proxy.refused_group_lists() > 0, "the member has asked");
}
