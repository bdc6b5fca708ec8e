//! The admin routes for actors, outbox rows and partitions.
mod partly_done;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use actix_web::App;
use actix_web::body::MessageBody;
use actix_web::test::{TestRequest, call_service, init_service};
use api::Surface;
use app::dispatch::InjectedFault;
use serde_json::json;

use crate::dead_letters::dead_letter_records;
use crate::support::fake_ports::{KEY, event};
use crate::support::test_server::*;

#[actix_web::test]
async fn every_admin_route_requires_admin() {
    let server = TestServer::new();
    for path in ["actors", "outbox", "outbox/1", "outbox/why", "audit", "dlt", "dlt/0/0", "partitions", "events"] {
        let path = format!("/admin/{path}");
        server.send(get(&path)).await.problem(401, "UNAUTHORIZED");
        server.send(get(&path).insert_header(user("ann"))).await.problem(403, "FORBIDDEN");
    }
    let acts = ["outbox/1/retry", "outbox/1/park", "outbox/redrive", "dlt/redrive", "dlt/0/0/redrive"];
    for path in acts.into_iter().chain(["actors/consumer-0/panic"]) {
        let path = format!("/admin/{path}");
        server.send(post(&path, "")).await.problem(401, "UNAUTHORIZED");
        server.send(post(&path, "").insert_header(user("ann"))).await.problem(403, "FORBIDDEN");
    }
}

#[actix_web::test]
async fn actor_list_has_one_entry_for_each_actor_with_its_parent() {
    let server = TestServer::new();

    let reply = server.send(get("/admin/actors").insert_header(admin())).await;

    assert_eq!(
        reply.json(),
        json!({"actors": [{"path": "/relay/partition-worker-7", "actor": "PartitionWorker", "state": "running",
            "generation": 2, "restarts": 1, "mailboxDepth": 0, "mailboxCapacity": 16, "lastExit": "panic",
            "parent": "/relay"}]})
    );
}

#[actix_web::test]
async fn faults_are_injected_by_unencoded_path_when_they_are_enabled() {
    let server = TestServer::new();
    let inject = |path: &str| post(&format!("/admin/actors/{path}"), "").insert_header(admin());

    for action in ["panic", "stop", "pause", "resume"] {
        let reply = server.send(inject(&format!("relay/partition-worker-7/{action}"))).await;
        assert_eq!(reply.status, 202);
        assert_eq!(reply.json(), json!({"path": "/relay/partition-worker-7", "action": action}));
    }
    assert_eq!(server.send(inject("consumer-0/panic")).await.status, 202);
    assert_eq!(
        server.send(inject("relay%2Fpartition-worker-7/panic")).await.status,
        202,
        "as generated clients encode it"
    );
    let unknown = [
        ("relay/partition-worker-99/panic", "no such actor"),
        ("relay/consumer-0/panic", "no such actor"),
        ("consumer-0/kill", "no such action"),
    ];
    for (path, reason) in unknown {
        assert_eq!(server.send(inject(path)).await.problem(404, "NOT_FOUND")["message"], reason);
    }
    server.send(inject("consumer-0")).await.problem(404, "NOT_FOUND");
    let faults = server.dispatch.faults.lock().clone();
    assert_eq!(faults[0], ("/relay/partition-worker-7".to_owned(), InjectedFault::Panic, "root".to_owned()));
    assert_eq!(faults.len(), 6);

    let safe = TestServer::with_config(TestConfig { faults_enabled: false, ..TestConfig::default() });
    let refused = safe.send(inject("consumer-0/panic")).await.problem(404, "NOT_FOUND");
    assert_eq!(refused["message"], "fault injection is not enabled (fault_injection.enabled)");
}

