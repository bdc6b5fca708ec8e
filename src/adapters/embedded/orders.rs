//! Orders in SQLite: their rows, atomic commits and the index by owner.
pub(crate) mod commit;
pub(crate) mod order_store;
pub(crate) mod owner_index;
pub(crate) mod row;
