//! Histograms as Prometheus has them: cumulative counts by bound.

/// Bounds and cumulative counts since the process started, the lowest bound first.
pub(crate) type Buckets = Vec<(f64, u64)>;

/// The counts without those of an earlier reading; one without buckets was taken before the first value.
pub(super) fn increase(now: &[(f64, u64)], before: &[(f64, u64)]) -> Buckets {
    let count_before = |at: usize| before.get(at).map_or(0, |bucket| bucket.1);
    now.iter().enumerate().map(|(at, (bound, count))| (*bound, count.saturating_sub(count_before(at)))).collect()
}

/// A percentile, interpolated within its bucket as Prometheus does. Beyond the last bound: that bound.
pub(super) fn percentile(buckets: &[(f64, u64)], share: f64) -> Option<f64> {
    let all = buckets.last().map(|bucket| bucket.1).filter(|all| *all > 0)?;
    let rank = share * all as f64;
    let (mut bound_below, mut count_below) = (0.0, 0);
    for (bound, count) in buckets {
        if *count as f64 >= rank && *count > count_below {
            if bound.is_infinite() {
                return Some(bound_below);
            }
            let within = (rank - count_below as f64) / (count - count_below) as f64;
            return Some(bound_below + (bound - bound_below) * within);
        }
        (bound_below, count_below) = (if bound.is_finite() { *bound } else { bound_below }, *count);
    }
    None
}
