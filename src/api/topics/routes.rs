//! The route table of `/topics` and `/groups`, which require the role CONSUMER or ADMIN, and of `/events`, which requires PUBLISHER or ADMIN.
use crate::request::route::{BodyKind, Endpoint, Resource, handler};
use crate::topics::{offsets, publish, records};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/events")
            .private()
            .on(Endpoint::post(handler!(publish::publish)).publisher_or_admin().body_kind(BodyKind::Any)),
        Resource::at("/topics/{topic}/records")
            .private()
            .on(Endpoint::get(handler!(records::read)).consumer_or_admin().not_json()),
        Resource::at("/groups/{group}/topics/{topic}/offsets")
            .private()
            .on(Endpoint::get(handler!(offsets::find)).consumer_or_admin())
            .on(Endpoint::post(handler!(offsets::commit)).consumer_or_admin().body_kind(BodyKind::Json)),
    ]
}
