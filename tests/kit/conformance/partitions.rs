//! The suite of `PartitionLeases`: membership, and the right of one instance to change a partition's rows, by the store's clock alone.
use self::acquisitions::*;
use self::handover::*;
use self::membership::*;
use self::renewals::*;
use self::surveys::*;

mod acquisitions;
mod fixture;
mod handover;
mod membership;
mod renewals;
mod surveys;

suite! { $ partitions:
    the_overview_lists_every_partition_in_order_and_free,
    an_acquired_partition_shows_its_owner,
    members_see_each_other,
    members_are_ranked_by_the_bytes_of_their_names,
    a_member_without_heartbeat_is_dead,
    a_member_is_dead_by_its_own_limit,
    a_member_that_left_is_not_alive,
    a_survey_shows_the_leases_of_each_live_member_and_what_is_free,
    a_survey_offers_expired_leases_and_those_of_dead_owners,
    only_partitions_in_a_survey_can_be_acquired,
    a_survey_offers_the_partition_that_is_free_for_longest_first,
    a_live_owners_unexpired_lease_is_not_taken,
    one_of_many_concurrent_acquisitions_wins,
    an_expired_lease_is_taken_over_with_a_higher_epoch,
    a_dead_owners_lease_is_taken_over_before_it_expires,
    a_restarted_instance_reacquires_its_partition_at_once,
    every_acquisition_raises_the_epoch,
    an_acquisition_raises_the_counter_above_the_watermark,
    the_counter_never_decreases,
    the_next_owner_receives_the_open_batch,
    an_open_batch_survives_several_dead_owners_until_resolved,
    a_live_claimer_that_lost_its_lease_is_not_reported_dead,
    the_acquire_reason_decides_whether_the_claimer_died,
    a_former_owner_does_not_retake_a_live_owners_partition,
    the_former_owner_is_fenced,
    a_renewal_returns_only_the_leases_still_held,
    a_renewal_extends_the_lease,
    a_renewal_never_changes_the_counter,
    an_expired_lease_is_not_renewed,
    a_released_partition_is_free_at_once,
    release_is_refused_while_a_batch_is_in_flight,
    a_release_needs_the_right_owner_and_epoch,
}
