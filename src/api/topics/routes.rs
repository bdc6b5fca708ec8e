//! The route table of `/topics` and `/groups`. Every route requires the role CONSUMER or ADMIN.
use crate::request::route::{BodyKind, Endpoint, Resource, handler};
use crate::topics::{offsets, records};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/topics/{topic}/records")
            .private()
            .on(Endpoint::get(handler!(records::read)).consumer_or_admin().not_json()),
        Resource::at("/groups/{group}/topics/{topic}/offsets")
            .private()
            .on(Endpoint::get(handler!(offsets::find)).consumer_or_admin())
            .on(Endpoint::post(handler!(offsets::commit)).consumer_or_admin().body_kind(BodyKind::Json)),
    ]
}
