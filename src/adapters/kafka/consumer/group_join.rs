//! GroupJoin: starts the clients of a member once no member of the earlier version is in the group. Such a member reads events and retry topics
//! with one client, and librdkafka's assignor ends the process that leads a group with members of both kinds.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use tokio::time::{Instant, sleep};

use crate::connection::blocking_call::run_blocking;
use crate::connection::broker_contact::{BrokerContact, ContactContext};
use crate::connection::client_config;
use crate::consumer::group_shape::{DescribedMember, GroupShape};
use crate::consumer::member_client::MemberClient;
use crate::error::is_temporary;
use crate::options::Options;
use crate::topics::topic_kind::TopicKind;

/// Pause between two reads of a group that has a member of the earlier version. Its last one leaves minutes later.
const MIXED_PAUSE: Duration = Duration::from_secs(2);
/// Pause between two reads of a group that rebalances, which takes seconds, or that could not be read.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(500);
/// Longest wait for a group that rebalances: several rebalances, each of which waits for a heartbeat and for the handover of partitions.
const UNKNOWN_MAX: Duration = Duration::from_secs(30);

type ReaderClient = Arc<BaseConsumer<ContactContext>>;

/// A member that is to join a group.
pub(crate) struct GroupJoin {
    options: Arc<Options>,
    contact: Arc<BrokerContact>,
    group: String,
    topics: Vec<(TopicKind, Vec<String>)>,
}

impl GroupJoin {
    pub(crate) fn new(options: &Arc<Options>, contact: &Arc<BrokerContact>, group: &str, topics: &[String]) -> Self {
        let (options, contact) = (Arc::clone(options), Arc::clone(contact));
        Self { options, contact, group: group.to_owned(), topics: TopicKind::divide(topics) }
    }

    /// Waits until the member can join, and starts its clients. A caller that drops this future before its end joins nothing.
    ///
    /// # Errors
    /// As [`MemberClient::start`]. A group that cannot be read delays the join and does not prevent it.
    pub(crate) async fn run(self) -> Result<Vec<MemberClient>, Error> {
        // The one client of a member of the earlier version has the same topics.
        if self.topics.len() > 1 {
            self.earlier_members_left().await;
        }
        let start = |(kind, topics)| MemberClient::start(&self.options, &self.contact, &self.group, kind, topics);
        self.topics.iter().cloned().map(start).collect()
    }

    async fn earlier_members_left(&self) {
        let (mut wait, mut client) = (JoinWait::new(self.options.connect_timeout, Instant::now()), None);
        loop {
            let shape = self.read_shape(&mut client).await;
            if let (Ok(GroupShape::Mixed(member)), false) = (&shape, wait.is_mixed) {
                self.report_mixed(member);
            }
            let was_mixed = wait.is_mixed;
            let Some(pause) = wait.pause(&shape, Instant::now()) else {
                return self.report_end(&shape, was_mixed);
            };
            sleep(pause).await;
        }
    }

    /// Reads the members of the group. `client` is the client of the last read, if that one succeeded.
    async fn read_shape(&self, client: &mut Option<ReaderClient>) -> Result<GroupShape, Error> {
        let (options, contact) = (Arc::clone(&self.options), Arc::clone(&self.contact));
        let (group, known) = (self.group.clone(), client.take());
        let (used, members) =
            run_blocking("kafka-group-read", move || read_members(&options, &contact, &group, known)).await?;
        *client = Some(used);
        Ok(GroupShape::of(&members, &self.topics))
    }

    fn report_mixed(&self, DescribedMember { client_id, host, .. }: &DescribedMember) {
        let group = &self.group;
        tracing::warn!(
            event = "consumer_group_mixed",
            group,
            client_id,
            host,
            "{client_id} at {host} is a member of the group {group} and of the earlier version; this instance joins when the last such member has left"
        );
    }

    fn report_end(&self, shape: &Result<GroupShape, Error>, was_mixed: bool) {
        let group = &self.group;
        match shape {
            Ok(GroupShape::Unknown) => {
                tracing::debug!(
                    event = "consumer_group_unread",
                    group,
                    "the group {group} rebalances for long; this instance joins it now"
                );
            }
            Err(error) => {
                tracing::debug!(event = "consumer_group_unread", group, error = %error, "the members of the group {group} cannot be read; this instance joins it now: {error}");
            }
            Ok(GroupShape::Divided | GroupShape::Mixed(_)) if was_mixed => {
                tracing::info!(
                    event = "consumer_group_joined",
                    group,
                    "the last member of the earlier version has left the group {group}; this instance joins it now"
                );
            }
            Ok(GroupShape::Divided | GroupShape::Mixed(_)) => {}
        }
    }
}

