//! The route table of `/webhooks`, which requires the role ADMIN.
use crate::request::route::{BodyKind, Endpoint, Resource, handler};
use crate::topics::webhooks::{changes, dead_letters, deliveries, lookups};

pub(crate) fn resources() -> Vec<Resource> {
    let optional = |endpoint: Endpoint| endpoint.admin().body_kind(BodyKind::OptionalJson);
    vec![
        Resource::at("/webhooks").private().on(Endpoint::get(handler!(lookups::list)).admin()).on(Endpoint::post(
            handler!(changes::create),
        )
        .admin()
        .body_kind(BodyKind::Json)),
        Resource::at("/webhooks/{id}")
            .private()
            .on(Endpoint::get(handler!(lookups::find)).admin())
            .on(Endpoint::patch(handler!(changes::change)).admin().body_kind(BodyKind::Json))
            .on(Endpoint::delete(handler!(changes::delete)).admin()),
        Resource::at("/webhooks/{id}/secret").private().on(optional(Endpoint::post(handler!(changes::rotate)))),
        Resource::at("/webhooks/{id}/test").private().on(Endpoint::post(handler!(deliveries::test)).admin()),
        Resource::at("/webhooks/{id}/deliveries").private().on(Endpoint::get(handler!(deliveries::list)).admin()),
        Resource::at("/webhooks/{id}/redrive").private().on(optional(Endpoint::post(handler!(deliveries::redrive)))),
        Resource::at("/webhooks/{id}/dead-letters").private().on(Endpoint::get(handler!(dead_letters::list)).admin()),
        Resource::at("/webhooks/{id}/dead-letters/{partition}/{offset}/redrive")
            .private()
            .on(optional(Endpoint::post(handler!(dead_letters::redrive)))),
    ]
}
