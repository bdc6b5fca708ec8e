//! Figures out of a metrics page.
use serde_json::{Value, json};

/// Upper bounds and how many observations lie at or below each.
pub(super) type Buckets = Vec<(f64, u64)>;

/// The value of a series, zero when it is not there.
pub(super) fn value(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

/// The buckets of a histogram.
pub(super) fn buckets(metrics: &str, name: &str) -> Buckets {
    let prefix = format!("{name}_bucket{{");
    let read = |line: &str| {
        let (labels, count) = line.strip_prefix(&prefix)?.split_once("} ")?;
        let bound = labels.split("le=\"").nth(1)?.split('"').next()?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        Some((bound, count.trim().parse::<f64>().ok()? as u64))
    };
    metrics.lines().filter_map(read).collect()
}

/// What was observed between two looks at the same histogram.
pub(super) fn since(after: &Buckets, before: &Buckets) -> Buckets {
    let earlier = |bound: f64| before.iter().find(|(seen, _)| *seen == bound).map_or(0, |(_, count)| *count);
    after.iter().map(|(bound, count)| (*bound, count.saturating_sub(earlier(*bound)))).collect()
}

/// Percentiles in ms, as the bound of the bucket in which they lie: never less than the truth. `to_ms` turns a bound's unit into ms.
pub(super) fn percentiles(buckets: &Buckets, to_ms: f64) -> Value {
    let total = buckets.last().map_or(0, |(_, count)| *count);
    let at = |share: f64| {
        let place = (total as f64 * share).ceil() as u64;
        let bound = buckets.iter().find(|(_, count)| *count >= place).map_or(0.0, |(bound, _)| *bound);
        if bound.is_finite() { json!(bound * to_ms) } else { json!("beyond the last bucket") }
    };
    json!({"p50_at_most": at(0.50), "p99_at_most": at(0.99), "observed": total})
}
