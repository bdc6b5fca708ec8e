//! `/metrics`, `/actuator/prometheus` and `/actuator/metrics…`.
use actix_web::http::StatusCode;
use serde::Serialize;
use telemetry::CONTENT_TYPE;
use utoipa::ToSchema;

use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::TagFilter;
use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, ok, with_type};
use crate::request::route::{Endpoint, Resource, handler};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/metrics").on(Endpoint::get(handler!(metrics)).not_json()),
        Resource::at("/actuator/prometheus").on(Endpoint::get(handler!(prometheus)).not_json()),
        Resource::at("/actuator/metrics").on(Endpoint::get(handler!(metric_names))),
        Resource::at("/actuator/metrics/{name}").on(Endpoint::get(handler!(metric))),
    ]
}

/// Metrics in Prometheus format
#[utoipa::path(get, path = "/metrics", tag = "metrics", operation_id = "metrics",
    responses((status = 200, description = "Text exposition format", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(context: RequestContext) -> RouteResult {
    context.state.sync_counters();
    Ok(with_type(StatusCode::OK, CONTENT_TYPE, context.state.metrics.render()))
}

/// Metrics for Prometheus at the actuator's path
#[utoipa::path(get, path = "/actuator/prometheus", tag = "metrics", operation_id = "actuatorPrometheus",
    responses((status = 200, description = "As /metrics", body = String, content_type = "text/plain")))]
pub(crate) async fn prometheus(context: RequestContext) -> RouteResult {
    metrics(context).await
}

/// The names of all metrics.
#[derive(Serialize, ToSchema)]
pub(crate) struct MetricNames {
    names: Vec<&'static str>,
}

/// One metric, summed over its series.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MetricReading {
    name: &'static str,
    description: &'static str,
    base_unit: Option<&'static str>,
    measurements: Vec<MetricMeasurement>,
    available_tags: Vec<MetricTag>,
}

/// One number of a metric.
#[derive(Serialize, ToSchema)]
pub(crate) struct MetricMeasurement {
    /// COUNT, VALUE, TOTAL or TOTAL_TIME
    statistic: &'static str,
    value: f64,
}

/// A label of a metric with its values.
#[derive(Serialize, ToSchema)]
pub(crate) struct MetricTag {
    tag: &'static str,
    values: Vec<String>,
}

impl From<telemetry::ActuatorMetric> for MetricReading {
    fn from(reading: telemetry::ActuatorMetric) -> Self {
        let measurements = reading.measurements.into_iter();
        let tags = reading.available_tags.into_iter();
        Self {
            name: reading.name,
            description: reading.description,
            base_unit: reading.base_unit,
            measurements: measurements
                .map(|measurement| MetricMeasurement { statistic: measurement.statistic, value: measurement.value })
                .collect(),
            available_tags: tags.map(|tag| MetricTag { tag: tag.tag, values: tag.values }).collect(),
        }
    }
}

/// List the metrics' names
#[utoipa::path(get, path = "/actuator/metrics", tag = "metrics", operation_id = "metricNames",
    responses((status = 200, description = "The dotted names", body = MetricNames)))]
pub(crate) async fn metric_names(context: RequestContext) -> RouteResult {
    Ok(ok(&MetricNames { names: context.state.metrics.names() }))
}

/// Read one metric by name
#[utoipa::path(get, path = "/actuator/metrics/{name}", tag = "metrics", operation_id = "metric",
    params(
        ("name" = String, Path, description = "The dotted name", example = "orders.created.count"),
        ("tag" = inline(Option<Vec<TagFilter>>), Query, description = "Only series with this label, such as `status:PARKED`; may be repeated")),
    responses(
        (status = 200, description = "The metric's numbers", body = MetricReading),
        (status = 400, description = "A tag is not a label and a value", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such metric", body = ProblemBody<'_>, content_type = "application/problem+json")))]
pub(crate) async fn metric(context: RequestContext) -> RouteResult {
    context.state.sync_counters();
    let query = context.query();
    let tags: Option<Vec<(&str, &str)>> = query.all("tag")?.map(|tag| tag.split_once(':')).collect();
    let tags = tags.ok_or_else(|| Problem::field("tag", "must be a label and a value, such as status:PARKED"))?;
    let reading = context.state.metrics.find(context.path_parameter("name"), &tags);
    reading.map(|reading| ok(&MetricReading::from(reading))).ok_or_else(|| Problem::not_found("no such metric"))
}
