-- Why: a store that goes back in time (a fail-over to a standby that lagged, a restore) must not give a token twice. The table remembers the
-- timeline for which all transactional ids were fenced, because a process that starts after the fail-over cannot know it otherwise.
-- `complete_until`: the time up to which the timeline has every commit, where the server shows it. No row: the timeline was never compared.
CREATE TABLE store_timeline (
  one boolean PRIMARY KEY DEFAULT true CHECK (one), timeline text NOT NULL, adopted boolean NOT NULL,
  noticed_at timestamptz NOT NULL DEFAULT clock_timestamp(), complete_until timestamptz
);
