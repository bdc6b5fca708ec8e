//! The parts of a claim's SQL that claims of one partition and of many have in common.

/// Selects a partition's ready rows above the start, and its due heads, each up to a number of rows. OFFSET 0 makes the planner look up
/// each head: with the statistics of an empty table it would walk all rows of the partition, dead ones too, to find them. Most partitions have
/// no blocking row, so one look per partition saves one per row.
macro_rules! candidates {
    ($partition:literal, $start:literal, $rows:literal) => {
        concat!(
            "(SELECT queued.id, queued.key, queued.attempts, queued.deaths, queued.bytes, false AS head FROM outbox queued
              WHERE queued.partition = ",
            $partition,
            " AND queued.id > ",
            $start,
            " AND queued.status = 0 AND (NOT (SELECT EXISTS (SELECT FROM outbox_waiting waiting WHERE waiting.partition = ",
            $partition,
            " AND waiting.blocks)) OR NOT EXISTS (SELECT FROM outbox_waiting waiting
                WHERE waiting.partition = queued.partition AND waiting.key = queued.key AND waiting.blocks AND waiting.id <= queued.id))
              ORDER BY queued.id LIMIT ",
            $rows,
            ")
             UNION ALL
             (SELECT queued.id, queued.key, queued.attempts, queued.deaths, queued.bytes, true FROM outbox_waiting waiting CROSS JOIN LATERAL (
                SELECT queued.id, queued.key, queued.attempts, queued.deaths, queued.bytes FROM outbox queued
                WHERE queued.partition = waiting.partition AND queued.id = waiting.id AND queued.status = 2 OFFSET 0) queued
              WHERE waiting.partition = ",
            $partition,
            " AND waiting.due <= statement_timestamp() AND waiting.blocks AND NOT waiting.suspect
                AND NOT EXISTS (SELECT FROM outbox_waiting blocker WHERE blocker.partition = waiting.partition AND blocker.key = waiting.key
                  AND blocker.blocks AND blocker.id < waiting.id)
              ORDER BY waiting.id LIMIT ",
            $rows,
            ")"
        )
    };
}

/// Selects the seconds until a partition's next head is due, and whether one of its suspects is due.
macro_rules! waiting {
    ($partition:literal) => {
        concat!(
            "(SELECT extract(epoch FROM min(waiting.due) - statement_timestamp())::float8 FROM outbox_waiting waiting
               WHERE waiting.partition = ",
            $partition,
            " AND waiting.blocks AND waiting.due > statement_timestamp()) AS next_due,
             EXISTS (SELECT FROM outbox_waiting waiting WHERE waiting.partition = ",
            $partition,
            " AND waiting.blocks AND waiting.suspect AND waiting.due <= statement_timestamp()) AS suspect_due"
        )
    };
}

/// Aggregates a partition's candidates to the batch: the parallel arrays of its rows, their span, and what was left. What a claim returns
/// of a row is what its scan read: a row changes only together with the counter, which the claim compares.
macro_rules! batch {
    () => {
        "array_agg(id) FILTER (WHERE taken) AS ids, array_agg(key) FILTER (WHERE taken) AS keys,
           array_agg(attempts) FILTER (WHERE taken) AS attempts, min(id) FILTER (WHERE taken) AS first, max(id) FILTER (WHERE taken) AS last,
           max(id) FILTER (WHERE taken AND NOT head) AS last_ready, coalesce(bool_or(NOT taken AND NOT head), false) AS ready_left,
           coalesce(bool_or(NOT taken), false) AS more, coalesce(bool_or(taken AND head), false) AS heads"
    };
}

/// Selects the statement's snapshot, the source of the ids, and the last value of their sequence (NULL if the role may not read it). The source
/// is a hash of the server's start and the table's file: another server may reuse the xids of lost transactions, and a table that was restored
/// or truncated has other ids.
macro_rules! snapshot {
    () => {
        "SELECT pg_current_snapshot() AS snapshot,
           hashtextextended(extract(epoch FROM pg_postmaster_start_time())::text || pg_relation_filepath('outbox_event'::regclass), 0) AS source,
           CASE WHEN has_sequence_privilege(ids.sequence, 'SELECT, USAGE') THEN coalesce(pg_sequence_last_value(ids.sequence), 0) END
             AS sequence_value
         FROM (SELECT to_regclass('outbox_event_id_seq') AS sequence OFFSET 0) ids"
    };
}

pub(crate) use {batch, candidates, snapshot, waiting};
