//! The parts of a claim's SQL that claims of one partition and of many have in common.

/// Selects a partition's ready rows above the start, and its due heads, each up to a number of rows. OFFSET 0 makes the planner look up
/// each head: with the statistics of an empty table it would walk all rows of the partition, dead ones too, to find them. Most partitions have
/// no blocking row, so one look per partition saves one per row.
macro_rules! candidates {
    ($partition:literal, $start:literal, $rows:literal) => {
        concat!(
            "(SELECT q.id, q.key, q.attempts, q.deaths, q.bytes, false AS head FROM outbox q
              WHERE q.partition = ",
            $partition,
            " AND q.id > ",
            $start,
            " AND q.status = 0 AND (NOT (SELECT EXISTS (SELECT FROM outbox_waiting w WHERE w.partition = ",
            $partition,
            " AND w.blocks)) OR NOT EXISTS (SELECT FROM outbox_waiting w
                WHERE w.partition = q.partition AND w.key = q.key AND w.blocks AND w.id <= q.id))
              ORDER BY q.id LIMIT ",
            $rows,
            ")
             UNION ALL
             (SELECT q.id, q.key, q.attempts, q.deaths, q.bytes, true FROM outbox_waiting w CROSS JOIN LATERAL (
                SELECT q.id, q.key, q.attempts, q.deaths, q.bytes FROM outbox q
                WHERE q.partition = w.partition AND q.id = w.id AND q.status = 2 OFFSET 0) q
              WHERE w.partition = ",
            $partition,
            " AND w.due <= statement_timestamp() AND w.blocks AND NOT w.suspect
                AND NOT EXISTS (SELECT FROM outbox_waiting b WHERE b.partition = w.partition AND b.key = w.key AND b.blocks AND b.id < w.id)
              ORDER BY w.id LIMIT ",
            $rows,
            ")"
        )
    };
}

/// Selects the seconds until a partition's next head is due, and whether one of its suspects is due.
macro_rules! waiting {
    ($partition:literal) => {
        concat!(
            "(SELECT extract(epoch FROM min(w.due) - statement_timestamp())::float8 FROM outbox_waiting w
               WHERE w.partition = ",
            $partition,
            " AND w.blocks AND w.due > statement_timestamp()) AS next_due,
             EXISTS (SELECT FROM outbox_waiting w WHERE w.partition = ",
            $partition,
            " AND w.blocks AND w.suspect AND w.due <= statement_timestamp()) AS suspect_due"
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

/// Selects the statement's snapshot, and the time at which the server started.
macro_rules! snapshot {
    () => {
        "SELECT pg_current_snapshot() AS snapshot, extract(epoch FROM pg_postmaster_start_time())::float8 AS server"
    };
}

pub(crate) use {batch, candidates, snapshot, waiting};
