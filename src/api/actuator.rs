//! `/actuator/…` in the shape the seeds' dashboards know, and `/metrics`.
use std::collections::BTreeMap;

use app::health::HealthSnapshot;
use serde::Serialize;
use serde_json::{Value, json};
use telemetry::CONTENT_TYPE;
use utoipa::ToSchema;

use crate::call::{Call, json as answer_json, ok, typed};
use crate::error::{Envelope, Problem};
use crate::health::{Fare, is_overdue, readiness, retry_later, worst};
use crate::options::Options;
use crate::route::{Answer, Endpoint, Resource, handler};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/metrics").on(Endpoint::get(handler!(metrics)).other()),
        Resource::at("/actuator/prometheus").on(Endpoint::get(handler!(prometheus)).other()),
        Resource::at("/actuator/health").on(Endpoint::get(handler!(health)).either()),
        Resource::at("/actuator/health/liveness").on(Endpoint::get(handler!(liveness))),
        Resource::at("/actuator/health/readiness").on(Endpoint::get(handler!(ready))),
        Resource::at("/actuator/health/{component}").on(Endpoint::get(handler!(component)).admin_probe()),
        Resource::at("/actuator/metrics").on(Endpoint::get(handler!(metric_names))),
        Resource::at("/actuator/metrics/{name}").on(Endpoint::get(handler!(metric))),
        Resource::at("/actuator/info").on(Endpoint::get(handler!(info)).admin()),
    ]
}

/// Health in the actuator's shape.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// UP, UNKNOWN, OUT_OF_SERVICE or DOWN: the worst of the components.
    #[schema(example = "UP")]
    status: &'static str,
    /// For an ADMIN only: db, broker, outbox, region, and redis when it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = BTreeMap<String, ComponentHealth>)]
    components: Option<BTreeMap<&'static str, ComponentHealth>>,
}

/// One component.
#[derive(Serialize, ToSchema)]
pub(crate) struct ComponentHealth {
    #[schema(example = "UP")]
    status: &'static str,
    #[schema(value_type = Object)]
    details: Value,
    #[serde(skip)]
    fare: Option<Fare>,
}

impl ComponentHealth {
    fn new(fare: Fare, details: Value) -> Self {
        Self { status: fare.as_str(), details, fare: Some(fare) }
    }
}

fn components(picture: &HealthSnapshot, options: &Options) -> BTreeMap<&'static str, ComponentHealth> {
    let mut all = BTreeMap::new();
    for part in &picture.components {
        let latency_ms = part.latency.as_secs_f64() * 1e3;
        let mut details = json!({"latencyMs": latency_ms, "gates": part.gates});
        if let Some(why) = &part.detail {
            details["error"] = Value::from(why.as_str());
        }
        all.insert(part.name, ComponentHealth::new(Fare::of(part.up), details));
    }
    if let (Some(why), Some(db)) = (&picture.no_room, all.get_mut("db")) {
        *db = ComponentHealth::new(Fare::Down, json!({"error": why}));
    }
    all.entry("db").or_insert_with(|| ComponentHealth::new(Fare::Unknown, json!({})));
    let breaker = json!({"breaker": picture.breaker, "configured": picture.broker_configured});
    let unprobed = match (picture.broker_configured, picture.breaker) {
        (false, _) => Fare::Unknown,
        (true, breaker) => Fare::of(breaker != "open"),
    };
    let broker = all.entry("broker").or_insert_with(|| ComponentHealth::new(unprobed, json!({})));
    merge(&mut broker.details, breaker);
    all.insert("outbox", outbox(picture, options));
    all.insert("region", region(picture, options));
    all
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

fn outbox(picture: &HealthSnapshot, options: &Options) -> ComponentHealth {
    let depth = &picture.depth;
    let details = json!({
        "pending": depth.pending,
        "inFlight": depth.in_flight,
        "failed": depth.failed,
        "parked": depth.parked,
        "oldestUnsentSeconds": depth.oldest_unsent.map(|age| age.as_secs_f64()),
        "partitionsOwned": picture.partitions_owned,
        "backpressure": picture.stage.level().as_str(),
        "throttlingFactor": picture.stage.limit_factor(),
    });
    ComponentHealth::new(Fare::of(!is_overdue(picture, options)), details)
}

fn region(picture: &HealthSnapshot, options: &Options) -> ComponentHealth {
    let (fare, mode) = if picture.passive { (Fare::OutOfService, "PASSIVE") } else { (Fare::Up, "ACTIVE") };
    ComponentHealth::new(fare, json!({"region": options.region, "mode": mode}))
}

/// Health
///
/// The status is for everybody, the components for an ADMIN.
#[utoipa::path(get, path = "/actuator/health", tag = "health", operation_id = "health",
    responses(
        (status = 200, description = "Up", body = Health),
        (status = 503, description = "Down, or out of service", body = Health)))]
pub(crate) async fn health(call: Call) -> Answer {
    let picture = call.state.operations.health();
    let components = components(&picture, &call.state.options);
    let mut fares: Vec<(&'static str, Fare)> =
        components.iter().filter_map(|(name, part)| Some((*name, part.fare?))).collect();
    // What is not configured, or not yet asked, speaks neither for nor against.
    fares.retain(|(_, fare)| *fare != Fare::Unknown);
    if picture.draining {
        fares.push(("drain", Fare::OutOfService));
    }
    let fare = worst(&fares);
    let components = call.is_admin().then_some(components);
    Ok(retry_later(answer_json(fare.status(), &Health { status: fare.as_str(), components })))
}

/// Is the process alive?
#[utoipa::path(get, path = "/actuator/health/liveness", tag = "health", operation_id = "healthLiveness",
    responses((status = 200, description = "It is", body = Health)))]
