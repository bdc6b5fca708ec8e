//! The numbers of a metrics page in Prometheus's text format.
use std::collections::BTreeMap;

/// A page: each series by its name with its labels, as written.
#[derive(Clone, Debug, Default)]
pub(super) struct MetricsPage(BTreeMap<String, f64>);

impl MetricsPage {
    /// The page of a text; lines that are not series are skipped.
    pub(super) fn parse(text: &str) -> Self {
        let series = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse::<f64>().ok()?))
        };
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(series).collect())
    }

    /// The series with exactly this name and these labels; 0 if there is none.
    pub(super) fn value(&self, series: &str) -> f64 {
        self.0.get(series).copied().unwrap_or_default()
    }

    /// The sum of all series of a metric.
    pub(super) fn sum(&self, metric: &str) -> f64 {
        // `sum` of no floats is -0.0.
        self.series_of(metric).fold(0.0, |sum, (_, value)| sum + value)
    }

    /// The bound of the bucket in which a quantile of the observations since `before` lies, in the metric's unit; `None` without any.
    pub(super) fn quantile_since(&self, before: &Self, metric: &str, quantile: f64) -> Option<f64> {
        let buckets = format!("{metric}_bucket");
        let mut counts: Vec<(f64, f64)> = self
            .series_of(&buckets)
            .filter_map(|(series, count)| {
                let (_, bound) = series.split_once("le=\"")?;
                let bound = bound.split('"').next()?;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
                Some((bound, count - before.value(series)))
            })
            .collect();
        counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total = counts.last()?.1;
        counts.into_iter().find(|(_, count)| total > 0.0 && *count >= total * quantile).map(|(bound, _)| bound)
    }

    fn series_of<'a>(&'a self, metric: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let belongs_to_metric = move |series: &str| {
            series.strip_prefix(metric).is_some_and(|labels| labels.is_empty() || labels.starts_with('{'))
        };
        self.0
            .iter()
            .filter(move |(series, _)| belongs_to_metric(series))
            .map(|(series, value)| (series.as_str(), *value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP outbox_rows Rows.\n\
        outbox_rows{status=\"PENDING\"} 3\noutbox_rows{status=\"PARKED\"} 2\noutbox_rows_more 7\n\
        ack_seconds_bucket{le=\"0.005\"} 10\nack_seconds_bucket{le=\"0.01\"} 19\nack_seconds_bucket{le=\"+Inf\"} 20\n";

    #[test]
    fn series_are_read_by_name_or_summed_over_their_labels() {
        let page = MetricsPage::parse(PAGE);

        assert_eq!(page.value("outbox_rows{status=\"PARKED\"}"), 2.0);
        assert_eq!((page.sum("outbox_rows"), page.value("absent")), (5.0, 0.0));
        assert_eq!(page.sum("absent").to_string(), "0");
    }

    #[test]
    fn a_quantile_counts_only_later_observations() {
        let (page, nothing) = (MetricsPage::parse(PAGE), MetricsPage::default());

        assert_eq!(page.quantile_since(&nothing, "ack_seconds", 0.5), Some(0.005));
        assert_eq!(page.quantile_since(&nothing, "ack_seconds", 0.95), Some(0.01));
        assert_eq!(page.quantile_since(&nothing, "ack_seconds", 0.99), Some(f64::INFINITY));
        assert_eq!(page.quantile_since(&page, "ack_seconds", 0.5), None);
    }
}
