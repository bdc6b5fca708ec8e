//! The data folder: its lock, and whether its files are complete.
pub(crate) mod check;
pub(crate) mod data_files;
pub(crate) mod lock;
pub(crate) mod lock_holder;
pub(crate) mod path_length;
pub(crate) mod wal_scan;
