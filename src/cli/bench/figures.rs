//! Many measurements as the few figures that are told.
use serde_json::{Value, json};

/// The middle one, or the mean of the middle two: one round beside a neighbour's compiler says nothing.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => (sorted[length / 2 - 1] + sorted[length / 2]) / 2.0,
    }
}

/// The median of `ours[i] / theirs[i]`, to two digits. Each round's own ratio: a noisy machine slows both down.
pub(super) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    (median(&ratios) * 100.0).round() / 100.0
}

/// Whole numbers, in the order of their rounds.
pub(super) fn rounded(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.round() as u64).collect()
}

/// Of sorted values in ms.
pub(super) fn percentiles(sorted_ms: &[f64]) -> Value {
    let at = |share: f64| {
        let place = ((sorted_ms.len() as f64 * share) as usize).min(sorted_ms.len().saturating_sub(1));
        sorted_ms.get(place).copied().unwrap_or(0.0)
    };
    json!({"p50": at(0.50), "p95": at(0.95), "p99": at(0.99), "max": at(1.0)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_counts_and_each_round_is_compared_with_itself() {
        assert_eq!((median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])), (0.0, 2.0, 2.5));
        assert_eq!(ratio(&[10.0, 100.0, 30.0], &[20.0, 50.0, 30.0]), 1.0);
    }
}
