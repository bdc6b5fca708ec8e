//! The style and the script, out of the binary.
use actix_web::http::StatusCode;

use crate::call::{Call, typed};
use crate::route::Answer;

pub(super) async fn style(_call: Call) -> Answer {
    Ok(typed(StatusCode::OK, "text/css; charset=utf-8", include_str!("console.css")))
}

pub(super) async fn script(_call: Call) -> Answer {
    Ok(typed(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("console.js")))
}
