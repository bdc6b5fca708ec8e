//! The route table of `/admin`. Every route requires the role ADMIN.
use crate::admin::{actors, audit, dead_letters, diagnosis, live_events, outbox, partitions, redrive};
use crate::request::route::{BodyKind, Endpoint, Handler, Resource, handler};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/admin/actors").on(Endpoint::get(handler!(actors::list)).admin()),
        Resource::at("/admin/actors/{path}/{action}")
            .matched_by("/admin/actors/{path:.+}/{action}")
            .on(Endpoint::post(handler!(actors::inject)).admin()),
        Resource::at("/admin/outbox").on(Endpoint::get(handler!(outbox::rows)).admin()),
        Resource::at("/admin/outbox/why").on(Endpoint::get(handler!(diagnosis::diagnose)).admin()),
        Resource::at("/admin/outbox/redrive").on(command(handler!(redrive::redrive))),
        Resource::at("/admin/outbox/{id}").on(Endpoint::get(handler!(outbox::row)).admin()),
        Resource::at("/admin/outbox/{id}/retry").on(command(handler!(outbox::retry))),
        Resource::at("/admin/outbox/{id}/park").on(command(handler!(outbox::park))),
        Resource::at("/admin/audit").on(Endpoint::get(handler!(audit::list)).admin()),
        Resource::at("/admin/dlt").on(Endpoint::get(handler!(dead_letters::list)).admin()),
        Resource::at("/admin/dlt/redrive").on(command(handler!(dead_letters::redrive))),
        Resource::at("/admin/dlt/{partition}/{offset}").on(Endpoint::get(handler!(dead_letters::find)).admin()),
        Resource::at("/admin/dlt/{partition}/{offset}/redrive").on(command(handler!(dead_letters::redrive_one))),
        Resource::at("/admin/partitions").on(Endpoint::get(handler!(partitions::list)).admin()),
        Resource::at("/admin/events").on(Endpoint::get(handler!(live_events::stream)).admin().not_json()),
    ]
}

fn command(handler: Handler) -> Endpoint {
    Endpoint::post(handler).admin().body_kind(BodyKind::OptionalJson)
}