#[actix_web::test]
async fn rows_contain_the_views_columns_and_are_paged() {
    let server = TestServer::new();
    let read = async |query: &str| server.send(get(&format!("/admin/outbox{query}")).insert_header(admin())).await;

    let parked = read("?status=PARKED&key=&type=").await.json();
    assert_eq!(
        parked,
        json!({"rows": [{"id": 2, "eventId": event(2).to_string(), "key": KEY, "type": "ORDER_CREATED", "partition": 7,
            "status": "PARKED", "leaseOwner": "one", "leaseVersion": 5, "retryCount": 2, "nextAttemptAt": null, "lastAttemptAt": "1970-01-01T00:00:02.000Z",
            "failureType": "NETWORK", "lastFailureReason": "refused", "createdAt": "1970-01-01T00:00:01.000Z",
            "sentAt": null}], "next": null})
    );
    let first = read("?limit=3").await.json();
    assert_eq!((first["rows"].as_array().unwrap().len(), &first["next"]), (3, &3.into()));
    let second = read("?limit=3&after=3").await.json();
    assert_eq!((&second["rows"][0]["id"], &second["next"]), (&4.into(), &json!(null)));
    assert_eq!(read(&format!("?key={KEY}&type=ORDER_CANCELLED")).await.json()["rows"], json!([]));
    assert_eq!(read("?key=customer-7").await.json()["rows"], json!([]), "a key is any text");
    for bad in ["status=parked", "key=a%0Ab", "after=x", "limit=x"] {
        read(&format!("?{bad}")).await.problem(400, "BAD_REQUEST");
    }
    assert_eq!(read("/1").await.json()["status"], "SENT");
    read("/9").await.problem(404, "NOT_FOUND");
    read("/x").await.problem(400, "BAD_REQUEST");
}

#[actix_web::test]
async fn why_returns_one_verdict_with_its_details() {
    let server = TestServer::new();
    let read = async |query: &str| server.send(get(&format!("/admin/outbox/why?{query}")).insert_header(admin())).await;
    let of = |n: u8| format!("event={}", event(n));

    let sent = read(&of(1)).await.json();
    assert_eq!((&sent["verdict"], &sent["sentAt"]), (&"SENT".into(), &"1970-01-01T00:00:02.000Z".into()));
    assert_eq!((&sent["topic"], &sent["partition"], &sent["offset"]), (&"order.events".into(), &3.into(), &17.into()));
    let parked = read(&format!("key={KEY}")).await.json();
    assert_eq!(
        (&parked["verdict"], &parked["lastError"], &parked["epoch"]),
        (&"PARKED".into(), &"refused".into(), &4.into())
    );
    let blocked = read(&of(3)).await.json();
    assert_eq!((&blocked["verdict"], &blocked["head"]["id"]), (&"BLOCKED_BY_HEAD".into(), &2.into()));
    let waiting = read(&of(4)).await.json();
    assert_eq!(
        (&waiting["verdict"], &waiting["nextAttemptAt"]),
        (&"WAITING_FOR_RETRY".into(), &"1970-01-01T00:00:09.000Z".into())
    );

    read(&of(8)).await.problem(404, "NOT_FOUND");
    for bad in ["", "key=a%0Ab", "event=x", &format!("key={KEY}&{}", of(1))] {
        read(bad).await.problem(400, "BAD_REQUEST");
    }
}

