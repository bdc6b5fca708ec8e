//! The route table of `/orders`.
use crate::orders::{change, create, page, read};
use crate::request::route::{BodyKind, Endpoint, Resource, handler};

pub(crate) fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/orders").private().on(Endpoint::get(handler!(read::list)).user_or_admin()).on(Endpoint::post(
            handler!(create::create),
        )
        .user_or_admin()
        .body_kind(BodyKind::Json)),
        Resource::at("/orders/page").private().on(Endpoint::get(handler!(page::page)).user_or_admin()),
        Resource::at("/orders/{id}").private().on(Endpoint::get(handler!(read::find)).user_or_admin()),
        Resource::at("/orders/{id}/status")
            .private()
            .on(Endpoint::patch(handler!(change::change_status)).admin().body_kind(BodyKind::Json)),
        Resource::at("/orders/{id}/cancel").private().on(Endpoint::patch(handler!(change::cancel)).user_or_admin()),
    ]
}
