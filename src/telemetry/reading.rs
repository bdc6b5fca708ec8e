//! What `/actuator/metrics/{name}` says of one metric, in Spring's shape.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::proto::{Metric, MetricFamily};
use serde::Serialize;

use crate::catalogue::CATALOGUE;
use crate::entry::{Entry, Kind};
use crate::metrics::Metrics;

/// One metric as Spring's actuator answers it: all its series summed up, and the label values there are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// The name asked for.
    pub name: &'static str,
    /// The catalogue's help text.
    pub description: &'static str,
    /// The unit's name; `null` for a number that stands for a word.
    pub base_unit: Option<&'static str>,
    /// COUNT of a counter; VALUE of a gauge; COUNT and TOTAL_TIME of a timer; COUNT and TOTAL of a distribution.
    /// Spring's MAX is left out: a histogram does not keep it.
    pub measurements: Vec<Measurement>,
    /// One for each label that has values, in the catalogue's order.
    pub available_tags: Vec<Tag>,
}

/// One number of a reading.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// Spring's word for it.
    pub statistic: &'static str,
    /// In the reading's base unit, counts apart.
    pub value: f64,
}

/// One label and its values, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tag {
    /// The label's name.
    pub tag: &'static str,
    /// The values seen so far.
    pub values: Vec<String>,
}

impl Metrics {
    /// The reading of the metric with this catalogue name, of the series that carry all of these labels; `None` when there is none.
    /// Costs as much as a scrape.
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<Reading> {
        let entry = CATALOGUE.iter().find(|entry| entry.name == name)?;
        let wanted = entry.prometheus();
        let families = self.gather();
        let family = families.iter().find(|family| family.name() == wanted);
        let carries = |series: &&Metric, (name, value): &(&str, &str)| {
            series.get_label().iter().any(|pair| pair.name() == *name && pair.value() == *value)
        };
        let all = family.map_or(&[][..], MetricFamily::get_metric).iter();
        let series: Vec<&Metric> = all.filter(|series| labels.iter().all(|label| carries(series, label))).collect();
        (labels.is_empty() || !series.is_empty()).then(|| reading(entry, &series))
    }
}

fn reading(entry: &Entry, series: &[&Metric]) -> Reading {
    Reading {
        name: entry.name,
        description: entry.help,
        base_unit: entry.unit.word(),
        measurements: measurements(entry.kind, series),
        available_tags: tags(entry, series),
    }
}

fn measurements(kind: Kind, series: &[&Metric]) -> Vec<Measurement> {
    let sum = |statistic, value: fn(&Metric) -> f64| Measurement {
        statistic,
        // Begins at 0.0 by hand: the sum of no floats is -0.0.
        value: series.iter().map(|series| value(series)).fold(0.0, |sum, value| sum + value),
    };
    let count = |metric: &Metric| metric.get_histogram().get_sample_count() as f64;
    let total = |metric: &Metric| metric.get_histogram().get_sample_sum();
    match kind {
        Kind::Counter => vec![sum("COUNT", |metric| metric.get_counter().get_value())],
        Kind::Gauge => vec![sum("VALUE", |metric| metric.get_gauge().get_value())],
        Kind::Timer => vec![sum("COUNT", count), sum("TOTAL_TIME", total)],
        Kind::Distribution => vec![sum("COUNT", count), sum("TOTAL", total)],
    }
}

fn tags(entry: &Entry, series: &[&Metric]) -> Vec<Tag> {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for pair in series.iter().flat_map(|series| series.get_label()) {
        seen.entry(pair.name()).or_default().insert(pair.value());
    }
    let mut values = |label: &str| seen.remove(label).map(|values| values.into_iter().map(str::to_owned).collect());
    entry.labels.iter().filter_map(|&tag| Some(Tag { tag, values: values(tag)? })).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_name_is_found_from_the_start_and_nothing_else() {
        let metrics = Metrics::new();

        for name in metrics.names() {
            let reading = metrics.find(name, &[]).expect("listed");
            assert!(reading.measurements.iter().all(|measurement| measurement.value == 0.0), "{name}");
        }
        assert_eq!(metrics.find("outbox.pending", &[]), None);
        assert_eq!(metrics.find("outbox_pending_count", &[]), None);
    }

    #[test]
    fn a_timer_answers_in_springs_shape_with_its_series_summed_up() {
        let metrics = Metrics::new();
        metrics.http_server_requests.with(["GET", "/orders/{id}", "200"]).record(Duration::from_millis(250));
        metrics.http_server_requests.with(["POST", "/orders", "201"]).record(Duration::from_millis(500));

        let reading = metrics.find("http.server.requests", &[]).expect("listed");

        let expected = json!({
            "name": "http.server.requests",
            "description": "Requests by method, route template and status.",
            "baseUnit": "seconds",
            "measurements": [{"statistic": "COUNT", "value": 2.0}, {"statistic": "TOTAL_TIME", "value": 0.75}],
            "availableTags": [
                {"tag": "method", "values": ["GET", "POST"]},
                {"tag": "uri", "values": ["/orders", "/orders/{id}"]},
                {"tag": "status", "values": ["200", "201"]},
            ],
        });
        assert_eq!(serde_json::to_value(reading).expect("plain data"), expected);
        let some = |labels: &[(&str, &str)]| Some(metrics.find("http.server.requests", labels)?.measurements[0].value);
        assert_eq!(some(&[("method", "GET")]), Some(1.0));
        assert_eq!(some(&[("method", "GET"), ("status", "200")]), Some(1.0));
        assert_eq!(some(&[("method", "GET"), ("status", "201")]), None);
        assert_eq!(some(&[("no", "GET")]), None);
    }

    #[test]
    fn each_kind_names_its_statistics() {
        let metrics = Metrics::new();
        metrics.outbox_retry_count.inc_by(3);
        metrics.outbox_pending_count.set(5);
        metrics.outbox_batch_size.record(200);
        let statistics = |name| {
            let reading = metrics.find(name, &[]).expect("listed");
            reading.measurements.iter().map(|it| (it.statistic, it.value)).collect::<Vec<_>>()
        };

        assert_eq!(statistics("outbox.retry.count"), [("COUNT", 3.0)]);
        assert_eq!(statistics("outbox.pending.count"), [("VALUE", 5.0)]);
        assert_eq!(statistics("outbox.batch.size"), [("COUNT", 1.0), ("TOTAL", 200.0)]);
    }
}
