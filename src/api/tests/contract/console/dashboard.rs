//! The console as a dashboard: verdict, tabs, selected rows, sessions after a restart, and the way to it.
use actix_web::test::TestRequest;
use api::auth::KeySource;
use app::dispatch::InjectedFault;
use domain::Timestamp;
use ports::outbox::RowCounts;
use std::sync::atomic::Ordering::SeqCst;

use crate::console::access::{Browser, page};
use crate::support::test_server::*;

#[actix_web::test]
async fn the_overview_begins_with_a_verdict_and_links_to_what_helps() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    assert!(browser.get("/console").await.text().contains("All well"));

    server.health.update(|snapshot| snapshot.depth = RowCounts { parked: 3, failed: 1, ..RowCounts::default() });
    let text = page(&browser.get("/console").await, 200);

    let parked = text.find("3 rows are PARKED and must be retried by an operator").expect("it is named");
    let failed = text.find("1 row has failed and will be retried").expect("it is named");
    assert!(parked < failed, "the most urgent comes first");
    assert!(text.contains("2 things need attention") && !text.contains("All well"), "{text}");
    assert!(text.contains("href=\"/console/outbox?status=PARKED\""), "{text}");
}

#[actix_web::test]
async fn the_overview_shows_the_next_probe_of_an_open_breaker_and_the_pressure_thresholds() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let overview = async || page(&browser.get("/console").await, 200);
    let calm = overview().await;
    assert!(calm.contains("ELEVATED from 2 min, CRITICAL from 10 min"), "{calm}");
    assert!(
        calm.contains("ELEVATED from 50\u{202f}000 rows") && calm.contains("ELEVATED from 75 %, CRITICAL from 90 %")
    );
    assert!(!calm.contains("probe") && !calm.contains("▲"), "{calm}");

    server.health.update(|snapshot| {
        (snapshot.breaker, snapshot.breaker_probe_at) = ("open", Some(Timestamp::from_millis(NOW + 12_000)));
        (snapshot.inputs.saturation, snapshot.thresholds.saturation) = (0.5, (0.4, 0.6).into());
    });
    let open = overview().await;
    assert!(open.contains("the next probe is due <time") && open.contains(">in 12 s</time>"), "{open}");
    assert!(open.contains("50 %</strong> <span class=\"state watch\">"), "its own level: {open}");
    assert!(open.contains("ELEVATED from 40 %, CRITICAL from 60 %"), "{open}");
    server.health.update(|snapshot| snapshot.breaker_probe_at = Some(Timestamp::from_millis(NOW)));
    assert!(overview().await.contains("the next batch is the probe"));
    server.health.update(|snapshot| (snapshot.breaker, snapshot.breaker_probe_at) = ("half-open", None));
    assert!(overview().await.contains("a probe is under way"));
}

#[actix_web::test]
async fn the_overview_shows_what_consumers_did_and_their_lag_by_partition() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    assert!(browser.get("/console").await.text().contains("This instance reads no topic partition."));

    server.metrics.kafka_consumer_processed_count.inc_by(1_234);
    server.metrics.kafka_consumer_duplicate_count.inc_by(5);
    for (partition, records) in [("2", 0), ("10", 7), ("3", 41)] {
        server.metrics.kafka_consumer_lag.with(["order.events", partition]).set(records);
    }
    let text = page(&browser.get("/console").await, 200);

    assert!(
        text.contains("processed</a> <strong>1\u{202f}234<") && text.contains("duplicates</a> <strong>5<"),
        "{text}"
    );
    assert!(text.contains("Lag by partition: 2 of 3 partitions lag"), "{text}");
    let at = |partition: &str| text.find(&format!("id=\"lag-order.events-{partition}\"")).expect("it has a row");
    assert!(at("3") < at("10") && at("10") < at("2"), "the greatest lag first: {text}");
    assert!(text.contains("href=\"/actuator/metrics/kafka_consumer_lag\""), "{text}");
}

