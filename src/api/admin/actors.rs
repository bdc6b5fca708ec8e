//! `/admin/actors`: lists the actors, and injects faults for drills.
use actix_web::http::StatusCode;
use app::dispatch::{ActorView, InjectedFault};
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{Problem, ProblemBody};
use crate::openapi::schemas::FaultAction;
use crate::request::context::RequestContext;
use crate::request::response::{RouteResult, json_response, ok};

/// The list of all actors.
#[derive(Serialize, ToSchema)]
#[schema(as = Actors)]
pub(crate) struct ActorList {
    actors: Vec<ActorBody>,
}

/// An actor of this process.
#[derive(Serialize, ToSchema)]
#[schema(as = Actor)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActorBody {
    /// The path in the supervision tree.
    #[schema(example = "/relay/partition-worker-7")]
    path: String,
    /// The kind of actor.
    #[schema(example = "PartitionWorker")]
    actor: String,
    /// running, restarting, stopped or paused
    #[schema(example = "running")]
    state: &'static str,
    /// 1 at the first start, incremented by each restart.
    #[schema(example = 1)]
    generation: u64,
    #[schema(example = 0)]
    restarts: u64,
    #[schema(example = 0)]
    mailbox_depth: usize,
    #[schema(example = 1024)]
    mailbox_capacity: usize,
    /// Why its previous generation ended.
    last_exit: Option<String>,
    /// The path of its supervisor, if that is part of its own path.
    #[schema(example = "/relay")]
    parent: Option<String>,
}

impl From<ActorView> for ActorBody {
    fn from(view: ActorView) -> Self {
        Self {
            path: view.path,
            actor: view.actor,
            state: view.state,
            generation: view.generation,
            restarts: view.restarts,
            mailbox_depth: view.mailbox_depth,
            mailbox_capacity: view.mailbox_capacity,
            last_exit: view.last_exit,
            parent: view.parent,
        }
    }
}

/// List all actors of this process
#[utoipa::path(get, path = "/admin/actors", tag = "admin", operation_id = "listActors", security(("bearer" = [])),
    responses((status = 200, description = "All actors", body = ActorList)))]
pub(crate) async fn list(context: RequestContext) -> RouteResult {
    let actors = context.state.dispatch.actors().into_iter().map(ActorBody::from).collect();
    Ok(ok(&ActorList { actors }))
}

/// The fault that was injected.
#[derive(Serialize, ToSchema)]
#[schema(as = Injected)]
pub(crate) struct FaultInjectionBody {
    #[schema(example = "/relay/partition-worker-7")]
    path: String,
    #[schema(example = "panic")]
    action: String,
}

/// Inject a fault into an actor
///
/// For drills. The path contains its slashes unencoded: `/admin/actors/relay/partition-worker-7/panic`. Requires `fault_injection.enabled`.
#[utoipa::path(post, path = "/admin/actors/{path}/{action}", tag = "admin", operation_id = "injectFault",
    security(("bearer" = [])),
    params(
        ("path" = String, Path, description = "The path of the actor, slashes included", example = "relay/partition-worker-7"),
        ("action" = inline(FaultAction), Path, description = "What the fault does", example = "panic")),
    responses(
        (status = 202, description = "The fault was injected", body = FaultInjectionBody),
        (status = 404, description = "No such actor or action, or fault injection is not enabled", body = ProblemBody<'_>,
         content_type = "application/problem+json")))]
pub(crate) async fn inject(context: RequestContext) -> RouteResult {
    let action = context.path_parameter("action");
    let fault = fault(action).ok_or_else(|| Problem::not_found("no such action"))?;
    // Generated clients percent-encode the slashes of a path parameter.
    let path =
        format!("/{}", context.path_parameter("path").replace("%2F", "/").replace("%2f", "/").trim_start_matches('/'));
    let operator = context.identity()?.subject.as_str();
    context.state.dispatch.inject(&path, fault, operator).map_err(|error| Problem::not_found(error.to_string()))?;
    Ok(json_response(StatusCode::ACCEPTED, &FaultInjectionBody { action: action.to_owned(), path }))
}

pub(crate) fn fault(action: &str) -> Option<InjectedFault> {
    match action {
        "panic" => Some(InjectedFault::Panic),
        "stop" => Some(InjectedFault::Stop),
        "pause" => Some(InjectedFault::Pause),
        "resume" => Some(InjectedFault::Resume),
        _ => None,
    }
}
