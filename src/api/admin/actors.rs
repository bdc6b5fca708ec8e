//! `/admin/actors`: the tree, flat, and faults for drills.
use actix_web::http::StatusCode;
use app::dispatch::{ActorView, InjectedFault};
use serde::Serialize;
use utoipa::ToSchema;

use crate::call::{Call, json, ok};
use crate::error::{Envelope, Problem};
use crate::route::Answer;

/// Every actor, by path.
#[derive(Serialize, ToSchema)]
pub(crate) struct Actors {
    actors: Vec<Actor>,
}

/// An actor.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Actor {
    /// Its place in the tree.
    #[schema(example = "/relay/partition-worker-7")]
    path: String,
    /// Its kind.
    #[schema(example = "PartitionWorker")]
    actor: String,
    /// running, restarting, stopped or paused
    #[schema(example = "running")]
    state: &'static str,
    /// Counts its lives, from 1.
    #[schema(example = 1)]
    generation: u64,
    #[schema(example = 0)]
    restarts: u64,
    #[schema(example = 0)]
    mailbox_depth: usize,
    #[schema(example = 1024)]
    mailbox_capacity: usize,
    /// Why its last life ended.
    last_exit: Option<String>,
    /// The supervisor that stands in its path.
    #[schema(example = "/relay")]
    parent: Option<String>,
}

impl From<ActorView> for Actor {
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

/// List the actors
#[utoipa::path(get, path = "/admin/actors", tag = "admin", operation_id = "listActors", security(("bearer" = [])),
    responses((status = 200, description = "The tree, flat", body = Actors)))]
pub(crate) async fn list(call: Call) -> Answer {
    let actors = call.state.dispatch.actors().into_iter().map(Actor::from).collect();
    Ok(ok(&Actors { actors }))
}

/// A fault that was injected.
#[derive(Serialize, ToSchema)]
pub(crate) struct Injected {
    #[schema(example = "/relay/partition-worker-7")]
    path: String,
    #[schema(example = "panic")]
    action: String,
}

/// Do harm, for drills
///
/// The path stands raw, slashes included: `/admin/actors/relay/partition-worker-7/panic`. Only when `fault_injection.enabled`.
#[utoipa::path(post, path = "/admin/actors/{path}/{action}", tag = "admin", operation_id = "injectFault",
    security(("bearer" = [])),
    params(
        ("path" = String, Path, description = "The actor's path, slashes included", example = "relay/partition-worker-7"),
        ("action" = String, Path, description = "panic, stop, pause or resume", example = "panic")),
    responses(
        (status = 202, description = "On its way", body = Injected),
        (status = 404, description = "No such actor or action, or faults are not enabled", body = Envelope<'_>,
         content_type = "application/problem+json")))]
pub(crate) async fn inject(call: Call) -> Answer {
    let unknown = || Problem::not_found("no such actor or action, or fault injection is not enabled");
    let action = call.part("action");
    let fault = fault(action).ok_or_else(unknown)?;
    // Raw as it stands; generated clients encode the slashes of a path parameter.
    let path = format!("/{}", call.part("path").replace("%2F", "/").replace("%2f", "/").trim_start_matches('/'));
    let by = call.identity()?.subject.as_str();
    call.state.dispatch.inject(&path, fault, by).map_err(|_| unknown())?;
    Ok(json(StatusCode::ACCEPTED, &Injected { action: action.to_owned(), path }))
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
