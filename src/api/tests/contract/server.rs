//! The server on real sockets: limits, streams, and its stop.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use api::{Surface, serve};
use kit::wait::scaled;

use crate::support::test_server::*;

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(scaled(Duration::from_secs(5)))).unwrap();
    stream
}

/// Sends a request and reads until the connection is closed.
pub fn exchange(address: SocketAddr, request: Vec<u8>) -> String {
    let mut stream = connect(address);
    // The server may close the connection before the whole request is written.
    let _ = stream.write_all(&request);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

pub fn head(text: &str) -> Vec<u8> {
    format!("{text}\r\nhost: x\r\nconnection: close\r\n\r\n").into_bytes()
}

pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Serves on a socket while blocking clients work.
pub async fn on_socket(server: &TestServer, work: impl FnOnce(SocketAddr) + Send + 'static) {
    let service = serve(&server.state).unwrap();
    let address = service.bound()[0].address;
    blocking(move || work(address)).await;
    service.stop(Duration::from_secs(2)).await;
}

/// A request that creates an order, where `length` is the header that ends its body.
fn post(token: &str, length: &str, body: &str) -> Vec<u8> {
    format!("POST /orders HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\ncontent-type: application/json\r\nconnection: close\r\n{length}\r\n\r\n{body}").into_bytes()
}

#[actix_web::test]
async fn size_limits_apply_on_the_wire() {
    let server = TestServer::new();
    let (_, token) = user("ann");

    on_socket(&server, move |address| {
        assert!(exchange(address, head("GET /livez HTTP/1.1")).starts_with("HTTP/1.1 200 "));
        let long = exchange(address, head(&format!("GET /{} HTTP/1.1", "x".repeat(9000))));
        assert!(long.starts_with("HTTP/1.1 414 ") && long.contains("URI_TOO_LONG"), "{long}");
        let oversized = exchange(address, head(&format!("GET /livez HTTP/1.1\r\nx-a: {}", "x".repeat(66 * 1024))));
        assert!(oversized.starts_with("HTTP/1.1 431 ") && oversized.contains("HEADERS_TOO_LARGE"), "{oversized}");
        let far_oversized = exchange(address, head(&format!("GET /livez HTTP/1.1\r\nx-a: {}", "x".repeat(200 * 1024))));
        assert!(far_oversized.starts_with("HTTP/1.1 431 ") || far_oversized.is_empty(), "{far_oversized}");
        let second = format!("GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\n{}: b", "x".repeat(65_536));
        let pipelined = exchange(address, head(&second));
        // The first request is answered where its head arrived alone.
        assert!(pipelined.contains("HTTP/1.1 431 "), "{pipelined}");
        let name = exchange(address, head(&format!("GET /livez HTTP/1.1\r\n{}: b", "x".repeat(65_536))));
        assert!(name.starts_with("HTTP/1.1 431 "), "{name}");
        assert!(exchange(address, b"NONSENSE\r\n\r\n".to_vec()).starts_with("HTTP/1.1 400 "));

        let post = |length: &str, body: &str| post(&token, length, body);
        let large = "x".repeat(1024 * 1024 + 1);
        let announced = exchange(address, post(&format!("content-length: {}", large.len()), &large));
        assert!(announced.starts_with("HTTP/1.1 413 ") && announced.contains("PAYLOAD_TOO_LARGE"), "{announced}");
        let chunk = format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len());
        let chunked = exchange(address, post("transfer-encoding: chunked", &chunk));
        assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
        let broken = exchange(address, post("transfer-encoding: chunked", "zz\r\n"));
        assert!(broken.starts_with("HTTP/1.1 400 "), "{broken}");
        let length = ORDER.len();
        let pieces = format!("5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n", &ORDER[..5], length - 5, &ORDER[5..]);
        assert!(exchange(address, post("transfer-encoding: chunked", &pieces)).starts_with("HTTP/1.1 201 "));
        let no_body = exchange(address, head("HEAD /openapi.json HTTP/1.1"));
        assert!(no_body.starts_with("HTTP/1.1 200 ") && no_body.ends_with("\r\n\r\n"), "{no_body}");
    })
    .await;
}

