-- Why: under load most batches are small and each writes an archive row, and most of what such a row costs was its entry in the GiST index over the
-- spans of ids. A batch is narrow nearly always: its ids lie close to each other. Such a batch is found by its first id, whose index is cheap.
-- Only wide ones, full batches and those with a row that was tried again, need the index over spans: few, or with many events.
-- Creating it reads the archive once and writes next to nothing: some seconds for 10 million batches of a day, for which settlements of that day
-- wait. The next migration drops the index over all spans.
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
