//! GroupShape: whether a member of a group reads events and retry topics with one client, as members of the earlier version do.
use crate::topics::group_members::DescribedMember;
use crate::topics::topic_kind::TopicKind;

/// What the members of a group subscribe to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupShape {
    /// No member subscribes to topics of both kinds.
    Divided,
    /// These members subscribe to topics of both kinds.
    Mixed(Vec<DescribedMember>),
    /// The group rebalances and does not describe every subscription.
    Unknown,
    /// No broker describes the group.
    Absent,
}

impl GroupShape {
    /// The shape of a group with these members, for one that reads these topics of each kind. `mixed` are members that were read before with a
    /// subscription to both kinds: while the group rebalances, they are recognised by their client ids and hosts.
    pub(crate) fn of(
        members: &[DescribedMember],
        topics: &[(TopicKind, Vec<String>)],
        mixed: &[DescribedMember],
    ) -> Self {
        let is_known = |member: &DescribedMember| {
            mixed.iter().any(|known| (&known.client_id, &known.host) == (&member.client_id, &member.host))
        };
        let is_mixed = |member: &&DescribedMember| {
            if member.subscription.is_empty() {
                return is_known(member);
            }
            let subscribed = subscribed_topics(&member.subscription).unwrap_or_default();
            topics.len() > 1 && topics.iter().all(|(_, own)| own.iter().any(|own| subscribed.contains(&own.as_str())))
        };
        let is_unknown =
            |member: &DescribedMember| member.subscription.is_empty() && !TopicKind::is_in(&member.client_id);
        let mixed: Vec<DescribedMember> = members.iter().filter(is_mixed).cloned().collect();
        match mixed.is_empty() {
            false => Self::Mixed(mixed),
            true if members.iter().any(is_unknown) => Self::Unknown,
            true => Self::Divided,
        }
    }
}

/// The topics of a subscription: its version (2), the number of topics (4), and each topic behind its length (2). What follows differs by version.
/// `None` if the bytes are of another protocol.
fn subscribed_topics(mut bytes: &[u8]) -> Option<Vec<&str>> {
    take::<2>(&mut bytes)?;
    let count = i32::from_be_bytes(take(&mut bytes)?);
    let topic = |_| {
        let length = usize::try_from(i16::from_be_bytes(take(&mut bytes)?)).ok()?;
        let (topic, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        std::str::from_utf8(topic).ok()
    };
    (0..count).map(topic).collect()
}

fn take<const LENGTH: usize>(bytes: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A subscription of version 3, with user data, owned partitions, a generation and a rack behind its topics.
    fn subscription(topics: &[&str]) -> Vec<u8> {
        let mut bytes = [&3_i16.to_be_bytes()[..], &(topics.len() as i32).to_be_bytes()].concat();
        for topic in topics {
            bytes.extend((topic.len() as i16).to_be_bytes());
            bytes.extend(topic.as_bytes());
        }
        bytes.extend([0, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 1, b'r']);
        bytes
    }

    fn member(client_id: &str, topics: &[&str]) -> DescribedMember {
        DescribedMember { client_id: client_id.into(), host: "/10.0.0.1".into(), subscription: subscription(topics) }
    }

    fn rebalancing(client_id: &str) -> DescribedMember {
        DescribedMember { subscription: Vec::new(), ..member(client_id, &[]) }
    }

    fn shape(members: &[DescribedMember]) -> GroupShape {
        shape_after(members, &[])
    }

    fn shape_after(members: &[DescribedMember], mixed: &[DescribedMember]) -> GroupShape {
        let topics = TopicKind::divide(&["a", "b", "a-retry-0", "a-retry-1"].map(str::to_owned));
        GroupShape::of(members, &topics, mixed)
    }

    #[test]
    fn member_that_subscribes_to_both_kinds_makes_a_group_mixed() {
        let earlier = member("posthaste-1", &["a", "a-retry-0"]);
        let (events, retries) = (member("posthaste-2.events", &["a"]), member("posthaste-2.retries", &["a-retry-0"]));

        assert_eq!(
            shape(&[events.clone(), earlier.clone(), retries.clone()]),
            GroupShape::Mixed(vec![earlier.clone()])
        );
        assert_eq!(shape(&[rebalancing("posthaste-3"), earlier.clone()]), GroupShape::Mixed(vec![earlier.clone()]));
        for divided in [&[][..], &[events, retries], &[member("other", &["x", "x-retry-0", "a"])]] {
            assert_eq!(shape(divided), GroupShape::Divided);
        }
        let only_events = TopicKind::divide(&["a".to_owned()]);
        assert_eq!(GroupShape::of(&[earlier], &only_events, &[]), GroupShape::Divided, "all topics are of one kind");
    }

    #[test]
    fn shape_of_a_rebalancing_group_is_known_by_the_client_ids_of_this_version() {
        let own = [rebalancing("posthaste-1.events"), rebalancing("posthaste-1.retries")];
        let earlier = [own[0].clone(), rebalancing("posthaste-1")];

        assert_eq!([shape(&own), shape(&earlier)], [GroupShape::Divided, GroupShape::Unknown]);
    }

    #[test]
    fn member_that_was_mixed_stays_mixed_while_the_group_rebalances() {
        let before = [member("posthaste-1", &["a", "a-retry-0"])];
        let (again, other) = (rebalancing("posthaste-1"), rebalancing("posthaste-2"));
        let elsewhere = DescribedMember { host: "/10.0.0.2".into(), ..again.clone() };

        assert_eq!(shape_after(&[other.clone(), again.clone()], &before), GroupShape::Mixed(vec![again]));
        assert_eq!(shape_after(&[other, elsewhere], &before), GroupShape::Unknown);
        assert_eq!(shape_after(&[member("posthaste-1", &["a"])], &before), GroupShape::Divided);
    }

    #[test]
    fn topics_of_a_subscription_are_read() {
        assert_eq!(subscribed_topics(&subscription(&["a", "", "bc"])), Some(vec!["a", "", "bc"]));
        assert_eq!(subscribed_topics(&subscription(&[])), Some(vec![]));
    }

    #[test]
    fn broken_subscriptions_have_no_topics() {
        let whole = subscription(&["a", "a-retry-0"]);
        let topics_end = 6 + 3 + 11;
        for end in 0..topics_end {
            assert_eq!(subscribed_topics(&whole[..end]), None, "{end} bytes");
        }
        for index in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut broken = whole.clone();
                broken[index] = byte;
                // No value ends the process or allocates more than the bytes have.
                let count = subscribed_topics(&broken).map_or(0, |topics| topics.len());
                assert!(count <= broken.len(), "{broken:?}");
            }
        }
        let broken = DescribedMember { subscription: vec![0xff; 9], ..DescribedMember::default() };
        assert_eq!(shape(&[broken]), GroupShape::Divided, "a member of another protocol");
    }
}
