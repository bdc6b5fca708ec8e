//! The real thing on real sockets: limits of the wire, streams, and how it stops.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use api::{Surface, serve};

use crate::house::*;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Sends, then reads until the answer's end or the line's.
pub fn exchange(address: SocketAddr, request: Vec<u8>) -> String {
    let mut stream = connect(address);
    // A server that refuses early may close before all is written.
    let _ = stream.write_all(&request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn head(text: &str) -> Vec<u8> {
    format!("{text}\r\nhost: x\r\nconnection: close\r\n\r\n").into_bytes()
}

pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[actix_web::test]
async fn the_wires_limits_are_kept() {
    let mut plan = Plan::default();
    plan.options.header_timeout = Duration::from_millis(300);
    plan.options.body_timeout = Duration::from_millis(150);
    let house = House::planned(plan);
    let service = serve(&house.state).unwrap();
    let address = service.bound()[0].address;
    let (_, token) = user("ann");

    blocking(move || {
        assert!(exchange(address, head("GET /livez HTTP/1.1")).starts_with("HTTP/1.1 200 "));
        let long = exchange(address, head(&format!("GET /{} HTTP/1.1", "x".repeat(9000))));
        assert!(long.starts_with("HTTP/1.1 414 ") && long.contains("URI_TOO_LONG"), "{long}");
        let fat = exchange(address, head(&format!("GET /livez HTTP/1.1\r\nx-a: {}", "x".repeat(66 * 1024))));
        assert!(fat.starts_with("HTTP/1.1 431 ") && fat.contains("HEADERS_TOO_LARGE"), "{fat}");
        let fatter = exchange(address, head(&format!("GET /livez HTTP/1.1\r\nx-a: {}", "x".repeat(200 * 1024))));
        assert!(fatter.starts_with("HTTP/1.1 431 ") || fatter.is_empty(), "{fatter}");
        let name = exchange(address, head(&format!("GET /livez HTTP/1.1\r\n{}: b", "x".repeat(65_536))));
        assert!(name.starts_with("HTTP/1.1 431 "), "{name}");
        assert!(exchange(address, b"NONSENSE\r\n\r\n".to_vec()).starts_with("HTTP/1.1 400 "));
        let slow = exchange(address, b"GET /livez HTTP/1.1\r\nhost: x\r\n".to_vec());
        assert!(slow.starts_with("HTTP/1.1 408 ") && slow.contains("REQUEST_TIMEOUT"), "{slow}");
        assert!(slow.contains("x-request-id: ") && slow.contains("x-region-id: "), "{slow}");

        let post = |length: &str, body: &str| {
            format!("POST /orders HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\ncontent-type: application/json\r\nconnection: close\r\n{length}\r\n\r\n{body}").into_bytes()
        };
        let waits = exchange(address, post("content-length: 100", "{"));
        assert!(waits.starts_with("HTTP/1.1 408 ") && waits.contains("REQUEST_TIMEOUT"), "{waits}");
        let large = "x".repeat(1024 * 1024 + 1);
        let told = exchange(address, post(&format!("content-length: {}", large.len()), &large));
        assert!(told.starts_with("HTTP/1.1 413 ") && told.contains("PAYLOAD_TOO_LARGE"), "{told}");
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
    service.stop(Duration::from_secs(2)).await;
}

#[actix_web::test]
async fn a_later_head_has_as_little_time_as_the_first() {
    let mut plan = Plan::default();
    plan.options.header_timeout = Duration::from_millis(300);
    let house = House::planned(plan);
    let service = serve(&house.state).unwrap();
    let address = service.bound()[0].address;

    blocking(move || {
        let mut kept = connect(address);
        for _ in 0..2 {
            kept.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            assert!(until_blank_line(&mut kept).starts_with("HTTP/1.1 200 "), "connections are kept");
        }
        kept.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n").unwrap();
        assert_told_late(kept);

        let mut dripping = connect(address);
        dripping.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        until_blank_line(&mut dripping);
        let begun = Instant::now();
        // A byte now and then buys no time.
        dripping.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        while dripping.write_all(b"G").is_ok() && !matches!(dripping.read(&mut [0]), Ok(0)) {
            assert!(begun.elapsed() < Duration::from_secs(5), "it drips for ever");
        }
    })
    .await;
    service.stop(Duration::from_secs(2)).await;
}

#[actix_web::test]
async fn past_the_most_connections_the_next_one_waits_for_a_place() {
    let mut plan = Plan::default();
    (plan.options.max_connections, plan.options.workers) = (3, 2);
    let house = House::planned(plan);
    let service = serve(&house.state).unwrap();
    let address = service.bound()[0].address;

    blocking(move || {
        let ask = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
        let mut kept = [(); 3].map(|()| connect(address));
        for stream in &mut kept {
            stream.write_all(ask).unwrap();
            assert!(until_blank_line(stream).starts_with("HTTP/1.1 200 "));
        }
        let mut next = connect(address);
        next.write_all(ask).unwrap();
        next.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        assert!(next.read(&mut [0; 16]).is_err(), "it is not served beside them");

        drop(kept);
        next.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert!(until_blank_line(&mut next).starts_with("HTTP/1.1 200 "));
    })
    .await;
    service.stop(Duration::from_secs(2)).await;
}

#[actix_web::test]
async fn who_reads_no_answer_is_let_go() {
    let mut plan = Plan::default();
    plan.options.body_timeout = Duration::from_millis(300);
    let house = House::planned(plan);
    let service = serve(&house.state).unwrap();
    let address = service.bound()[0].address;

    blocking(move || {
        let mut deaf = connect(address);
        deaf.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        let ask = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
        let refused = loop {
            if let Err(error) = deaf.write_all(&ask) {
                break error.kind();
            }
        };
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        assert!(matches!(refused, ConnectionReset | BrokenPipe), "{refused}: it still waits");
    })
    .await;
    service.stop(Duration::from_secs(2)).await;
}

/// The head of one answer; those that are asked for here have no more than a short body, which follows it.
fn until_blank_line(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    let mut reader = BufReader::new(stream);
    while !answer.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut answer).unwrap() > 0, "{answer}");
    }
    answer
}

fn assert_told_late(mut stream: TcpStream) {
    let begun = Instant::now();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&rest)),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "closed by its client, not by us");
}

