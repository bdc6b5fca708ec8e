-- Why: under load most batches are small, each of them inserts an archive row, and most of the cost of such a row was its entry in the GiST index
-- on the range of its ids. Nearly every batch is narrow: its ids are close to each other. A query finds such a batch by its first id, whose
-- B-tree index is cheap. Only wide batches need the GiST index: full batches, and those with a row that was tried again. They are few, or have
-- many events.
-- The migration reads the archive once and writes almost nothing: some seconds for a day with 10 million batches, for which settlements of that
-- day wait. The next migration drops the index on all ranges.
DO $do$
DECLARE
  child regclass;
BEGIN
  -- Past days first: nothing is written to them any more. The index of the whole table takes those of its partitions as they are.
  FOR child IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'outbox_archive'::regclass ORDER BY inhrelid::regclass::text LOOP
    EXECUTE format('CREATE INDEX ON %s USING gist (int8range(first_id, last_id, ''[]'')) WHERE last_id - first_id >= 1024', child);
  END LOOP;
END $do$;
CREATE INDEX outbox_archive_by_wide_span ON outbox_archive USING gist (int8range(first_id, last_id, '[]')) WHERE last_id - first_id >= 1024;