pub(crate) async fn liveness(_call: Call) -> Answer {
    Ok(ok(&Health { status: Fare::Up.as_str(), components: None }))
}

/// May traffic come?
#[utoipa::path(get, path = "/actuator/health/readiness", tag = "health", operation_id = "healthReadiness",
    responses(
        (status = 200, description = "It may", body = Health),
        (status = 503, description = "Not now", body = Health)))]
pub(crate) async fn ready(call: Call) -> Answer {
    let picture = call.state.operations.health();
    let fare = worst(&readiness(&picture, &call.state.options));
    Ok(retry_later(answer_json(fare.status(), &Health { status: fare.as_str(), components: None })))
}

/// One component's health
#[utoipa::path(get, path = "/actuator/health/{component}", tag = "health", operation_id = "healthComponent",
    security(("bearer" = [])),
    params(("component" = String, Path, description = "db, broker, outbox, region or redis")),
    responses(
        (status = 200, description = "Up", body = ComponentHealth),
        (status = 404, description = "No such component", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 503, description = "Down, or out of service", body = ComponentHealth)))]
pub(crate) async fn component(call: Call) -> Answer {
    let picture = call.state.operations.health();
    let mut all = components(&picture, &call.state.options);
    let part = all.remove(call.part("component")).ok_or_else(|| Problem::not_found("no such component"))?;
    let fare = part.fare.unwrap_or(Fare::Unknown);
    Ok(retry_later(answer_json(fare.status(), &part)))
}

/// Metrics for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "metrics", operation_id = "metrics",
    responses((status = 200, description = "Text exposition", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(call: Call) -> Answer {
    call.state.count_others();
    Ok(typed(actix_web::http::StatusCode::OK, CONTENT_TYPE, call.state.metrics.render()))
}

/// Metrics for Prometheus, at the actuator's place
#[utoipa::path(get, path = "/actuator/prometheus", tag = "metrics", operation_id = "actuatorPrometheus",
    responses((status = 200, description = "As /metrics", body = String, content_type = "text/plain")))]
pub(crate) async fn prometheus(call: Call) -> Answer {
    metrics(call).await
}

/// Names of metrics.
#[derive(Serialize, ToSchema)]
pub(crate) struct MetricNames {
    #[schema(value_type = Vec<String>)]
    names: Vec<&'static str>,
}

/// One metric, its series summed up.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[allow(dead_code, reason = "only its schema is used; telemetry writes the answer")]
pub(crate) struct MetricReading {
    name: String,
    description: String,
    base_unit: Option<String>,
    measurements: Vec<MetricMeasurement>,
    available_tags: Vec<MetricTag>,
}

/// One number of a metric.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used; telemetry writes the answer")]
pub(crate) struct MetricMeasurement {
    /// COUNT, VALUE, TOTAL or TOTAL_TIME
    statistic: String,
    value: f64,
}

/// One label of a metric with the values it has.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used; telemetry writes the answer")]
pub(crate) struct MetricTag {
    tag: String,
    values: Vec<String>,
}

/// List the metrics
#[utoipa::path(get, path = "/actuator/metrics", tag = "metrics", operation_id = "metricNames",
    responses((status = 200, description = "Their dotted names", body = MetricNames)))]
pub(crate) async fn metric_names(call: Call) -> Answer {
    Ok(ok(&MetricNames { names: call.state.metrics.names() }))
}

/// Read one metric
#[utoipa::path(get, path = "/actuator/metrics/{name}", tag = "metrics", operation_id = "metric",
    params(
        ("name" = String, Path, description = "The dotted name", example = "orders.created.count"),
        ("tag" = Option<Vec<String>>, Query, description = "Only series with this label, such as `status:PARKED`; may be repeated")),
    responses(
        (status = 200, description = "Its numbers", body = MetricReading),
        (status = 400, description = "A tag is no label and value", body = Envelope<'_>, content_type = "application/problem+json"),
        (status = 404, description = "No such metric", body = Envelope<'_>, content_type = "application/problem+json")))]
pub(crate) async fn metric(call: Call) -> Answer {
    call.state.count_others();
    let query = call.query();
    let tags: Option<Vec<(&str, &str)>> = query.all("tag")?.map(|tag| tag.split_once(':')).collect();
    let tags = tags.ok_or_else(|| Problem::field("tag", "must be a label and a value, such as status:PARKED"))?;
    let reading = call.state.metrics.find(call.part("name"), &tags);
    reading.map(|reading| ok(&reading)).ok_or_else(|| Problem::not_found("no such metric"))
}

/// What runs here.
#[derive(Serialize, ToSchema)]
pub(crate) struct Info {
    app: AppInfo,
    region: RegionInfo,
    instance: InstanceInfo,
}

/// The program.
#[derive(Serialize, ToSchema)]
pub(crate) struct AppInfo {
    #[schema(example = "posthaste")]
    name: &'static str,
    version: &'static str,
}

/// The region.
#[derive(Serialize, ToSchema)]
pub(crate) struct RegionInfo {
    #[schema(example = "local")]
    id: String,
}

/// The instance.
#[derive(Serialize, ToSchema)]
pub(crate) struct InstanceInfo {
    id: String,
}

/// What runs here
#[utoipa::path(get, path = "/actuator/info", tag = "health", operation_id = "info", security(("bearer" = [])),
    responses((status = 200, description = "Program, region, instance", body = Info)))]
pub(crate) async fn info(call: Call) -> Answer {
    let options = &call.state.options;
    Ok(ok(&Info {
        app: AppInfo { name: "posthaste", version: env!("CARGO_PKG_VERSION") },
        region: RegionInfo { id: options.region.clone() },
        instance: InstanceInfo { id: options.instance.clone() },
    }))
}
