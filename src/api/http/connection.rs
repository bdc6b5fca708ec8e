//! The service behind each accepted connection: actix's HTTP/1.1 over a [`TimedStream`].
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
use actix_web::web::ServiceConfig;
use app::contract::rfc3339;
use domain::Timestamp;

use crate::error::{ErrorCode, Problem};
use crate::http::connection_timeouts::ConnectionTimeouts;
use crate::http::options::Surface;
use crate::http::router::configure;
use crate::http::timed_stream::{TimedStream, TimeoutResponse};
use crate::request::headers::request_id;
use crate::state::HttpState;

/// How long a connection may be idle between requests.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a connection may take to close.
const DISCONNECT: Duration = Duration::from_secs(2);

/// The service of a listener that serves these routes.
pub(crate) fn connection(
    state: &Arc<HttpState>,
    surface: Surface,
    stopping: &GracefulShutdownSignal,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = DispatchError, InitError = ()> + use<> {
    let options = &state.options;
    let timeouts = timeouts(options.header_timeout, options.body_timeout);
    let timeout_response: TimeoutResponse = {
        let state = Arc::clone(state);
        Arc::new(move || head_timeout_response(state.operations.now(), &state.options.region))
    };
    timed_connection(configure(Arc::clone(state), surface), timeouts, stopping, timeout_response)
}

/// The timeouts of a connection; those that no option sets are fixed.
pub(crate) fn timeouts(head: Duration, stall: Duration) -> ConnectionTimeouts {
    ConnectionTimeouts { head, idle: KEEP_ALIVE, stall, close: DISCONNECT }
}

/// Builds what [`actix_web::HttpServer`] builds for a listener, but over [`TimedStream`].
pub(crate) fn timed_connection<R: FnOnce(&mut ServiceConfig)>(
    routes: R,
    timeouts: ConnectionTimeouts,
    stopping: &GracefulShutdownSignal,
    timeout_response: TimeoutResponse,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = DispatchError, InitError = ()> + use<R> {
    let (stopping, stream_stopping) = (stopping.clone(), stopping.clone());
    let app = App::new().configure(routes);
    let http = HttpService::build()
        .graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        })
        .keep_alive(KEEP_ALIVE)
        // Zero disables actix's own timer: TimedStream measures the heads.
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(DISCONNECT)
        .on_connect_ext(|stream: &TimedStream, connection_data| {
            connection_data.insert(stream.phase());
        })
        .finish(map_config(app, |()| AppConfig::default()));
    fn_service(move |stream: TcpStream| {
        let (timeout_response, stopping) = (Arc::clone(&timeout_response), stream_stopping.clone());
        async move {
            set_options(&stream, timeouts.stall);
            let peer = stream.peer_addr().ok();
            Ok((TimedStream::new(stream, timeouts, timeout_response, stopping), Protocol::Http1, peer))
        }
    })
    .and_then(http)
}

/// Sets the options of an accepted socket. Each is optional: a failure leaves the connection usable.
fn set_options(stream: &TcpStream, stall: Duration) {
    let _ = stream.set_nodelay(true);
    // Without it Linux retransmits to an unreachable host for some 15 minutes, and the connection counts against `http.max_connections` until then.
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(tcp_user_timeout(stall)));
}

/// Time without an acknowledgement after which the connection is closed (TCP_USER_TIMEOUT). Linux also counts the time in which a slow reader
/// announces a window of zero, so it is much longer than the time for a write.
#[cfg(target_os = "linux")]
fn tcp_user_timeout(stall: Duration) -> Duration {
    (stall * 4).max(Duration::from_secs(120))
}

/// The 408 response to an incomplete request head (RFC 9110, 15.5.9), as bytes.
pub(crate) fn head_timeout_response(now: Timestamp, region: &str) -> Vec<u8> {
    let problem =
        Problem::new(ErrorCode::RequestTimeout, "the request's head did not arrive in time; the connection is closed");
    let request_id = request_id(&HeaderMap::new());
    let body = problem.body("", &request_id, rfc3339(now));
    let mut text = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/problem+json\r\nconnection: close\r\nx-request-id: {request_id}\r\n\
         x-region-id: {region}\r\nx-content-type-options: nosniff\r\ncontent-length: {}\r\n\r\n",
        problem.code.status(),
        body.len()
    )
    .into_bytes();
    text.extend(body);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_client_must_acknowledge_within_four_stall_timeouts() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).await.expect("it listens");

        set_options(&stream, Duration::from_secs(40));

        let limit = socket2::SockRef::from(&stream).tcp_user_timeout().expect("Linux has the option");
        assert_eq!((limit, stream.nodelay().expect("TCP has it")), (Some(Duration::from_secs(160)), true));
    }
}
