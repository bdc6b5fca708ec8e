//! What an operator sees: `/metrics` of one service, read as Prometheus reads it.
use std::time::Duration;

use kit::wait::until;

use crate::http::Http;

/// The value of a metric now: all its series added up, or those of one label where `name` has it: `outbox_rows{status="PENDING"}`.
pub fn metric(http: &Http, name: &str) -> f64 {
    metrics(http, [name])[0]
}

/// Several metrics of one moment.
pub fn metrics<const N: usize>(http: &Http, names: [&str; N]) -> [f64; N] {
    let text = http.get("/metrics", None).text;
    names.map(|name| value(&text, name))
}

fn value(text: &str, name: &str) -> f64 {
    let (front, label) = name.strip_suffix('}').and_then(|named| named.split_once('{')).unwrap_or((name, ""));
    let series = text.lines().filter_map(|line| line.rsplit_once(' '));
    let ours = series.filter(|(series, _)| {
        let (metric, labels) = series.split_once('{').unwrap_or((series, ""));
        metric == front && labels.contains(label)
    });
    ours.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
}

/// Waits until a metric's value is as wanted, and answers it.
#[track_caller]
pub fn await_metric(http: &Http, name: &str, limit: Duration, wanted: impl Fn(f64) -> bool) -> f64 {
    until(name, limit, || Some(metric(http, name)).filter(|value| wanted(*value)))
}
