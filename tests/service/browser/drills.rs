//! Actions of operators in the console: kill an actor, park and retry a row, change several rows, redrive a dead letter.
use std::time::Duration;

use kit::wait::until;

use super::operator_page::OperatorPage;
use crate::harness::actors;
use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

const WORKER: &str = "/relay/partition-worker-7";
const PUBLISHER: &str = "/relay/outbox-publisher";

/// Injects a fault through the buttons of an opened actor.
fn inject(page: &mut OperatorPage, path: &str, fault: &str) {
    page.open(&format!("/console/actors?q={path}"));
    let row = format!("details[data-path=\"{path}\"]");
    page.wait_for("the actor is shown", &format!("!!document.querySelector('{row}')"));
    let hidden = format!("!document.querySelector('{row} button[value={fault}]').checkVisibility()");
    assert_eq!(page.evaluate(&hidden), true, "the buttons are only in an opened row");
    page.click(&format!("{row} > summary"));
    page.wait_for(
        "the buttons are shown",
        &format!("document.querySelector('{row} button[value={fault}]').checkVisibility()"),
    );
    page.click(&format!("{row} button[value={fault}]"));
    page.wait_for_text(&format!("{path}: {fault} was injected."));
}

/// A run that the publisher requested before its pause may still claim the next row.
fn await_idle_workers(service: &Posthaste) {
    until("no run is left", Duration::from_secs(10), || {
        let tree = service.http.get("/admin/actors", Some(&service.http.admin())).json();
        let actors = tree["actors"].as_array().expect("actors");
        let mut workers = actors.iter().filter(|actor| actor["actor"] == "PartitionWorker");
        workers.all(|worker| worker["mailboxDepth"] == 0).then_some(())
    });
}

/// The path of the page of an order's first row.
fn row_of(page: &mut OperatorPage, key: &str) -> String {
    page.open(&format!("/console/outbox?key={key}"));
    page.wait_for("the row is listed", "!!document.querySelector('tbody th a')");
    page.evaluate("document.querySelector('tbody th a').getAttribute('href')").as_str().expect("a path").to_owned()
}

#[test]
fn a_killed_worker_is_shown_with_its_next_generation() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let Some(mut page) = OperatorPage::log_in("a_killed_worker_is_shown_with_its_next_generation", &service) else {
        return;
    };

    inject(&mut page, WORKER, "panic");

    page.open(&format!("/console/actors?q={WORKER}"));
    let row = format!("document.querySelector('details[data-path=\"{WORKER}\"]')?.innerText ?? ''");
    page.wait_for("the second generation runs", &format!("/running[^]*generation 2[^]*1 restart/.test({row})"));
    page.open("/console");
    page.wait_for("the cause is counted", "/panic\\s+1/.test(document.body.innerText)");
    page.open("/console/events?event=child_exited");
    page.wait_for_text(&format!("{WORKER} panicked"));
}

#[test]
fn events_and_numbers_appear_without_a_reload() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let Some(mut page) = OperatorPage::log_in("events_and_numbers_appear_without_a_reload", &service) else { return };
    page.evaluate("window.unchanged = true");
    service.http.post("/orders", &service.http.user(), &[], &tea_order(1));
    page.wait_for("the overview counts the sent row", "/SENT\\s+1/.test(document.body.innerText)");
    assert_eq!(page.evaluate("window.unchanged"), true, "the page was not loaded again");

    page.open("/console/events");
    page.wait_for("the stream is read", "document.getElementById('stream').textContent === 'live'");
    page.evaluate("window.unchanged = true");
    actors::inject(&service, "/consumer-0", "panic");
    page.wait_for_text("/consumer-0 panicked");
    page.wait_for_text("/consumer-0 is back as generation 2");
    assert_eq!(page.evaluate("window.unchanged"), true, "the page was not loaded again");
}

#[test]
fn a_row_is_parked_retried_and_sent_from_the_browser() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let Some(mut page) = OperatorPage::log_in("a_row_is_parked_retried_and_sent_from_the_browser", &service) else {
        return;
    };
    inject(&mut page, PUBLISHER, "pause");
    await_idle_workers(&service);
    let order = service.http.post("/orders", &service.http.user(), &[], &tea_order(1)).json();
    let row = row_of(&mut page, order["id"].as_str().expect("an id"));
    page.open(&row);

    page.act("form[action$=park]", "inspect first", "park succeeded");
    page.wait_for_text("■ PARKED");
    page.wait_for_text("root: park (inspect first)");
    // The list of parked rows, with one selected: a second page counts before it changes.
    page.open("/console/outbox?status=PARKED");
    page.click("input[name=row]");
    page.click("button[value=redrive]");
    page.wait_for_text("1 of 1 selected row can be changed by redrive. Nothing was changed.");
    page.act("form[action$=bulk]", "inspected", "redrive: 1 row was changed.");
    inject(&mut page, PUBLISHER, "resume");

    page.open(&row);
    page.wait_for_text("● SENT");
    page.open(&row);
    page.wait_for_text("\"eventType\": \"ORDER_CREATED\"");
    page.wait_for_text("root: redrive (inspected)");
}

#[test]
fn a_dead_letter_is_read_and_redriven_from_the_browser() {
    let backend = Backend::new();
    let service = Posthaste::start(&backend, &[]);
    let Some(mut page) = OperatorPage::log_in("a_dead_letter_is_read_and_redriven_from_the_browser", &service) else {
        return;
    };
    backend.append_record("order.events", "019a9c1e-7b1a-7c3e-9d55-2f6b1c0a4e11", "{\"schemaVersion\":99}");
    page.wait_for(
        "the overview asks for attention",
        "document.querySelector('.banner.bad')?.innerText.includes('dead letter')",
    );

    page.click(".banner a[href='/console/dlt']");
    page.wait_for("the dead letter is listed", "!!document.querySelector('tbody th a')");
    page.click("tbody th a");
    page.wait_for_text("\"schemaVersion\": 99");
    page.wait_for_text("kafka_original-offset");
    page.act("form[action$=redrive]", "the schema is known now", "was sent back to its topic");
    page.wait_for_text("sent back by root");

    page.open("/console/dlt");
    // The record failed again, so one dead letter waits; the redriven one is listed separately.
    page.wait_for(
        "the one that was sent back is listed separately",
        "document.querySelector('.card.done')?.innerText.includes('sent back by root')",
    );
}
