//! Overload and blocked peers: full mailboxes, load shedding, paused actors, stopped processes and unread logs.
use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kit::wait::{pause, scaled, until};
use serde_json::json;

use crate::harness::backend::Backend;
use crate::harness::http::{Http, tea_order};
use crate::harness::process::{Posthaste, command, setting};

/// On a slow machine many clients take seconds to send their requests, which then wait for a paused actor.
const LONG_TIMEOUTS: [(&str, &str); 2] =
    [("POSTHASTE__HTTP__REQUEST_TIMEOUT", "60s"), ("POSTHASTE__HTTP__HEADER_TIMEOUT", "60s")];

#[test]
fn a_full_mailbox_returns_503_with_retry_after_and_changes_nothing() {
    let backend = Backend::new();
    let settings = [("POSTHASTE__ORDERS__SHARDS", "1"), ("POSTHASTE__ORDERS__MAILBOX", "2")];
    let service = Posthaste::start(&backend, &[&settings[..], &LONG_TIMEOUTS].concat());
    let (user, admin) = (service.http.user(), service.http.admin());
    let pause = service.http.post("/admin/actors/order-aggregate-0/pause", &admin, &[], &json!({}));
    assert_eq!(pause.status, 202);

    let refused = std::thread::scope(|scope| {
        let post = || service.http.post("/orders", &user, &[], &tea_order(1));
        let waiting: Vec<_> = (0..2).map(|_| scope.spawn(post)).collect();
        let refused = until("the mailbox is full", Duration::from_secs(10), || {
            let tree = service.http.get("/admin/actors", Some(&admin)).json();
            let actors = tree["actors"].as_array().expect("actors").clone();
            let shard = actors.into_iter().find(|actor| actor["path"] == "/order-aggregate-0").expect("the shard");
            (shard["mailboxDepth"] == 2).then(post)
        });
        service.http.post("/admin/actors/order-aggregate-0/resume", &admin, &[], &json!({}));
        let responses: Vec<u16> = waiting.into_iter().map(|client| client.join().expect("no panic").status).collect();
        assert_eq!(responses, [201, 201]);
        refused
    });

    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text);
    assert_eq!(refused.json()["code"], "INFRASTRUCTURE_ERROR");
    assert_eq!(service.http.get("/orders", Some(&user)).json().as_array().map(Vec::len), Some(2));
}

