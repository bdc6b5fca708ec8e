//! GroupJoin: starts the clients of a member once no member of the earlier version is in the group. Such a member reads events and retry topics
//! with one client, and librdkafka's assignor ends the process that leads a group with members of both kinds.
use std::sync::Arc;
use std::time::Duration;

use ports::Error;
use tokio::time::{Instant, sleep};

use crate::connection::blocking_call::run_blocking;
use crate::connection::broker_contact::BrokerContact;
use crate::consumer::group_shape::GroupShape;
use crate::consumer::member_client::MemberClient;
use crate::error::is_temporary;
use crate::options::Options;
use crate::topics::group_members::{DescribedMember, GroupReader};
use crate::topics::topic_kind::TopicKind;

/// Pause between two reads of a group that has a member of the earlier version. An upgrade may take minutes.
const MIXED_PAUSE: Duration = Duration::from_secs(2);
/// How long a group must have had no member of the earlier version after it had one. A consumer that has failed leaves its group and joins it again
/// after at most 5 s; its join may take some seconds more.
const DIVIDED_MIN: Duration = Duration::from_secs(12);
/// Pause between two reads in any other case.
const READ_PAUSE: Duration = Duration::from_millis(500);
/// Longest wait for a group that rebalances: several rebalances, each of which waits for a heartbeat and for the handover of partitions. Also for one
/// that had a member of the earlier version and cannot be read.
const UNDESCRIBED_MAX: Duration = Duration::from_secs(30);

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
        let mut wait = JoinWait::new(self.options.connect_timeout, Instant::now());
        let mut reader = None;
        loop {
            let shape = self.read_shape(&mut reader, &wait.mixed).await;
            if let (Ok(GroupShape::Mixed(members)), false) = (&shape, wait.was_mixed()) {
                self.report_mixed(&members[0]);
            }
            let Some(pause) = wait.pause(&shape, Instant::now()) else {
                return self.report_end(&shape, wait.was_mixed());
            };
            sleep(pause).await;
        }
    }

    /// Reads the members of the group. `reader` is that of the last read, if that one succeeded.
    async fn read_shape(
        &self,
        reader: &mut Option<GroupReader>,
        mixed: &[DescribedMember],
    ) -> Result<GroupShape, Error> {
        let (options, contact) = (Arc::clone(&self.options), Arc::clone(&self.contact));
        let (group, known) = (self.group.clone(), reader.take());
        let read = move || {
            let reader = known.map_or_else(|| GroupReader::new(&options, &contact), Ok)?;
            let members = reader.read(&group)?;
            Ok((reader, members))
        };
        let (used, members) = run_blocking("kafka-group-read", read).await?;
        *reader = Some(used);
        Ok(members.map_or(GroupShape::Absent, |members| GroupShape::of(&members, &self.topics, mixed)))
    }

    fn report_mixed(&self, DescribedMember { client_id, host, .. }: &DescribedMember) {
        let group = &self.group;
        tracing::warn!(
            event = "consumer_group_mixed",
            group,
            client_id,
            host,
            "{client_id} at {host} reads topics of events and of retries with one client in the group {group}, as members of the earlier version do; this instance joins when the last such member has left"
        );
    }

    fn report_end(&self, shape: &Result<GroupShape, Error>, was_mixed: bool) {
        let group = &self.group;
        let error = match shape {
            Ok(GroupShape::Unknown) => "the group rebalances".to_owned(),
            Ok(GroupShape::Absent) if was_mixed => "no broker describes the group".to_owned(),
            Err(error) => error.to_string(),
            Ok(GroupShape::Divided) if was_mixed => {
                return tracing::info!(
                    event = "consumer_group_joined",
                    group,
                    "the last member of the earlier version has left the group {group}; this instance joins it now"
                );
            }
            Ok(GroupShape::Divided | GroupShape::Absent | GroupShape::Mixed(_)) => return,
        };
        if was_mixed {
            tracing::warn!(
                event = "consumer_group_unread",
                group,
                error,
                "the group {group} had a member of the earlier version, and its members can no longer be read; this instance joins it now: {error}"
            );
        } else {
            tracing::debug!(
                event = "consumer_group_unread",
                group,
                error,
                "the members of the group {group} cannot be read; this instance joins it now: {error}"
            );
        }
    }
}

