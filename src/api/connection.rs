//! What stands behind each accepted connection: HTTP/1.1 by actix, over a stream that bounds its client's slowness.
use std::sync::Arc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, Protocol};
use actix_server::GracefulShutdownSignal;
use actix_service::{ServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::App;
use actix_web::dev::AppConfig;
use actix_web::http::header::HeaderMap;
use actix_web::rt::net::TcpStream;
use app::contract::rfc3339;
use domain::Timestamp;

use crate::error::{Kind, Problem};
use crate::line::Limits;
use crate::options::Surface;
use crate::patience::{Farewell, Timed};
use crate::state::State;
use crate::{configure, context};

/// How long a kept-alive connection may idle.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a connection that is being closed may take its time.
const DISCONNECT: Duration = Duration::from_secs(2);

/// What [`actix_web::HttpServer`] builds for a listener, but over [`Timed`].
pub(crate) fn connection(
    state: &Arc<State>,
    surface: Surface,
    stopping: &GracefulShutdownSignal,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = DispatchError, InitError = ()> + use<> {
    let options = &state.options;
    let limits = Limits { head: options.header_timeout, idle: KEEP_ALIVE, stall: options.body_timeout };
    let stopping = stopping.clone();
    let farewell: Farewell = {
        let state = Arc::clone(state);
        Arc::new(move || late_head(state.operations.now(), &state.options.region))
    };
    let app = App::new().configure(configure(Arc::clone(state), surface));
    let http = HttpService::build()
        .graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        })
        .keep_alive(KEEP_ALIVE)
        // None of actix's: the stream keeps the time of heads.
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(DISCONNECT)
        .on_connect_ext(|stream: &Timed, of_connection| {
            of_connection.insert(stream.line());
        })
        .finish(map_config(app, |()| AppConfig::default()));
    fn_service(move |stream: TcpStream| {
        let farewell = Arc::clone(&farewell);
        async move {
            // Without either the connection is still of use.
            let _ = stream.set_nodelay(true);
            let peer = stream.peer_addr().ok();
            Ok((Timed::new(stream, limits, farewell), Protocol::Http1, peer))
        }
    })
    .and_then(http)
}

/// For whoever sends half a head (RFC 9110, 15.5.9).
fn late_head(now: Timestamp, region: &str) -> Vec<u8> {
    let late =
        Problem::new(Kind::RequestTimeout, "the request's head did not arrive in time; the connection is closed");
    let (request_id, at) = (context::request_id(&HeaderMap::new()), rfc3339(now));
    let body = late.envelope("", &request_id, at);
    let mut text = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/problem+json\r\nconnection: close\r\nx-request-id: {request_id}\r\n\
         x-region-id: {region}\r\nx-content-type-options: nosniff\r\ncontent-length: {}\r\n\r\n",
        late.kind.status(),
        body.len()
    )
    .into_bytes();
    text.extend(body);
    text
}
