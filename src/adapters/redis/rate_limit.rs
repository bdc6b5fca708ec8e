//! Rate limits that instances share: token buckets, their fallback, and policies that operators set.
mod policies;
mod sliding_window;
mod token_bucket;
