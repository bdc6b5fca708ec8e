//! Rate limits that instances share: token buckets, their fallback, and policies that operators set.
pub(crate) mod limits;
mod policies;
mod sliding_window;
mod token_bucket;
