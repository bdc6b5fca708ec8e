//! `/actuator/health…` and `/actuator/info` in the format of Spring Boot's actuator.
use std::collections::BTreeMap;

use app::health::HealthSnapshot;
use domain::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::error::{Problem, ProblemBody};
use crate::health::status::{HealthStatus, is_overdue, readiness, with_retry_after, worst};
use crate::http::options::Options;
use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, json_response, ok};
use crate::request::route::{Endpoint, Resource, handler};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/actuator/health").on(Endpoint::get(handler!(health)).optional_token()),
        Resource::at("/actuator/health/liveness").on(Endpoint::get(handler!(liveness))),
        Resource::at("/actuator/health/readiness").on(Endpoint::get(handler!(readiness_health))),
        Resource::at("/actuator/health/{component}").on(Endpoint::get(handler!(component)).admin_probe()),
    ]
}

/// Resources for operators only, served on the admin surface.
pub(crate) fn operator_resources() -> Vec<Resource> {
    vec![Resource::at("/actuator/info").on(Endpoint::get(handler!(info)).admin())]
}

/// The health of the service.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthBody {
    /// UP, UNKNOWN, OUT_OF_SERVICE or DOWN: the worst of the components.
    #[schema(example = "UP")]
    status: &'static str,
    /// For an ADMIN only: db, broker, outbox, region, and redis when it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = BTreeMap<String, ComponentHealth>)]
    components: Option<BTreeMap<&'static str, ComponentHealth>>,
}

/// The health of one component.
#[derive(Serialize, ToSchema)]
pub(crate) struct ComponentHealth {
    #[schema(example = "UP")]
    status: &'static str,
    #[schema(value_type = Object)]
    details: Value,
    #[serde(skip)]
    #[schema(ignore)]
    health: HealthStatus,
}

impl ComponentHealth {
    fn new(health: HealthStatus, details: Value) -> Self {
        Self { status: health.as_str(), details, health }
    }
}

fn components(snapshot: &HealthSnapshot, options: &Options, now: Timestamp) -> BTreeMap<&'static str, ComponentHealth> {
    let mut all = BTreeMap::new();
    for component in &snapshot.components {
        let latency_ms = component.latency.as_secs_f64() * 1e3;
        let mut details = json!({"latencyMs": latency_ms, "gates": component.gates});
        if let Some(error) = &component.detail {
            details["error"] = Value::from(error.as_str());
        }
        all.insert(component.name, ComponentHealth::new(HealthStatus::up_or_down(component.up), details));
    }
    if let (Some(error), Some(db)) = (&snapshot.storage_full, all.get_mut("db")) {
        *db = ComponentHealth::new(HealthStatus::Down, json!({"error": error}));
    }
    all.entry("db").or_insert_with(|| ComponentHealth::new(HealthStatus::Unknown, json!({})));
    let breaker = json!({"breaker": snapshot.breaker, "configured": snapshot.broker_configured});
    let unprobed = match (snapshot.broker_configured, snapshot.breaker) {
        (false, _) => HealthStatus::Unknown,
        (true, breaker) => HealthStatus::up_or_down(breaker != "open"),
    };
    let broker = all.entry("broker").or_insert_with(|| ComponentHealth::new(unprobed, json!({})));
    merge(&mut broker.details, breaker);
    all.insert("outbox", outbox(snapshot, options, now));
    all.insert("region", region(snapshot, options));
    all
}

fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

fn outbox(snapshot: &HealthSnapshot, options: &Options, now: Timestamp) -> ComponentHealth {
    let depth = &snapshot.depth;
    let details = json!({
        "pending": depth.pending,
        "inFlight": depth.in_flight,
        "failed": depth.failed,
        "parked": depth.parked,
        "oldestUnsentSeconds": snapshot.oldest_unsent(now).map(|age| age.as_secs_f64()),
        "partitionsOwned": snapshot.partitions_owned,
        "backpressure": snapshot.stage.level().as_str(),
        "throttlingFactor": snapshot.stage.limit_factor(),
    });
    ComponentHealth::new(HealthStatus::up_or_down(!is_overdue(snapshot, options.unsent_age_max, now)), details)
}

fn region(snapshot: &HealthSnapshot, options: &Options) -> ComponentHealth {
    let mode = if snapshot.passive { "PASSIVE" } else { "ACTIVE" };
    let health = HealthStatus::up_or_out_of_service(!snapshot.passive);
    let details = json!({"region": options.region, "mode": mode, "writesAllowed": snapshot.accepts_writes()});
    ComponentHealth::new(health, details)
}