/// How long a member that is to join has waited, and whether it waits on.
#[derive(Debug)]
struct JoinWait {
    /// Whether the group had a member of the earlier version at its last description.
    is_mixed: bool,
    /// When the group was last described, or when the wait began.
    described_at: Instant,
    /// Longest time without a description.
    undescribed_max: Duration,
}

impl JoinWait {
    /// `unread_max` is the longest wait for a group that was never read.
    fn new(unread_max: Duration, now: Instant) -> Self {
        Self { is_mixed: false, described_at: now, undescribed_max: unread_max }
    }

    /// The pause before the group is read again, or `None` if the member joins now.
    fn pause(&mut self, shape: &Result<GroupShape, Error>, now: Instant) -> Option<Duration> {
        match shape {
            Ok(GroupShape::Divided) => return None,
            Ok(GroupShape::Mixed(_)) => {
                (self.is_mixed, self.described_at, self.undescribed_max) = (true, now, UNKNOWN_MAX);
                return Some(MIXED_PAUSE);
            }
            Ok(GroupShape::Unknown) => self.undescribed_max = UNKNOWN_MAX,
            Err(error) if is_temporary(error) => {}
            // A permission is missing, or the broker is too old.
            Err(_) => return None,
        }
        (now.duration_since(self.described_at) < self.undescribed_max).then_some(UNKNOWN_PAUSE)
    }
}

/// The members of a group, and the client that read them: the one of the last read, or a new one.
fn read_members(
    options: &Options,
    contact: &Arc<BrokerContact>,
    group: &str,
    client: Option<ReaderClient>,
) -> Result<(ReaderClient, Vec<DescribedMember>), Error> {
    let client_error = |error| contact.map_err(&error, "reading the members of a group");
    let new_client = || -> KafkaResult<ReaderClient> {
        let (config, context) = (client_config::metadata(options), ContactContext(Arc::clone(contact)));
        Ok(Arc::new(BaseConsumer::from_config_and_context(&config, context)?))
    };
    let client = client.map_or_else(new_client, Ok).map_err(client_error)?;
    let group = options.topic(group);
    let list = client.fetch_group_list(Some(&group), options.connect_timeout);
    // Serves the callbacks (logs and errors) that librdkafka has queued.
    while client.poll(Duration::ZERO).is_some() {}
    let list = list.map_err(client_error)?;
    contact.record_response();
    let members = list.groups().iter().filter(|described| described.name() == group).flat_map(|group| group.members());
    let described = members.map(|member| DescribedMember {
        client_id: member.client_id().to_owned(),
        host: member.client_host().to_owned(),
        subscription: member.metadata().unwrap_or_default().to_vec(),
    });
    Ok((client, described.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNREAD_MAX: Duration = Duration::from_secs(5);

    fn mixed() -> Result<GroupShape, Error> {
        Ok(GroupShape::Mixed(DescribedMember::default()))
    }

    fn away() -> Result<GroupShape, Error> {
        Err(Error::Unreachable("away".into()))
    }

    /// Whether a member waits on after each shape that it reads at this second.
    fn waits<const N: usize>(readings: [(u64, Result<GroupShape, Error>); N]) -> [bool; N] {
        let start = Instant::now();
        let mut wait = JoinWait::new(UNREAD_MAX, start);
        readings.map(|(second, shape)| wait.pause(&shape, start + Duration::from_secs(second)).is_some())
    }

    #[test]
    fn member_waits_as_long_as_a_member_of_the_earlier_version_is_in_the_group() {
        assert_eq!(waits([(0, Ok(GroupShape::Divided))]), [false]);
        assert_eq!(waits([(0, mixed()), (3_600, mixed()), (3_601, Ok(GroupShape::Divided))]), [true, true, false]);
    }

    #[test]
    fn group_that_rebalances_delays_a_join_for_a_limited_time() {
        let unknown = || Ok(GroupShape::Unknown);

        assert_eq!(waits([(0, unknown()), (29, unknown()), (30, unknown())]), [true, true, false]);
        assert_eq!(waits([(60, mixed()), (89, unknown()), (90, unknown())]), [true, true, false]);
    }

    #[test]
    fn group_that_cannot_be_read_does_not_prevent_a_join() {
        let refused = || Err(Error::Broken("not permitted".into()));

        assert_eq!(waits([(0, refused())]), [false]);
        assert_eq!(waits([(0, away()), (4, away()), (5, away())]), [true, true, false]);
        assert_eq!(waits([(0, mixed()), (29, away()), (30, away())]), [true, true, false], "it was read before");
    }
}
