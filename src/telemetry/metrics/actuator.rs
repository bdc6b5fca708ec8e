//! One metric in the JSON shape of Spring's `/actuator/metrics/{name}`.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::proto::{Metric, MetricFamily};
use serde::Serialize;

use super::catalogue::CATALOGUE;
use super::definition::{MetricDefinition, MetricKind};
use super::registry::Metrics;

/// One metric in the shape of Spring's actuator: the sum of its matching series, and the label values that exist.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActuatorMetric {
    /// The catalogue name, as requested.
    pub name: &'static str,
    /// The catalogue's help text.
    pub description: &'static str,
    /// The unit's name; `null` for a dimensionless number.
    pub base_unit: Option<&'static str>,
    /// COUNT of a counter; VALUE of a gauge; COUNT and TOTAL_TIME of a timer; COUNT and TOTAL of a distribution.
    /// Spring's MAX is omitted, because a Prometheus histogram does not record it.
    pub measurements: Vec<Measurement>,
    /// One tag for each label that has values, in the catalogue's order.
    pub available_tags: Vec<ActuatorTag>,
}

/// One statistic of a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// Spring's name of the statistic, for example `COUNT`.
    pub statistic: &'static str,
    /// The value in the metric's base unit; a plain number for `COUNT`.
    pub value: f64,
}

/// One label with its sorted values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ActuatorTag {
    /// The label name, from the catalogue.
    pub tag: &'static str,
    /// The label values of the existing series.
    pub values: Vec<String>,
}

impl Metrics {
    /// Sums up the series of one metric that have all the given labels. `None` when the catalogue has no such name, or no
    /// series has these labels. Costs as much as a scrape.
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<ActuatorMetric> {
        let definition = CATALOGUE.iter().find(|definition| definition.name == name)?;
        let wanted = definition.prometheus();
        let families = self.gather();
        let family = families.iter().find(|family| family.name() == wanted);
        let has_label = |series: &&Metric, (name, value): &(&str, &str)| {
            series.get_label().iter().any(|pair| pair.name() == *name && pair.value() == *value)
        };
        let all = family.map_or(&[][..], MetricFamily::get_metric).iter();
        let series: Vec<&Metric> = all.filter(|series| labels.iter().all(|label| has_label(series, label))).collect();
        (labels.is_empty() || !series.is_empty()).then(|| summarize(definition, &series))
    }
}

fn summarize(definition: &MetricDefinition, series: &[&Metric]) -> ActuatorMetric {
    ActuatorMetric {
        name: definition.name,
        description: definition.help,
        base_unit: definition.unit.name(),
        measurements: measurements(definition.kind, series),
        available_tags: tags(definition, series),
    }
}

fn measurements(kind: MetricKind, series: &[&Metric]) -> Vec<Measurement> {
    let sum = |statistic, value: fn(&Metric) -> f64| Measurement {
        statistic,
        // `Iterator::sum` of no floats is -0.0, so the fold starts at 0.0.
        value: series.iter().map(|series| value(series)).fold(0.0, |sum, value| sum + value),
    };
    let count = |metric: &Metric| metric.get_histogram().get_sample_count() as f64;
    let total = |metric: &Metric| metric.get_histogram().get_sample_sum();
    match kind {
        MetricKind::Counter => vec![sum("COUNT", |metric| metric.get_counter().get_value())],
        MetricKind::Gauge => vec![sum("VALUE", |metric| metric.get_gauge().get_value())],
        MetricKind::Timer => vec![sum("COUNT", count), sum("TOTAL_TIME", total)],
        MetricKind::Distribution => vec![sum("COUNT", count), sum("TOTAL", total)],
    }
}

fn tags(definition: &MetricDefinition, series: &[&Metric]) -> Vec<ActuatorTag> {
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for pair in series.iter().flat_map(|series| series.get_label()) {
        seen.entry(pair.name()).or_default().insert(pair.value());
    }
    let mut values = |label: &str| seen.remove(label).map(|values| values.into_iter().map(str::to_owned).collect());
    definition.labels.iter().filter_map(|&tag| Some(ActuatorTag { tag, values: values(tag)? })).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_catalogue_name_is_found_before_any_measurement_and_no_other_name_is() {
        let metrics = Metrics::new();

        for name in metrics.names() {
            let metric = metrics.find(name, &[]).expect("in the catalogue");
            assert!(metric.measurements.iter().all(|measurement| measurement.value == 0.0), "{name}");
        }
        assert_eq!(metrics.find("outbox.pending", &[]), None);
        assert_eq!(metrics.find("outbox_pending_count", &[]), None);
    }

    #[test]
    fn timer_has_the_actuator_json_shape_and_sums_its_series() {
        let metrics = Metrics::new();
        metrics.http_server_requests.with(["GET", "/orders/{id}", "200"]).record(Duration::from_millis(250));
        metrics.http_server_requests.with(["POST", "/orders", "201"]).record(Duration::from_millis(500));

        let metric = metrics.find("http.server.requests", &[]).expect("in the catalogue");

        let expected = json!({
            "name": "http.server.requests",
            "description": "Time of one HTTP request, by method, route template and status.",
            "baseUnit": "seconds",
            "measurements": [{"statistic": "COUNT", "value": 2.0}, {"statistic": "TOTAL_TIME", "value": 0.75}],
            "availableTags": [
                {"tag": "method", "values": ["GET", "POST"]},
                {"tag": "uri", "values": ["/orders", "/orders/{id}"]},
                {"tag": "status", "values": ["200", "201"]},
            ],
        });
        assert_eq!(serde_json::to_value(metric).expect("plain data"), expected);
        let count = |labels: &[(&str, &str)]| Some(metrics.find("http.server.requests", labels)?.measurements[0].value);
        assert_eq!(count(&[("method", "GET")]), Some(1.0));
        assert_eq!(count(&[("method", "GET"), ("status", "200")]), Some(1.0));
        assert_eq!(count(&[("method", "GET"), ("status", "201")]), None);
        assert_eq!(count(&[("no", "GET")]), None);
    }

    #[test]
    fn each_metric_kind_names_its_statistics() {
        let metrics = Metrics::new();
        metrics.outbox_retry_count.inc_by(3);
        metrics.outbox_pending_count.set(5);
        metrics.outbox_batch_size.record(200);
        let statistics = |name| {
            let metric = metrics.find(name, &[]).expect("in the catalogue");
            metric.measurements.iter().map(|measurement| (measurement.statistic, measurement.value)).collect::<Vec<_>>()
        };

        assert_eq!(statistics("outbox.retry.count"), [("COUNT", 3.0)]);
        assert_eq!(statistics("outbox.pending.count"), [("VALUE", 5.0)]);
        assert_eq!(statistics("outbox.batch.size"), [("COUNT", 1.0), ("TOTAL", 200.0)]);
    }
}