/// Health of the service
///
/// Everybody gets the status, an ADMIN also the components.
#[utoipa::path(get, path = "/actuator/health", tag = "health", operation_id = "health",
    responses(
        (status = 200, description = "Up", body = HealthBody),
        (status = 503, description = "Down, or out of service", body = HealthBody)))]
pub(crate) async fn health(context: RequestContext) -> RouteResult {
    let snapshot = context.state.operations.health();
    let components = components(&snapshot, &context.state.options, context.state.operations.monotonic_now());
    let mut checks: Vec<(&'static str, HealthStatus)> =
        components.iter().map(|(name, component)| (*name, component.health)).collect();
    // A component that is not configured or not probed yet does not affect the result.
    checks.retain(|(_, status)| *status != HealthStatus::Unknown);
    if snapshot.draining {
        checks.push(("drain", HealthStatus::OutOfService));
    }
    let components = context.is_admin().then_some(components);
    Ok(health_response(worst(&checks), components))
}

/// Is the process alive?
#[utoipa::path(get, path = "/actuator/health/liveness", tag = "health", operation_id = "healthLiveness",
    responses((status = 200, description = "The process is alive", body = HealthBody)))]
pub(crate) async fn liveness(_context: RequestContext) -> RouteResult {
    Ok(health_response(HealthStatus::Up, None))
}

/// Is the process ready for traffic?
#[utoipa::path(get, path = "/actuator/health/readiness", tag = "health", operation_id = "healthReadiness",
    responses(
        (status = 200, description = "Ready", body = HealthBody),
        (status = 503, description = "Not ready", body = HealthBody)))]
pub(crate) async fn readiness_health(context: RequestContext) -> RouteResult {
    let (snapshot, now) = (context.state.operations.health(), context.state.operations.monotonic_now());
    Ok(health_response(worst(&readiness(&snapshot, context.state.options.unsent_age_max, now)), None))
}

fn health_response(
    status: HealthStatus,
    components: Option<BTreeMap<&'static str, ComponentHealth>>,
) -> actix_web::HttpResponse {
    let body = HealthBody { status: status.as_str(), components };
    with_retry_after(json_response(status.status(), &body))
}

/// Health of one component
#[utoipa::path(get, path = "/actuator/health/{component}", tag = "health", operation_id = "healthComponent",
    security(("bearer" = [])),
    params(("component" = String, Path, description = "db, broker, outbox, region or redis")),
    responses(
        (status = 200, description = "Up", body = ComponentHealth),
        (status = 404, description = "No such component", body = ProblemBody<'_>, content_type = "application/problem+json"),
        (status = 503, description = "Down, or out of service", body = ComponentHealth)))]
pub(crate) async fn component(context: RequestContext) -> RouteResult {
    let snapshot = context.state.operations.health();
    let mut all = components(&snapshot, &context.state.options, context.state.operations.monotonic_now());
    let component =
        all.remove(context.path_parameter("component")).ok_or_else(|| Problem::not_found("no such component"))?;
    Ok(with_retry_after(json_response(component.health.status(), &component)))
}

/// The program, the region and the instance.
#[derive(Serialize, ToSchema)]
#[schema(as = Info)]
pub(crate) struct InfoBody {
    app: AppInfo,
    region: RegionInfo,
    instance: InstanceInfo,
}

/// The program and its version.
#[derive(Serialize, ToSchema)]
pub(crate) struct AppInfo {
    #[schema(example = "posthaste")]
    name: &'static str,
    version: &'static str,
    /// The commit that the program was built from; `unknown` in a build without it.
    #[schema(example = "unknown")]
    commit: &'static str,
}

/// The region of this instance.
#[derive(Serialize, ToSchema)]
pub(crate) struct RegionInfo {
    #[schema(example = "local")]
    id: String,
}

/// The instance that responds.
#[derive(Serialize, ToSchema)]
pub(crate) struct InstanceInfo {
    id: String,
}

/// Program, region and instance
#[utoipa::path(get, path = "/actuator/info", tag = "health", operation_id = "info", security(("bearer" = [])),
    responses((status = 200, description = "Program, region and instance", body = InfoBody)))]
pub(crate) async fn info(context: RequestContext) -> RouteResult {
    let options = &context.state.options;
    Ok(ok(&InfoBody {
        app: AppInfo { name: "posthaste", version: telemetry::VERSION, commit: telemetry::COMMIT },
        region: RegionInfo { id: options.region.clone() },
        instance: InstanceInfo { id: options.instance.clone() },
    }))
}
