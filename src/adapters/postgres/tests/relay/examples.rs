//! The programs of `examples/publish`: each runs where the machine has its language and its driver.
use std::path::Path;
use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::relay::customer_service;
use crate::support::Database;

/// The exit code with which an example reports that the machine lacks its language or driver.
const MISSING: i32 = 77;

/// Runs an example, and checks that its event is in the outbox.
async fn run(language: &str) {
    let database = Database::own().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/publish").join(language).join("run.sh");

    let mut command = Command::new("sh");
    command.arg(script).arg(&database.url);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();

    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(MISSING) {
        eprintln!("skipped: {language}: {}", text.trim());
        return;
    }
    assert!(output.status.success(), "{language}: {text}");
    let text =
        "SELECT topic, type, sequence, headers ->> 'tenant' FROM outbox_event WHERE key_text = $1 ORDER BY id LIMIT 1";
    let row = database.client().await.query_one(text, &[&format!("{language}-1")]).await.unwrap();
    let found: (&str, &str, i64, Option<&str>) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!(found, ("customers", "CustomerMoved", 1, Some("blue")), "{language}");
}

#[tokio::test]
async fn example_in_psql_publishes() {
    run("psql").await;
}

#[tokio::test]
async fn example_in_python_publishes() {
    run("python").await;
}

#[tokio::test]
async fn example_in_node_publishes() {
    run("node").await;
}

#[tokio::test]
async fn example_in_go_publishes() {
    run("go").await;
}

#[tokio::test]
async fn example_in_java_publishes() {
    run("java").await;
}

#[actix_web::test]
async fn example_in_rust_publishes_over_http_and_refuses_with_its_change() {
    let database = Database::own().await;
    let (service, port) = customer_service::start(&database.url).await.unwrap();
    let stop = service.handle();
    actix_web::rt::spawn(service);
    let put = async |id: &str| {
        let body = "Main Street 12";
        let request = format!(
            "PUT /customers/{id}/street HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).await.unwrap();
        response
    };

    let (accepted, refused) = (put("rust-1").await, put(&"x".repeat(1_025)).await);

    stop.stop(false).await;
    assert!(accepted.starts_with("HTTP/1.1 200 "), "{accepted}");
    assert!(
        refused.starts_with("HTTP/1.1 400 ") && refused.contains("a key must have at most 1024 bytes"),
        "{refused}"
    );
    let client = database.client().await;
    let text = "SELECT event_id::text, topic, type, headers ->> 'tenant' FROM outbox_event WHERE key_text = 'rust-1'";
    let row = client.query_one(text, &[]).await.unwrap();
    let found: (&str, &str, &str, &str) = (row.get(0), row.get(1), row.get(2), row.get(3));
    assert!(accepted.ends_with(found.0), "{accepted} {found:?}");
    assert_eq!((found.1, found.2, found.3), ("customers", "CustomerMoved", "blue"));
    let customers: i64 = client.query_one("SELECT count(*) FROM customer", &[]).await.unwrap().get(0);
    assert_eq!(customers, 1, "the refused change was rolled back");
}