#[actix_web::test]
async fn time_limits_apply_on_the_wire() {
    let mut config = TestConfig::default();
    config.options.header_timeout = scaled(Duration::from_millis(300));
    config.options.body_timeout = scaled(Duration::from_millis(600));
    let server = TestServer::with_config(config);
    let (_, token) = user("ann");

    on_socket(&server, move |address| {
        let slow = exchange(address, b"GET /livez HTTP/1.1\r\nhost: x\r\n".to_vec());
        assert!(slow.starts_with("HTTP/1.1 408 ") && slow.contains("REQUEST_TIMEOUT"), "{slow}");
        assert!(slow.contains("x-request-id: ") && slow.contains("x-region-id: "), "{slow}");
        let waits = exchange(address, post(&token, "content-length: 100", "{"));
        assert!(waits.starts_with("HTTP/1.1 408 ") && waits.contains("REQUEST_TIMEOUT"), "{waits}");
    })
    .await;
}

#[actix_web::test]
async fn later_request_heads_have_the_same_timeout_as_the_first() {
    let mut config = TestConfig::default();
    config.options.header_timeout = scaled(Duration::from_secs(1));
    let server = TestServer::with_config(config);

    on_socket(&server, move |address| {
        let mut kept = connect(address);
        for _ in 0..2 {
            kept.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            assert!(read_head(&mut kept).starts_with("HTTP/1.1 200 "), "connections are kept");
        }
        kept.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n").unwrap();
        assert_timed_out(kept);

        let mut dripping = connect(address);
        dripping.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        read_head(&mut dripping);
        let started = Instant::now();
        // Single bytes do not extend the deadline.
        dripping.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        while dripping.write_all(b"G").is_ok() && !matches!(dripping.read(&mut [0]), Ok(0)) {
            assert!(started.elapsed() < scaled(Duration::from_secs(5)), "the connection is still open");
        }
    })
    .await;
}

#[actix_web::test]
async fn connections_beyond_the_limit_wait() {
    let mut config = TestConfig::default();
    (config.options.max_connections, config.options.workers) = (3, 2);
    let server = TestServer::with_config(config);

    on_socket(&server, move |address| {
        let request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
        let mut kept = [(); 3].map(|()| connect(address));
        for stream in &mut kept {
            stream.write_all(request).unwrap();
            assert!(read_head(stream).starts_with("HTTP/1.1 200 "));
        }
        let mut next = connect(address);
        next.write_all(request).unwrap();
        next.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert!(next.read(&mut [0; 16]).is_err(), "it is served beyond the limit");

        drop(kept);
        next.set_read_timeout(Some(scaled(Duration::from_secs(5)))).unwrap();
        assert!(read_head(&mut next).starts_with("HTTP/1.1 200 "));
    })
    .await;
}

#[actix_web::test]
async fn a_client_that_reads_no_response_is_disconnected() {
    let mut config = TestConfig::default();
    config.options.body_timeout = Duration::from_millis(300);
    let server = TestServer::with_config(config);

    on_socket(&server, move |address| {
        let mut client = connect(address);
        client.set_write_timeout(Some(scaled(Duration::from_secs(10)))).unwrap();
        let request = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
        let refused = loop {
            if let Err(error) = client.write_all(&request) {
                break error.kind();
            }
        };
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        assert!(matches!(refused, ConnectionReset | BrokenPipe), "{refused}: the connection is still open");
    })
    .await;
}

/// Reads the head of one response, and the short body that arrives with it.
fn read_head(stream: &mut TcpStream) -> String {
    let mut response = String::new();
    let mut reader = BufReader::new(stream);
    while !response.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut response).unwrap() > 0, "{response}");
    }
    response
}

fn assert_timed_out(mut stream: TcpStream) {
    let started = Instant::now();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&rest)),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    assert!(started.elapsed() < scaled(Duration::from_secs(4)), "the client closed the connection, not the server");
}