#[actix_web::test]
async fn the_tree_shows_strategies_budgets_and_only_what_a_search_matches() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let tree = browser.get("/console/actors").await.text();
    for expected in [
        "rest_for_one",
        "1 of 5 restarts in 30 s",
        "partitions",
        "<span>generation 2</span>",
        "<dt>Runs for</dt><dd>2 min</dd>",
    ] {
        assert!(tree.contains(expected), "{expected} is not in {tree}");
    }
    assert!(tree.find(">/relay</strong>") < tree.find(">partitions</strong>"), "a supervisor is above its children");
    let events = "href=\"/console/events?q=%22/relay/partition-worker-7%22\"";
    assert!(tree.contains(events), "the quoted path, because worker-70 has another one: {tree}");
    let found = browser.get("/console/actors?q=PANIC").await.text();
    assert!(found.contains("data-path=\"/relay/partition-worker-7\""), "{found}");
    let none = browser.get("/console/actors?q=nothing").await.text();
    assert!(none.contains("No actor matches") && none.contains("value=\"nothing\""), "{none}");
}

#[actix_web::test]
async fn outbox_tabs_count_rows_and_begin_with_what_needs_an_operator() {
    let server = TestServer::new();
    server
        .health
        .update(|snapshot| snapshot.depth = RowCounts { parked: 2, failed: 1, sent: 1_234, ..RowCounts::default() });
    let browser = Browser::log_in(&server).await;
    let text = browser.get("/console/outbox?status=FAILED").await.text();

    let at = |tab: &str| text.find(tab).unwrap_or_else(|| panic!("{tab} is not in {text}"));
    assert!(at("status=PARKED\">PARKED") < at("status=FAILED\" aria-current=\"page\">FAILED"));
    assert!(at("\">PENDING <") < at("\">SENT <"), "SENT is the last tab");
    assert!(text.contains("count bad\">2<") && text.contains("1\u{202f}234"), "{text}");
}

#[actix_web::test]
async fn a_refused_filter_keeps_its_text_and_the_frame() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    for (path, typed) in [
        ("/console/outbox?key=my%09order&type=A", "value=\"my\torder\""),
        ("/console/dlt?olderThan=soon", "value=\"soon\""),
    ] {
        let text = page(&browser.get(path).await, 400);
        assert!(text.contains(typed) && text.contains("must be") && text.contains("Logged in as"), "{text}");
    }
    let missing = page(&browser.get("/console/outbox/99").await, 404);
    assert!(missing.contains("Logged in as <strong>root</strong>") && missing.contains("aria-current=\"page\">Outbox"));
}

#[actix_web::test]
async fn selected_rows_are_counted_before_they_are_changed_together() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let list = browser.get("/console/outbox").await.text();
    assert!(
        list.contains("name=\"row\" value=\"2\"") && !list.contains("name=\"row\" value=\"1\""),
        "a sent row has no box"
    );

    let counted = browser.get("/console/outbox/bulk?row=2&row=3&row=1&row=2&action=retry").await.text();
    assert!(counted.contains("<strong>1</strong> of 3 selected rows can be changed by retry"), "{counted}");
    assert!(server.outbox.audits.lock().is_empty(), "counting changes nothing");
    let redrive = browser.get("/console/outbox/bulk?row=2&row=3&action=redrive").await.text();
    assert!(redrive.contains("<strong>1</strong> of 2"), "only parked rows are redriven: {redrive}");
    for query in ["row=2", "action=retry", "row=x&action=retry", "row=2&action=delete"] {
        page(&browser.get(&format!("/console/outbox/bulk?{query}")).await, 400);
    }

    let fields = [("action", "park"), ("row", "3"), ("row", "2"), ("reason", "later")];
    let done = browser.act("/console/outbox/bulk", &fields).await;
    assert!(done.contains("park: 1 row was changed. Not changed: row 2: it is PARKED now."), "{done}");
    page(&browser.send("/console/outbox/bulk", &[("action", "park"), ("row", "4")]).await, 400);
    let audits = server.outbox.audits.lock();
    assert_eq!(audits.iter().map(|audit| (&*audit.operator, &*audit.reason)).collect::<Vec<_>>(), [("root", "later")]);
    let announced = server.dispatch.announced.lock();
    let last = announced.last().expect("the action is on the live stream");
    assert!(last.0 == "operator_action" && last.1.contains(&("on", "rows 3".to_owned())), "{last:?}");
}

