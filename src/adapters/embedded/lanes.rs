//! Lanes: a slot's sessions, of which one lives at most. The file remembers the number, so an id is never given twice.
use ports::partitions::ProducerSessionId;
use rusqlite::params;

use crate::engine::Work;
use crate::error::Answer;

/// Opens the next session of a slot; the former one is dead from now on.
pub(crate) fn open(work: &Work<'_>, base: &str) -> Answer<ProducerSessionId> {
    let mut next = work.sql.prepare_cached(
        "INSERT INTO lane (base, session, id) VALUES (?1, 1, ?1 || '.1')
         ON CONFLICT (base) DO UPDATE SET session = session + 1, id = base || '.' || (session + 1) RETURNING id",
    )?;
    Ok(ProducerSessionId(next.query_row([base], |row| row.get::<_, String>(0))?.into()))
}

/// Whether a session lives.
pub(crate) fn lives(work: &Work<'_>, lane: &ProducerSessionId) -> Answer<bool> {
    let mut statement = work.sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM lane WHERE id = ?1)")?;
    Ok(statement.query_row([&*lane.0], |row| row.get(0))?)
}

/// Ends a session, if it still lives.
pub(crate) fn fence(work: &Work<'_>, lane: &ProducerSessionId) -> Answer<()> {
    work.sql.prepare_cached("UPDATE lane SET id = NULL WHERE id = ?1")?.execute(params![&*lane.0])?;
    Ok(())
}