#[actix_web::test]
async fn rows_are_retried_parked_and_redriven_with_a_reason() {
    let server = TestServer::new();
    let act = async |path: &str, body: &str| {
        server.send(post(&format!("/admin/outbox/{path}"), body).insert_header(admin())).await
    };

    let retried = act("2/retry", r#"{"reason":"it is back"}"#).await;
    assert_eq!((retried.status, &retried.json()["status"]), (200, &"PENDING".into()));
    let parked = act("2/park", "").await;
    assert_eq!((parked.status, &parked.json()["status"]), (200, &"PARKED".into()));
    act("1/retry", "").await.problem(409, "CONFLICT");
    act("9/retry", "").await.problem(404, "NOT_FOUND");
    act("2/park", "[]").await.problem(400, "BAD_REQUEST");
    act("2/park", r#"{"reason":1}"#).await.problem(400, "BAD_REQUEST");

    let dry = act("redrive", "").await.json();
    assert_eq!(dry, json!({"dryRun": true, "matched": 1, "redriven": 0}));
    let body = json!({"type": "ORDER_CREATED", "key": KEY, "failureType": "NETWORK", "olderThan": "5s", "limit": 10,
        "dryRun": false, "reason": "go"});
    assert_eq!(act("redrive", &body.to_string()).await.json(), json!({"dryRun": false, "matched": 1, "redriven": 1}));
    let paced = json!({"rate": 100, "dryRun": false, "reason": "slowly"});
    assert_eq!(act("redrive", &paced.to_string()).await.json(), json!({"dryRun": false, "matched": 1, "redriven": 1}));
    let dry_run = |query: &str, body: &str| {
        let request = post(&format!("/admin/outbox/redrive{query}"), body).insert_header(admin());
        async { server.send(request).await.json()["dryRun"].clone() }
    };
    assert_eq!(dry_run("?dryRun=false", "").await, false);
    assert_eq!(dry_run("?dryRun=true", "{}").await, true);
    assert_eq!(dry_run("?dryRun=true", r#"{"dryRun":true}"#).await, true);
    act("redrive?dryRun=1", "").await.problem(400, "BAD_REQUEST");
    act("redrive?dryRun=", "").await.problem(400, "BAD_REQUEST");
    act("redrive?dryRun=1", r#"{"dryRun":true}"#).await.problem(400, "BAD_REQUEST");
    let audits = server.outbox.audits.lock().len();
    for (query, body) in [("true", r#"{"dryRun":false}"#), ("false", r#"{"dryRun":true}"#)] {
        let problem = act(&format!("redrive?dryRun={query}"), body).await.problem(400, "BAD_REQUEST");
        assert_eq!(problem["errors"][0]["field"], "dryRun", "the query contradicts the body");
    }
    assert_eq!(server.outbox.audits.lock().len(), audits, "nothing was changed");
    for bad in [
        r#"{"limit":0}"#,
        r#"{"limit":1.5}"#,
        r#"{"rate":0}"#,
        r#"{"rate":"1"}"#,
        r#"{"dryRun":"no"}"#,
        r#"{"olderThan":"5"}"#,
        r#"{"failureType":"x"}"#,
        r#"{"key":"a\nb"}"#,
        r#"{"dryRun":true,"dryRun":false}"#,
    ] {
        act("redrive", bad).await.problem(400, "BAD_REQUEST");
    }
    let audits = server.outbox.audits.lock();
    let texts: Vec<(&str, &str)> = audits.iter().map(|audit| (&*audit.operator, &*audit.reason)).collect();
    assert_eq!(texts, [("root", "it is back"), ("root", ""), ("root", "go"), ("root", "slowly"), ("root", "")]);
}

#[actix_web::test]
async fn changes_of_rows_and_dead_letters_are_announced() {
    let server = TestServer::new();
    let partition = dead_letter_records(&server, 2).await;
    let act = async |path: &str, body: &str| server.send(post(path, body).insert_header(admin())).await.status;
    let (reason, commit) = (r#"{"reason":"why"}"#, r#"{"dryRun":false,"reason":"why"}"#);

    assert_eq!(act("/admin/outbox/redrive", "").await, 200, "a dry run is no action");
    assert_eq!(act("/admin/outbox/1/retry", reason).await, 409, "a refused action is none");
    assert_eq!(act("/admin/outbox/redrive", commit).await, 200);
    assert_eq!(act("/admin/outbox/2/retry", reason).await, 200);
    assert_eq!(act("/admin/outbox/4/park", reason).await, 200);
    assert_eq!(act(&format!("/admin/dlt/{partition}/1/redrive"), commit).await, 200);
    assert_eq!(act("/admin/dlt/redrive", commit).await, 200);

    let announced = server.dispatch.announced.lock();
    let fields = |(action, on): (&'static str, String)| {
        let texts =
            [("by", "root".to_owned()), ("action", action.to_owned()), ("on", on), ("reason", "why".to_owned())];
        ("operator_action", texts.to_vec())
    };
    let expected = [
        ("redrive", "outbox".to_owned()),
        ("retry", "row 2".to_owned()),
        ("park", "row 4".to_owned()),
        ("send back", format!("dead letter {partition}/1 of order.events")),
        ("send back", "dead letters of order.events".to_owned()),
    ];
    assert_eq!(*announced, expected.map(fields));
}

#[actix_web::test]
async fn partition_list_has_the_lease_and_the_depth_of_each_partition() {
    let server = TestServer::new();
    let reply = server.send(get("/admin/partitions").insert_header(admin())).await;
    assert_eq!(
        reply.json(),
        json!({"partitions": [{"partition": 0, "owner": "one", "epoch": 3, "counter": 12, "inFlight": 12,
            "expiresAt": "1970-01-01T00:00:05.000Z", "depth": 2}]})
    );
}

#[actix_web::test]
async fn misspelt_filters_and_control_characters_are_refused() {
    let server = TestServer::new();
    let refused = async |request: TestRequest, field: &str| {
        let problem = server.send(request.insert_header(admin())).await.problem(400, "BAD_REQUEST");
        assert_eq!(problem["errors"][0]["field"], field);
    };
    for path in ["/admin/outbox/redrive", "/admin/dlt/redrive"] {
        refused(post(path, "{\"dryRun\": false, \"failure\": \"NETWORK\"}"), "failure").await;
        refused(post(path, "{\"type\": \"a\\u0000b\"}"), "type").await;
        refused(post(path, "{\"reason\": \"a\\u0000b\"}"), "reason").await;
        refused(post(&format!("{path}?dryrun=false"), ""), "dryrun").await;
    }
    refused(post("/admin/outbox/1/park", "{\"why\": \"x\"}"), "why").await;
    refused(get("/admin/outbox?state=PARKED"), "state").await;
    refused(get("/admin/outbox?type=%00"), "type").await;
    refused(get("/admin/dlt?failure=SYSTEM"), "failure").await;
}

#[actix_web::test]
async fn the_live_stream_ends_at_the_first_keep_alive_after_its_token_expired() {
    let server = TestServer::new();
    let app = init_service(App::new().configure(api::configure(Arc::clone(&server.state), Surface::Both))).await;
    tokio::time::pause();
    for path in ["/admin/events", "/console/events/stream"] {
        server.dispatch.clock.0.store(NOW, SeqCst);
        let response = call_service(&app, get(path).insert_header(admin()).to_request()).await;
        assert_eq!(response.status().as_u16(), 200);
        let mut body = Box::pin(response.into_body());
        let mut next = async || {
            let piece = poll_fn(|cx| body.as_mut().poll_next(cx)).await;
            piece.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
        };
        assert_eq!(next().await.as_deref(), Some("retry: 2000\n\n"));
        assert!(next().await.unwrap().starts_with("id: 4\n"));

        // The token is valid for ten minutes, and one more of leeway.
        server.dispatch.clock.0.store(NOW + 659_000, SeqCst);
        assert_eq!(next().await.as_deref(), Some(": keep-alive\n\n"), "{path}");
        server.dispatch.clock.0.store(NOW + 660_000, SeqCst);
        assert_eq!(next().await, None, "{path}");
    }
}

#[actix_web::test]
async fn the_audit_table_is_listed_newest_first_page_by_page() {
    let server = TestServer::new();
    let act = async |id: u8, who: &str, reason: &str| {
        let body = json!({"reason": reason}).to_string();
        let path = format!("/admin/outbox/{id}/retry");
        let reply = server.send(post(&path, &body).insert_header(bearer(&mint(&claims(who, json!(["ADMIN"])))))).await;
        assert_eq!(reply.status, 200);
    };
    act(2, "root", "first").await;
    act(2, "otto", "").await;
    act(2, "root", "third").await;
    let list = async |query: &str| server.send(get(&format!("/admin/audit{query}")).insert_header(admin())).await;

    let entry = |id: u8, by: &str, reason: &str| json!({"id": id, "at": "1970-01-01T00:00:02.000Z", "action": "retry", "row": 2, "by": by, "reason": reason});
    let first = list("?limit=2").await.json();
    assert_eq!(first, json!({"entries": [entry(3, "root", "third"), entry(2, "otto", "")], "next": 2}));
    assert_eq!(list("?limit=2&after=2").await.json(), json!({"entries": [entry(1, "root", "first")], "next": null}));
    assert_eq!(list("?by=otto&row=2&action=retry").await.json()["entries"], json!([entry(2, "otto", "")]));
    assert_eq!(list("?action=park").await.json(), json!({"entries": [], "next": null}));
    assert_eq!(list("?action=&by=&row=&after=").await.json()["entries"].as_array().map(Vec::len), Some(3));
    for bad in ["?action=Retry", "?row=x", "?after=x", "?limit=x", "?who=root", "?by=%00"] {
        list(bad).await.problem(400, "BAD_REQUEST");
    }
}
