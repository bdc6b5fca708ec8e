//! Reads `/metrics` of one instance, as Prometheus does.
use std::time::Duration;

use kit::wait::until;

use crate::harness::http::Http;

/// The current value of a metric: the sum of its series, or of those with a label: `outbox_rows{status="PENDING"}`.
pub fn metric(http: &Http, name: &str) -> f64 {
    metrics(http, [name])[0]
}

/// Several metrics from one scrape.
pub fn metrics<const N: usize>(http: &Http, names: [&str; N]) -> [f64; N] {
    let text = http.get("/metrics", None).text;
    names.map(|name| value(&text, name))
}

fn value(text: &str, name: &str) -> f64 {
    let (base, label) = name.strip_suffix('}').and_then(|named| named.split_once('{')).unwrap_or((name, ""));
    let series = text.lines().filter_map(|line| line.rsplit_once(' '));
    let matching = series.filter(|(series, _)| {
        let (metric, labels) = series.split_once('{').unwrap_or((series, ""));
        metric == base && labels.contains(label)
    });
    matching.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
}

/// Waits until a metric's value satisfies a condition, and returns it.
#[track_caller]
pub fn await_metric(http: &Http, name: &str, limit: Duration, wanted: impl Fn(f64) -> bool) -> f64 {
    until(name, limit, || Some(metric(http, name)).filter(|value| wanted(*value)))
}
