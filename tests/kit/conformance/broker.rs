//! The suite of `Broker`: a batch and its watermark commit together or not at all, and a fenced session commits nothing.
//! The cases read through `TopicReader`, which a broker's backend offers too.
use self::aborts::*;
use self::appends::*;
use self::batches::*;
use self::sessions::*;

mod aborts;
mod appends;
mod batches;
mod sessions;

suite! { $ broker:
    a_published_batch_and_its_watermark_are_visible_together,
    a_record_reads_back_exactly_as_it_was_published,
    every_row_is_returned_with_its_position,
    a_keys_records_are_in_the_order_of_the_batches,
    a_key_has_the_topic_partition_that_javas_clients_choose,
    each_partition_has_its_own_watermark,
    the_watermark_is_the_highest_committed_token,
    sessions_of_different_slots_have_different_ids,
    a_new_session_ends_the_former_session_of_its_slot,
    a_fence_does_not_end_sessions_of_other_slots,
    a_fenced_session_cannot_publish,
    fencing_is_idempotent,
    a_session_of_an_earlier_process_can_be_fenced,
    records_committed_before_the_fence_stay,
    a_fence_of_all_sessions_ends_each_of_them,
    a_fence_of_all_sessions_returns_the_highest_token_of_each_partition,
    a_fence_of_all_sessions_is_idempotent,
    a_refused_record_aborts_its_batch_and_is_named,
    an_aborted_batch_is_never_visible,
    the_rest_of_an_aborted_batch_is_published_under_its_new_token,
    a_batch_without_lease_time_left_is_not_committed,
    concurrent_batches_each_get_their_own_result,
    a_refused_record_loses_no_record_of_another_batch,
    appended_records_are_visible_at_once_and_in_order,
    an_append_is_all_or_nothing,
    an_append_does_not_change_watermarks,
    a_record_of_the_largest_size_is_published,
}
