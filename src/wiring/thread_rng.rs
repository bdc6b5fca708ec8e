//! Random bits from the thread's generator, which the operating system seeds.
use ports::clock::Rng;

/// Source of ids and jitter.
pub(super) struct ThreadRng;

impl Rng for ThreadRng {
    fn next_u64(&self) -> u64 {
        rand::random()
    }
}