#[actix_web::test]
async fn selected_rows_are_redriven_and_audited_as_over_http() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;

    let done = browser.act("/console/outbox/bulk", &[("action", "redrive"), ("row", "2"), ("reason", "go")]).await;

    assert!(done.contains("redrive: 1 row was changed."), "{done}");
    assert_eq!(*server.outbox.redriven_rows.lock(), [2]);
}

#[actix_web::test]
async fn a_row_names_the_next_step_and_its_neighbours() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let parked = browser.get("/console/outbox/2").await.text();
    assert!(parked.contains("Its retries have stopped: refused."), "{parked}");
    assert!(parked.contains("posthaste outbox retry 2 --reason"), "{parked}");
    let blocked = browser.get("/console/outbox/3").await.text();
    assert!(blocked.contains("posthaste outbox retry 2 --reason"), "the head is retried: {blocked}");
    for neighbour in ["row 1", "row 2", "row 3", "row 4"] {
        assert!(blocked.contains(&format!(">{neighbour}</a>")), "{neighbour} is not in {blocked}");
    }
}

#[actix_web::test]
async fn the_audit_page_and_the_row_show_what_operators_did() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    assert!(browser.get("/console/audit").await.text().contains("No action of an operator matches."));
    browser.act("/console/outbox/2/retry", &[("reason", "the broker is back")]).await;

    let audit = page(&browser.get("/console/audit?by=root&action=retry").await, 200);
    assert!(audit.contains("the broker is back") && audit.contains("href=\"/console/outbox/2\""), "{audit}");
    assert!(browser.get("/console/audit?by=ann").await.text().contains("No action of an operator matches."));
    let refused = page(&browser.get("/console/audit?row=two").await, 400);
    assert!(refused.contains("value=\"two\"") && refused.contains("must be an integer"), "{refused}");
    let row = browser.get("/console/outbox/2").await.text();
    assert!(row.contains("root: retry (the broker is back)"), "{row}");
    assert!(row.contains("The event was deleted after its retention."), "{row}");
}

#[actix_web::test]
async fn events_are_sentences_and_filtered_by_severity_and_text() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    let all = browser.get("/console/events").await.text();
    assert!(all.contains("2026-01-31T11:59:59.120Z") && all.contains("? exited") && all.contains("warning"), "{all}");
    let errors = browser.get("/console/events?severity=error").await.text();
    assert!(!errors.contains("? exited") && errors.contains("data-severity=\"error\""), "{errors}");
    let third = browser.get("/console/events?q=%22n%22:3").await.text();
    assert!(third.contains("data-seq=\"3\"") && !third.contains("data-seq=\"2\""), "{third}");
    page(&browser.get("/console/events?severity=loud").await, 400);
}

#[actix_web::test]
async fn a_slow_reader_of_the_live_stream_gets_the_count_of_missed_events_before_its_end() {
    let server = TestServer::new();
    *server.dispatch.reader_is_slow.lock() = true;
    let browser = Browser::log_in(&server).await;

    let stream = server.send(get("/admin/events").insert_header(admin())).await.text();
    let console = browser.get("/console/events/stream").await.text();

    assert!(stream.ends_with("id: 29\nevent: lagged\ndata: {\"missed\":25}\n\n"), "{stream}");
    assert!(console.contains("id: 29\nevent: lagged\n") && console.contains("25 entries were missed"), "{console}");
    let document = server.send(get("/openapi.json")).await.json();
    let description = document["paths"]["/admin/events"]["get"]["description"].to_string();
    assert!(description.contains("`lagged`") && description.contains("missed"), "{description}");
}

/// A browser that holds the cookies of a session and moves to another process.
struct Cookies {
    pair: String,
}

impl Cookies {
    async fn of(browser: &Browser<'_>) -> Self {
        // The page after the log-in has set the ticket already, so a minute later there is a new one.
        browser.server.dispatch.clock.0.fetch_add(61_000, SeqCst);
        let reply = browser.get("/console").await;
        let ticket = reply.header("set-cookie").split(';').next().unwrap().to_owned();
        assert!(ticket.starts_with("posthaste_console_ticket="), "{ticket}");
        Self { pair: format!("{}; {ticket}", browser.cookie) }
    }

