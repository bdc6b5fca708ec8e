//! The suite of `ConsumerGroups` and `GroupMember`: delivery in order per topic partition, once until a rewind, acknowledged by the caller.
use self::acknowledgements::*;
use self::delivery::*;
use self::lag::*;
use self::pauses::*;

mod acknowledgements;
mod delivery;
mod fixture;
mod lag;
mod pauses;

suite! { $ consumer_groups:
    messages_are_delivered_in_order_per_partition,
    a_poll_returns_at_most_its_limit,
    a_message_is_delivered_once,
    an_empty_topic_delivers_nothing,
    a_group_resumes_after_its_last_acknowledgement,
    the_next_member_receives_unacknowledged_messages,
    the_highest_acknowledged_position_counts,
    an_acknowledgement_never_moves_back,
    a_rewind_redelivers_unacknowledged_messages,
    each_group_reads_every_message,
    one_member_reads_several_topics,
    members_share_the_partitions,
    a_new_message_reaches_a_member_at_the_end,
    a_pause_stops_one_partition_until_it_ends,
    a_paused_partition_resumes_at_the_given_position,
    an_aborted_batch_is_never_delivered,
    a_group_may_begin_at_the_end,
    a_group_that_has_begun_keeps_its_offsets,
    kept_offsets_stay_as_they_are,
    the_lag_counts_unacknowledged_messages,
    the_lag_has_the_age_of_the_oldest_unacknowledged_message,
}
