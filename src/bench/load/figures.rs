//! Medians, ratios and percentiles of many measurements.
use serde_json::{Value, json};

/// The middle value, or the mean of the middle two. A single round on a shared machine is not representative.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => (sorted[length / 2 - 1] + sorted[length / 2]) / 2.0,
    }
}

/// The median of `ours[i] / theirs[i]`, to two digits. The ratio is taken within each round, because a noisy machine slows both down.
pub(crate) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    (median(&ratios) * 100.0).round() / 100.0
}

/// Whole numbers, in the order of their rounds.
pub(crate) fn rounded(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.round() as u64).collect()
}

/// Exact percentiles of sorted values in milliseconds.
pub(crate) fn percentiles(sorted_ms: &[f64]) -> Value {
    let at = |share: f64| {
        let index = ((sorted_ms.len() as f64 * share) as usize).min(sorted_ms.len().saturating_sub(1));
        sorted_ms.get(index).copied().unwrap_or(0.0)
    };
    json!({"p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": at(1.0)})
}

/// The median over all rounds of each of their [`percentiles`].
pub(crate) fn median_percentiles<'a>(rounds: impl Iterator<Item = &'a Value> + Clone) -> Value {
    let of = |name: &str| median(&rounds.clone().filter_map(|round| round[name].as_f64()).collect::<Vec<_>>());
    json!({"p50": of("p50"), "p95": of("p95"), "p99": of("p99"), "max": of("max")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_ignores_outliers_and_a_ratio_compares_within_a_round() {
        assert_eq!((median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (0.0, 2.0, 2.5));
        assert_eq!(ratio(&[10.0, 100.0, 30.0], &[20.0, 50.0, 30.0]), 1.0);
    }
}
