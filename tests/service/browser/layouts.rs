//! Every page on a phone and on a wide screen, light and dark: nothing is cut off, axe-core has no serious finding, and a screenshot of
//! each is kept below `target/tmp/console`. With `POSTHASTE_WRITE_DOCS` the screenshot in the README is written too.
use std::path::{Path, PathBuf};

use serde_json::json;

use super::operator_page::OperatorPage;
use crate::harness::actors;
use crate::harness::backend::Backend;
use crate::harness::http::tea_order;
use crate::harness::process::Posthaste;

/// axe-core, the accessibility checker. It is unchanged and under the Mozilla Public License 2.0.
const AXE: &str = include_str!("axe.min.js");
const RUN_AXE: &str = "axe.run({resultTypes: ['violations']}).then(({violations}) => violations
    .filter(({impact}) => impact === 'serious' || impact === 'critical')
    .map(({id, nodes}) => id + ': ' + nodes.slice(0, 3).map((node) => node.target + ' ' + node.failureSummary).join(' | ')))";
const OVERFLOW: &str = "document.documentElement.scrollWidth - document.documentElement.clientWidth";

/// A service with sent rows, an actor that was restarted, and dead letters of two topics.
fn service(backend: &Backend) -> Posthaste {
    let service = Posthaste::start(backend, &[("POSTHASTE__TOPICS__INVOICES__FALLBACK", "dead-letter")]);
    for number in 1..=12 {
        service.http.post("/orders", &service.http.user(), &[], &tea_order(number));
    }
    backend.append_record("order.events", "019a9c1e-7b1a-7c3e-9d55-2f6b1c0a4e11", "{\"schemaVersion\":99}");
    backend.append_record("invoices-dlt", "7", "{}");
    actors::inject(&service, "/relay/partition-worker-7", "panic");
    service
}

fn screenshot_folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    folder
}

#[test]
fn every_page_fits_phones_and_wide_screens_and_is_accessible() {
    let backend = Backend::new();
    let service = service(&backend);
    let Some(mut page) = OperatorPage::log_in("every_page_fits_phones_and_wide_screens_and_is_accessible", &service)
    else {
        return;
    };
    page.open("/console/dlt");
    page.wait_for_text("dead letter, the newest");
    let dead_letter = page.evaluate("document.querySelector('tbody th a').getAttribute('href')");
    let dead_letter = dead_letter.as_str().expect("a path");
    let endpoint = json!({"url": "https://example.org/hooks", "topics": ["order.events"], "active": false});
    let webhook = service.http.post("/webhooks", &service.http.admin(), &[], &endpoint).json();
    let webhook = format!("/console/webhooks/{}", webhook["id"].as_str().expect("an id"));
    let [change, delete, dead_letters] = ["change", "delete", "dead-letters"].map(|page| format!("{webhook}/{page}"));
    let pages = [
        ("overview", "/console"),
        ("actors", "/console/actors"),
        ("actor", "/console/actors/relay/partition-worker-7"),
        ("outbox", "/console/outbox"),
        ("partition", "/console/outbox?partition=7"),
        ("matching-rows", "/console/outbox/matching?action=park&status=FAILED"),
        ("row", "/console/outbox/1"),
        ("redrive", "/console/outbox/redrive"),
        ("dead-letters", "/console/dlt"),
        ("dead-letter", dead_letter),
        ("dead-letters-of-a-topic", "/console/dlt?topic=invoices"),
        ("events", "/console/events"),
        ("webhooks", "/console/webhooks"),
        ("webhook", &webhook),
        ("new-webhook", "/console/webhooks/new"),
        ("changed-webhook", &change),
        ("deleted-webhook", &delete),
        ("webhook-dead-letters", &dead_letters),
        ("audit", "/console/audit"),
        ("refused", "/console/outbox?key=no%09key"),
        ("error", "/console/nowhere"),
    ];
    let folder = screenshot_folder();
    let mut findings = Vec::new();
    for (width, dark) in [(1440, false), (1440, true), (390, false), (390, true)] {
        page.show_as(width, dark);
        for (name, path) in pages {
            page.open(path);
            let scheme = if dark { "dark" } else { "light" };
            let variant = format!("{name}-{width}-{scheme}");
            page.screenshot(&folder.join(format!("{variant}.png")));
            if page.evaluate(OVERFLOW) != 0 {
                findings.push(format!("{variant} is wider than its window"));
            }
            // Colours differ between the schemes and the layout between the sizes: two of the four combinations cover both.
            if dark == (width == 390) {
                page.evaluate(AXE);
                let found = page.evaluate(RUN_AXE);
                findings
                    .extend(found.as_array().expect("a list").iter().map(|finding| format!("{variant}: {finding}")));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    if std::env::var_os("POSTHASTE_WRITE_DOCS").is_some() {
        for number in 1..=400 {
            service.http.post("/orders", &service.http.user(), &[], &tea_order(number));
            kit::wait::pause(std::time::Duration::from_millis(u64::from(40 + 60 * (number / 50 % 3))));
        }
        page.show_as(1440, false);
        page.open("/console");
        page.screenshot(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/console.png"));
    }
}
