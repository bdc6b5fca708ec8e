//! Reads figures from a Prometheus metrics page.
use serde_json::{Value, json};

/// Upper bounds, each with the number of observations at or below it.
pub(crate) type HistogramBuckets = Vec<(f64, u64)>;

/// The value of a series; zero where it is absent.
pub(crate) fn value(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
}

/// The buckets of a histogram.
pub(crate) fn buckets(metrics: &str, name: &str) -> HistogramBuckets {
    let prefix = format!("{name}_bucket{{");
    let read = |line: &str| {
        let (labels, count) = line.strip_prefix(&prefix)?.split_once("} ")?;
        let bound = labels.split("le=\"").nth(1)?.split('"').next()?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        Some((bound, count.trim().parse::<f64>().ok()? as u64))
    };
    metrics.lines().filter_map(read).collect()
}

/// The observations between two reads of the same histogram.
pub(crate) fn since(after: &HistogramBuckets, before: &HistogramBuckets) -> HistogramBuckets {
    let earlier = |bound: f64| before.iter().find(|(seen, _)| *seen == bound).map_or(0, |(_, count)| *count);
    after.iter().map(|(bound, count)| (*bound, count.saturating_sub(earlier(*bound)))).collect()
}

/// Percentiles in milliseconds, as the upper bound of their bucket: never less than the true value. `to_ms` converts a bound's unit.
pub(crate) fn percentiles(buckets: &HistogramBuckets, to_ms: f64) -> Value {
    let total = buckets.last().map_or(0, |(_, count)| *count);
    let at = |share: f64| {
        let rank = (total as f64 * share).ceil() as u64;
        let bound = buckets.iter().find(|(_, count)| *count >= rank).map_or(0.0, |(bound, _)| *bound);
        if bound.is_finite() { json!(bound * to_ms) } else { json!("beyond the last bucket") }
    };
    json!({"p50AtMost": at(0.50), "p99AtMost": at(0.99), "observed": total})
}

/// The time that statements of the store have taken in all, and how often they ran.
pub(crate) struct StatementTimes {
    seconds: f64,
    count: f64,
}

impl StatementTimes {
    /// The sums over these statements.
    pub(crate) fn parse(metrics: &str, names: &[&str]) -> Self {
        let sum = |part: &str| {
            let series = |name: &&str| format!("db_query_duration_seconds_{part}{{query=\"{name}\"}}");
            names.iter().map(|name| value(metrics, &series(name))).sum()
        };
        Self { seconds: sum("sum"), count: sum("count") }
    }

    /// Mean milliseconds of the statements since an earlier read; zero if none ran.
    pub(crate) fn mean_ms_since(&self, before: &Self) -> f64 {
        1_000.0 * (self.seconds - before.seconds) / (self.count - before.count).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_count_only_what_two_reads_differ_in() {
        let page = |low: u64, high: u64| {
            format!(
                "lag_bucket{{le=\"0.01\"}} {low}\nlag_bucket{{le=\"0.1\"}} {high}\nlag_bucket{{le=\"+Inf\"}} {high}\n"
            )
        };
        let (before, after) = (buckets(&page(5, 5), "lag"), buckets(&page(7, 105), "lag"));

        let observed = percentiles(&since(&after, &before), 1_000.0);

        assert_eq!(observed, json!({"p50AtMost": 100.0, "p99AtMost": 100.0, "observed": 100}));
        assert_eq!(value("depth 3\n", "depth"), 3.0);
    }

    #[test]
    fn mean_time_covers_all_named_statements_since_the_earlier_read() {
        let page = |[claim, settle_and_claim]: [(f64, u64); 2]| {
            let lines = [("claim", claim), ("settle_and_claim", settle_and_claim), ("settle", (9.0, 9))];
            let lines = lines.map(|(name, (sum, count))| {
                format!(
                    "db_query_duration_seconds_sum{{query=\"{name}\"}} {sum}\ndb_query_duration_seconds_count{{query=\"{name}\"}} {count}\n"
                )
            });
            StatementTimes::parse(&lines.concat(), &["claim", "settle_and_claim"])
        };
        let (before, after) = (page([(1.0, 10), (2.0, 20)]), page([(1.5, 12), (5.5, 22)]));

        assert_eq!(after.mean_ms_since(&before), 1_000.0);
        assert_eq!(before.mean_ms_since(&before), 0.0);
    }
}