#[actix_web::test]
async fn a_stop_waits_for_responses_but_not_for_idle_connections_or_streams() {
    let mut config = TestConfig::default();
    let request_timeout = scaled(Duration::from_millis(400));
    config.options.request_timeout = request_timeout;
    // An idle connection closes by itself only after the limit below.
    config.options.header_timeout = scaled(Duration::from_secs(5));
    let server = TestServer::with_config(config);
    let service = serve(&server.state).unwrap();
    let address = service.bound()[0].address;
    let (_, token) = admin();
    let follow = format!("GET /admin/events HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\nlast-event-id: 1\r\n\r\n");
    let create = format!(
        "POST /orders HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ORDER}",
        ORDER.len()
    );
    *server.dispatch.hangs.lock() = true;
    let (mut idle, mut stream, mut busy, sent) = blocking(move || {
        let mut idle = connect(address);
        idle.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut first = [0; 16];
        idle.read_exact(&mut first).unwrap();
        let mut stream = connect(address);
        stream.write_all(follow.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let text: Vec<String> = lines.by_ref().take_while(|line| !line.contains("{\"n\":4}")).collect();
        assert!(
            text.contains(&"id: 2".to_owned())
                && text.contains(&"id: 3".to_owned())
                && text.contains(&"id: 4".to_owned()),
            "{text:?}"
        );
        assert!(text.contains(&"retry: 2000".to_owned()) && text.contains(&"event: child_exited".to_owned()));
        assert!(!text.contains(&"id: 1".to_owned()), "the stream resumes after the last event");
        let mut busy = connect(address);
        let sent = Instant::now();
        busy.write_all(create.as_bytes()).unwrap();
        (idle, stream, busy, sent)
    })
    .await;
    while server.dispatch.received.load(SeqCst) < 1 {
        tokio::task::yield_now().await;
    }

    let started = Instant::now();
    service.stop(scaled(Duration::from_secs(5))).await;

    let (since_sent, stopped_in) = (sent.elapsed(), started.elapsed());
    assert!(
        since_sent >= request_timeout && stopped_in < scaled(Duration::from_secs(4)),
        "{since_sent:?} {stopped_in:?}"
    );
    blocking(move || {
        let mut rest = String::new();
        busy.read_to_string(&mut rest).unwrap();
        assert!(rest.starts_with("HTTP/1.1 500 "), "the request in flight was answered: {rest}");
        let mut rest = Vec::new();
        let _ = idle.read_to_end(&mut rest);
        let _ = stream.read_to_end(&mut rest);
        assert!(TcpStream::connect(address).is_err(), "the listener is closed");
    })
    .await;
}

#[actix_web::test]
async fn an_idle_service_stops_at_once() {
    let server = TestServer::new();
    let service = serve(&server.state).unwrap();
    let started = Instant::now();
    service.stop(scaled(Duration::from_secs(5))).await;
    assert!(started.elapsed() < scaled(Duration::from_secs(4)), "the stop waited: {:?}", started.elapsed());
}

#[actix_web::test]
async fn a_dropped_server_closes_its_listeners() {
    let mut config = TestConfig::default();
    config.options.admin_listen = Some("127.0.0.1:0".into());
    let service = serve(&TestServer::with_config(config).state).unwrap();
    let addresses: Vec<_> = service.bound().iter().map(|bound| bound.address).collect();
    for address in addresses.clone() {
        let response = blocking(move || exchange(address, head("GET /livez HTTP/1.1"))).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }

    drop(service);

    let until = Instant::now() + scaled(Duration::from_secs(20));
    for address in addresses {
        while blocking(move || TcpStream::connect(address)).await.is_ok() {
            assert!(Instant::now() < until, "{address} still accepts connections");
        }
    }
}

#[actix_web::test]
async fn admin_routes_can_have_their_own_port() {
    let mut config = TestConfig::default();
    config.options.admin_listen = Some("127.0.0.1:0".into());
    let server = TestServer::with_config(config);
    let service = serve(&server.state).unwrap();
    let [public, operators] = service.bound() else { panic!("two listeners") };
    assert_eq!((public.surface, operators.surface), (Surface::Public, Surface::Admin));
    let (public, operators) = (public.address, operators.address);
    assert_ne!(public.port(), 0);

    blocking(move || {
        for (address, path, status) in [
            (public, "/orders", 401),
            (public, "/admin/actors", 404),
            (public, "/readyz", 200),
            (operators, "/orders", 404),
            (operators, "/admin/actors", 401),
            (operators, "/metrics", 200),
        ] {
            let response = exchange(address, head(&format!("GET {path} HTTP/1.1")));
            assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{address} {path}: {response}");
        }
    })
    .await;
    let mut taken = TestConfig::default();
    taken.options.listen = public.to_string();
    let error = serve(&TestServer::with_config(taken).state).err().expect("the port is taken");
    assert!(error.to_string().contains(&public.to_string()), "{error}");
    service.stop(Duration::from_secs(2)).await;
}