/// How long a member that is to join has waited, and whether it waits on.
#[derive(Debug)]
struct JoinWait {
    /// The members of the earlier version at the last reading that found some during this wait.
    mixed: Vec<DescribedMember>,
    /// Since when each reading has found no such member, after one that did.
    divided_since: Option<Instant>,
    /// When a reading first described nothing since the last that found such a member, or when the wait began.
    undescribed_since: Option<Instant>,
    /// Longest time from then on.
    undescribed_max: Duration,
}

impl JoinWait {
    /// `unread_max` is the longest wait for a group that was never read.
    fn new(unread_max: Duration, now: Instant) -> Self {
        Self { mixed: Vec::new(), divided_since: None, undescribed_since: Some(now), undescribed_max: unread_max }
    }

    /// Whether the group had a member of the earlier version during this wait.
    fn was_mixed(&self) -> bool {
        !self.mixed.is_empty()
    }

    /// The pause before the group is read again, or `None` if the member joins now.
    fn pause(&mut self, shape: &Result<GroupShape, Error>, now: Instant) -> Option<Duration> {
        match shape {
            Ok(GroupShape::Mixed(members)) => {
                (self.mixed, self.undescribed_max) = (members.clone(), UNDESCRIBED_MAX);
                (self.divided_since, self.undescribed_since) = (None, None);
                return Some(MIXED_PAUSE);
            }
            Ok(GroupShape::Divided) if self.was_mixed() => {
                let since = *self.divided_since.get_or_insert(now);
                return (now.duration_since(since) < DIVIDED_MIN).then_some(READ_PAUSE);
            }
            Ok(GroupShape::Divided) => return None,
            Ok(GroupShape::Absent) if !self.was_mixed() => return None,
            // A permission is missing, or the broker is too old.
            Err(error) if !self.was_mixed() && !is_temporary(error) => return None,
            Ok(GroupShape::Unknown) => self.undescribed_max = UNDESCRIBED_MAX,
            Ok(GroupShape::Absent) | Err(_) => {}
        }
        // A member of the earlier version may have joined again.
        self.divided_since = None;
        let since = *self.undescribed_since.get_or_insert(now);
        (now.duration_since(since) < self.undescribed_max).then_some(READ_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNREAD_MAX: Duration = Duration::from_secs(5);

    fn mixed() -> Result<GroupShape, Error> {
        Ok(GroupShape::Mixed(vec![DescribedMember::default()]))
    }

    fn divided() -> Result<GroupShape, Error> {
        Ok(GroupShape::Divided)
    }

    fn unknown() -> Result<GroupShape, Error> {
        Ok(GroupShape::Unknown)
    }

    fn absent() -> Result<GroupShape, Error> {
        Ok(GroupShape::Absent)
    }

    fn refused() -> Result<GroupShape, Error> {
        Err(Error::Broken("not permitted".into()))
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
    fn group_without_members_of_the_earlier_version_is_joined_at_once() {
        assert_eq!([waits([(0, divided())]), waits([(0, absent())])], [[false]; 2]);
        assert_eq!(waits([(0, unknown()), (1, away()), (2, divided())]), [true, true, false]);
    }

    #[test]
    fn member_of_the_earlier_version_that_comes_back_is_waited_for() {
        assert_eq!(waits([(0, mixed()), (3_600, mixed()), (3_602, divided())]), [true; 3]);
        for back in [mixed, unknown] {
            let readings =
                [(0, mixed()), (1, divided()), (3, back()), (4, divided()), (15, divided()), (16, divided())];

            assert_eq!(waits(readings), [true, true, true, true, true, false]);
        }
    }

    #[test]
    fn group_that_rebalances_delays_a_join_for_a_limited_time() {
        assert_eq!(waits([(0, unknown()), (29, unknown()), (30, unknown())]), [true, true, false]);
        assert_eq!(waits([(0, mixed()), (60, unknown()), (89, unknown()), (90, unknown())]), [true, true, true, false]);
        let in_turns = [(0, mixed()), (1, unknown()), (11, divided()), (21, unknown()), (31, unknown())];
        assert_eq!(waits(in_turns), [true, true, true, true, false]);
    }

    #[test]
    fn group_that_cannot_be_read_does_not_prevent_a_join() {
        assert_eq!(waits([(0, refused())]), [false]);
        assert_eq!(waits([(0, away()), (4, away()), (5, away())]), [true, true, false]);
        assert_eq!(waits([(5, away())]), [false], "the first read has lasted for the longest wait");
        for unread in [away, refused, absent] {
            let readings = [(0, mixed()), (60, unread()), (89, unread()), (90, unread())];

            assert_eq!(waits(readings), [true, true, true, false], "it was read before");
        }
    }
}