fn metric(http: &Http, name: &str) -> u64 {
    let page = http.get("/metrics", None).text;
    let line = page.lines().find(|line| line.split(' ').next() == Some(name)).expect(name);
    line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

const LIMIT: &str = "orders_in_flight_limit{kind=\"change\"}";
const SHED: &str = "orders_shed_count_total{kind=\"change\"}";
/// Longer than the shortest interval after which the limit is adapted.
const LIMIT_INTERVAL: Duration = Duration::from_millis(250);

/// Sends 100 orders more than the limit admits while the actor that handles them is paused for longer than an interval.
fn overload(service: &Posthaste) {
    let (user, admin) = (service.http.user(), service.http.admin());
    let fault =
        |action| service.http.post(&format!("/admin/actors/order-aggregate-0/{action}"), &admin, &[], &json!({}));
    let (limit, shed) = (metric(&service.http, LIMIT), metric(&service.http, SHED) + 100);
    assert_eq!(fault("pause").status, 202);

    let mut responses: Vec<_> = std::thread::scope(|scope| {
        let post = || service.http.post("/orders", &user, &[], &tea_order(1));
        let clients: Vec<_> = (0..limit + 100).map(|_| scope.spawn(post)).collect();
        until("100 requests are shed", Duration::from_secs(8), || (metric(&service.http, SHED) == shed).then_some(()));
        pause(LIMIT_INTERVAL);
        assert_eq!(fault("resume").status, 202);
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });

    let refused: Vec<_> = responses.extract_if(.., |response| response.status == 503).collect();
    assert!(refused.iter().all(|response| response.header("retry-after") == Some("1")));
    assert_eq!((refused.len(), responses.len() as u64), (100, limit));
    assert!(responses.iter().all(|response| response.status == 201));
}

#[test]
fn load_above_the_concurrency_limit_is_shed_with_503_and_the_limit_recovers() {
    let backend = Backend::new();
    let settings = [&[("POSTHASTE__ORDERS__SHARDS", "1")][..], &LONG_TIMEOUTS].concat();
    let service = Posthaste::start(&backend, &settings);
    let limit = || metric(&service.http, LIMIT);
    let initial_limit = limit();

    // The limit rises again at once where the last of the admitted requests ends an interval alone, as one that is late on a busy machine does.
    until("the limit is lowered, because admitted requests waited long", Duration::from_secs(30), || {
        overload(&service);
        (limit() < initial_limit).then_some(())
    });
    assert!(metric(&service.http, SHED) >= 100, "each overload sheds 100 requests");
    // On a slow disk each commit takes long, and the service learns only in hundreds of requests that this is usual.
    until("the limit has recovered", Duration::from_secs(60), || {
        let response = service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
        (response.status == 201 && limit() >= initial_limit).then_some(())
    });
}

#[test]
fn a_command_that_waits_past_its_deadline_is_dropped_unprocessed() {
    let backend = Backend::new();
    let request_max = setting(Duration::from_secs(5));
    let settings = [("POSTHASTE__HTTP__REQUEST_TIMEOUT", request_max.as_str()), ("POSTHASTE__ORDERS__SHARDS", "1")];
    let service = Posthaste::start(&backend, &settings);
    let (user, admin) = (service.http.user(), service.http.admin());
    service.http.post("/admin/actors/order-aggregate-0/pause", &admin, &[], &json!({}));

    let late = service.http.post("/orders", &user, &[], &tea_order(1));

    assert_eq!((late.status, late.header("retry-after")), (503, Some("1")), "{}", late.text);
    service.http.post("/admin/actors/order-aggregate-0/resume", &admin, &[], &json!({}));
    assert_eq!(service.http.post("/orders", &user, &[], &tea_order(2)).status, 201);
    assert_eq!(service.http.get("/orders", Some(&user)).json().as_array().map(Vec::len), Some(1));
}

#[test]
fn request_headers_received_while_the_process_was_stopped_are_not_late() {
    let backend = Backend::new();
    // Between its connection and the stop of the process a client must not be late.
    let header_timeout = Duration::from_secs(5);
    let service = Posthaste::start(&backend, &[("POSTHASTE__HTTP__HEADER_TIMEOUT", &setting(header_timeout))]);
    let address = service.http.base().trim_start_matches("http://");
    let mut clients: Vec<_> = (0..8).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    assert_eq!(service.http.get("/livez", None).status, 200, "the server accepts connections");

    service.freeze();
    for client in &mut clients {
        client.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").expect("the kernel buffers it");
    }
    let answered_within = |client: &mut TcpStream, limit| {
        client.set_read_timeout(Some(limit)).expect("a timeout");
        let mut status = [0; 12];
        client.read_exact(&mut status).is_ok().then(|| String::from_utf8_lossy(&status).into_owned())
    };
    let longer = scaled(header_timeout) + Duration::from_millis(500);
    assert_eq!(answered_within(&mut clients[0], longer), None, "the process is stopped");
    service.signal("CONT");

    for client in &mut clients {
        assert_eq!(answered_within(client, scaled(Duration::from_secs(10))).as_deref(), Some("HTTP/1.1 200"));
    }
}

#[test]
fn a_paused_actor_does_not_delay_a_stop() {
    let backend = Backend::new();
    // A stop that waited for an actor would take so long.
    let service = Posthaste::start(&backend, &[("POSTHASTE__SHUTDOWN__DEADLINE", "600s")]);
    let admin = service.http.admin();
    for path in ["relay/outbox-publisher", "relay/partition-worker-3", "order-aggregate-0", "consumer-0"] {
        assert_eq!(service.http.post(&format!("/admin/actors/{path}/pause"), &admin, &[], &json!({})).status, 202);
    }

    let started = std::time::Instant::now();
    let status = service.stop();

    assert!(
        status.success() && started.elapsed() < scaled(Duration::from_secs(10)),
        "{status} after {:?}",
        started.elapsed()
    );
}

#[test]
fn an_unread_log_pipe_blocks_no_request_and_lost_lines_are_counted() {
    let backend = Backend::new();
    let mut child = command(&backend, &["serve", "--migrate"])
        .env("POSTHASTE__LOG__LEVEL", "info")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut log = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let listening = log.by_ref().lines().map_while(Result::ok).find(|line| line.contains("\"listening\""));
    let listening: serde_json::Value = serde_json::from_str(&listening.expect("it listens")).expect("a line");
    let http = Http::new(listening["address"].as_str().expect("an address"));
    until("the service is ready", Duration::from_secs(60), || (http.get("/readyz", None).status == 200).then_some(()));
    let user = http.user();
    let lost = || metric(&http, "log_lines_lost_count_total");

    // More lines than a pipe buffers.
    until("the pipe is full", Duration::from_secs(20), || {
        assert!((0..50).all(|_| http.get("/orders", Some(&user)).status == 200));
        (lost() >= 100).then_some(())
    });
    assert_eq!(http.post("/orders", &user, &[], &tea_order(1)).status, 201);

    // The reader continues.
    let lost_event = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            log.lines()
                .map_while(Result::ok)
                .find(|line| line.contains("\"log_lines_lost\""))
                .expect("the loss is logged")
        });
        until("the pipe has room again", Duration::from_secs(20), || {
            assert_eq!(http.get("/orders", Some(&user)).status, 200);
            reader.is_finished().then_some(())
        });
        reader.join().expect("no panic")
    });
    let event: serde_json::Value = serde_json::from_str(&lost_event).expect("a line");
    assert!(event["lines"].as_u64() >= Some(100) && event["level"] == "WARN", "{event}");
    child.kill().expect("it runs");
    child.wait().expect("it is a child of this process");
}

#[test]
fn the_service_raises_its_soft_limit_of_open_files() {
    let backend = Backend::new();
    // The process inherits the soft limit of the shell.
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -Sn 256 && exec \"$0\" serve --migrate", env!("CARGO_BIN_EXE_posthaste")]);
    shell.envs(command(&backend, &[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = shell.stdout(std::process::Stdio::piped()).spawn().expect("a shell");
    let mut log = std::io::BufReader::new(child.stdout.take().expect("piped")).lines();
    let listening = log.find(|line| line.as_ref().is_ok_and(|line| line.contains("\"listening\"")));

    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("its limits");

    child.kill().expect("it runs");
    child.wait().expect("it is a child of this process");
    assert!(listening.is_some());
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("the line");
    let soft: u64 = files.split_whitespace().nth(3).expect("a number").parse().expect("a number");
    assert!(soft > 256, "{files}");
}