#[actix_web::test]
async fn a_stop_waits_for_no_idle_connection_and_no_stream_but_for_answers() {
    let mut plan = Plan::default();
    plan.options.request_timeout = Duration::from_millis(400);
    let house = House::planned(plan);
    let service = serve(&house.state).unwrap();
    let address = service.bound()[0].address;
    let (_, token) = admin();
    let streaming =
        format!("GET /admin/events HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\nlast-event-id: 1\r\n\r\n");
    let placing = format!(
        "POST /orders HTTP/1.1\r\nhost: x\r\nauthorization: {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ORDER}",
        ORDER.len()
    );
    *house.desk.hangs.lock() = true;
    let (mut idle, mut stream, mut busy) = blocking(move || {
        let mut idle = connect(address);
        idle.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        let mut first = [0; 16];
        idle.read_exact(&mut first).unwrap();
        let mut stream = connect(address);
        stream.write_all(streaming.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let text: Vec<String> = lines.by_ref().take_while(|line| !line.contains("{\"n\":4}")).collect();
        assert!(
            text.contains(&"id: 2".to_owned())
                && text.contains(&"id: 3".to_owned())
                && text.contains(&"id: 4".to_owned()),
            "{text:?}"
        );
        assert!(text.contains(&"retry: 2000".to_owned()) && text.contains(&"event: child_exited".to_owned()));
        assert!(!text.contains(&"id: 1".to_owned()), "resumes behind the last one seen");
        let mut busy = connect(address);
        busy.write_all(placing.as_bytes()).unwrap();
        (idle, stream, busy)
    })
    .await;
    while house.desk.asked.load(SeqCst) < 1 {
        tokio::task::yield_now().await;
    }

    let began = Instant::now();
    service.stop(Duration::from_secs(5)).await;
    let took = began.elapsed();

    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(4), "{took:?}");
    blocking(move || {
        let mut rest = String::new();
        busy.read_to_string(&mut rest).unwrap();
        assert!(rest.starts_with("HTTP/1.1 500 "), "the request in flight was answered: {rest}");
        let mut rest = Vec::new();
        let _ = idle.read_to_end(&mut rest);
        let _ = stream.read_to_end(&mut rest);
        assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    })
    .await;
}

#[actix_web::test]
async fn an_idle_service_stops_at_once() {
    let house = House::new();
    let service = serve(&house.state).unwrap();
    let began = Instant::now();
    service.stop(Duration::from_secs(5)).await;
    assert!(began.elapsed() < Duration::from_secs(4), "it waited its time out: {:?}", began.elapsed());
}

#[actix_web::test]
async fn operators_may_have_a_port_of_their_own() {
    let mut plan = Plan::default();
    plan.options.admin_listen = Some("127.0.0.1:0".into());
    let house = House::planned(plan);
    let service = serve(&house.state).unwrap();
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
            let answer = exchange(address, head(&format!("GET {path} HTTP/1.1")));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{address} {path}: {answer}");
        }
    })
    .await;
    let mut taken = Plan::default();
    taken.options.listen = public.to_string();
    let error = serve(&House::planned(taken).state).err().expect("the port is taken");
    assert!(error.to_string().contains(&public.to_string()), "{error}");
    service.stop(Duration::from_secs(2)).await;
}
