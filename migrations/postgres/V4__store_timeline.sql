-- Why: a store that goes back in time (a fail-over to a standby that lagged, a restore) must not assign a token twice. The table has the timeline
-- for which all transactional ids were fenced, because a process that starts after the fail-over has no other way to determine it.

-- `store_timeline`: the only row is the last timeline of the server that an instance has found. `adopted`: all transactional ids are fenced for it.
-- `complete_until`: the time up to which the timeline has every commit, where the server shows it. No row: no timeline was compared yet.
CREATE TABLE store_timeline (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), timeline text NOT NULL, adopted boolean NOT NULL,
  noticed_at timestamptz NOT NULL DEFAULT clock_timestamp(), complete_until timestamptz
);