    async fn status(&self, server: &TestServer) -> u16 {
        server.send(get("/console/outbox").insert_header(("cookie", self.pair.as_str()))).await.status
    }
}

fn with_secret(secret: &str) -> TestConfig {
    let mut config = TestConfig::default();
    config.options.console_secret = Some(secret.into());
    config
}

#[actix_web::test]
async fn a_session_continues_after_a_restart_with_the_same_secret_only() {
    let first = TestServer::with_config(with_secret("one"));
    let browser = Browser::log_in(&first).await;
    let cookies = Cookies::of(&browser).await;
    // The next process starts a minute after the ticket was written.
    let later = |config| TestServer::starting_at(NOW + 120_000, config);

    assert_eq!(cookies.status(&later(with_secret("one"))).await, 200);
    assert_eq!(cookies.status(&later(with_secret("two"))).await, 303);
    assert_eq!(cookies.status(&later(TestConfig::default())).await, 303, "without a secret nothing continues");
    let idle = TestServer::starting_at(NOW + 61_000 + 15 * 60_000, with_secret("one"));
    assert_eq!(cookies.status(&idle).await, 303, "the session was idle for too long");

    let second = later(with_secret("one"));
    let moved = Browser { server: &second, cookie: cookies.pair.clone(), mark: browser.mark.clone() };
    let out = moved.send("/console/logout", &[]).await;
    assert_eq!((out.status, out.header("location")), (303, "/console/login"), "forms of an open page stay valid");
    assert_eq!(cookies.status(&second).await, 303, "a log-out is final");
    first.dispatch.clock.0.store(NOW + 62_000, SeqCst);
    browser.send("/console/logout", &[]).await;
    assert_eq!(cookies.status(&first).await, 303, "a ticket of this process does not count in it");
}

#[actix_web::test]
async fn no_session_continues_after_the_key_of_tokens_was_replaced() {
    let first = TestServer::with_config(with_secret("one"));
    let browser = Browser::log_in(&first).await;
    let cookies = Cookies::of(&browser).await;

    let source = KeySource::Secret("another secret, which signed no token".into());
    let second = TestServer::starting_at(NOW + 120_000, TestConfig { source, ..with_secret("one") });
    let reply = second.send(get("/console/outbox").insert_header(("cookie", cookies.pair.as_str()))).await;

    assert_eq!(reply.status, 303);
    assert!(reply.header("location").starts_with("/console/login"), "{}", reply.header("location"));
}

#[actix_web::test]
async fn browsers_are_led_from_the_root_to_the_console_and_programs_are_not() {
    let server = TestServer::new();
    let accept = |value: &'static str| get("/").insert_header(("accept", value));
    let browser = server.send(accept("text/html,application/xhtml+xml,*/*;q=0.8")).await;
    assert_eq!((browser.status, browser.header("location")), (303, "/console"));

    for program in [get("/"), accept("*/*"), accept("application/json"), accept("text/html, application/json")] {
        server.send(program).await.problem(404, "NOT_FOUND");
    }
    let post = TestRequest::post().uri("/").insert_header(("accept", "text/html"));
    server.send(post).await.problem(404, "NOT_FOUND");
    server.send_to(api::Surface::Public, accept("text/html")).await.problem(404, "NOT_FOUND");
}

#[actix_web::test]
async fn an_injected_fault_is_on_the_live_stream_with_its_operator() {
    let server = TestServer::new();
    let browser = Browser::log_in(&server).await;
    browser.act("/console/actors/fault", &[("path", "/consumer-0"), ("action", "pause")]).await;
    assert_eq!(server.dispatch.faults.lock()[0].1, InjectedFault::Pause);
    let announced = server.dispatch.announced.lock();
    assert!(
        announced
            .iter()
            .any(|(event, fields)| *event == "operator_action" && fields.contains(&("by", "root".to_owned())))
    );
}
