//! `/admin`: what operators see and do. Every route asks for ADMIN.
pub(crate) mod actors;
pub(crate) mod asked;
pub(crate) mod dlt;
pub(crate) mod events;
pub(crate) mod letter;
pub(crate) mod outbox;
pub(crate) mod partitions;
pub(crate) mod redrive;
pub(crate) mod row;
pub(crate) mod why;

use crate::route::{Endpoint, Resource, Takes, handler};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/admin/actors").on(Endpoint::get(handler!(actors::list)).admin()),
        Resource::at("/admin/actors/{path}/{action}")
            .matched_by("/admin/actors/{path:.+}/{action}")
            .on(Endpoint::post(handler!(actors::inject)).admin()),
        Resource::at("/admin/outbox").on(Endpoint::get(handler!(outbox::rows)).admin()),
        Resource::at("/admin/outbox/why").on(Endpoint::get(handler!(why::why)).admin()),
        Resource::at("/admin/outbox/redrive")
            .on(Endpoint::post(handler!(redrive::redrive)).admin().takes(Takes::OptionalJson)),
        Resource::at("/admin/outbox/{id}").on(Endpoint::get(handler!(outbox::row)).admin()),
        Resource::at("/admin/outbox/{id}/retry")
            .on(Endpoint::post(handler!(outbox::retry)).admin().takes(Takes::OptionalJson)),
        Resource::at("/admin/outbox/{id}/park")
            .on(Endpoint::post(handler!(outbox::park)).admin().takes(Takes::OptionalJson)),
        Resource::at("/admin/dlt").on(Endpoint::get(handler!(dlt::list)).admin()),
        Resource::at("/admin/dlt/redrive")
            .on(Endpoint::post(handler!(dlt::redrive)).admin().takes(Takes::OptionalJson)),
        Resource::at("/admin/dlt/{partition}/{offset}").on(Endpoint::get(handler!(dlt::find)).admin()),
        Resource::at("/admin/dlt/{partition}/{offset}/redrive")
            .on(Endpoint::post(handler!(dlt::redrive_one)).admin().takes(Takes::OptionalJson)),
        Resource::at("/admin/partitions").on(Endpoint::get(handler!(partitions::list)).admin()),
        Resource::at("/admin/events").on(Endpoint::get(handler!(events::stream)).admin().other()),
    ]
}
